//! Operations on inodes, without paths: what a mount needs.
//!
//! Where it sits: between the path API (`filesystem.rs`) and the volume. The table of nodes ties the volume's inodes to
//! their cached content.
//!
//! Interface:
//! - A [`NodeRef`] keeps its inode alive: it outlives its last name until the last `NodeRef` and [`File`] of it is dropped, as
//!   a mount's `forget` wants it.
//! - An inode that nobody uses keeps its cached pages until they are replaced, or its last name goes.
//!
//! Invariants:
//! 1. An inode has at most one content. Whoever finds an inode goes through the table.
//! 2. A node in the table holds the volume's inode open, so that blocks are not freed under its dirty pages.
//!
//! Locking: the table, then the volume's locks. Content is discarded outside of the table's lock.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use diorite_block::sync::{Mutex, MutexGuard};
use diorite_ext::{Inode, Volume};

use crate::commit_timer::CommitTimer;
use crate::content::Content;
use crate::content::engine::Engine;
use crate::ext_map::ExtMap;
use crate::file::FileOwner;
use crate::host_mark::HostMark;
use crate::map::Durability;
use crate::{
    Attributes, DirectIo, DirectoryEntry, Error, File, FileKind, InodeNumber, NodeSpec, OpenOptions, Owner,
    RenameMode, Result, SetAttributes, XattrMode,
};

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
            self.acquire(Arc::clone(inode))?.attributes()?
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
    pub(crate) fn acquire(self: &Arc<Self>, inode: Arc<Inode>) -> Result<NodeRef> {
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
    ) -> Result<NodeRef> {
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

    fn reference(self: &Arc<Self>, node: Arc<Node>) -> NodeRef {
        NodeRef { shared: Arc::new(NodeUse { nodes: Arc::clone(self), node }) }
    }

    /// Put an inode that is open into the table.
    fn insert(self: &Arc<Self>, mut table: MutexGuard<'_, Table>, inode: Arc<Inode>) -> NodeRef {
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

    /// Write everything back, record it and make it durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut result = Ok(());
        for content in self.contents() {
            let written = content.write_back_all();
            // Among the failures that nobody heard of is the one of this moment.
            let unheard = content.errors.tell_unheard();
            result = result.and(written).and(unheard).and(content.record(Durability::All));
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
struct NodeUse {
    nodes: Arc<Nodes>,
    node: Arc<Node>,
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

/// An inode that is kept alive. Clones share the reference.
#[derive(Clone, Debug)]
pub struct NodeRef {
    shared: Arc<NodeUse>,
}

impl NodeRef {
    fn volume(&self) -> &Volume {
        &self.shared.nodes.volume
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.shared.node.inode
    }

    fn found(&self, inode: Arc<Inode>) -> Result<Self> {
        self.shared.nodes.acquire(inode)
    }

    /// Its number.
    pub fn number(&self) -> InodeNumber {
        self.inode().number()
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.inode().kind()
    }

    /// The content of a regular file.
    pub(crate) fn content(&self) -> Result<Arc<Content>> {
        match self.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(diorite_ext::Error::IsADirectory.into()),
            _ => return Err(Error::Unsupported("only regular files have content that can be opened")),
        }
        let mut content = self.shared.node.content.lock();
        if let Some(content) = &*content {
            return Ok(Arc::clone(content));
        }
        let nodes = &self.shared.nodes;
        let map = ExtMap::new(Arc::clone(&nodes.volume), Arc::clone(self.inode()));
        let new = Content::new(Box::new(map), Arc::clone(&nodes.engine))?;
        *content = Some(Arc::clone(&new));
        Ok(new)
    }

    /// What `stat` tells: what is still in the page cache included.
    pub fn attributes(&self) -> Result<Attributes> {
        let mut attributes = self.volume().attributes(self.inode());
        if let Some(content) = self.shared.node.content() {
            attributes.size = content.size();
            attributes.sectors += content.map.claimed() * (content.map.block_size() / 512);
            if let Some(modified) = content.modified() {
                (attributes.modified, attributes.changed) = (modified, modified);
            }
        }
        Ok(attributes)
    }

    /// Change attributes.
    pub fn set_attributes(&self, changes: &SetAttributes) -> Result<()> {
        if let Some(content) = self.shared.node.content() {
            if changes.modified.is_some() {
                content.forget_modified();
            } else {
                content.record(Durability::All)?;
            }
        }
        Ok(self.volume().set_attributes(self.inode(), changes)?)
    }

    /// Set the size of a regular file.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.content()?.set_len(size)
    }

    /// Open a regular file.
    pub fn open(&self, options: &OpenOptions) -> Result<File> {
        self.open_as(options, None)
    }

    pub(crate) fn open_as(&self, options: &OpenOptions, path: Option<PathBuf>) -> Result<File> {
        options.check()?;
        let content = self.content()?;
        self.check_readable()?;
        if options.can_write()
            && let Some(reason) = self.volume().read_only_reason()
        {
            return Err(diorite_ext::Error::ReadOnly(reason).into());
        }
        if options.can_write() {
            self.check_flags(options)?;
        }
        if options.truncate && content.size() > 0 {
            content.set_len(0)?;
        }
        let direct = self.direct_io(options.direct)?;
        Ok(File::new(content, Box::new(self.clone()), &options.clone().direct(direct), path))
    }

    /// Whether direct I/O can be had: not on a file whose data is to go through the journal.
    fn direct_io(&self, wanted: DirectIo) -> Result<DirectIo> {
        if wanted == DirectIo::Off || !self.volume().wants_journalled_data(self.inode()) {
            return Ok(wanted);
        }
        if wanted == DirectIo::Preferred {
            return Ok(DirectIo::Off);
        }
        Err(Error::DirectRefused(
            "the file's data goes through the journal (data=journal, or chattr +j); \
             open it with DirectIo::Preferred, or the volume with data=ordered"
                .to_owned(),
        ))
    }

    /// Ciphertext is nobody's content.
    fn check_readable(&self) -> Result<()> {
        const ENCRYPTED: u32 = 0x800;
        let inode = self.inode();
        if self.volume().attributes(inode).flags & ENCRYPTED == 0 {
            return Ok(());
        }
        Err(diorite_ext::Error::Encrypted { inode: inode.number() }.into())
    }

    /// What the inode's flags forbid is refused when the file is opened: a cached write could only be lost later.
    fn check_flags(&self, options: &OpenOptions) -> Result<()> {
        const IMMUTABLE: u32 = 0x10;
        const APPEND_ONLY: u32 = 0x20;
        const VERITY: u32 = 0x0010_0000;
        let flags = self.volume().attributes(self.inode()).flags;
        let refuse = |name| Err(diorite_ext::Error::NotPermitted(name).into());
        if flags & IMMUTABLE != 0 {
            return refuse("immutable");
        }
        if flags & VERITY != 0 {
            return refuse("verity");
        }
        if flags & APPEND_ONLY != 0 && (!options.append || options.truncate) {
            return refuse("append-only");
        }
        Ok(())
    }

    /// The inode behind a name in this directory.
    pub fn lookup(&self, name: &[u8]) -> Result<NodeRef> {
        while_stale(|| self.found(self.volume().lookup(self.inode(), name)?))
    }

    /// Make a file, directory or node in this directory.
    pub fn create(&self, name: &[u8], spec: &NodeSpec) -> Result<NodeRef> {
        self.shared.nodes.create(self.inode(), name, spec)
    }

    /// Make a symbolic link in this directory.
    pub fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<NodeRef> {
        self.found(self.volume().symlink(self.inode(), name, target, owner)?)
    }

    /// Where this symbolic link points.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind() != FileKind::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        Ok(self.volume().read_link(self.inode())?)
    }

    /// Give `original` another name, in this directory.
    pub fn link(&self, original: &NodeRef, name: &[u8]) -> Result<()> {
        Ok(self.volume().link(original.inode(), self.inode(), name)?)
    }

    /// Remove a name of anything but a directory.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.shared.nodes.unlink(self.inode(), name)
    }

    /// Remove an empty directory.
    pub fn remove_directory(&self, name: &[u8]) -> Result<()> {
        Ok(self.volume().remove_directory(self.inode(), name)?)
    }

    /// Rename from this directory to another.
    pub fn rename(&self, name: &[u8], to: &NodeRef, to_name: &[u8], mode: RenameMode) -> Result<()> {
        self.shared.nodes.rename((self.inode(), name), (to.inode(), to_name), mode)
    }

    /// Entries from `cursor` on (0: the first), `.` and `..` included, until `each` returns `false`.
    pub fn read_directory(&self, cursor: u64, each: &mut dyn FnMut(DirectoryEntry) -> bool) -> Result<()> {
        if self.kind() != FileKind::Directory {
            return Err(diorite_ext::Error::NotADirectory.into());
        }
        Ok(self.volume().read_directory(self.inode(), cursor, each)?)
    }

    /// An extended attribute.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.volume().xattr(self.inode(), name)?)
    }

    /// Names of all extended attributes.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.volume().xattr_names(self.inode())?)
    }

    /// Set an extended attribute.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        Ok(self.volume().set_xattr(self.inode(), name, value, mode)?)
    }

    /// Remove an extended attribute.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        Ok(self.volume().remove_xattr(self.inode(), name)?)
    }

    /// Make a file or directory durable.
    pub fn sync(&self) -> Result<()> {
        match self.shared.node.content() {
            Some(content) => content.sync(Durability::All),
            None => Ok(self.volume().sync_inode(self.inode(), diorite_ext::SyncKind::All)?),
        }
    }
}

impl FileOwner for NodeRef {
    fn attributes(&self) -> Result<Attributes> {
        NodeRef::attributes(self)
    }
}
