//! DLPack: tensors for other libraries of the same process.
//!
//! Where it sits: below `tensors.rs`. Source of the layout: `dlpack.h` 1.1 and the specification for Python.
//!
//! Safety policy: an export owns its tensor, whose memory lives as long as the export. The consumer of a capsule calls the deleter once; a capsule
//! without a consumer calls it when it is destroyed. The deleter frees the export and needs no interpreter.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use diorite_load::{Dtype, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Memory of the CPU.
pub(crate) const CPU: (i32, i32) = (1, 0);
const PLAIN_NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

/// `DLDataType`: a kind, its bits, and the lanes of a vector.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Element {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Plain {
    data: *mut c_void,
    device: (i32, i32),
    dimensions: i32,
    element: Element,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Plain,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Plain,
}

const _: () = assert!(size_of::<Plain>() == 48 && size_of::<Managed>() == 64 && size_of::<Versioned>() == 80);

/// What an export shows.
pub(crate) struct Exported {
    /// Keeps the memory.
    pub(crate) tensor: Tensor,
    pub(crate) address: *mut c_void,
    pub(crate) element: Element,
    pub(crate) shape: Vec<u64>,
    /// In elements; none in order C.
    pub(crate) strides: Option<Vec<u64>>,
}

/// A structure of DLPack with what it refers to.
struct Export<T> {
    managed: T,
    _shape: Box<[i64]>,
    _strides: Box<[i64]>,
    _tensor: Tensor,
}

/// Refuse a request for another device or a copy.
pub(crate) fn check_request(device: Option<(i32, i32)>, copy: Option<bool>) -> PyResult<()> {
    if device.is_some_and(|device| device != CPU) {
        return Err(PyBufferError::new_err("the tensor is in memory of the CPU; move it after the export"));
    }
    if copy == Some(true) {
        return Err(PyBufferError::new_err("the export shares the memory; copy it after the export"));
    }
    Ok(())
}

/// The element of a dtype. Types of one byte that DLPack has since 1.1, and quantized types, are bytes.
pub(crate) fn element(dtype: &Dtype, max_version: Option<(u32, u32)>) -> PyResult<Element> {
    let has_small_floats = max_version.is_some_and(|version| version >= (1, 1));
    let (code, bits) = match dtype {
        Dtype::Int(bits) => (0, *bits),
        Dtype::Uint(bits) => (1, *bits),
        Dtype::Float(bits) => (2, *bits),
        Dtype::BFloat16 => (4, 16),
        Dtype::Complex(bits) => (5, *bits),
        Dtype::Bool => (6, 8),
        Dtype::F8E4M3 if has_small_floats => (10, 8),
        Dtype::F8E5M2 if has_small_floats => (12, 8),
        Dtype::F8E8M0 if has_small_floats => (14, 8),
        Dtype::Numpy { descr, .. } => {
            let message = format!("DLPack has no dtype {descr}; use framework=\"numpy\"");
            return Err(PyBufferError::new_err(message));
        }
        _ => (1, 8),
    };
    Ok(Element { code, bits: bits as u8, lanes: 1 })
}

/// The steps from one element to the next in each dimension. The first dimension varies first, with steps of `first`.
pub(crate) fn strides_of<'s>(shape: impl Iterator<Item = &'s u64>, first: u64) -> Vec<u64> {
    let mut next = first;
    let step = |len: &u64| {
        let step = next;
        next = step.saturating_mul(*len);
        step
    };
    shape.map(step).collect()
}

/// A capsule with the tensor, in the newest layout that the consumer knows.
pub(crate) fn capsule(
    py: Python<'_>,
    exported: Exported,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let signed = |lengths: &[u64]| lengths.iter().map(|len| *len as i64).collect::<Box<[i64]>>();
    let mut shape = signed(&exported.shape);
    let strides = exported.strides.unwrap_or_else(|| {
        let mut strides = strides_of(exported.shape.iter().rev(), 1);
        strides.reverse();
        strides
    });
    let mut strides = signed(&strides);
    let tensor = Plain {
        data: exported.address,
        device: CPU,
        dimensions: shape.len() as i32,
        element: exported.element,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let owner = std::ptr::null_mut();
    if max_version.is_some_and(|version| version >= (1, 0)) {
        let managed = Versioned { version: [1, 1], owner, deleter: Some(delete_versioned), flags: 0, tensor };
        let export = Export { managed, _shape: shape, _strides: strides, _tensor: exported.tensor };
        return new_capsule(py, Box::new(export), VERSIONED_NAME, destroy_versioned);
    }
    let managed = Managed { tensor, owner, deleter: Some(delete_plain) };
    let export = Export { managed, _shape: shape, _strides: strides, _tensor: exported.tensor };
    new_capsule(py, Box::new(export), PLAIN_NAME, destroy_plain)
}

trait OwnExport: Sized {
    fn set_owner(&mut self, owner: *mut c_void);
}

impl OwnExport for Managed {
    fn set_owner(&mut self, owner: *mut c_void) {
        self.owner = owner;
    }
}

impl OwnExport for Versioned {
    fn set_owner(&mut self, owner: *mut c_void) {
        self.owner = owner;
    }
}

fn new_capsule<'py, T: OwnExport>(
    py: Python<'py>,
    export: Box<Export<T>>,
    name: &'static CStr,
    destroy: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyCapsule>> {
    let export = Box::into_raw(export);
    // SAFETY: the export was just made, and nothing else refers to it. The capsule gets its only pointer.
    let capsule = unsafe {
        (*export).managed.set_owner(export.cast());
        ffi::PyCapsule_New((&raw mut (*export).managed).cast(), name.as_ptr(), Some(destroy))
    };
    if capsule.is_null() {
        // SAFETY: no capsule has it.
        drop(unsafe { Box::from_raw(export) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference to a capsule.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule).cast_into_unchecked() })
}

/// # Safety
/// `managed` must be that of an export, which is not used afterwards.
unsafe extern "C" fn delete_plain(managed: *mut Managed) {
    // SAFETY: promised by the caller; the owner is the box that `new_capsule` made.
    drop(unsafe { Box::from_raw((*managed).owner.cast::<Export<Managed>>()) });
}

/// # Safety
/// As [`delete_plain`].
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: as above.
    drop(unsafe { Box::from_raw((*managed).owner.cast::<Export<Versioned>>()) });
}

/// The structure of a capsule that no consumer took: a consumer changes the name.
///
/// # Safety
/// `capsule` must be a capsule.
unsafe fn unused(capsule: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: promised by the caller.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 0 {
            return None;
        }
        NonNull::new(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()))
    }
}

/// # Safety
/// Called by the interpreter with a capsule of [`PLAIN_NAME`] that it destroys.
unsafe extern "C" fn destroy_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer is that of `new_capsule`, and no consumer took it.
    unsafe {
        if let Some(managed) = unused(capsule, PLAIN_NAME) {
            delete_plain(managed.as_ptr().cast());
        }
    }
}

/// # Safety
/// As [`destroy_plain`], of [`VERSIONED_NAME`].
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if let Some(managed) = unused(capsule, VERSIONED_NAME) {
            delete_versioned(managed.as_ptr().cast());
        }
    }
}
