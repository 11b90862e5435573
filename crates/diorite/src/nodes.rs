//! The inodes of a volume that are in use or have cached pages, tied to their content.
//!
//! Where it sits: between what users hold ([`crate::NodeRef`], files) and the volume.
//!
//! Interface: a [`NodeUse`] keeps its inode alive. An inode that nobody uses keeps its cached pages until they are replaced, or its
//! last name goes.
//!
//! Invariants:
//! 1. An inode has at most one content. Whoever finds an inode goes through the table.
//! 2. A node in the table holds the volume's inode open, so that blocks are not freed under its dirty pages.
//!
//! Locking: the table, then the volume's locks. Content is discarded outside of the table's lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use diorite_block::sync::{Mutex, MutexGuard};
use diorite_ext::{Inode, Volume};

use crate::commit_timer::CommitTimer;
use crate::content::Content;
use crate::content::engine::Engine;
use crate::ext_map::ExtMap;
use crate::host_mark::HostMark;
use crate::map::Durability;
use crate::{Attributes, Error, InodeNumber, NodeSpec, RenameMode, Result};

/// Nodes that nobody uses are swept when the table is larger than this.
const NODES_MAX: usize = 4096;

/// Only on a damaged volume does a name go on leading to an inode that has lost its last one.
const ATTEMPTS_MAX: u32 = 1000;

type Table = HashMap<InodeNumber, Arc<Node>>;

/// The inodes of a volume that are in use or have cached pages.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) volume: Arc<Volume>,
    pub(crate) engine: Arc<Engine>,
    table: Mutex<Table>,
    mark: HostMark,
    root: OnceLock<Arc<Inode>>,
    timer: CommitTimer,
    is_closed: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Node {
    inode: Arc<Inode>,
    /// Made when the file is first opened.
    content: Mutex<Option<Arc<Content>>>,
    /// References that users hold. Changes under the table's lock.
    users: Mutex<usize>,
}

impl Node {
    fn content(&self) -> Option<Arc<Content>> {
        self.content.lock().clone()
    }

    fn is_idle(&self) -> bool {
        *self.users.lock() == 0
    }

    fn is_clean(&self) -> bool {
        self.content().is_none_or(|content| content.pages.dirty() == 0 && content.modified().is_none())
    }
}

impl Nodes {
    pub(crate) fn new(volume: Arc<Volume>, engine: Arc<Engine>) -> Arc<Self> {
        let mark = HostMark::keep(&volume);
        Arc::new(Self {
            timer: CommitTimer::start(&volume),
            volume,
            engine,
            table: Mutex::default(),
            mark,
            root: OnceLock::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The root directory's inode.
    pub(crate) fn root(&self) -> Result<Arc<Inode>> {
        if let Some(root) = self.root.get() {
            return Ok(root.clone());
        }
        let root = self.volume.inode(InodeNumber::ROOT)?;
        Ok(self.root.get_or_init(|| root).clone())
    }

    /// What `stat` tells of an inode that was just found by a name.
    pub(crate) fn attributes(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<Attributes> {
        // What nobody has open has no content in memory (invariant 2).
        let attributes = if inode.is_open() {
            self.acquire(Arc::clone(inode))?.attributes()
        } else {
            self.volume.attributes(inode)
        };
        // Removed since it was found.
        if attributes.links == 0 { Err(diorite_ext::Error::Stale.into()) } else { Ok(attributes) }
    }

    /// Remove a name of anything but a directory.
    pub(crate) fn unlink(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        let inode = self.volume.unlink(directory, name)?;
        self.name_removed(&inode)
    }

    /// Rename from a directory and name to another.
    pub(crate) fn rename(
        &self,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        match self.volume.rename(from, name, to, to_name, mode)? {
            Some(replaced) => self.name_removed(&replaced),
            None => Ok(()),
        }
    }

    /// A reference to an inode; [`diorite_ext::Error::Stale`] if it was removed since it was looked up.
    pub(crate) fn acquire(self: &Arc<Self>, inode: Arc<Inode>) -> Result<Arc<NodeUse>> {
        let table = self.table.lock();
        if let Some(node) = Self::used_once_more(&table, &inode) {
            return Ok(self.reference(node));
        }
        self.volume.open_inode(&inode)?;
        Ok(self.insert(table, inode))
    }

    /// Make a file, directory or node, and refer to it before anybody else can remove it.
    pub(crate) fn create(
        self: &Arc<Self>,
        directory: &Inode,
        name: &[u8],
        spec: &NodeSpec,
    ) -> Result<Arc<NodeUse>> {
        let inode = self.volume.create_open(directory, name, spec)?;
        let table = self.table.lock();
        if let Some(node) = Self::used_once_more(&table, &inode) {
            // Somebody has found it since, and the node has it open.
            drop(table);
            self.volume.close_inode(&inode)?;
            return Ok(self.reference(node));
        }
        Ok(self.insert(table, inode))
    }

    /// The node of an inode, if it is in the table, with one user more.
    fn used_once_more(table: &Table, inode: &Arc<Inode>) -> Option<Arc<Node>> {
        let node = table.get(&inode.number()).filter(|node| Arc::ptr_eq(&node.inode, inode))?;
        *node.users.lock() += 1;
        Some(Arc::clone(node))
    }

    fn reference(self: &Arc<Self>, node: Arc<Node>) -> Arc<NodeUse> {
        Arc::new(NodeUse { nodes: Arc::clone(self), node })
    }

    /// Put an inode that is open into the table.
    fn insert(self: &Arc<Self>, mut table: MutexGuard<'_, Table>, inode: Arc<Inode>) -> Arc<NodeUse> {
        // There may be one that had its number before.
        let stale = table.remove(&inode.number());
        let node = Arc::new(Node { inode, content: Mutex::default(), users: Mutex::new(1) });
        table.insert(node.inode.number(), Arc::clone(&node));
        let swept = if table.len() > NODES_MAX { Self::sweep(&mut table) } else { Vec::new() };
        drop(table);
        for node in swept.into_iter().chain(stale) {
            // What is lost here is the error of giving up an inode that nobody has open.
            let _ = self.put_away(&node);
        }
        self.reference(node)
    }

    /// Take clean nodes that nobody uses out of the table, half of it at most.
    fn sweep(table: &mut Table) -> Vec<Arc<Node>> {
        let mut numbers: Vec<InodeNumber> = table
            .iter()
            .filter(|(_, node)| node.is_idle() && node.is_clean())
            .map(|(number, _)| *number)
            .collect();
        numbers.sort_unstable();
        numbers.truncate(NODES_MAX / 2);
        numbers.iter().filter_map(|number| table.remove(number)).collect()
    }

    /// A node that left the table gives up its pages and its inode.
    fn put_away(&self, node: &Node) -> Result<()> {
        if let Some(content) = node.content() {
            if self.volume.attributes(&node.inode).links == 0 {
                content.forget_errors();
            }
            content.discard();
        }
        Ok(self.volume.close_inode(&node.inode)?)
    }

    /// A user is done with a node.
    fn release(&self, node: &Arc<Node>) {
        let mut table = self.table.lock();
        let mut users = node.users.lock();
        *users -= 1;
        if *users > 0 {
            return;
        }
        drop(users);
        let is_current = table.get(&node.inode.number()).is_some_and(|current| Arc::ptr_eq(current, node));
        if !is_current {
            return;
        }
        let has_pages = node.content().is_some_and(|content| content.pages.cached() > 0);
        if self.volume.attributes(&node.inode).links > 0 {
            if let Some(content) = node.content() {
                // The volume latches what fails here.
                let _ = content.record(Durability::All);
            }
            if has_pages {
                return;
            }
        } else if !self.volume.retire_inode(&node.inode) {
            // Who made it is about to refer to it.
            return;
        }
        table.remove(&node.inode.number());
        drop(table);
        let _ = self.put_away(node);
    }

    /// A name of `inode` is gone. If it was the last and nobody uses the inode, its pages go, and the volume frees it.
    fn name_removed(&self, inode: &Arc<Inode>) -> Result<()> {
        if !inode.is_open() {
            return Ok(());
        }
        let mut table = self.table.lock();
        let Some(node) = table.get(&inode.number()).filter(|node| Arc::ptr_eq(&node.inode, inode)) else {
            return Ok(());
        };
        // Whoever still finds the inode must not see it without the data that is discarded.
        if !node.is_idle() || !self.volume.retire_inode(inode) {
            return Ok(());
        }
        let node = table.remove(&inode.number()).expect("just seen");
        drop(table);
        self.put_away(&node)
    }

    /// The contents of all nodes, by inode number.
    pub(crate) fn contents(&self) -> Vec<Arc<Content>> {
        let table = self.table.lock();
        let mut nodes: Vec<&Arc<Node>> = table.values().collect();
        nodes.sort_unstable_by_key(|node| node.inode.number());
        nodes.iter().filter_map(|node| node.content()).collect()
    }

    /// All nodes in the table, by inode number, each with one user more, so that none is freed while it is written back.
    fn use_all(&self) -> Vec<Arc<Node>> {
        let table = self.table.lock();
        let mut nodes: Vec<Arc<Node>> = table.values().cloned().collect();
        for node in &nodes {
            *node.users.lock() += 1;
        }
        drop(table);
        nodes.sort_unstable_by_key(|node| node.inode.number());
        nodes
    }

    /// Write everything back, record it and make it durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut result = Ok(());
        for node in self.use_all() {
            if let Some(content) = node.content() {
                let written = content.write_back_all();
                // Among the failures that were reported to no caller is the one of this moment.
                let unreported = content.errors.tell_unheard();
                result = result.and(written).and(unreported).and(content.record(Durability::All));
            }
            self.release(&node);
        }
        result.and(self.engine.errors.tell_unheard()).and(self.volume.sync().map_err(Error::from))
    }

    /// Sync, give up everything and close the volume, unless somebody uses a node.
    pub(crate) fn close(&self) -> Result<()> {
        let in_use = self.table.lock().values().filter(|node| !node.is_idle()).count();
        if in_use > 0 {
            return Err(Error::Busy(in_use));
        }
        let synced = self.sync();
        self.is_closed.store(true, Ordering::Release);
        self.mark.stop();
        self.timer.stop();
        // The image can be opened again at once: no read-ahead still has it.
        self.engine.workers.stop();
        synced.and(self.put_all_away()).and(self.volume.close().map_err(Error::from))
    }

    /// Give up all nodes that nobody uses; they are clean.
    fn put_all_away(&self) -> Result<()> {
        let mut table = self.table.lock();
        let mut idle: Vec<Arc<Node>> = table.values().filter(|node| node.is_idle()).cloned().collect();
        table.retain(|_, node| !node.is_idle());
        drop(table);
        idle.sort_unstable_by_key(|node| node.inode.number());
        idle.iter().map(|node| self.put_away(node)).fold(Ok(()), Result::and)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Nobody is left who could be told of an error; who wants to know closes.
        if !self.is_closed.load(Ordering::Acquire) {
            let _ = self.close();
        }
    }
}

/// A use of a node, ended by its drop.
pub(crate) struct NodeUse {
    nodes: Arc<Nodes>,
    node: Arc<Node>,
}

impl NodeUse {
    /// The table that it is in.
    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// The inode.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.node.inode
    }

    /// The content, if the file was opened since the node is in the table.
    pub(crate) fn content(&self) -> Option<Arc<Content>> {
        self.node.content()
    }

    /// The content of a regular file, made if there is none yet.
    pub(crate) fn open_content(&self) -> Result<Arc<Content>> {
        let mut content = self.node.content.lock();
        if let Some(content) = &*content {
            return Ok(Arc::clone(content));
        }
        let map = ExtMap::new(Arc::clone(&self.nodes.volume), Arc::clone(self.inode()));
        let new = Content::new(Box::new(map), Arc::clone(&self.nodes.engine))?;
        *content = Some(Arc::clone(&new));
        Ok(new)
    }

    /// What `stat` tells: what is still in the page cache included.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut attributes = self.nodes.volume.attributes(self.inode());
        if let Some(content) = self.content() {
            attributes.size = content.size();
            attributes.sectors += content.map.claimed() * (content.map.block_size() / 512);
            if let Some(modified) = content.modified() {
                // As write-back will record it: an operation on the inode since the write has changed it later.
                attributes.modified = self.nodes.volume.time_as_stored(self.inode(), modified);
                attributes.changed = attributes.changed.max(attributes.modified);
            }
        }
        attributes
    }
}

impl fmt::Debug for NodeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeUse").field("inode", &self.node.inode.number()).finish_non_exhaustive()
    }
}

impl Drop for NodeUse {
    fn drop(&mut self) {
        self.nodes.release(&self.node);
    }
}

/// Look up and use what a name leads to; again if it was removed in between, since the name may lead to something else now.
pub(crate) fn while_stale<R>(mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(Error::Volume(diorite_ext::Error::Stale)) => {}
            result => return result,
        }
    }
    attempt()
}
