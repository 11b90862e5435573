//! Quota charge of an inode: the part of its state that the quota files count.

use crate::Owner;
use crate::inode::InodeState;
use crate::layout::{InodeFlags, QuotaKind};

/// Quota charge of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) owner: Owner,
    pub(crate) project: u32,
    pub(crate) sectors: u64,
}

impl Charge {
    /// The number under which a kind of quota file counts it.
    pub(crate) fn id(&self, kind: QuotaKind) -> u32 {
        kind.id(self.owner, self.project)
    }
}

impl InodeState {
    /// The charge of an inode with this state.
    pub(crate) fn charge(&self) -> Option<Charge> {
        if self.freed || self.flags.contains(InodeFlags::EA_INODE) {
            return None;
        }
        Some(Charge { owner: self.owner, project: self.project, sectors: self.sectors })
    }
}
