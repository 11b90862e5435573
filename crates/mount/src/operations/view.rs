//! The volume as it is shown to clients: settings, and inodes by number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use diorite::front_end::ReservedBlocks;
use diorite::{Filesystem, InodeNumber, NodeRef, Result};

use super::{Caller, Clients, Entry, LiveSettings, Settings, stale};

/// See the module's head.
#[derive(Debug)]
pub(super) struct View {
    pub(super) filesystem: Filesystem,
    pub(super) clients: Clients,
    settings: Settings,
    live: RwLock<LiveSettings>,
    /// The number of times that any file got capabilities, from 1 on.
    capabilities_given: AtomicU64,
}

impl View {
    pub(super) fn new(filesystem: Filesystem, settings: Settings) -> Self {
        let live = RwLock::new(settings.live);
        Self {
            filesystem,
            clients: Clients::default(),
            settings,
            live,
            capabilities_given: AtomicU64::new(1),
        }
    }

    pub(super) fn live(&self) -> LiveSettings {
        *self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_live(&self, live: LiveSettings) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
    }

    pub(super) fn capabilities_given(&self) -> u64 {
        self.capabilities_given.load(Ordering::Acquire)
    }

    pub(super) fn note_capabilities(&self) {
        self.capabilities_given.fetch_add(1, Ordering::AcqRel);
    }

    /// See [`Operations::node`](super::Operations::node).
    pub(super) fn node(&self, number: InodeNumber) -> Result<NodeRef> {
        if let Some(node) = self.clients.held(number) {
            return Ok(node);
        }
        self.filesystem.node(number).map_err(|error| if error.is_not_found() { stale() } else { error })
    }

    /// An inode with its attributes as they are shown.
    pub(super) fn entry(&self, node: NodeRef) -> Result<Entry> {
        let (mut attributes, settings) = (node.attributes()?, &self.settings);
        attributes.owner.uid = settings.uid.unwrap_or(attributes.owner.uid);
        attributes.owner.gid = settings.gid.unwrap_or(attributes.owner.gid);
        attributes.permissions &= !settings.umask;
        Ok(Entry { node, attributes })
    }

    /// An inode has changed: make it durable if the mount or a flag of the inode asks for that.
    pub(super) fn inode_changed(&self, node: &NodeRef) -> Result<()> {
        let is_synchronous = self.live().sync || node.attributes()?.is_synchronous();
        if is_synchronous { node.sync() } else { Ok(()) }
    }

    /// See [`Operations::reserved_blocks`](super::Operations::reserved_blocks).
    pub(super) fn reserved_blocks(&self, caller: &Caller) -> ReservedBlocks {
        let owner = self.filesystem.reserved_blocks_owner();
        let is_of_group = owner.gid != 0 && caller.gid == owner.gid;
        let is_usable = caller.is_superuser() || caller.uid == owner.uid || is_of_group;
        if is_usable { ReservedBlocks::Usable } else { ReservedBlocks::Kept }
    }
}
