//! An inode in memory.
//!
//! Interface:
//! - [`Inode::state`] guards everything that changes. A caller that changes it stores it with [`Files::store`](crate::Files) in
//!   the same handle; inode-table blocks are never newer than the state.
//! - An inode that was freed may still be held by a caller that looked it up before, and its number may be another's by now. Nothing
//!   may be read or changed on the volume through it: [`Inode::read_in_use`] and [`Inode::write_in_use`] refuse.
//! - The raw bytes after the fixed fields (extended attributes, inline data) are reached with [`InodeStore::raw`](crate::InodeStore).
//!
//! Locking: the state's lock is taken before a handle begins (see the crate's head).

mod attributes;
mod change;
mod charge;
mod content_use;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use diorite_block::sync::{Rank, ReadGuard, RwLock, WriteGuard};

use crate::buffer::Buffer;
use crate::layout::{DiskInode, InodeFlags};
use crate::runs::Runs;
use crate::transaction::TransactionId;
use crate::types::SetTime;
use crate::{Error, FileKind, InodeNumber, Owner, Result, Timestamp};

pub(crate) use attributes::{STORE_CREDITS, encode_device};
pub(crate) use change::InodeChange;
pub(crate) use charge::Charge;
pub use content_use::ContentUse;
pub(crate) use content_use::{check_change, check_encrypted, check_no_append_only, check_verity};

/// An inode that is in use: shared by all that have it open or work on it.
pub struct Inode {
    pub(crate) number: InodeNumber,
    pub(crate) kind: FileKind,
    /// Handles of users, and [`RETIRED`]; the inode of a removed file is freed when the last one is closed.
    pub(crate) opens: AtomicU32,
    pub(crate) state: RwLock<InodeState>,
    /// Mappings of the mapping that were looked up.
    pub(crate) runs: Runs,
    /// The last transaction with a change of the inode, and the last with a change that `fdatasync` must wait for.
    pub(crate) sync_transaction: AtomicU64,
    pub(crate) data_transaction: AtomicU64,
    /// Changes of the names of a directory.
    pub(crate) names_changes: AtomicU64,
    /// Block of a directory without index where a search for a name begins.
    pub(crate) search_start: AtomicU32,
    /// Damage hid entries when the directory was listed.
    pub(crate) damaged_names: AtomicBool,
    /// Used since the cache's hand passed.
    pub(crate) used: AtomicBool,
    /// Its access time waits in memory.
    pub(crate) has_lazy_time: AtomicBool,
    /// Distinguishes it from every other inode in memory, also from one that had its number before.
    pub(crate) identity: u64,
    /// Hash of the last name of it that was remembered.
    pub(crate) dentry_hash: AtomicU64,
}

diorite_block::short_debug!(Inode, number, kind);

/// Version of a directory's names: while it is the same, no name was added, removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesVersion {
    identity: u64,
    changes: u64,
}

/// With the number of users: it is freed, or about to be, and takes no new user. Read without waiting for the state: a thread that
/// has a directory locked looks at its children so.
const RETIRED: u32 = 1 << 31;
/// With the number of users: its last name was removed.
const NAMELESS: u32 = 1 << 30;
/// With [`NAMELESS`]: it was made without a name, and may be given one.
const LINKABLE: u32 = 1 << 29;
/// With the number of users: it holds the value of an attribute, and is no user's.
const VALUE: u32 = 1 << 28;
/// The number of users.
const USERS: u32 = VALUE - 1;

impl Inode {
    /// Its number.
    pub fn number(&self) -> InodeNumber {
        self.number
    }

    /// The kind; never changes.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    pub(crate) fn new(number: InodeNumber, kind: FileKind, state: InodeState) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            number,
            kind,
            opens: AtomicU32::new(0),
            state: RwLock::ranked(Rank::InodeState, state),
            runs: Runs::new(identity),
            sync_transaction: AtomicU64::new(0),
            data_transaction: AtomicU64::new(0),
            names_changes: AtomicU64::new(0),
            search_start: AtomicU32::new(0),
            damaged_names: AtomicBool::new(false),
            used: AtomicBool::new(true),
            has_lazy_time: AtomicBool::new(false),
            identity,
            dentry_hash: AtomicU64::new(0),
        }
    }

    /// Whether its access time is only in memory.
    pub(crate) fn has_lazy_time(&self) -> bool {
        self.has_lazy_time.load(Ordering::Acquire)
    }

    /// Whether it is open ([`Inode::open`]).
    pub fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) & USERS > 0
    }

    /// Whether its last name was removed, and it is in memory for its users only.
    pub fn is_nameless(&self) -> bool {
        self.opens.load(Ordering::Acquire) & NAMELESS != 0
    }

    /// It lost its last name.
    pub(crate) fn note_nameless(&self) {
        self.opens.fetch_or(NAMELESS, Ordering::AcqRel);
    }

    /// It was made without a name.
    pub(crate) fn note_linkable(&self) {
        self.opens.fetch_or(NAMELESS | LINKABLE, Ordering::AcqRel);
    }

    /// Whether it was made without a name and has not got one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.opens.load(Ordering::Acquire) & LINKABLE != 0
    }

    /// It was made without a name, and gets its first.
    pub(crate) fn note_named(&self) {
        self.opens.fetch_and(!(NAMELESS | LINKABLE), Ordering::AcqRel);
    }

    /// It holds the value of an attribute (`EA_INODE`).
    pub(crate) fn note_value(&self) {
        self.opens.fetch_or(VALUE, Ordering::AcqRel);
    }

    /// Whether it holds the value of an attribute. Waits for nothing.
    pub(crate) fn is_value(&self) -> bool {
        self.opens.load(Ordering::Acquire) & VALUE != 0
    }

    /// Whether it was freed, or is about to be, and its number may be another's by now.
    pub(crate) fn is_freed(&self) -> bool {
        self.opens.load(Ordering::Acquire) & RETIRED != 0
    }

    /// A user has the inode open from now on: it outlives its last name until [`Lifecycle::close`](crate::Lifecycle::close).
    ///
    /// # Errors
    /// [`Error::Stale`] if it was freed since it was looked up, or is about to be.
    pub fn open(&self) -> Result<()> {
        let one_more = |opens| (opens & RETIRED == 0).then(|| opens + 1);
        let counted = self.opens.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.map(drop).map_err(|_| Error::Stale)
    }

    /// Count a user less: whether it was the last.
    pub(crate) fn close(&self) -> bool {
        let before = self.opens.fetch_sub(1, Ordering::AcqRel);
        assert!(before & USERS > 0, "an inode was closed more often than opened");
        before & USERS == 1
    }

    /// Whether the caller is its only user, and it has lost its last name. Then it cannot be opened any
    /// more: its data may be discarded, and [`Lifecycle::close`](crate::Lifecycle::close) frees it. Waits for nothing.
    pub fn retire_nameless(&self) -> bool {
        let retired = |opens: u32| {
            let is_last = opens & NAMELESS != 0 && opens & USERS <= 1;
            is_last.then_some(opens | RETIRED)
        };
        self.opens.fetch_update(Ordering::AcqRel, Ordering::Acquire, retired).is_ok()
    }

    /// Accept no new users if there are at most this number; returns whether that is so.
    pub(crate) fn retire(&self, users: u32) -> bool {
        let retired = |opens: u32| (opens & USERS <= users).then_some(opens | RETIRED);
        self.opens.fetch_update(Ordering::AcqRel, Ordering::Acquire, retired).is_ok()
    }

    /// The state, for reading; [`Error::Stale`] if the inode was freed.
    pub(crate) fn read_in_use(&self) -> Result<ReadGuard<'_, InodeState>> {
        let state = self.state.read();
        if state.freed { Err(Error::Stale) } else { Ok(state) }
    }

    /// The state, for changes; [`Error::Stale`] if the inode was freed.
    pub(crate) fn write_in_use(&self) -> Result<WriteGuard<'_, InodeState>> {
        let state = self.state.write();
        if state.freed { Err(Error::Stale) } else { Ok(state) }
    }

    /// A number that no other inode in memory has, or had.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// The state of a directory's names. It is another one before a change can be seen.
    pub fn names_version(&self) -> NamesVersion {
        NamesVersion { identity: self.identity, changes: self.names_changes.load(Ordering::Acquire) }
    }

    /// Names of the directory are about to change; its state is locked.
    pub(crate) fn note_names_change(&self) {
        self.names_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Damage hides entries of the directory: a listing reports it at the end.
    pub(crate) fn note_damaged_names(&self) {
        self.damaged_names.store(true, Ordering::Relaxed);
    }

    /// Whether damage hid entries when the directory was listed.
    pub(crate) fn has_damaged_names(&self) -> bool {
        self.damaged_names.load(Ordering::Relaxed)
    }

    /// It was used: the cache keeps it a while longer.
    pub(crate) fn note_use(&self) {
        // Most find it so; a store would take the cache line from other processors.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Note that a transaction changes anything of it.
    pub(crate) fn note_change(&self, transaction: TransactionId) {
        self.sync_transaction.fetch_max(transaction.0, Ordering::AcqRel);
    }

    /// The last transaction that changed anything of it.
    pub(crate) fn last_any_change(&self) -> TransactionId {
        TransactionId(self.sync_transaction.load(Ordering::Acquire))
    }

    /// The last transaction that changed the mapping or size.
    pub(crate) fn last_data_change(&self) -> TransactionId {
        TransactionId(self.data_transaction.load(Ordering::Acquire))
    }

    /// Note that a transaction changes the mapping or size.
    pub(crate) fn note_data_change(&self, transaction: TransactionId) {
        self.data_transaction.fetch_max(transaction.0, Ordering::AcqRel);
    }
}

/// The changing fields of an inode, parsed.
#[derive(Clone, Debug)]
pub(crate) struct InodeState {
    /// The fields that are stored. The deletion time of an inode on the orphan list is the next one's number.
    pub(crate) disk: DiskInode,
    /// Value of `extra_isize` for the next store.
    pub(crate) widened_extra: u16,
    /// The inode was freed; see the module's head.
    pub(crate) freed: bool,
    /// Where the orphan file has it, if it does: block of that file and slot.
    pub(crate) orphan_slot: Option<(u32, u32)>,
    /// It is on the orphan list: its deletion time on disk is the next inode.
    pub(crate) on_orphan_list: bool,
    /// The charge in the quota files.
    pub(crate) charged: Option<crate::inode::Charge>,
    /// Values of attributes in inodes of their own, gained or lost since it was stored.
    pub(crate) value_inodes_change: i32,
    /// The block of the inode table that has it, while that is in memory.
    pub(crate) table_block: Weak<Buffer>,
}

impl Deref for InodeState {
    type Target = DiskInode;

    fn deref(&self) -> &DiskInode {
        &self.disk
    }
}

impl DerefMut for InodeState {
    fn deref_mut(&mut self) -> &mut DiskInode {
        &mut self.disk
    }
}

/// Where an inode is stored.
#[derive(Clone, Debug)]
pub(crate) struct RawInode {
    /// The inode-table block.
    pub(crate) buffer: Arc<Buffer>,
    /// First byte of the inode in it.
    pub(crate) offset: usize,
    /// Bytes of an inode on this volume.
    pub(crate) len: usize,
}

/// Blocks of metadata that [`InodeStore::allocate`](crate::InodeStore) joins at most.
pub(crate) const ALLOCATE_INODE_CREDITS: u32 = 6;
/// Blocks of metadata that [`Lifecycle::release`](crate::Lifecycle) joins when the inode has no blocks left.
pub(crate) const FREE_INODE_CREDITS: u32 = 8;
/// Blocks of metadata that `Mappings::append_block` joins at most.
pub(crate) const APPEND_BLOCK_CREDITS: u32 = 16;

/// The attributes of an inode that `stat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number.
    pub inode: InodeNumber,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits: 12 bits.
    pub permissions: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub owner: Owner,
    /// Size in bytes, as recorded on the volume.
    pub size: u64,
    /// Sectors of 512 bytes allocated, metadata of the mapping included.
    pub sectors: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Creation, if the inode is large enough to say.
    pub created: Option<Timestamp>,
    /// Major and minor number of a device node.
    pub device: (u32, u32),
    /// Inode flags as `lsattr` shows them (`EXT4_*_FL`).
    pub flags: u32,
    /// Generation, for NFS-like handles.
    pub generation: u32,
    /// Project.
    pub project: u32,
}

impl Attributes {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// Last change of content.
    pub fn modified(&self) -> SystemTime {
        self.modified.into()
    }

    /// Last access.
    pub fn accessed(&self) -> SystemTime {
        self.accessed.into()
    }

    /// Creation, if the inode is large enough to say.
    pub fn created(&self) -> Option<SystemTime> {
        self.created.map(Into::into)
    }

    /// Whether nothing of the inode may be changed (`chattr +i`).
    pub fn is_immutable(&self) -> bool {
        InodeFlags::from_bits_retain(self.flags).contains(InodeFlags::IMMUTABLE)
    }

    /// Whether data is written at the end of the file only (`chattr +a`).
    pub fn is_append_only(&self) -> bool {
        InodeFlags::from_bits_retain(self.flags).contains(InodeFlags::APPEND)
    }

    /// Whether each change must be durable when it returns (`chattr +S`); for a directory, changes of its names.
    pub fn is_synchronous(&self) -> bool {
        InodeFlags::from_bits_retain(self.flags).contains(InodeFlags::SYNC)
    }

    /// Whether each change of a directory's names must be durable when it returns (`chattr +D` or `+S`).
    pub fn has_synchronous_names(&self) -> bool {
        let flags = InodeFlags::SYNC | InodeFlags::DIR_SYNC;
        InodeFlags::from_bits_retain(self.flags).intersects(flags)
    }
}

/// Changes of an inode's attributes, in one transaction; `None` leaves a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Size of a regular file, as [`Files::truncate`](crate::Files::truncate) sets it. What takes several transactions shows the new size
    /// and the other changes from the first one on.
    pub size: Option<u64>,
    /// Set-user-ID, and set-group-ID if the group may execute, of a regular file go, unless `permissions` are set.
    pub clear_privileges: bool,
    /// Permission bits: 12 bits.
    pub permissions: Option<u16>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of content.
    pub modified: Option<SetTime>,
    /// Last change of the inode; now if it is not said.
    pub changed: Option<SetTime>,
    /// Flags as `chattr` sets them.
    pub flags: Option<u32>,
    /// Project; any but 0 only on a volume with the feature `project`.
    pub project: Option<u32>,
}
