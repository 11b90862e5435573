//! Holds: clusters that one file's reservations use in part, where allocation is in clusters of several blocks (`bigalloc`).
//!
//! All blocks of one cluster of a file lie in one cluster of the volume. So a reservation that begins or ends within a cluster
//! must share it with what is mapped there, and with other reservations of the file. A hold says which cluster that is, for as
//! long as any reservation has a part of it. Whole clusters need no hold: only one reservation has them.
//!
//! Invariants:
//! 1. The cluster of a hold is busy. It is set on disk if, and only if, the hold is *recorded*.
//! 2. A recorded cluster that is freed while it is held becomes unrecorded, and is in `freeing` until the transaction that freed
//!    it is durable; only then may the last holder make it free for others.
//!
//! Locking: a leaf, but for group states: nothing is locked by a holder of this lock but a group in [`Allocator::release`].

use std::collections::HashMap;

use diorite_block::sync::{Mutex, Rank};

use crate::BlockRun;
use crate::allocate::Allocator;
use crate::transaction::TransactionId;
use crate::{FsBlock, InodeNumber};

/// A cluster of a file: the file, and the number of the cluster in it.
type FileCluster = (InodeNumber, u64);

#[derive(Clone, Copy, Debug)]
struct Hold {
    /// First block of the cluster.
    cluster: FsBlock,
    holders: u32,
    recorded: bool,
}

#[derive(Debug, Default)]
struct State {
    holds: HashMap<FileCluster, Hold>,
    /// Held clusters, by their first block, that transactions which are not durable have freed, and how often.
    freeing: HashMap<u64, u32>,
    /// Clusters that lost some of their blocks but not all, and in which transaction: those blocks are not used again before it
    /// is durable.
    partly_freed: HashMap<FileCluster, TransactionId>,
}

/// The holds of all files.
#[derive(Debug)]
pub(crate) struct Holds {
    state: Mutex<State>,
}

impl Default for Holds {
    fn default() -> Self {
        Self { state: Mutex::ranked(Rank::Holds, State::default()) }
    }
}

impl Holds {
    /// The parts of a run, freed by a transaction that is durable now, that are not held: those that become free.
    pub(super) fn not_busy_for_holders(&self, run: BlockRun, per_cluster: u64) -> Vec<BlockRun> {
        let mut state = self.state.lock();
        if state.freeing.is_empty() {
            return vec![run];
        }
        let end = run.start.0 + run.blocks;
        let mut parts: Vec<BlockRun> = Vec::new();
        for cluster in (run.start.0..end).step_by(per_cluster as usize) {
            if let Some(count) = state.freeing.get_mut(&cluster) {
                *count -= 1;
                if *count == 0 {
                    state.freeing.remove(&cluster);
                }
                continue;
            }
            match parts.last_mut() {
                Some(last) if last.start.0 + last.blocks == cluster => last.blocks += per_cluster,
                _ => parts.push(BlockRun { start: FsBlock(cluster), blocks: per_cluster }),
            }
        }
        parts
    }
}

/// Clusters that are remembered one by one.
const PARTLY_FREED_MAX: usize = 4096;

/// Whether blocks of a cluster were freed by a transaction that may not be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartlyFreed {
    No,
    In(TransactionId),
    /// Too many to know: all changes must be durable.
    All,
}

/// Whether a held cluster is set on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldCluster {
    /// The file has blocks in it.
    Mapped,
    /// It was kept just now.
    Kept,
}

impl Allocator {
    /// Some blocks of a file's cluster are mapped no longer, others are.
    pub(crate) fn note_partly_freed(&self, inode: InodeNumber, number: u64, transaction: TransactionId) {
        self.holds.state.lock().partly_freed.insert((inode, number), transaction);
    }

    /// The transaction that must be durable before unmapped blocks of a file's cluster are used.
    pub(crate) fn partly_freed(&self, inode: InodeNumber, number: u64) -> PartlyFreed {
        let mut state = self.holds.state.lock();
        if state.partly_freed.len() > PARTLY_FREED_MAX {
            state.partly_freed.clear();
            return PartlyFreed::All;
        }
        state.partly_freed.remove(&(inode, number)).map_or(PartlyFreed::No, PartlyFreed::In)
    }

    /// The cluster that reservations hold for a file's cluster, held once more; `None` if none does.
    pub(crate) fn hold_again(&self, inode: InodeNumber, number: u64) -> Option<FsBlock> {
        let mut state = self.holds.state.lock();
        let hold = state.holds.get_mut(&(inode, number))?;
        hold.holders += 1;
        Some(hold.cluster)
    }

    /// Hold a cluster for a file's cluster. If another thread was first, its cluster counts, and one that was
    /// [`HeldCluster::Kept`] is given back.
    pub(crate) fn hold(
        &self,
        inode: InodeNumber,
        number: u64,
        cluster: FsBlock,
        found: HeldCluster,
    ) -> FsBlock {
        let mut state = self.holds.state.lock();
        let recorded = found == HeldCluster::Mapped;
        let fresh = Hold { cluster, holders: 0, recorded };
        let hold = state.holds.entry((inode, number)).or_insert(fresh);
        hold.holders += 1;
        let held = hold.cluster;
        drop(state);
        if held != cluster && found == HeldCluster::Kept {
            self.release(cluster, 1);
        }
        held
    }

    /// Whether the cluster must be set on disk when blocks in it are mapped; it counts as set from now on. `None` if
    /// it is not held.
    pub(crate) fn record_held(&self, inode: InodeNumber, number: u64) -> Option<bool> {
        let mut state = self.holds.state.lock();
        let hold = state.holds.get_mut(&(inode, number))?;
        Some(!std::mem::replace(&mut hold.recorded, true))
    }

    /// A file's cluster has no mapped block any more, and is about to be freed in a transaction.
    pub(crate) fn note_freed(&self, inode: InodeNumber, number: u64) {
        let mut state = self.holds.state.lock();
        let Some(hold) = state.holds.get_mut(&(inode, number)) else { return };
        hold.recorded = false;
        let cluster = hold.cluster.0;
        *state.freeing.entry(cluster).or_default() += 1;
    }

    /// A reservation lets go of a file's cluster.
    pub(crate) fn release_hold(&self, inode: InodeNumber, number: u64) {
        let mut state = self.holds.state.lock();
        let Some(hold) = state.holds.get_mut(&(inode, number)) else { return };
        hold.holders -= 1;
        if hold.holders > 0 {
            return;
        }
        let Hold { cluster, recorded, .. } = *hold;
        state.holds.remove(&(inode, number));
        if recorded {
            return;
        }
        if let Some(count) = state.freeing.get_mut(&cluster.0) {
            // The transaction that freed it gives it back.
            *count -= 1;
            if *count == 0 {
                state.freeing.remove(&cluster.0);
            }
            return;
        }
        self.release(cluster, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 2: a freed run becomes free except for held clusters, once for each time it was freed.
    #[test]
    fn held_clusters_of_a_freed_run_stay_busy() {
        let holds = Holds::default();
        let run = BlockRun { start: FsBlock(64), blocks: 64 };
        assert_eq!(holds.not_busy_for_holders(run, 16), [run]);
        holds.state.lock().freeing.insert(80, 2);
        let parts =
            [BlockRun { start: FsBlock(64), blocks: 16 }, BlockRun { start: FsBlock(96), blocks: 32 }];
        assert_eq!(holds.not_busy_for_holders(run, 16), parts);
        assert_eq!(holds.not_busy_for_holders(run, 16), parts);
        assert_eq!(holds.not_busy_for_holders(run, 16), [run]);
    }
}
