//! What an inode's flags let be done with the content of its file.

use crate::layout::InodeFlags;
use crate::{Error, Inode, Result, Volume};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentUse {
    /// Its content is read.
    Read,
    /// It is read, and written at its end only.
    Append,
    /// It is read, and written or cut anywhere.
    Write,
}

impl Volume {
    /// Refuse what the volume or the flags of the inode forbid; ciphertext is no content ([`Error::Encrypted`]). Asked when a
    /// file is opened, and not for what is written through it afterwards: data that was cached before a flag was set could only be lost.
    pub fn check_content_use(&self, inode: &Inode, wanted: ContentUse) -> Result<()> {
        let flags = InodeFlags::from_bits_retain(inode.state.read().flags);
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
        let flags = InodeFlags::from_bits_retain(inode.state.read().flags);
        check_change(flags).and_then(|()| check_no_append_only(flags))
    }
}

fn check_no_append_only(flags: InodeFlags) -> Result<()> {
    let refused = flags.contains(InodeFlags::APPEND);
    if refused { Err(Error::NotPermitted("append-only")) } else { Ok(()) }
}

/// Refuse the content of an encrypted file.
pub(crate) fn check_encrypted(inode: &Inode, flags: InodeFlags) -> Result<()> {
    let refused = flags.contains(InodeFlags::ENCRYPTED);
    if refused { Err(Error::Encrypted { inode: inode.number() }) } else { Ok(()) }
}

/// Refuse a change of content that nothing may change.
pub(crate) fn check_change(flags: InodeFlags) -> Result<()> {
    if flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted("immutable"));
    }
    check_verity(flags)
}

/// Refuse a change of content that a Merkle tree covers. A file has one from before it was opened here.
pub(crate) fn check_verity(flags: InodeFlags) -> Result<()> {
    if flags.contains(InodeFlags::VERITY) { Err(Error::NotPermitted("a verity file")) } else { Ok(()) }
}
