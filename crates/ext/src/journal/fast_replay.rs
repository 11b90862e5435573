//! Fast commits are replayed on a volume without its journal, in memory.
//!
//! Where it sits: between replay of the log and opening the volume. A volume is opened on a [`ScratchDevice`] over the device as
//! the log leaves it, every change is made with the volume's own operations, and it is closed. Nothing reaches the disk before
//! all of that has succeeded. What is in the way is refused by name: the volume is as it was then.
//!
//! Every change may have been made already: a replay that was cut off is done again.

use std::sync::Arc;

use diorite_block::{BioFlags, BlockDevice};

use super::fast_commit::FastChange;
use super::open::edit_superblock;
use super::scratch::ScratchDevice;
use crate::BlockRun;
use crate::layout::{Compat, Incompat, RoCompat, Superblock};
use crate::{Access, BlockSize, Error, Incompatible, ReservedBlocks, Result, Volume, VolumeOptions};

/// Make `changes` on the volume that `device` shows.
pub(super) fn replay(
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    changes: &[FastChange],
) -> Result<Arc<ScratchDevice>> {
    let scratch = ScratchDevice::new(device, block_size);
    let original = change_superblock(&*scratch, |superblock| {
        let features = superblock.features();
        if features.ro_compat.intersects(RoCompat::QUOTA | RoCompat::BIGALLOC) {
            return Err(refused(
                "the journal holds fast commits, which are not replayed here on volumes with quota or bigalloc",
            ));
        }
        let mut plain = features;
        plain.compat -= Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE;
        plain.incompat -= Incompat::RECOVER | Incompat::MMP;
        plain.ro_compat -= RoCompat::ORPHAN_PRESENT;
        superblock.set_features(plain);
        Ok(())
    })?;
    let options = VolumeOptions {
        access: Access::ReadWrite,
        reserved_blocks: ReservedBlocks::Usable,
        ..VolumeOptions::default()
    };
    let volume = Volume::open(scratch.clone(), options)?;
    if let Some(reason) = volume.read_only_reason() {
        return Err(Error::ReadOnly(reason));
    }
    for change in changes {
        if let FastChange::AddRange { inode, extent } = change {
            volume.check_run(*inode, extent.start, extent.block, u64::from(extent.blocks))?;
            let blocks = u64::from(extent.blocks);
            volume.allocator().keep_out(BlockRun { start: extent.block, blocks })?;
        }
    }
    changes.iter().try_for_each(|change| apply(&volume, change))?;
    volume.close()?;
    change_superblock(&*scratch, |superblock| {
        superblock.set_features(original.features());
        superblock.set_state(original.state());
        Ok(())
    })?;
    Ok(scratch)
}

fn refused(what: &'static str) -> Error {
    Incompatible::Other(what).into()
}

fn apply(volume: &Volume, change: &FastChange) -> Result<()> {
    match change {
        FastChange::AddRange { inode, extent } => volume.replay_extent(*inode, extent),
        FastChange::RemoveRange { inode, start, blocks } => {
            volume.replay_removal(*inode, u64::from(*start), u64::from(*blocks))
        }
        FastChange::Create { directory, inode, name } => volume.replay_name(*directory, *inode, name, false),
        FastChange::Link { directory, inode, name } => volume.replay_name(*directory, *inode, name, true),
        FastChange::Unlink { directory, inode, name } => volume.replay_unlink(*directory, *inode, name),
        FastChange::Inode { inode, bytes } => volume.replay_inode(*inode, bytes),
    }
}

/// Change the superblock where it is; returns what it was.
fn change_superblock(
    device: &dyn BlockDevice,
    edit: impl FnOnce(&mut Superblock) -> Result<()>,
) -> Result<Superblock> {
    let edited = edit_superblock(device, edit)?;
    device.write_bytes(edited.start, &edited.memory, BioFlags::META)?;
    Ok(edited.original)
}
