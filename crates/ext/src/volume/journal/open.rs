//! Opening the journal of a volume.
//!
//! Where it sits: called with the superblock and before anything else is read. Afterwards the superblock must be read again,
//! and everything through [`OpenedJournal::device`].

use std::sync::Arc;

use diorite_block::{BioFlags, BlockDevice};

use super::fast_replay::FastCommitArea;
use super::format::JournalSuperblock;
use super::home_superblock::edit_superblock;
use super::locate::locate;
use crate::layout::superblock::STATE_ERROR;
use crate::layout::{Incompat, Layout, RoCompat, Superblock};
use crate::{Access, Corrupt, Error, Incompatible, InodeNumber, Result};
use diorite_journal::log::{
    Content, LogMap, LogVolume, prepare_for_writing, read_superblock, recover, write_durably,
};

/// A volume's journal, replayed.
#[derive(Debug)]
pub(crate) struct OpenedJournal {
    /// The device to read the volume through.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The log to write to; none on a volume without a journal or one that cannot be written.
    pub(crate) log: Option<(LogMap, JournalSuperblock)>,
    /// Blocks that were replayed, in place or in memory.
    pub(crate) replayed_blocks: usize,
    /// The superblock on the disk is not the one that was given any more.
    pub(crate) superblock_changed: bool,
    /// Why the volume cannot be written because of its journal.
    pub(crate) read_only: Option<String>,
    /// The part of the journal that could not be replayed.
    pub(crate) damage: Option<Corrupt>,
    /// Why nothing of the journal can be read: it was not replayed.
    pub(crate) unreadable: Option<Corrupt>,
}

impl OpenedJournal {
    /// None, or one that is not used.
    pub(crate) fn none(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            log: None,
            replayed_blocks: 0,
            superblock_changed: false,
            read_only: None,
            damage: None,
            unreadable: None,
        }
    }
}

/// Replay the journal of the volume on `device`, if it has one: in place if it may be written, and otherwise as an
/// overlay. A superblock that is a backup does not say whether there is something to replay.
pub(crate) fn open(
    device: Arc<dyn BlockDevice>,
    superblock: &Superblock,
    access: Access,
    is_backup: bool,
) -> Result<OpenedJournal> {
    let mut needs_recovery = superblock.features().has_incompat(Incompat::RECOVER);
    let mut opened = OpenedJournal { superblock_changed: needs_recovery, ..OpenedJournal::none(device) };
    if let Some(uuid) = superblock.external_journal() {
        let device = superblock.journal_device();
        if needs_recovery {
            return Err(Incompatible::ExternalJournal { uuid, device }.into());
        }
        opened.read_only = Some(crate::layout::elsewhere(&uuid, device));
        return Ok(opened);
    }
    let Some(number) = superblock.journal_inode() else { return Ok(opened) };
    if is_backup {
        needs_recovery = true;
        opened.superblock_changed = true;
    }
    if access == Access::ReadOnly && !needs_recovery {
        return Ok(opened);
    }
    let layout = Layout::new(superblock);
    let (map, log_superblock) = match read_head(&*opened.device, superblock, number) {
        Err(Error::Corrupt(damage)) => {
            return Ok(OpenedJournal { unreadable: Some(damage), ..OpenedJournal::none(opened.device) });
        }
        read => read?,
    };
    let content = if needs_recovery { Content::Counts } else { Content::IsLeftOver };
    let (block_size, blocks) = (layout.block_size, layout.blocks_count);
    let mut fast = FastCommitArea::default();
    let volume = LogVolume { device: &opened.device, map: &map, block_size, blocks };
    let mut recovered = recover::<Error>(&volume, log_superblock, access, content, &mut fast)?;
    opened.replayed_blocks = recovered.blocks;
    if let Some(overlay) = recovered.overlay {
        opened.device = overlay;
    }
    if recovered.damage.is_some() {
        opened.damage = recovered.damage;
        return Ok(opened);
    }
    if access == Access::ReadWrite {
        if std::mem::take(&mut recovered.superblock.errno) != 0 {
            // An error that the journal remembers becomes the volume's.
            edit(&*opened.device, |superblock| superblock.set_state(superblock.state() | STATE_ERROR))?;
            opened.superblock_changed = true;
        }
        let features = superblock.features();
        let is_64bit = features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        let has_checksums = features.has_ro_compat(RoCompat::METADATA_CSUM);
        prepare_for_writing(&mut recovered.superblock, is_64bit, has_checksums);
        opened.log = Some((map, recovered.superblock));
    }
    Ok(opened)
}

/// Where the journal is, and its superblock.
fn read_head(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    number: InodeNumber,
) -> Result<(LogMap, JournalSuperblock)> {
    let map = locate(device, superblock, number)?;
    let head = read_superblock(device, &map, Layout::new(superblock).block_size)?;
    Ok((map, head))
}

/// The consequence of a journal that cannot be read. `may_have_content`: the superblock asks for a replay, or does not say.
pub(crate) fn unreadable_text(damage: &Corrupt, may_have_content: bool) -> String {
    let meaning = if may_have_content {
        "it is not replayed, and changes that were only in it are missing"
    } else {
        "the volume needs no recovery, so nothing is missing"
    };
    format!("the journal cannot be read ({damage}): {meaning}; run e2fsck -f")
}

/// Why the journal of the volume on `device` cannot be read, if so. Nothing is said of a volume that cannot be read itself.
pub(crate) fn defect_of(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    is_backup: bool,
) -> Option<String> {
    superblock.check_readable().ok()?;
    match read_head(device, superblock, superblock.journal_inode()?) {
        Err(Error::Corrupt(damage)) => {
            let needs_recovery = superblock.features().has_incompat(Incompat::RECOVER);
            Some(unreadable_text(&damage, needs_recovery || is_backup))
        }
        _ => None,
    }
}

/// Replay the journal of the volume on `device` in memory and nowhere else. `is_backup`: the superblock does not say whether there is
/// something to replay. A journal that cannot be read is an error.
///
/// Returns the device to read the volume through, the number of replayed blocks, and the part of the journal that cannot be replayed, with
/// everything after it.
pub fn replay_in_memory(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    is_backup: bool,
) -> Result<(Arc<dyn BlockDevice>, usize, Option<Corrupt>)> {
    let opened = open(Arc::clone(device), superblock, Access::ReadOnly, is_backup)?;
    if let Some(damage) = opened.unreadable {
        return Err(damage.into());
    }
    Ok((opened.device, opened.replayed_blocks, opened.damage))
}

/// The last step of a close: the superblock on the disk says that the journal is empty. It is changed where it is, because no log may
/// hold this change. A replay does not do it: until the volume is closed its counts and orphans are not settled.
pub(crate) fn clear_needs_recovery(device: &dyn BlockDevice) -> Result<()> {
    edit(device, |superblock| {
        let mut features = superblock.features();
        features.incompat -= Incompat::RECOVER;
        superblock.set_features(features);
    })
}

/// Change the superblock where it is.
fn edit(device: &dyn BlockDevice, change: impl FnOnce(&mut Superblock)) -> Result<()> {
    let edited = edit_superblock(device, change)?;
    Ok(write_durably(device, edited.start, &edited.memory, BioFlags::PREFLUSH)?)
}
