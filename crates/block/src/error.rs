//! Errors of transfers, with their coordinates.

use std::io;

use crate::{Op, Sector};

/// A failed transfer: the operation, its range and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{op} of {len} bytes at byte {} of {device}: {kind}", sector.to_bytes())]
pub struct IoError {
    /// The name of the device.
    pub device: String,
    /// The operation.
    pub op: Op,
    /// First sector of the transfer that failed.
    pub sector: Sector,
    /// Length of that transfer in bytes.
    pub len: u64,
    /// The reason.
    #[source]
    pub kind: IoErrorKind,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The operating system or the medium refused.
    #[error("{0}")]
    Device(io::Error),
    /// Offset, length or memory is not aligned as the device needs.
    #[error("{what} {given} is not a multiple of {needed}")]
    Misaligned {
        /// `"offset"`, `"length"` or `"memory address"`.
        what: &'static str,
        /// The number.
        given: u64,
        /// The alignment.
        needed: u32,
    },
    /// The range reaches beyond the end of the device.
    #[error("beyond the end of the device, which has {capacity} bytes")]
    OutOfRange {
        /// Size of the device in bytes.
        capacity: u64,
    },
    /// The device was opened read-only.
    #[error("the device is open read-only")]
    ReadOnly,
    /// The device ended within the transfer.
    #[error("only {done} bytes were transferred")]
    Short {
        /// Bytes that were moved.
        done: u64,
    },
    /// The device does not support this operation.
    #[error("not supported by the device")]
    Unsupported,
    /// The device was shut down, or lost its power in a simulation.
    #[error("the device is gone")]
    Gone,
}

impl IoErrorKind {
    /// The `errno` for a program. A device's own errors become `EIO`: their numbers are answers of filesystems, such as the `ENODATA`
    /// of an unreadable sector. ENOSPC of the host and errors about the caller keep their number.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => match error.raw_os_error() {
                Some(
                    number @ (libc::EFAULT | libc::EFBIG | libc::ENOSPC | libc::EDQUOT | libc::ECANCELED),
                ) => number,
                _ => libc::EIO,
            },
            Self::Misaligned { .. } => libc::EINVAL,
            Self::OutOfRange { .. } | Self::Short { .. } => libc::EIO,
            Self::ReadOnly => libc::EROFS,
            Self::Unsupported => libc::EOPNOTSUPP,
            Self::Gone => libc::ENODEV,
        }
    }

    /// The same kind once more: one failed request is reported to each of its bios.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        match self {
            Self::Device(error) => Self::Device(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            }),
            Self::Misaligned { what, given, needed } => {
                Self::Misaligned { what, given: *given, needed: *needed }
            }
            Self::OutOfRange { capacity } => Self::OutOfRange { capacity: *capacity },
            Self::ReadOnly => Self::ReadOnly,
            Self::Short { done } => Self::Short { done: *done },
            Self::Unsupported => Self::Unsupported,
            Self::Gone => Self::Gone,
        }
    }
}
