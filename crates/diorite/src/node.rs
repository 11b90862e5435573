//! skeleton
use crate::{
    Attributes, DirectoryEntry, File, FileKind, InodeNumber, NodeSpec, OpenOptions, Owner, RenameMode,
    Result, SetAttributes, XattrMode,
};
/// An inode that is kept alive: it outlives its last name until the last `NodeRef` and [`File`] of it is dropped.
#[derive(Clone, Debug)]
pub struct NodeRef {}
#[expect(unused_variables, clippy::unused_self, reason = "skeleton")]
impl NodeRef {
    /// Its number.
    pub fn number(&self) -> InodeNumber {
        todo!()
    }
    /// What it is.
    pub fn kind(&self) -> FileKind {
        todo!()
    }
    /// What `stat` tells.
    pub fn attributes(&self) -> Result<Attributes> {
        todo!()
    }
    /// Change attributes.
    pub fn set_attributes(&self, changes: &SetAttributes) -> Result<()> {
        todo!()
    }
    /// Set the size of a regular file.
    pub fn set_len(&self, size: u64) -> Result<()> {
        todo!()
    }
    /// Open a regular file.
    pub fn open(&self, options: &OpenOptions) -> Result<File> {
        todo!()
    }
    /// The inode behind a name in this directory.
    pub fn lookup(&self, name: &[u8]) -> Result<NodeRef> {
        todo!()
    }
    /// Make a file, directory or node in this directory.
    pub fn create(&self, name: &[u8], spec: &NodeSpec) -> Result<NodeRef> {
        todo!()
    }
    /// Make a symbolic link in this directory.
    pub fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<NodeRef> {
        todo!()
    }
    /// Where this symbolic link points.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        todo!()
    }
    /// Give `original` another name, in this directory.
    pub fn link(&self, original: &NodeRef, name: &[u8]) -> Result<()> {
        todo!()
    }
    /// Remove a name of anything but a directory.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        todo!()
    }
    /// Remove an empty directory.
    pub fn remove_directory(&self, name: &[u8]) -> Result<()> {
        todo!()
    }
    /// Rename from this directory.
    pub fn rename(&self, name: &[u8], to: &NodeRef, to_name: &[u8], mode: RenameMode) -> Result<()> {
        todo!()
    }
    /// Entries from `cursor` on (0: the first), `.` and `..` included, until `each` returns `false`.
    pub fn read_directory(&self, cursor: u64, each: &mut dyn FnMut(DirectoryEntry) -> bool) -> Result<()> {
        todo!()
    }
    /// An extended attribute.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }
    /// Names of all extended attributes.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        todo!()
    }
    /// Set an extended attribute.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        todo!()
    }
    /// Remove an extended attribute.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        todo!()
    }
    /// Make a file or directory durable.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
}
