//! Extended attributes; names with their prefix, as in `user.comment`.

use crate::{Inode, Result, Volume, XattrMode};

#[expect(unused_variables, reason = "bodies follow")]
impl Volume {
    /// An attribute's value.
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }

    /// All names.
    pub fn xattr_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        todo!()
    }

    /// Set an attribute.
    pub fn set_xattr(&self, inode: &Inode, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        todo!()
    }

    /// Remove an attribute.
    pub fn remove_xattr(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        todo!()
    }
}
