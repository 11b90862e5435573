//! What users, groups and projects use, kept in the volume's hidden quota files.
//!
//! Where it sits: [`Volume::store_inode`] settles an inode's account in the same handle as the change itself, so the files are
//! right whenever a transaction is. What an inode was charged last is part of its state ([`Charge`]).
//!
//! As in the kernel: use is always counted where the volume has the files; the volume's own inodes are not
//! counted, and an inode with an attribute's value is charged to its users. Limits that are set in the files hold where
//! [`crate::QuotaLimits::Enforced`] says so.
//!
//! Locking: the state of a quota inode is locked by the thread that has the quota file locked, and by no other.

mod charge;
mod file;
mod limits;

use diorite_block::sync::{Mutex, Rank};

use crate::inode::InodeState;
use crate::layout::{QuotaKind, RoCompat};
use crate::transaction::Handle;
use crate::{Inode, InodeNumber, Owner, Result, Volume};

pub(crate) use charge::Charge;
use file::QuotaFile;
use limits::Promises;

/// Blocks that settling inodes joins in one handle: a block of entries for each kind, of the owner before and after, of two inodes.
const SETTLE_CREDITS: u32 = 12;
/// Blocks that making an entry joins.
const INSERT_CREDITS: u32 = 48;

/// The quota files of a volume that is written.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    files: Vec<Mutex<QuotaFile>>,
    promises: Mutex<Promises>,
}

/// A change of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    bytes: i64,
    inodes: i64,
}

/// The accounts of a volume: what is done where something that is counted changes. Nothing where the volume has no quota files.
#[derive(Debug)]
pub struct Quota<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// What users, groups and projects use, and may use.
    pub fn quota(&self) -> Quota<'_> {
        Quota { volume: self }
    }
}

impl Quotas {
    /// Open the quota files that the superblock names.
    pub(crate) fn load(volume: &Volume) -> Result<Self> {
        let mut files = Vec::new();
        if volume.features().has_ro_compat(RoCompat::QUOTA) {
            for kind in QuotaKind::ALL {
                if let Some(inode) = volume.superblock().quota_inode(kind) {
                    files.push(Mutex::ranked(Rank::QuotaFile, QuotaFile::open(volume, kind, inode)?));
                }
            }
        }
        Ok(Self { files, promises: Mutex::ranked(Rank::QuotaPromises, Promises::default()) })
    }
}

impl Quota<'_> {
    /// Blocks that a handle needs more because of quota.
    pub(crate) fn credits(&self) -> u32 {
        if self.volume.quotas.files.is_empty() { 0 } else { SETTLE_CREDITS }
    }

    /// Whether this inode is charged to its owners.
    fn is_accounted(&self, number: InodeNumber) -> bool {
        number == InodeNumber::ROOT || !self.volume.superblock().is_own_inode(number)
    }

    /// Charge an inode's owners what has changed since it was stored last.
    pub(crate) fn settle(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        let values = i64::from(std::mem::take(&mut state.value_inodes_change));
        if self.volume.quotas.files.is_empty() || !self.is_accounted(inode.number()) {
            return Ok(());
        }
        let (before, after) = (state.charged, state.charge());
        if before == after && values == 0 {
            return Ok(());
        }
        for file in &self.volume.quotas.files {
            let mut file = file.lock();
            let (from, to) =
                (before.map(|charge| charge.id(file.kind)), after.map(|charge| charge.id(file.kind)));
            let bytes = |charge: Option<Charge>| charge.map_or(0, |charge| (charge.sectors * 512) as i64);
            if let (Some(id), true) = (from, from == to) {
                let change = Change { bytes: bytes(after) - bytes(before), inodes: values };
                file.add(self.volume, handle, id, change)?;
                continue;
            }
            // An inode that changes owners takes its values along; a freed one has given them up already.
            let moved = if from.is_some() && to.is_some() {
                self.volume.xattrs().value_inodes(inode, state)?
            } else {
                0
            };
            if let Some(id) = from {
                let inodes = -1 - if to.is_some() { moved - values } else { -values };
                file.add(self.volume, handle, id, Change { bytes: -bytes(before), inodes })?;
            }
            if let Some(id) = to {
                let inodes = 1 + if from.is_some() { moved } else { values };
                file.add(self.volume, handle, id, Change { bytes: bytes(after), inodes })?;
            }
        }
        state.charged = after;
        Ok(())
    }

    /// See to it that these owners have entries, before the handle begins in which they are charged first.
    pub(crate) fn prepare(&self, owner: Owner, project: u32) -> Result<()> {
        let charge = Charge { owner, project, sectors: 0 };
        for file in &self.volume.quotas.files {
            let id = {
                let mut file = file.lock();
                let id = charge.id(file.kind);
                if file.has_entry(self.volume, id)? {
                    continue;
                }
                id
            };
            let mut handle = self.volume.begin(INSERT_CREDITS)?;
            let result = file.lock().add(self.volume, &mut handle, id, Change::default());
            crate::transaction::finish(handle, result)?;
        }
        Ok(())
    }
}
