//! Owners of a whole tree, and the time of a root directory that no source has.

use crate::memory::MemoryTree;
use crate::memory::arena::NodeId;

impl MemoryTree {
    /// Give all files this owner and this group, as far as they are given.
    pub fn set_owner(&mut self, uid: Option<u32>, gid: Option<u32>) {
        let arena = &mut self.state.get_mut().arena;
        for id in arena.all(NodeId::ROOT) {
            let meta = &mut arena[id].meta;
            meta.uid = uid.unwrap_or(meta.uid);
            meta.gid = gid.unwrap_or(meta.gid);
            meta.has_unknown_owner &= uid.is_none() || gid.is_none();
        }
    }

    /// A root that no source describes gets the newest time of the content, so that equal sources have equal roots.
    pub fn complete_root(&mut self) {
        let newest = self.newest();
        let root = &mut self.state.get_mut().arena[NodeId::ROOT];
        if let Some(newest) = newest.filter(|_| root.is_implied) {
            (root.meta.modified, root.meta.accessed) = (newest, newest);
        }
    }
}
