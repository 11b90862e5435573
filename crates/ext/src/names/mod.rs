//! Operations on names: look up, make, remove, rename, list.

use std::sync::Arc;

use crate::{DirectoryEntry, Inode, NodeSpec, Owner, RenameMode, Result, Volume};

#[expect(unused_variables, reason = "bodies follow")]
impl Volume {
    /// The inode behind `name` in `directory`; `.` and `..` are entries like others.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        todo!()
    }

    /// Make a file, directory or node.
    pub fn create(&self, directory: &Inode, name: &[u8], spec: &NodeSpec) -> Result<Arc<Inode>> {
        todo!()
    }

    /// Make a symbolic link.
    pub fn symlink(&self, directory: &Inode, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<Inode>> {
        todo!()
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        todo!()
    }

    /// Give `inode` another name.
    pub fn link(&self, inode: &Arc<Inode>, directory: &Inode, name: &[u8]) -> Result<()> {
        todo!()
    }

    /// Remove a name of anything but a directory; returns what it named.
    pub fn unlink(&self, directory: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        todo!()
    }

    /// Remove an empty directory.
    pub fn remove_directory(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        todo!()
    }

    /// Rename with all POSIX rules. Returns the inode that lost its name by replacement, if any.
    pub fn rename(
        &self,
        from: &Arc<Inode>,
        from_name: &[u8],
        to: &Arc<Inode>,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<Option<Arc<Inode>>> {
        todo!()
    }

    /// Call `each` for the entries from `cursor` on (0: the first), `.` and `..` included, until it returns `false`.
    /// Entries present during the whole listing come exactly once.
    pub fn read_directory(
        &self,
        directory: &Inode,
        cursor: u64,
        each: &mut dyn FnMut(DirectoryEntry) -> bool,
    ) -> Result<()> {
        todo!()
    }
}
