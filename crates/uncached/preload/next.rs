//! The functions that this library replaces, in the next library.

use core::ffi::{CStr, c_void};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const core::ffi::c_char) -> *mut c_void;
}

/// The address of a function in the libraries after this one; null if none has it.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    // SAFETY: the name is a string of C.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}

/// The function `$name` of the next library, as an `Option`. The type is that of the C library's header.
macro_rules! next {
    ($name:expr, fn($($argument:ty),*) -> $result:ty) => {{
        static NEXT: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
            core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
        let mut found = NEXT.load(core::sync::atomic::Ordering::Relaxed);
        if found.is_null() {
            found = $crate::next::find($name);
            NEXT.store(found, core::sync::atomic::Ordering::Relaxed);
        }
        // SAFETY: a null pointer is `None`; else it is a function of this type.
        unsafe {
            core::mem::transmute::<*mut core::ffi::c_void, Option<unsafe extern "C" fn($($argument),*) -> $result>>(found)
        }
    }};
}

/// Call the function `$name` of the next library. It exists in each C library that programs of this host use; else the result is `ENOSYS`.
macro_rules! call_next {
    ($name:expr, fn($($argument:ty),*) -> $result:ty, $($value:expr),*) => {
        match $crate::next::next!($name, fn($($argument),*) -> $result) {
            // SAFETY: the caller of the exported function answers for its arguments.
            Some(function) => unsafe { function($($value),*) },
            None => $crate::sys::c_result($crate::sys::ENOSYS) as $result,
        }
    };
}

/// Export a function of the C library. In its body, `$next` is a closure that calls the function of the next library with the same arguments.
macro_rules! exported {
    ($(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, |$next:ident| $body:expr) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            const NAME: &core::ffi::CStr = $crate::next::name(concat!(stringify!($name), "\0"));
            let $next = || $crate::next::call_next!(NAME, fn($($type),*) -> $result, $($argument),*);
            $body
        }
    };
}

/// Export a second name of a function that is exported.
macro_rules! also {
    (fn $name:ident = $other:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the same arguments.
            unsafe { $other($($argument),*) }
        }
    };
}

/// A name from its text with a NUL byte.
pub(crate) const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

pub(crate) use {also, call_next, exported, next};
