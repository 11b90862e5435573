//! Copies trees of files: host to image, image to host, image to image, tar stream to image.
//!
//! Where it sits: beside the command line, above the library; the program and mkfs call it. A [`Source`] is read, a
//! [`Sink`] is written; [`HostTree`] and [`ImageTree`] are both.
//!
//! What is kept: content with its holes, permissions, owners, times, extended attributes, device nodes, symbolic links, and
//! hard links among the files of one copy. The host takes owners and some attributes from root only; that is no error. Any other
//! attribute that the destination does not take is reported.
//!
//! Invariants:
//! 1. A regular file appears under its name when its content and attributes are complete, not before. (In an image, which no other
//!    process reads meanwhile, a small one that replaces nothing is made under its name: its data is written back later in any case.)
//! 2. What fails or is interrupted leaves no temporary file. Nor does a copy to the host that is killed, where the host's filesystem
//!    has files without a name.
//! 3. Every directory that was made gets its permissions, also when what is in it cannot be copied.
//! 4. Directories are copied in the order of their names, so that equal trees make equal images.

mod acl_text;
mod archive;
mod copied_names;
mod engine;
mod error;
mod file_data;
mod host;
mod host_attributes;
mod host_path;
mod host_stream;
mod image;
mod linked;
mod needs;
mod numbers;
mod pax;
mod records;
mod tree;
mod user_namespace;

pub use archive::unpack;
pub use engine::{Clobber, Copier, CopyOptions, Depth, OnFailure, Sync, data_bytes, is_within};
pub use error::Error;
pub use host::HostTree;
pub use host_stream::{StandardInput, WatchedInput};
pub use image::{ImageTree, incomplete_name};
pub use needs::needs;
pub use pax::{START_BYTES, decompressor, no_archive};
pub use tree::{
    Attributes, Follow, LostAttribute, Meta, NewFile, Place, ReadFile, ReadStream, Sink, Source, WriteFile,
};

/// What a copy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Regular files, hard links not counted.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Symbolic links, hard links, device nodes and the like.
    pub others: u64,
    /// Files left alone because they existed.
    pub skipped: u64,
    /// Files and directories of a tree that could not be copied, where the copy went on without them.
    pub failed: u64,
    /// Extended attributes that the destination did not take.
    pub attributes_lost: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
}

/// Is called with what is copied, and may stop it.
pub trait Watch: Send + std::marker::Sync {
    /// A file of so many bytes begins.
    fn begin(&self, name: &std::path::Path, size: u64);
    /// So many bytes more of it are done.
    fn advance(&self, bytes: u64);
    /// Something in a tree, or an attribute of a file, is not copied, and the copy goes on with the rest.
    fn failed(&self, _: Error) {}
    /// Whether to stop.
    fn is_cancelled(&self) -> bool;
}

/// Ignores it and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&self, _: &std::path::Path, _: u64) {}
    fn advance(&self, _: u64) {}
    fn is_cancelled(&self) -> bool {
        false
    }
}
