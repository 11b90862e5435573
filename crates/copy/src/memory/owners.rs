//! Owners of a whole tree, and the time of a root that no source describes.

use crate::memory::MemoryTree;
use crate::memory::arena::NodeId;

impl MemoryTree {
    /// Give all files one owner, and one group if there is one.
    pub fn set_owner(&mut self, uid: u32, gid: Option<u32>) {
        let arena = &mut self.state.get_mut().arena;
        for id in arena.all(NodeId::ROOT) {
            let meta = &mut arena[id].meta;
            meta.uid = uid;
            meta.gid = gid.unwrap_or(meta.gid);
            meta.has_unknown_owner &= gid.is_none();
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
