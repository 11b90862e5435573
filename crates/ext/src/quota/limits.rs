//! Limits of users, groups and projects.
//!
//! Hard limits that are set in the quota files hold for new inodes, for data blocks, and for inodes that change hands, where
//! [`QuotaLimits::Enforced`] was asked for. Above a soft limit a time runs, as in the kernel: from the moment when what is above it
//! reaches the quota file, as long as the file's header says; then it holds like a hard one. Blocks of directories and of mappings
//! are counted, but not refused.
//!
//! Data that is only promised a place (buffered writes) counts as used until it is written: the promise is charged to the owners of
//! the inode when it is first given.

use std::collections::HashMap;

use super::Quotas;
use crate::inode::Charge;
use crate::layout::QuotaKind;
use crate::{Error, Inode, InodeNumber, Owner, QuotaLimits, Result};

/// Bytes promised to writes that have no blocks yet.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// By inode, with the owners that it had at the first promise.
    by_inode: HashMap<InodeNumber, (Charge, u64)>,
    by_id: HashMap<(QuotaKind, u32), u64>,
}

impl Promises {
    fn of(&self, kind: QuotaKind, id: u32) -> u64 {
        self.by_id.get(&(kind, id)).copied().unwrap_or(0)
    }

    fn change(&mut self, owners: &Charge, change: impl Fn(u64) -> u64) {
        for kind in QuotaKind::ALL {
            let key = (kind, owners.id(kind));
            let promised = change(self.by_id.get(&key).copied().unwrap_or(0));
            if promised == 0 {
                self.by_id.remove(&key);
            } else {
                self.by_id.insert(key, promised);
            }
        }
    }
}

impl Quotas {
    /// Refuse `bytes` and `inodes` more for these owners, if that is beyond a limit of one of `kinds`.
    fn check_limits(
        &self,
        promises: &Promises,
        owners: &Charge,
        (bytes, inodes): (u64, u64),
        kinds: impl Fn(QuotaKind) -> bool,
    ) -> Result<()> {
        let now = self.core.now().seconds.max(0) as u64;
        for file in &self.files {
            let mut file = file.lock();
            let (kind, id) = (file.kind, owners.id(file.kind));
            if !kinds(kind) {
                continue;
            }
            let Some(entry) = file.entry(&self.inodes, id)? else { continue };
            let exceeded = |what| Err(Error::QuotaExceeded { kind: kind.word(), id, what });
            let space = entry.space.saturating_add(promises.of(kind, id)).saturating_add(bytes);
            if bytes > 0 && entry.space_limit_kib > 0 && space > entry.space_limit_kib.saturating_mul(1024) {
                return exceeded("space");
            }
            let is_late = |until: u64| until > 0 && now >= until;
            if bytes > 0 && entry.is_above_space(space) && is_late(entry.space_time) {
                return exceeded("space");
            }
            let inodes_then = entry.inodes.saturating_add(inodes);
            if inodes > 0 && entry.is_above_inodes(inodes_then) && is_late(entry.inodes_time) {
                return exceeded("inodes");
            }
            if inodes > 0 && entry.inodes_limit > 0 && inodes_then > entry.inodes_limit {
                return exceeded("inodes");
            }
        }
        Ok(())
    }
}

fn owners_of(inode: &Inode) -> Charge {
    let state = inode.state.read();
    Charge { owner: state.owner, project: state.project, sectors: 0 }
}

impl Quotas {
    /// Whether any limits hold.
    pub fn is_enforced(&self) -> bool {
        self.core.options.quota_limits == QuotaLimits::Enforced && !self.files.is_empty()
    }

    /// Refuse `blocks` more blocks of data for an inode, if its owners may not have them.
    pub fn check(&self, inode: &Inode, blocks: u64) -> Result<()> {
        if !self.is_enforced() {
            return Ok(());
        }
        let bytes = blocks.saturating_mul(self.core.block_size().bytes());
        // Before the promises are locked: a change of owners has the inode's lock first.
        let owners = owners_of(inode);
        let promises = self.promises.lock();
        self.check_limits(&promises, &owners, (bytes, 0), |_| true)
    }

    /// As [`Quotas::check`], and keep the space until [`Quotas::release_claim`].
    pub fn claim(&self, inode: &Inode, blocks: u64) -> Result<()> {
        if !self.is_enforced() {
            return Ok(());
        }
        let bytes = blocks.saturating_mul(self.core.block_size().bytes());
        let owners = owners_of(inode);
        let mut promises = self.promises.lock();
        self.check_limits(&promises, &owners, (bytes, 0), |_| true)?;
        let (first, promised) = promises.by_inode.entry(inode.number()).or_insert((owners, 0));
        let owners = *first;
        *promised = promised.saturating_add(bytes);
        promises.change(&owners, |promised| promised.saturating_add(bytes));
        Ok(())
    }

    /// Space that [`Quotas::claim`] kept is used, or no longer needed.
    pub fn release_claim(&self, inode: &Inode, blocks: u64) {
        if !self.is_enforced() {
            return;
        }
        let bytes = blocks.saturating_mul(self.core.block_size().bytes());
        let mut promises = self.promises.lock();
        let Some((owners, promised)) = promises.by_inode.get_mut(&inode.number()) else { return };
        let (owners, bytes) = (*owners, bytes.min(*promised));
        *promised -= bytes;
        if *promised == 0 {
            promises.by_inode.remove(&inode.number());
        }
        promises.change(&owners, |promised| promised.saturating_sub(bytes));
    }

    /// Refuse a new inode that its owners may not have.
    pub(crate) fn check_new(&self, owner: Owner, project: u32) -> Result<()> {
        if !self.is_enforced() {
            return Ok(());
        }
        let owners = Charge { owner, project, sectors: 0 };
        let promises = self.promises.lock();
        self.check_limits(&promises, &owners, (0, 1), |_| true)
    }

    /// Refuse to give an inode to owners that may not have it.
    pub(crate) fn check_moved(&self, before: Charge, owner: Owner, project: u32) -> Result<()> {
        if !self.is_enforced() {
            return Ok(());
        }
        let after = Charge { owner, project, ..before };
        let promises = self.promises.lock();
        let moves = |kind| before.id(kind) != after.id(kind);
        self.check_limits(&promises, &after, (after.sectors * 512, 1), moves)
    }
}
