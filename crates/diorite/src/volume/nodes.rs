//! The inodes of a volume that are in use or have cached pages, tied to their content.
//!
//! Where it sits: between the handles of users ([`crate::NodeRef`], files) and the volume.
//!
//! Interface: a [`NodeRef`] keeps its inode alive. An inode without users keeps its cached pages until it is evicted, or its
//! last name goes. Any number of inodes may be in use; about [`IDLE_MAX`] clean ones without users are kept.
//!
//! Invariants:
//! 1. An inode has at most one content: all users get it from the table.
//! 2. A node in the table holds the volume's inode open, so that blocks are not freed under its dirty pages.
//! 3. A node is among the idle ones of its shard if and only if it is in the table without users, but for the moment between
//!    [`Volume::create_open`] and the first use.
//! 4. An operation on the table looks at a bounded number of nodes.
//!
//! Locking: inside a shard's lock only the volume's inode cache is locked; it is never held across a commit or I/O. Content is
//! recorded before a use ends, and discarded after its node has left the table.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use diorite_block::sync::{Mutex, MutexGuard, Rank};
use diorite_block::{BioFlags, NumberHasher};
use diorite_ext::{Inode, Volume};

use crate::cache::engine::Engine;
use crate::content::Content;
use crate::store::map::SyncKind;
use crate::volume::removals::Removals;
use crate::volume::service::Service;
use crate::{Attributes, Error, InodeNumber, NodeSpec, RenameMode, Result};

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 64;
/// Clean nodes without users that are kept.
const IDLE_MAX: usize = 4096;
/// Idle nodes that are examined when one is added, and evicted at most: more than one, so that their number falls
/// while it is too high.
const LOOKS: usize = 8;
const EVICTED_MAX: usize = 2;

/// On a sound volume, a name never keeps referring to an inode without links.
const ATTEMPTS_MAX: u32 = 1000;

/// The inodes of a volume that are in use or have cached pages.
pub(crate) struct Nodes {
    pub(crate) volume: Arc<Volume>,
    pub(crate) engine: Arc<Engine>,
    shards: [Mutex<Shard>; SHARDS],
    mark: Service,
    root: OnceLock<Arc<Inode>>,
    timer: Service,
    removals: Removals,
    is_closed: AtomicBool,
}

diorite_block::short_debug!(Nodes, volume);

/// A part of the table.
#[derive(Debug, Default)]
struct Shard {
    nodes: HashMap<InodeNumber, Slot, BuildHasherDefault<NumberHasher>>,
    /// Nodes without users, by the number of their last use (LRU).
    idle: BTreeMap<u64, Arc<Node>>,
    last_use: u64,
}

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    /// Its number among the idle nodes, if it is one.
    idle_since: Option<u64>,
}

pub(crate) struct Node {
    pub(super) inode: Arc<Inode>,
    /// Made when the file is first opened.
    pub(super) content: OnceLock<Arc<Content>>,
    /// References of users. Changes from and to 0 under the shard's lock.
    users: AtomicUsize,
}

diorite_block::short_debug!(Node, inode);

impl Node {
    pub(super) fn content(&self) -> Option<Arc<Content>> {
        self.content.get().cloned()
    }

    fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    /// End a use unless it is the last one: whether it was ended.
    fn end_one_of_several(&self) -> bool {
        let fewer = |users: usize| (users > 1).then(|| users - 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_ok()
    }

    fn is_clean(&self) -> bool {
        self.content().is_none_or(|content| content.cache.is_clean() && content.store.is_recorded())
    }
}

impl Shard {
    /// The node of an inode, if it is in the table, with one user more.
    fn use_node(&mut self, inode: &Arc<Inode>) -> Option<Arc<Node>> {
        let slot = self.nodes.get_mut(&inode.number()).filter(|slot| Arc::ptr_eq(&slot.node.inode, inode))?;
        slot.node.users.fetch_add(1, Ordering::AcqRel);
        let (node, idle_since) = (Arc::clone(&slot.node), slot.idle_since.take());
        idle_since.and_then(|number| self.idle.remove(&number));
        Some(node)
    }

    fn is_current(&self, node: &Arc<Node>) -> bool {
        self.nodes.get(&node.inode.number()).is_some_and(|slot| Arc::ptr_eq(&slot.node, node))
    }

    /// A new node; returns the one that was there of an inode that had the number before.
    fn insert(&mut self, node: &Arc<Node>) -> Option<Arc<Node>> {
        let stale = self.remove(node.inode.number());
        self.nodes.insert(node.inode.number(), Slot { node: Arc::clone(node), idle_since: None });
        stale
    }

    fn remove(&mut self, number: InodeNumber) -> Option<Arc<Node>> {
        let slot = self.nodes.remove(&number)?;
        slot.idle_since.and_then(|number| self.idle.remove(&number));
        Some(slot.node)
    }

    /// A node of the table no longer has users; returns the nodes that are evicted for it.
    fn rest(&mut self, node: &Arc<Node>) -> [Option<Arc<Node>>; EVICTED_MAX] {
        let evicted = self.evict();
        self.make_idle(Arc::clone(node));
        evicted
    }

    fn make_idle(&mut self, node: Arc<Node>) {
        if let Some(slot) = self.nodes.get_mut(&node.inode.number()) {
            self.last_use += 1;
            slot.idle_since = Some(self.last_use);
            self.idle.insert(self.last_use, node);
        }
    }

    /// If there are too many idle nodes, evict the least recently used clean ones. Dirty ones are examined again
    /// later.
    fn evict(&mut self) -> [Option<Arc<Node>>; EVICTED_MAX] {
        let mut evicted: [Option<Arc<Node>>; EVICTED_MAX] = Default::default();
        let mut count = 0;
        for _ in 0..LOOKS {
            if self.idle.len() < IDLE_MAX / SHARDS || count == EVICTED_MAX {
                break;
            }
            let Some((_, node)) = self.idle.pop_first() else { break };
            if node.is_clean() {
                self.nodes.remove(&node.inode.number());
                evicted[count] = Some(node);
                count += 1;
            } else {
                self.make_idle(node);
            }
        }
        evicted
    }
}

impl Nodes {
    pub(crate) fn new(volume: Arc<Volume>, engine: Arc<Engine>) -> Arc<Self> {
        let mark = Service::mmp_heartbeat(&volume);
        Arc::new(Self {
            timer: Service::commit_timer(&volume),
            volume,
            engine,
            shards: std::array::from_fn(|_| Mutex::ranked(Rank::NodeTable, Shard::default())),
            mark,
            root: OnceLock::new(),
            removals: Removals::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The root directory's inode.
    pub(crate) fn root(&self) -> Result<Arc<Inode>> {
        if let Some(root) = self.root.get() {
            return Ok(root.clone());
        }
        let root = self.volume.inodes.get(InodeNumber::ROOT)?;
        Ok(self.root.get_or_init(|| root).clone())
    }

    /// The attributes of an inode that was just found by a name.
    pub(crate) fn attributes(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<Attributes> {
        // An inode that is not open has no content in memory (invariant 2).
        let attributes =
            if inode.is_open() { self.acquire(Arc::clone(inode))?.attributes()? } else { inode.attributes() };
        // Removed since it was found.
        if attributes.links == 0 { Err(diorite_ext::Error::Stale.into()) } else { Ok(attributes) }
    }

    /// Remove a name of anything but a directory.
    pub(crate) fn unlink(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        let _removal = self.removals.begin();
        let inode = self.volume.names.unlink(directory, name)?;
        self.name_removed(&inode)
    }

    /// Rename from a directory and name to another.
    pub(crate) fn rename(
        &self,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let _removal = self.removals.begin();
        match self.with_space(|volume| volume.names.rename(from, name, to, to_name, mode))? {
            Some(replaced) => self.name_removed(&replaced),
            None => Ok(()),
        }
    }

    fn shard(&self, number: InodeNumber) -> MutexGuard<'_, Shard> {
        self.shards[number.0 as usize % SHARDS].lock()
    }

    /// A reference to an inode; [`diorite_ext::Error::Stale`] if it was removed since it was looked up.
    pub(crate) fn acquire(self: &Arc<Self>, inode: Arc<Inode>) -> Result<NodeRef> {
        let mut shard = self.shard(inode.number());
        if let Some(node) = shard.use_node(&inode) {
            return Ok(self.reference(node));
        }
        inode.open()?;
        Ok(self.insert(shard, inode))
    }

    /// See [`Engine::with_space`].
    pub(crate) fn with_space<T>(
        &self,
        mut change: impl FnMut(&Volume) -> diorite_ext::Result<T>,
    ) -> Result<T> {
        self.engine.with_space(|| Ok(change(&self.volume)?))
    }

    /// Make a file, directory or node, and refer to it before another thread can remove it.
    pub(crate) fn create(
        self: &Arc<Self>,
        directory: &Inode,
        name: &[u8],
        spec: &NodeSpec,
    ) -> Result<NodeRef> {
        let inode = self.with_space(|volume| volume.names.create_open(directory, name, spec))?;
        let mut shard = self.shard(inode.number());
        if let Some(node) = shard.use_node(&inode) {
            // Another thread has found it since, and the node has it open.
            drop(shard);
            self.volume.lifecycle.close(&inode)?;
            return Ok(self.reference(node));
        }
        Ok(self.insert(shard, inode))
    }

    /// Make a file without a name, and refer to it.
    pub(crate) fn create_nameless(self: &Arc<Self>, directory: &Inode, spec: &NodeSpec) -> Result<NodeRef> {
        let inode = self.with_space(|volume| volume.names.create_nameless(directory, spec))?;
        let shard = self.shard(inode.number());
        Ok(self.insert(shard, inode))
    }

    fn reference(self: &Arc<Self>, node: Arc<Node>) -> NodeRef {
        NodeRef { nodes: Arc::clone(self), node }
    }

    /// Put an inode that is open into the table.
    fn insert(self: &Arc<Self>, mut shard: MutexGuard<'_, Shard>, inode: Arc<Inode>) -> NodeRef {
        let node = Arc::new(Node { inode, content: OnceLock::new(), users: AtomicUsize::new(1) });
        let stale = shard.insert(&node);
        drop(shard);
        if let Some(stale) = stale {
            // The error of closing an inode without users is lost here.
            let _ = self.close_node(&stale);
        }
        self.reference(node)
    }

    /// A node that left the table drops its pages and closes its inode.
    fn close_node(&self, node: &Node) -> Result<()> {
        if let Some(content) = node.content() {
            content.discard();
        }
        Ok(self.volume.lifecycle.close(&node.inode)?)
    }

    /// The last user of a node records its modification time. Another user may write meanwhile, so there may be
    /// another time to record. Returns the locked shard when there is none; `None` if the use has ended as one of
    /// several.
    fn record_as_last_user(&self, node: &Node) -> Option<MutexGuard<'_, Shard>> {
        // With dirty pages left, the writeback records it.
        let recorded_here = |content: &Arc<Content>| content.cache.is_clean() && !node.inode.is_nameless();
        loop {
            if node.end_one_of_several() {
                return None;
            }
            let content = node.content().filter(recorded_here);
            let recorded = content.map_or(Ok(()), |content| content.store.record_metadata(SyncKind::All));
            let shard = self.shard(node.inode.number());
            // Another user may write until it ends its use. A new use needs the shard.
            if recorded.is_ok() && node.users.load(Ordering::Acquire) > 1 {
                continue;
            }
            let has_time = |content: Arc<Content>| content.store.time.get().is_some();
            // The volume latches failures.
            if recorded.is_err() || !node.content().filter(recorded_here).is_some_and(has_time) {
                return Some(shard);
            }
        }
    }

    /// A use of a node ends.
    fn release(&self, node: &Arc<Node>) {
        let Some(mut shard) = self.record_as_last_user(node) else { return };
        if node.users.fetch_sub(1, Ordering::AcqRel) > 1 || !shard.is_current(node) {
            return;
        }
        let mut _removal = None;
        if node.inode.is_nameless() && node.inode.retire_nameless() {
            _removal = Some(self.removals.begin());
        } else if node.content().is_some_and(|content| content.cache.pages.cached() > 0) {
            // Also of an inode that has lost its name and that another thread has open: the one that made it, and is about to refer to it, or one
            // that is about to close it for a node that has left the table.
            let evicted = shard.rest(node);
            drop(shard);
            for node in evicted.iter().flatten() {
                let _ = self.close_node(node);
            }
            return;
        }
        shard.remove(node.inode.number());
        drop(shard);
        let _ = self.close_node(node);
    }

    /// A name of `inode` was removed. If it was the last and the inode has no users, drop its pages and let the
    /// volume free it.
    fn name_removed(&self, inode: &Arc<Inode>) -> Result<()> {
        if !inode.is_open() {
            return Ok(());
        }
        let mut shard = self.shard(inode.number());
        let Some(slot) = shard.nodes.get(&inode.number()).filter(|slot| Arc::ptr_eq(&slot.node.inode, inode))
        else {
            return Ok(());
        };
        // A thread that still finds the inode must not see it without the data that is discarded.
        if !slot.node.is_idle() || !inode.retire_nameless() {
            return Ok(());
        }
        let node = shard.remove(inode.number()).expect("just seen");
        drop(shard);
        self.close_node(&node)
    }

    /// Drop the clean pages of all files.
    pub(crate) fn drop_clean(&self) {
        for node in self.use_all() {
            node.content().iter().for_each(|content| content.drop_clean());
            self.release(&node);
        }
    }

    /// All nodes that have content, by inode number, each with one user more, so that none is freed while it is written back.
    fn use_all(&self) -> Vec<Arc<Node>> {
        let mut nodes = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let with_content = shard.nodes.values().filter(|slot| slot.node.content().is_some());
            let inodes: Vec<Arc<Inode>> = with_content.map(|slot| Arc::clone(&slot.node.inode)).collect();
            nodes.extend(inodes.iter().filter_map(|inode| shard.use_node(inode)));
        }
        nodes.sort_unstable_by_key(|node| node.inode.number());
        nodes
    }

    /// Write everything back, record it and make it durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.volume.check_process()?;
        let mut result = Ok(());
        let nodes = self.use_all();
        // Most of it, in few transfers; ranges in use follow, file by file.
        self.engine.write_back_round(0, BioFlags::SYNC, |_| false);
        for node in nodes {
            if let Some(content) = node.content() {
                let written = content.cache.write_back_all();
                result = result.and(written).and(content.store.record_metadata(SyncKind::All));
            }
            self.release(&node);
        }
        result.and(self.volume.sync().map_err(Error::from))
    }

    /// Sync, evict everything and close the volume, unless a node is in use. Removals of other threads end first.
    pub(crate) fn close(&self) -> Result<()> {
        self.volume.check_process()?;
        let in_use = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.nodes.len() - shard.idle.len()
        };
        let in_use = self.shards.iter().map(in_use).sum();
        if in_use > 0 {
            return Err(Error::Busy(in_use));
        }
        self.removals.wait();
        let synced = self.sync();
        self.is_closed.store(true, Ordering::Release);
        self.mark.stop();
        self.timer.stop();
        // The image can be opened again at once: no readahead still has it.
        self.engine.workers.stop();
        synced.and(self.evict_all()).and(self.volume.close().map_err(Error::from))
    }

    /// Evict all nodes without users; they are clean.
    fn evict_all(&self) -> Result<()> {
        let mut idle: Vec<Arc<Node>> = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let nodes: Vec<_> = std::mem::take(&mut shard.idle).into_values().collect();
            for node in &nodes {
                shard.nodes.remove(&node.inode.number());
            }
            idle.extend(nodes);
        }
        idle.sort_unstable_by_key(|node| node.inode.number());
        idle.iter().map(|node| self.close_node(node)).fold(Ok(()), Result::and)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // There is no caller to report an error to: `close` reports it. In a forked child everything is the parent's to write.
        if !self.is_closed.load(Ordering::Acquire) && self.volume.check_process().is_ok() {
            let _ = self.close();
        }
    }
}

/// An inode that is kept alive. It outlives its last name until its last reference is dropped.
pub struct NodeRef {
    pub(super) nodes: Arc<Nodes>,
    pub(super) node: Arc<Node>,
}

impl Clone for NodeRef {
    fn clone(&self) -> Self {
        self.node.users.fetch_add(1, Ordering::AcqRel);
        self.nodes.reference(Arc::clone(&self.node))
    }
}

diorite_block::short_debug!(NodeRef, node);

impl Drop for NodeRef {
    fn drop(&mut self) {
        // A forked child ends no use of its parent.
        if self.nodes.volume.check_process().is_ok() {
            self.nodes.release(&self.node);
        }
    }
}

/// Attempt an operation on a path, again while its inode was removed in between: the name may refer to another inode
/// now.
pub(crate) fn while_stale<R>(mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if matches!(error.volume_error(), Some(diorite_ext::Error::Stale)) => {}
            result => return result,
        }
    }
    attempt()
}
