//! Quota files of a new volume: they count the root directory and `lost+found`.

use zerocopy::byteorder::little_endian::U32;

use crate::mkfs::MkfsError;
use crate::mkfs::content::{LOST_FOUND, Maker};
use diorite_ext_format::InodeFlags;
use diorite_ext_format::quota::tree::{self, MemoryBlocks, QuotaBlocks};
use diorite_ext_format::quota::{BLOCK_SIZE, QuotaEntry, QuotaHeader, QuotaKind};
use diorite_ext_format::{FileKind, InodeNumber};

const USERS: InodeNumber = InodeNumber(3);
const GROUPS: InodeNumber = InodeNumber(4);

impl Maker<'_> {
    /// The quota file of one kind, in its inode.
    pub(super) fn quota_file(&mut self, kind: QuotaKind) -> Result<(), MkfsError> {
        let bytes = self.quota_content(kind).map_err(MkfsError::Format)?;
        let size = self.layout.block_size;
        let runs = self.space.take_runs(0, size.blocks_for(bytes.len() as u64)).ok_or(MkfsError::NoSpace)?;
        let number = match kind {
            QuotaKind::User => USERS,
            QuotaKind::Group => GROUPS,
            QuotaKind::Project => self.next_inode(),
        };
        let mut inode = self.new_inode(FileKind::Regular, 0o600, 1);
        self.map(number, &mut inode, &runs)?;
        inode.size = bytes.len() as u64;
        inode.flags |= InodeFlags::IMMUTABLE;
        self.content.inodes.push((number, inode));
        let blocks = runs.iter().flat_map(|(first, count)| first.0..first.0 + count);
        for (block, part) in blocks.zip(bytes.chunks(size.bytes() as usize)) {
            self.content.blocks.push((diorite_ext_format::FsBlock(block), part.to_vec()));
        }
        let raw = self.superblock.raw_mut();
        let place = match kind {
            QuotaKind::User => &mut raw.usr_quota_inum,
            QuotaKind::Group => &mut raw.grp_quota_inum,
            QuotaKind::Project => &mut raw.prj_quota_inum,
        };
        *place = U32::new(number.0);
        Ok(())
    }

    fn quota_content(&self, kind: QuotaKind) -> diorite_ext_format::Result<Vec<u8>> {
        let (mut blocks, mut header) = (MemoryBlocks::default(), QuotaHeader::new(2));
        let is_counted = |number: InodeNumber| number == InodeNumber::ROOT || number == LOST_FOUND;
        for (_, inode) in self.content.inodes.iter().filter(|(number, _)| is_counted(*number)) {
            let id = kind.id(inode.owner, inode.project);
            let slot = tree::find_or_insert(&mut blocks, &mut header, id)?;
            let mut bytes = blocks.read(slot.block)?;
            let mut entry = QuotaEntry::parse(&bytes, slot.index).unwrap_or_default();
            entry.id = id;
            entry.inodes += 1;
            entry.space += inode.sectors * 512;
            entry.inodes_time = 0;
            entry.write_into(&mut bytes, slot.index);
            blocks.write(slot.block, &bytes)?;
        }
        header.write_into(kind, &mut blocks.bytes[..BLOCK_SIZE]);
        Ok(blocks.bytes)
    }
}
