//! Errors of loading, with the file and the tensor.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::HEADER_BYTES_MAX;

/// Result of this crate.
pub type Result<T, E = LoadError> = std::result::Result<T, E>;

/// Why tensors are not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be opened or read.
    #[error(transparent)]
    File(#[from] diorite::Error),
    /// A file of tensors is damaged.
    #[error("{place}: {damage}; copy or download the file again")]
    Damaged {
        /// The file and the tensor.
        place: Place,
        /// The damage.
        damage: Damage,
    },
    /// The file has a form that is not read.
    #[error("{place}: {what}")]
    Unsupported {
        /// The file and the tensor.
        place: Place,
        /// What is not supported, and the remedy.
        what: Unsupported,
    },
    /// No tensor has a name that was asked for.
    #[error("{name}: no tensor of {file} has this name or fits this pattern; list the names from the header")]
    UnknownName {
        /// The name or pattern.
        name: String,
        /// The first file.
        file: String,
    },
    /// There is no memory for the tensors.
    #[error("no memory for {bytes} bytes of tensors: {source}; load fewer names at a time")]
    Memory {
        /// The bytes.
        bytes: u64,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The caller's watch ended the load.
    #[error("the load was interrupted")]
    Interrupted,
}

/// A file, and a tensor in it if the error is about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The tensor.
    pub tensor: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match &self.tensor {
            Some(tensor) => write!(f, ": tensor {}", shortened(tensor)),
            None => Ok(()),
        }
    }
}

/// A name from a file, for a message: without control characters, and not longer than a line.
fn shortened(name: &str) -> String {
    const CHARACTERS_MAX: usize = 100;
    let mut text: String = name.chars().take(CHARACTERS_MAX).collect::<String>().escape_debug().collect();
    if name.chars().nth(CHARACTERS_MAX).is_some() {
        text.push_str("...");
    }
    text
}

/// The damage of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The header is longer than the file.
    #[error("the header reaches byte {end}, and the file has {size}")]
    HeaderBeyondEnd {
        /// First byte after the header.
        end: u64,
        /// Size of the file.
        size: u64,
    },
    /// The header is too long.
    #[error("the header has {bytes} bytes, and at most {HEADER_BYTES_MAX} are read")]
    LongHeader {
        /// Length of the header.
        bytes: u64,
    },
    /// The header is not JSON of the right form.
    #[error("the header is not valid: {0}")]
    Json(String),
    /// A part of the header has an impossible value.
    #[error("{field} is {value}: {rule}")]
    Field {
        /// The part.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A part of the header has the wrong form.
    #[error("{0}")]
    Form(&'static str),
    /// A type of elements that the format does not have.
    #[error("the type {} is unknown", shortened(.0))]
    Type(String),
    /// A name is used twice.
    #[error("the name {} is used twice", shortened(.0))]
    Twice(String),
    /// The name is also in another file.
    #[error("a tensor of {} has the same name", .0.display())]
    TwiceInFiles(PathBuf),
    /// The number of bytes does not fit a 63-bit number.
    #[error("the shape has more than 2^63 bytes")]
    Overflow,
    /// The tensor reaches beyond the end of the file.
    #[error("the data reaches byte {end}, and the file has {size}")]
    BeyondEnd {
        /// First byte after the data.
        end: u64,
        /// Size of the file.
        size: u64,
    },
    /// The range of bytes has not the length that shape and type need.
    #[error("shape and type need {needed} bytes, and there are {given}")]
    Length {
        /// Bytes of shape and type.
        needed: u64,
        /// Bytes of the range.
        given: u64,
    },
    /// Two ranges overlap.
    #[error("the data overlaps that of {}", shortened(.0))]
    Overlap(String),
    /// Bytes belong to no tensor, in a format without gaps.
    #[error("bytes {start} to {end} belong to no tensor")]
    Gap {
        /// First byte.
        start: u64,
        /// First byte after the gap.
        end: u64,
    },
    /// The directory of a zip archive is not valid.
    #[error("the zip archive is not valid: {0}")]
    Zip(String),
    /// The checksum of an archive's member is wrong.
    #[error("the checksum of the data is {computed:08x}, and the archive has {stored:08x}")]
    Checksum {
        /// Of the data.
        computed: u32,
        /// In the archive.
        stored: u32,
    },
    /// Compressed data cannot be decompressed.
    #[error("the compressed data is not valid")]
    Compressed,
    /// A tensor of the index is not in its file.
    #[error("the index names it, and {} does not have it", .0.display())]
    NotInShard(PathBuf),
    /// An index names a file outside of its directory.
    #[error("the index names the file {}, which is not a plain name", shortened(.0))]
    ShardName(String),
}

/// What is not supported, and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The format is unknown.
    #[error("neither .safetensors, GGUF, .npy nor .npz; convert it")]
    Format,
    /// A zip archive without arrays.
    #[error("a zip archive without .npy members (a checkpoint of torch?); convert it to .safetensors")]
    NoArrays,
    /// Python objects.
    #[error(
        "an array of Python objects needs pickle, which runs code from the file; save it with a plain dtype"
    )]
    Objects,
    /// An old or new version of the format.
    #[error("version {0} of the format is not supported; convert the file to a current version")]
    Version(u32),
    /// GGUF for big-endian machines.
    #[error("big-endian GGUF is not supported; convert the file to little-endian")]
    BigEndian,
    /// A compression method.
    #[error("the member is neither stored nor deflated; save it again")]
    Compression,
    /// An encrypted archive.
    #[error("the member is encrypted; decrypt the archive first")]
    Encrypted,
}

/// Adds the file and the tensor to damage.
pub(crate) trait InFile<T> {
    /// Damage of the file.
    fn in_file(self, file: &Path) -> Result<T>;
    /// Damage of one tensor.
    fn in_tensor(self, file: &Path, tensor: &str) -> Result<T>;
}

impl<T> InFile<T> for Result<T, Damage> {
    fn in_file(self, file: &Path) -> Result<T> {
        self.map_err(|damage| damage.at(file, None))
    }

    fn in_tensor(self, file: &Path, tensor: &str) -> Result<T> {
        self.map_err(|damage| damage.at(file, Some(tensor)))
    }
}

impl Damage {
    /// The error of damage at a place.
    pub(crate) fn at(self, file: &Path, tensor: Option<&str>) -> LoadError {
        LoadError::Damaged { place: Place::new(file, tensor), damage: self }
    }
}

impl Unsupported {
    /// The error of a form at a place.
    pub(crate) fn at(self, file: &Path, tensor: Option<&str>) -> LoadError {
        LoadError::Unsupported { place: Place::new(file, tensor), what: self }
    }
}

impl Place {
    fn new(file: &Path, tensor: Option<&str>) -> Self {
        Self { file: file.to_owned(), tensor: tensor.map(str::to_owned) }
    }
}
