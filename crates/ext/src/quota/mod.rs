//! Usage of users, groups and projects, in the volume's hidden quota files.
//!
//! Where it sits: [`Files::store`](crate::Files) settles an inode's account in the same handle as the change itself, so the files are
//! right whenever a transaction is. The last charge of an inode is part of its state ([`Charge`]).
//!
//! As in the kernel: use is always counted if the volume has the files; the volume's own inodes are not
//! counted, and an inode with an attribute's value is charged to its users. Limits that are set in the files hold where
//! [`crate::QuotaLimits::Enforced`] says so.
//!
//! Locking: the state of a quota inode is locked by the thread that has the quota file locked, and by no other.

mod file;
mod limits;

use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank};

use crate::attribute_areas::value_inodes;
use crate::base::{Core, Handle, finish};
use crate::inode::{Charge, InodeState};
use crate::inodes::InodeStore;
use crate::layout::{QuotaKind, RoCompat};
use crate::{Inode, InodeNumber, Owner, Result};

use file::QuotaFile;
use limits::Promises;

/// Blocks that making an entry joins.
const INSERT_CREDITS: u32 = 48;

/// Quota of a volume: usage and limits of users, groups and projects. Called wherever a counted value changes.
pub struct Quotas {
    core: Arc<Core>,
    inodes: Arc<InodeStore>,
    /// Empty if the volume has none.
    files: Vec<Mutex<QuotaFile>>,
    promises: Mutex<Promises>,
}

diorite_block::short_debug!(Quotas);

/// A change of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    bytes: i64,
    inodes: i64,
}

impl Quotas {
    /// Open the quota files that the superblock names; of a volume that is only read, none.
    pub(crate) fn load(inodes: &Arc<InodeStore>) -> Result<Self> {
        let core = &inodes.core;
        let mut files = Vec::new();
        if core.features().has_ro_compat(RoCompat::QUOTA) && core.read_only.get().is_none() {
            for kind in QuotaKind::ALL {
                if let Some(inode) = core.format.quota_inode(kind) {
                    files.push(Mutex::ranked(Rank::QuotaFile, QuotaFile::open(inodes, kind, inode)?));
                }
            }
        }
        let promises = Mutex::ranked(Rank::QuotaPromises, Promises::default());
        Ok(Self { core: core.clone(), inodes: inodes.clone(), files, promises })
    }

    /// Whether this inode is charged to its owners.
    fn is_accounted(&self, number: InodeNumber) -> bool {
        number == InodeNumber::ROOT || !self.core.format.is_own_inode(number)
    }

    /// Charge an inode's owners for the difference since its last store.
    pub(crate) fn settle(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        let values = i64::from(std::mem::take(&mut state.value_inodes_change));
        if self.files.is_empty() || !self.is_accounted(inode.number()) {
            return Ok(());
        }
        let (before, after) = (state.charged, state.charge());
        if before == after && values == 0 {
            return Ok(());
        }
        for file in &self.files {
            let mut file = file.lock();
            let (from, to) =
                (before.map(|charge| charge.id(file.kind)), after.map(|charge| charge.id(file.kind)));
            let bytes = |charge: Option<Charge>| charge.map_or(0, |charge| (charge.sectors * 512) as i64);
            if let (Some(id), true) = (from, from == to) {
                let change = Change { bytes: bytes(after) - bytes(before), inodes: values };
                file.add(&self.inodes, handle, id, change)?;
                continue;
            }
            // An inode that changes owners takes its values along; a freed one has given them up already.
            let moved =
                if from.is_some() && to.is_some() { value_inodes(&self.inodes, inode, state)? } else { 0 };
            if let Some(id) = from {
                let inodes = -1 - if to.is_some() { moved - values } else { -values };
                file.add(&self.inodes, handle, id, Change { bytes: -bytes(before), inodes })?;
            }
            if let Some(id) = to {
                let inodes = 1 + if from.is_some() { moved } else { values };
                file.add(&self.inodes, handle, id, Change { bytes: bytes(after), inodes })?;
            }
        }
        state.charged = after;
        Ok(())
    }

    /// See to it that these owners have entries, before the handle begins in which they are charged first.
    pub(crate) fn prepare(&self, owner: Owner, project: u32) -> Result<()> {
        let charge = Charge { owner, project, sectors: 0 };
        for file in &self.files {
            let id = {
                let mut file = file.lock();
                let id = charge.id(file.kind);
                if file.has_entry(&self.inodes, id)? {
                    continue;
                }
                id
            };
            let mut handle = self.core.begin(INSERT_CREDITS)?;
            let result = file.lock().add(&self.inodes, &mut handle, id, Change::default());
            finish(handle, result)?;
        }
        Ok(())
    }
}
