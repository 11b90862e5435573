//! Replay of inodes in fast commits.

use super::FastReplay;
use crate::inode::Charge;
use crate::inode::STORE_CREDITS;
use crate::layout::inode::{GOOD_OLD_SIZE, LINKS};
use crate::layout::{DiskInode, InodeFlags, le16};
use crate::map::node;
use crate::{Corrupt, Error, FileKind, Incompatible, InodeNumber, Result};

const FLAGS: std::ops::Range<usize> = 0x20..0x24;

impl FastReplay<'_> {
    /// Charge a replayed inode to its owners.
    fn settle_replayed(&self, number: InodeNumber, charged: Option<Charge>) -> Result<()> {
        let inode = self.volume.inodes.load(number)?;
        let mut state = inode.state.write();
        self.volume.quotas.prepare(state.owner, state.project)?;
        state.charged = charged;
        let mut handle = self.volume.core.begin(STORE_CREDITS)?;
        self.volume.files.store(&mut handle, &inode, &mut state)?;
        handle.commit().map(drop)
    }

    /// Whether an inode has a name.
    pub(super) fn is_in_use(&self, number: InodeNumber) -> Result<bool> {
        match self.volume.inodes.load(number) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Put an inode's bytes in its place, but for its mapping by extents and the sectors that it counts: those follow from its ranges. It
    /// is taken if it was free.
    pub(super) fn replay_inode(&self, number: InodeNumber, bytes: &[u8]) -> Result<()> {
        let bad = |what| Corrupt::Inode { inode: number, what };
        let size = usize::from(self.volume.core.layout.inode_size);
        let is_special = number < self.volume.core.format.first_inode() && number != InodeNumber::ROOT;
        if is_special || bytes.len() < GOOD_OLD_SIZE || bytes.len() > size {
            return Err(bad("a fast commit has an impossible inode").into());
        }
        let Some(kind) = FileKind::from_mode(le16(bytes, 0)) else {
            return Err(bad("a fast commit has an inode without a type").into());
        };
        if le16(bytes, LINKS.start) == 0 {
            // It lost its last name, or never had one, and was freed by the crash.
            return Ok(());
        }
        let flags = InodeFlags::from_bits_retain(crate::layout::le32(bytes, FLAGS.start));
        let has_extents = flags.contains(InodeFlags::EXTENTS);
        let is_inline = flags.contains(InodeFlags::INLINE_DATA);
        if is_inline {
            let what = "the journal holds a fast commit of a file that is in its inode (inline_data): let e2fsck replay it";
            return Err(Incompatible::Other(what).into());
        }
        if !has_extents && matches!(kind, FileKind::Regular | FileKind::Directory) {
            return Err(Incompatible::FAST_COMMIT_WITHOUT_EXTENTS.into());
        }
        let charged = match self.volume.inodes.load(number) {
            Ok(inode) => inode.state.read().charged,
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        let mut handle = self.volume.core.begin(16)?;
        let is_new = self.volume.core.allocator.claim_inode(&mut handle, number, kind)?;
        let raw = self.volume.inodes.raw(number)?;
        {
            let mut content = handle.modify(&raw.buffer)?;
            let Some(place) = content.get_mut(raw.offset..raw.offset + raw.len) else {
                return Err(bad("its place is outside its block").into());
            };
            if is_new {
                place.fill(0);
            }
            let format = &self.volume.core.format;
            let kept = DiskInode::parse(number, place, format)?;
            place[..bytes.len()].copy_from_slice(bytes);
            let mut disk = DiskInode::parse(number, place, format)?;
            if has_extents {
                (disk.block, disk.sectors) = (kept.block, kept.sectors);
                if node::header_of(&disk.block, None).is_err() {
                    node::write_empty_root(&mut disk.block);
                }
            }
            if kind == FileKind::Directory && !is_new {
                // They follow from its names.
                (disk.size, disk.links, disk.flags) = (kept.size, kept.links, kept.flags);
            }
            disk.write_into(number, place, format);
        }
        self.volume.inodes.cache.remove(number);
        handle.commit()?;
        self.settle_replayed(number, charged)
    }
}
