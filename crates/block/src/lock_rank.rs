//! The order of the locks of the stack, and its check in debug builds.
//!
//! A thread waits only for a lock of a higher rank than all locks that it holds, so there is no deadlock. `try_lock` is allowed in any
//! order. In release builds ranks take no space and no time.
//!
//! This crate knows the locks of higher crates by their names only. Plain `std` locks (rings, arenas, thread pools, the simulation) are leaves.
//!
//! A wait without a guard (for a range, a page) is checked at its start ([`Rank::check_wait`]).

/// The locks by rank; the first to be taken is at the top.
///
/// *Across I/O*: held during I/O or the wait for a commit. Others are held for a few instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    // Front ends (`diorite-mount`).
    /// Open files by handle.
    OpenHandles,
    /// Inodes known to clients.
    KnownInodes,
    /// Open files of NFS.
    NfsOpenFiles,
    /// Requests without a reply.
    PendingRequests,
    /// Charged processes.
    Programs,
    /// Threads and their processes.
    ProgramThreads,
    /// Command of a process.
    ProgramCommand,
    /// Queue of growing writes.
    GrowingWrites,

    // Handles and threads (`diorite`).
    /// Position of a handle: across I/O, for a read or write at it.
    FilePosition,
    /// An open or the last close of one file of the host: across I/O.
    HostOpen,
    /// Join handle of a thread of a volume: until the thread has ended.
    ServiceThread,
    /// Whether the MMP heartbeat ends.
    MmpHeartbeatStopped,

    // Files (`diorite`).
    /// A shard of the table of inodes; the inode cache's shard is taken inside.
    NodeTable,
    /// One append at a time to a file: across I/O.
    Append,
    /// Not a lock: the wait for a range of a file, which is held across I/O.
    Range,
    /// Not a lock: the wait for a page under read.
    Page,
    /// Reservations of blocks, shared, or exclusive where space is short: across I/O. No range is waited for inside.
    Reserving,
    /// Join handles of the threads of the cache.
    WorkerThreads,
    /// One write-back at a time of a file: across I/O. Of several files at once where it is only tried.
    WritingBack,
    /// One record at a time of a file's times: across the commit, as the inode's state is.
    RecordingTimes,
    /// Size of a host file: while the host sets it.
    HostLength,
    /// Blocks reserved for a file's dirty data: across I/O, to compute the need from the inode.
    Claims,

    // Operations on a volume (`diorite-ext`): before a transaction handle, and across I/O.
    /// One rename at a time between directories.
    Rename,
    /// State of an inode; several at once: directories by number, then others by number.
    InodeState,
    /// MMP block, while it is read or written.
    Mmp,
    /// One change at a time of the volume's state in the superblock.
    Marking,
    /// One checkpoint at a time.
    JournalCheckpointing,
    /// Superblock of the journal, while it is written.
    JournalSuperblock,

    // Inside a transaction handle (`diorite-ext`): metadata may be read under those before the buffers.
    /// List of orphans: across reads.
    Orphans,
    /// Inodes whose access time is in memory alone.
    LazyTimes,
    /// Cached inodes by number: for a look-up or an insertion.
    InodeShard,
    /// Reserved quota: across reads.
    QuotaPromises,
    /// A quota file: across reads. The state of its inode has no rank: it is locked inside this lock alone, or where a journal is replayed
    /// by the only thread.
    QuotaFile,
    /// Cached mappings of an inode.
    InodeRuns,
    /// Blocks in use by open files. The locks of groups are taken inside, to free blocks.
    Holds,
    /// Windows of preallocation.
    AllocationWindow,
    /// Content of a block of group descriptors; it is made from the groups when it is written. Across its read, of several at once where
    /// no other thread has seen them. A call for another kind of block there gets an error and does not wait.
    DescriptorContent,
    /// Free blocks and inodes of a group: across the read of its bitmap.
    GroupState,
    /// Content of any other metadata block: across its read. Several at once, from a root downwards.
    BufferContent,
    /// Cached metadata blocks by address.
    BufferShard,
    /// Superblock in memory.
    Superblock,
    /// Running and committing transaction.
    Transactions,
    /// Space of the log.
    JournalSpace,
    /// Blocks before their checkpoint.
    JournalCheckpoint,
    /// Blocks of a journal replay in memory.
    Scratch,

    // Leaves of the volume (`diorite-ext`).
    /// A set of the dentry cache.
    DentryCache,
    /// Free memory of metadata blocks.
    BlockMemory,

    // Leaves of files and of the page cache (`diorite`).
    /// The wait for the end of all removals.
    Removals,
    /// Files with dirty pages.
    DirtyFiles,
    /// Unreported error of a file.
    ContentErrors,
    /// Pending modification time of a file.
    Modified,
    /// Modification time of a raw file.
    RawChanged,
    /// Order of eviction of the page cache.
    CacheReplacement,
    /// Number of threads that wait for pages of a file.
    PageWaiters,
    /// Cached pages of a file.
    PageIndex,
    /// Held ranges of a file, and their waiters.
    RangeLists,
    /// A transfer of a position that reads ahead.
    AheadPiece,
    /// Jobs of read-ahead and write-back.
    WorkerState,

    // Devices (`diorite-block`, `diorite-device`).
    /// Scheduler and shared queue of a device; locks of the device below are taken inside.
    ScheduledDevice,
    /// A part of a device in memory.
    MemoryShard,
    /// Superblocks of a mirror: while they are written.
    ArrayMembers,
    /// Connections of an NBD device: exclusively during a reconnection.
    NbdSessions,
    /// The right to send on a connection: while a request is sent.
    NbdSending,
    /// Requests of a connection, and the receiving thread.
    NbdState,
    /// State of TLS on a connection.
    TlsConnection,
    /// Free buffers of a pool.
    RegisteredBuffers,
}

impl Rank {
    /// Check before a wait of this rank without a guard.
    #[inline]
    pub fn check_wait(self) {
        LockRank::new(self).check();
    }

    /// Whether a thread may hold several locks of this rank, in an order of their own.
    #[cfg(debug_assertions)]
    const fn has_siblings(self) -> bool {
        matches!(self, Self::InodeState | Self::BufferContent)
    }
}

/// The rank of one lock. A lock without a rank is not checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockRank {
    #[cfg(debug_assertions)]
    rank: Option<Rank>,
}

#[cfg(debug_assertions)]
thread_local! {
    /// Locks of this thread, in the order of locking.
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl LockRank {
    pub(crate) const NONE: Self = Self {
        #[cfg(debug_assertions)]
        rank: None,
    };

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "checked in debug builds"))]
    pub(crate) const fn new(rank: Rank) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank: Some(rank),
        }
    }

    /// Check before a wait for the lock.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(clippy::unused_self, reason = "checked in debug builds"))]
    pub(crate) fn check(self) {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            // A thread releases its locks before its thread-local values are dropped.
            let held = HELD.try_with(|held| held.borrow().iter().copied().max()).ok().flatten();
            if let Some(held) = held {
                let is_above = held < rank || held == rank && rank.has_siblings();
                assert!(is_above, "lock order: a thread that holds {held:?} waits for {rank:?}");
            }
        }
    }

    /// Record that the lock is held.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(clippy::unused_self, reason = "checked in debug builds"))]
    pub(crate) fn hold(self) -> Held {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
        }
        Held {
            #[cfg(debug_assertions)]
            rank: self.rank,
        }
    }
}

/// The lock is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Option<Rank>,
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        let Some(rank) = self.rank else { return };
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|other| *other == rank) {
                held.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Rank;
    use crate::sync::{Condvar, Mutex, RwLock};

    #[test]
    fn locks_are_taken_upwards_and_tried_in_any_order() {
        let (low, high) = (Mutex::ranked(LOW, ()), RwLock::ranked(HIGH, ()));
        let held = low.lock();
        let inner = high.write();
        drop(held);
        assert!(low.try_lock().is_some(), "a lock that is not waited for");
        drop(inner);
        let condition = Condvar::new();
        drop(condition.wait_timeout(low.lock(), std::time::Duration::ZERO));
        drop((low.lock(), high.read()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn locks_taken_downwards_are_found() {
        let (low, high) = (Mutex::ranked(LOW, ()), RwLock::ranked(HIGH, ()));
        let _held = high.read();
        drop(low.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn locks_with_an_order_of_their_own_may_be_held_together() {
        let siblings = [RwLock::ranked(Rank::InodeState, ()), RwLock::ranked(Rank::InodeState, ())];
        let _held = siblings.each_ref().map(RwLock::write);
        Rank::Orphans.check_wait();
    }

    const LOW: Rank = Rank::ScheduledDevice;
    const HIGH: Rank = Rank::MemoryShard;
}
