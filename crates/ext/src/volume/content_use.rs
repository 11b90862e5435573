//! Uses of a file's content that its flags and the volume's state allow.

use crate::inode::{check_change, check_encrypted, check_no_append_only};
use crate::{ContentUse, Error, Inode, Result, Volume};

impl Volume {
    /// Refuse what the volume or the flags of the inode forbid; ciphertext is no content ([`Error::Encrypted`]). Asked when a
    /// file is opened, and not for what is written through it afterwards: data that was cached before a flag was set could only be lost.
    pub fn check_content_use(&self, inode: &Inode, wanted: ContentUse) -> Result<()> {
        let flags = inode.state.read().flags;
        check_encrypted(inode, flags)?;
        if wanted == ContentUse::Read {
            return Ok(());
        }
        if let Some(reason) = self.read_only_reason() {
            return Err(Error::ReadOnly(reason));
        }
        check_change(flags)?;
        if wanted == ContentUse::Append { Ok(()) } else { check_no_append_only(flags) }
    }

    /// Refuse a change of what a file has already where its flags forbid that now: holes, zeros and moved ranges, which are asked for when
    /// they are made.
    pub fn check_range_change(&self, inode: &Inode) -> Result<()> {
        let flags = inode.state.read().flags;
        check_change(flags).and_then(|()| check_no_append_only(flags))
    }
}
