//! Tensors of model files in memory: `.safetensors` (also with an index), GGUF, `.npy` and `.npz`, on the host and in images.
//!
//! Where it sits: an application of the library, as copies are. [`TensorFiles`] reads headers only; [`TensorFiles::load`] moves the data.
//!
//! Data moves from the disk into its place: one arena on huge pages, one queue over all files, no copy. Files that the host has in its page cache
//! are mapped instead. Headers are checked before memory is allocated: a hostile file is an error that names the file, the tensor and the cause.

mod dtype;
mod error;
mod files;
mod format;
mod header;
mod load;
mod plan;
mod reading;
mod source;
mod tensor;

pub use dtype::{BlockType, Dtype};
pub use error::{Damage, LoadError, Place, Result, Unsupported};
pub use files::TensorFiles;
pub use load::{Plan, Report, Tensor, Tensors, Watch};
pub use tensor::{Order, TensorInfo};

/// Longest header that is read, as in the readers of `safetensors`.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// A value that a header has beside the tensors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A whole number.
    Integer(i128),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
}
