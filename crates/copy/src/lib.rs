//! Copies trees of files: host to image, image to host, image to image, tar stream to image, layers of containers to image.
//!
//! Where it sits: beside the command line, above the library; the program and mkfs call it. A [`Source`] is read, a
//! [`Sink`] is written; [`HostTree`] and [`ImageTree`] are both.
//!
//! A copy keeps content with its holes, permissions, owners, times, extended attributes, device nodes, symbolic links, and hard links
//! among its files. Only root can set owners and security labels on the host, so other users get no error there. Every other attribute
//! that the destination cannot hold is reported, also capabilities and `trusted.*`.
//!
//! Invariants:
//! 1. A regular file gets its name when its content and attributes are complete. (Exception: a small new file in an image. No other process
//!    reads the image, and the data is written back later in any case.)
//! 2. A failed or interrupted copy leaves no temporary file. A killed copy leaves none on a host filesystem with `O_TMPFILE`.
//! 3. Every new directory gets its permissions, even if copying its entries fails.
//! 4. Entries are copied in the order of their names, so that equal trees make equal images.

mod acl_text;
mod archive;
mod at_depth;
mod compare;
mod copied_names;
mod copy_tree;
mod engine;
mod entry_meta;
mod error;
mod file_data;
mod fit;
mod host;
mod host_direct;
mod image;
mod input;
mod layers;
mod linked;
mod listing;
mod members;
mod memory;
mod needs;
mod new_file;
mod numbers;
mod oci;
mod options;
mod outdated;
mod pack;
mod pax;
mod records;
mod selected;
mod tree;
mod user_namespace;
mod verity;

pub use archive::{DirectoryLinks, UnpackOptions, unpack_members};
pub use at_depth::{Span, SpanCopier, SpanError};
pub use compare::{CompareOptions, Difference, Side, Start, compare, remove_extra};
pub use copy_tree::CopyTree;
pub use engine::{Copier, data_bytes, is_within};
pub use error::Error;
pub use fit::{FitPlan, Slack};
pub use host::{HostTree, StandardInput};
pub use host_direct::PastCache;
pub use image::{ImageTree, incomplete_name};
pub use input::{Archive, Recording};
pub use layers::{ImagePlace, LayerSource, Loading, load};
pub use listing::{ListedEntry, list_archive};
pub use members::Members;
pub use memory::{MemoryTree, Role, Table};
pub use needs::needs;
pub use oci::{Blob, Choice, Layout, Platform};
pub use options::{Clobber, CopyOptions, Data, Depth, OnFailure, Sync};
pub use pack::Packer;
pub use pax::{START_BYTES, decompressor, no_archive};
pub use selected::{Exclude, Rehearsal, Selected, Selection};
pub use tree::{
    Attributes, FileTree, Follow, LostAttribute, Meta, Names, NewFile, Piece, ReadFile, ReadStream, Recorder,
    Sink, Source, Target, WriteFile,
};

pub use verity::{
    RootHash, VERITY_BLOCK, VERITY_SALT_MAX, VerityLayout, VerityOptions, VerityReport, write_verity,
};

/// Summary of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Regular files, hard links not counted.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Symbolic links, hard links, device nodes and the like.
    pub others: u64,
    /// Existing files that were not replaced.
    pub skipped: u64,
    /// Files and directories that could not be copied.
    pub failed: u64,
    /// Extended attributes that the destination did not take.
    pub attributes_lost: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
}

/// Observes a copy, and can stop it.
pub trait Watch: Send + std::marker::Sync {
    /// The copy of a file of `size` bytes begins.
    fn begin(&self, name: &std::path::Path, size: u64);
    /// `bytes` more of it are copied.
    fn advance(&self, bytes: u64);
    /// A file of a tree, or an attribute of a file, could not be copied. The copy continues.
    fn failed(&self, _: Error) {}
    /// A file was left out on purpose, and the rest is not affected.
    fn left_out(&self, _: Error) {}
    /// A file, or a directory without its entries, was copied to `to`.
    fn copied(
        &self,
        source: &dyn FileTree,
        from: &std::path::Path,
        sink: &dyn FileTree,
        to: &std::path::Path,
    ) {
        let _ = (source, from, sink, to);
    }
    /// Only these attributes of an existing file were changed.
    fn updated(&self, sink: &dyn FileTree, to: &std::path::Path, what: &[&str]) {
        let _ = (sink, to, what);
    }
    /// An entry of an archive begins.
    fn entry(&self, name: &[u8]) {
        let _ = name;
    }
    /// Whether an existing file may be replaced.
    fn may_replace(&self, sink: &dyn FileTree, to: &std::path::Path) -> bool {
        let _ = (sink, to);
        true
    }
    /// Whether to stop.
    fn is_cancelled(&self) -> bool;
}

/// Ignores all calls and never stops a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&self, _: &std::path::Path, _: u64) {}
    fn advance(&self, _: u64) {}
    fn is_cancelled(&self) -> bool {
        false
    }
}
