//! Facts about a volume, as `dumpe2fs -h` shows them: from superblock and descriptors alone, with any features.
//!
//! It also works on volumes that cannot be opened, to show the reason.

use std::ops::Deref;

use diorite_block::BlockDevice;

use crate::layout::superblock::{STATE_ERROR, STATE_VALID};
use crate::layout::{Compat, GroupDescriptor, Incompat, Layout, RoCompat, Superblock};
use crate::memory::BlockMemory;
use crate::volume::journal;
use crate::volume::superblock::{SuperblockBackup, find_superblock, read_superblock};
use crate::{Error, Incompatible, Result, Timestamp};

/// A superblock, and the layout that follows from it.
#[derive(Clone)]
pub struct VolumeInfo {
    superblock: Superblock,
    /// Locations of groups and inodes.
    pub layout: Layout,
}

diorite_block::short_debug!(VolumeInfo, superblock);

impl Deref for VolumeInfo {
    type Target = Superblock;

    fn deref(&self) -> &Superblock {
        &self.superblock
    }
}

fn time(low: u32, high: u8) -> Timestamp {
    Timestamp { seconds: i64::from(low) | i64::from(high) << 32, nanoseconds: 0 }
}

impl VolumeInfo {
    fn new(superblock: Superblock) -> Self {
        Self { layout: Layout::new(&superblock), superblock }
    }

    /// Whether it was closed cleanly.
    pub fn is_clean(&self) -> bool {
        self.state() & STATE_VALID != 0
    }

    /// Whether errors were found in it.
    pub fn has_errors(&self) -> bool {
        self.state() & STATE_ERROR != 0
    }

    /// When it was made.
    pub fn created(&self) -> Timestamp {
        time(self.raw().mkfs_time.get(), self.raw().mkfs_time_hi)
    }

    /// Last mount.
    pub fn mounted(&self) -> Timestamp {
        time(self.raw().mtime.get(), self.raw().mtime_hi)
    }

    /// Last write of the superblock.
    pub fn written(&self) -> Timestamp {
        time(self.raw().wtime.get(), self.raw().wtime_hi)
    }

    /// Last check.
    pub fn checked(&self) -> Timestamp {
        time(self.raw().lastcheck.get(), self.raw().lastcheck_hi)
    }

    /// `ext2`, `ext3` or `ext4`: the oldest that has all its features.
    pub fn flavor(&self) -> &'static str {
        let features = self.features();
        let incompat =
            Incompat::EXTENTS | Incompat::SIXTY_FOUR_BIT | Incompat::FLEX_BG | Incompat::INLINE_DATA;
        let ro_compat = RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE | RoCompat::BIGALLOC;
        if features.incompat.intersects(incompat) || features.ro_compat.intersects(ro_compat) {
            "ext4"
        } else if features.has_compat(Compat::HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        }
    }

    /// Read it from a device, by a backup if the first superblock is damaged.
    ///
    /// # Errors
    /// There is no superblock, or the device failed.
    pub fn find(device: &dyn BlockDevice) -> Result<(Self, Option<SuperblockBackup>)> {
        let (superblock, backup) = find_superblock(device)?;
        Ok((Self::new(superblock), backup))
    }

    /// The consequence of an unreadable journal, if it is unreadable: the volume opens read-only.
    pub fn journal_defect(device: &dyn BlockDevice) -> Option<String> {
        let (superblock, backup) = find_superblock(device).ok()?;
        journal::defect_of(device, &superblock, backup.is_some())
    }

    /// Read it from a device's first superblock.
    ///
    /// # Errors
    /// The first superblock is damaged or missing, or the device failed.
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        read_superblock(device).map(Self::new)
    }

    /// The UUID of the journal, if the device holds that of a filesystem elsewhere and no filesystem.
    pub fn external_journal(device: &dyn BlockDevice) -> Option<[u8; 16]> {
        match read_superblock(device) {
            Err(Error::Incompatible(Incompatible::JournalDevice { uuid })) => Some(uuid),
            _ => None,
        }
    }
}

/// Read all group descriptors of a volume (primary copies), not checked. Fails on a volume larger than the device.
///
/// # Errors
/// `Corrupt`, with the group, or the device failed.
pub fn read_descriptors(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Vec<GroupDescriptor>> {
    let layout = Layout::new(superblock);
    let mut descriptors = Vec::new();
    let mut memory = BlockMemory::zeroed(layout.block_size.bytes() as usize);
    for index in 0..layout.descriptor_blocks() {
        let block = layout.descriptor_block(index);
        device.read_bytes(layout.block_size.address_of(block), &mut memory)?;
        let rest = layout.group_count as usize - descriptors.len();
        let size = usize::from(layout.desc_size);
        let places = memory.chunks_exact(size).take(rest);
        descriptors.extend(places.map(|place| GroupDescriptor::parse(place, superblock)));
    }
    Ok(descriptors)
}
