//! Functions return 0 or a count, and a negative error number (`-ENOENT`) if they fail. The last failure of each thread also has a
//! message and a kind. As with `errno`, a successful call does not change them.
//!
//! Safety policy: this module has no unsafe block.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use diorite::{Error, ErrorKind};

/// Kinds of errors.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum diorite_kind {
    /// No call of this thread has failed.
    None = 0,
    /// No such file or directory (ENOENT).
    NotFound = 1,
    /// No extended attribute of that name (ENODATA).
    NoAttribute = 2,
    /// The name or attribute exists (EEXIST).
    AlreadyExists = 3,
    /// The file is not a directory (ENOTDIR).
    NotADirectory = 4,
    /// The file is a directory (EISDIR).
    IsADirectory = 5,
    /// The directory has entries (ENOTEMPTY).
    DirectoryNotEmpty = 6,
    /// No free block or inode (ENOSPC).
    StorageFull = 7,
    /// A quota limit is reached (EDQUOT).
    QuotaExceeded = 8,
    /// The file would be too large (EFBIG).
    FileTooLarge = 9,
    /// The volume, the device or the file is read-only, possibly after a failed write (EROFS).
    ReadOnly = 10,
    /// Not permitted (EPERM, EACCES).
    PermissionDenied = 11,
    /// The argument is invalid for this object (EINVAL).
    InvalidInput = 12,
    /// A direct transfer is not aligned (EINVAL).
    InvalidAlignment = 13,
    /// Not available on this file, volume or device (EOPNOTSUPP).
    Unsupported = 14,
    /// The volume is damaged, or the target is not a volume (EUCLEAN).
    Corrupt = 15,
    /// In use, here or by another program or host (EBUSY).
    Busy = 16,
    /// The file ended early (EIO).
    UnexpectedEnd = 17,
    /// The content does not have the requested encoding (EILSEQ).
    InvalidData = 18,
    /// A queue is full, or a call with NOWAIT would wait (EAGAIN).
    WouldBlock = 19,
    /// Too many symbolic links (ELOOP).
    FilesystemLoop = 20,
    /// The file is not open for this access (EBADF).
    NotOpen = 21,
    /// No hole or no data at or after the offset (ENXIO).
    BeyondEnd = 22,
    /// The device failed, or the volume is shut down after such a failure (EIO).
    Io = 23,
    /// None of these; the error number says which.
    Other = 24,
    /// A bug of this library (ENOTRECOVERABLE). The handle can only be closed.
    Bug = 25,
}

impl From<ErrorKind> for diorite_kind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::NoAttribute => Self::NoAttribute,
            ErrorKind::AlreadyExists => Self::AlreadyExists,
            ErrorKind::NotADirectory => Self::NotADirectory,
            ErrorKind::IsADirectory => Self::IsADirectory,
            ErrorKind::DirectoryNotEmpty => Self::DirectoryNotEmpty,
            ErrorKind::StorageFull => Self::StorageFull,
            ErrorKind::QuotaExceeded => Self::QuotaExceeded,
            ErrorKind::FileTooLarge => Self::FileTooLarge,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::InvalidInput => Self::InvalidInput,
            ErrorKind::InvalidAlignment => Self::InvalidAlignment,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::UnexpectedEof => Self::UnexpectedEnd,
            ErrorKind::InvalidData => Self::InvalidData,
            ErrorKind::WouldBlock => Self::WouldBlock,
            ErrorKind::FilesystemLoop => Self::FilesystemLoop,
            ErrorKind::NotOpen => Self::NotOpen,
            ErrorKind::BeyondEnd => Self::BeyondEnd,
            ErrorKind::Io => Self::Io,
            _ => Self::Other,
        }
    }
}

/// The reason of a failed call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library.
    Library(Error),
    /// An invalid call: an error number and a text.
    Call(c_int, &'static str),
    /// A panic and its text.
    Bug(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl Failure {
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Self::Library(error) => error.errno(),
            Self::Call(errno, _) => *errno,
            Self::Bug(_) => libc::ENOTRECOVERABLE,
        }
    }

    fn kind(&self) -> diorite_kind {
        match self {
            Self::Library(error) => error.kind().into(),
            Self::Call(errno, _) => ErrorKind::from_errno(*errno).into(),
            Self::Bug(_) => diorite_kind::Bug,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Library(error) if error.kind() == ErrorKind::InvalidAlignment => {
                format!("{error}; diorite_set_bounce makes a file accept any alignment")
            }
            Self::Library(error) if matches!(error.without_path(), Error::HasContent(_)) => {
                format!("{error}; DIORITE_MKFS_OVERWRITE overwrites it")
            }
            Self::Library(error) => error.to_string(),
            Self::Call(_, text) => (*text).to_owned(),
            Self::Bug(text) => format!("a bug of libdiorite, please report it: {text}"),
        }
    }
}

/// The last failure of a thread. The message is formatted on request.
struct Last {
    failure: Option<Failure>,
    message: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { failure: None, message: None }) };
}

/// Keep a failure for this thread.
pub(crate) fn note(failure: Failure) {
    // An exiting thread no longer has thread-local storage.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { failure: Some(failure), message: None });
}

/// One line about the last failure of this thread: the object, what happened, why, and what to do. Empty if nothing failed.
/// The string is valid until the next call of this thread into the library.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_error_message() -> *const c_char {
    let message = LAST.try_with(|last| {
        let last = &mut *last.borrow_mut();
        let Some(failure) = &last.failure else { return c"".as_ptr() };
        last.message.get_or_insert_with(|| one_line(&failure.message())).as_ptr()
    });
    message.unwrap_or(c"".as_ptr())
}

/// Escape newlines and NULs, which file names may have.
fn one_line(text: &str) -> CString {
    let text = text.replace('\0', "\\0").replace('\n', "\\n");
    CString::new(text).unwrap_or_default()
}

/// The kind of the last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_error_kind() -> diorite_kind {
    LAST.try_with(|last| last.borrow().failure.as_ref().map_or(diorite_kind::None, Failure::kind))
        .unwrap_or(diorite_kind::None)
}

/// The version of the library at run time: `"0.1.0"`.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
