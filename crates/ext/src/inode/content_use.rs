//! Uses of a file's content that the inode's flags allow.

use crate::layout::InodeFlags;
use crate::{Error, Inode, Result};

/// Purpose of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentUse {
    /// Its content is read.
    Read,
    /// It is read, and written at its end only.
    Append,
    /// It is read, and written or cut anywhere.
    Write,
}

/// Refuse a change of existing content of an append-only file.
pub(crate) fn check_no_append_only(flags: InodeFlags) -> Result<()> {
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
