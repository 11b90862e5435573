//! A bio: one contiguous device range, its memory, and flags for the layers below.

use std::cell::Cell;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Sector;

/// The operation of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Make all completed writes durable.
    Flush,
    /// The range's content is no longer needed.
    Discard,
    /// The range must read as zeros.
    WriteZeroes,
}

impl Op {
    /// Whether the device's content changes.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write of zeros",
        })
    }
}

bitflags::bitflags! {
    /// Properties of a bio that travel down with it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BioFlags: u8 {
        /// A thread waits for it. Reads and direct writes are; background write-back is not.
        const SYNC = 1;
        /// The owner sends nothing more soon, so a scheduler does not idle for it.
        const NO_IDLE = 1 << 1;
        /// Filesystem metadata.
        const META = 1 << 2;
        /// Read ahead of need; may be dropped.
        const READ_AHEAD = 1 << 3;
        /// A write that is durable when it completes.
        const FUA = 1 << 4;
        /// All writes completed earlier must be durable before this write.
        const PREFLUSH = 1 << 5;
        /// After a power failure the write is on the medium whole or not at all; see [`Geometry::atomic_write_bytes`](crate::Geometry::atomic_write_bytes).
        const ATOMIC = 1 << 6;
    }
}

impl BioFlags {
    /// No flag.
    pub const NONE: Self = Self::empty();
}

/// The task that I/O is charged to. A program may use any number below [`TaskId::FIRST_OF_THREADS`]; each thread that
/// chooses none has one of its own from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl TaskId {
    /// Threads that never entered an [`IoOwner`] are numbered from here on.
    pub const FIRST_OF_THREADS: Self = Self(1 << 32);

    /// The next thread's own task.
    fn of_new_thread() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(TaskId::FIRST_OF_THREADS.0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(Self::FIRST_OF_THREADS.0) {
            Some(_) if self.0 == u64::MAX => f.write_str("all others"),
            Some(number) => write!(f, "thread {}", number + 1),
            None => write!(f, "task {}", self.0),
        }
    }
}

/// I/O priority, as `ioprio_set(2)` knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoPriority {
    /// Before all others; level 0 (first) to 7.
    RealTime(u8),
    /// The usual class; level 0 (first) to 7, 4 by default.
    BestEffort(u8),
    /// Served while no other owner wants the disk. With `cfq`, as in Linux, and with `inject` the wait has no bound. With
    /// `deadline` it ends after ten seconds. Do not hold a lock that other threads need across such I/O.
    Idle,
}

impl Default for IoPriority {
    fn default() -> Self {
        Self::BestEffort(4)
    }
}

/// The owner that a bio is charged to, and its priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IoOwner {
    /// The task.
    pub task: TaskId,
    /// Its priority.
    pub priority: IoPriority,
}

thread_local! {
    static CURRENT_OWNER: Cell<Option<IoOwner>> = const { Cell::new(None) };
}

impl IoOwner {
    /// The owner that this thread's I/O is charged to: a task of its own at best effort 4 unless [`IoOwner::enter`] said
    /// otherwise.
    pub fn current() -> Self {
        CURRENT_OWNER.get().unwrap_or_else(|| {
            let own = Self { task: TaskId::of_new_thread(), priority: IoPriority::default() };
            CURRENT_OWNER.set(Some(own));
            own
        })
    }

    /// Charge this thread's I/O to `self` until the guard is dropped.
    #[must_use]
    pub fn enter(self) -> OwnerGuard {
        OwnerGuard { previous: CURRENT_OWNER.replace(Some(self)) }
    }
}

/// Gives the thread its former [`IoOwner`] back when dropped.
#[derive(Debug)]
pub struct OwnerGuard {
    previous: Option<IoOwner>,
}

impl Drop for OwnerGuard {
    fn drop(&mut self) {
        CURRENT_OWNER.set(self.previous);
    }
}

/// The memory of a bio: segments that together are as long as the transfer.
pub enum BioMemory<'a> {
    /// Filled by a read.
    Read(Vec<IoSliceMut<'a>>),
    /// Taken by a write.
    Write(Vec<IoSlice<'a>>),
    /// Flush, discard and write-zeroes have none; the length in bytes of the range.
    None(u64),
}

impl fmt::Debug for BioMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(segments) => write!(f, "Read({} segments)", segments.len()),
            Self::Write(segments) => write!(f, "Write({} segments)", segments.len()),
            Self::None(bytes) => write!(f, "None({bytes} bytes)"),
        }
    }
}

/// One contiguous device range and the memory segments for it, as submitted.
#[derive(Debug)]
pub struct Bio<'a> {
    /// First sector of the range.
    pub sector: Sector,
    /// The memory, whose variant belongs to `op`.
    pub memory: BioMemory<'a>,
    /// The operation.
    pub op: Op,
    /// Flags for the layers below.
    pub flags: BioFlags,
    /// The owner that is charged.
    pub owner: IoOwner,
}

impl<'a> Bio<'a> {
    /// A read into one segment, charged to the current owner. Reads are always `SYNC`.
    pub fn read(sector: Sector, memory: &'a mut [u8]) -> Self {
        Self {
            sector,
            memory: BioMemory::Read(vec![IoSliceMut::new(memory)]),
            op: Op::Read,
            flags: BioFlags::SYNC,
            owner: IoOwner::current(),
        }
    }

    /// A write from one segment, charged to the current owner.
    pub fn write(sector: Sector, memory: &'a [u8], flags: BioFlags) -> Self {
        Self {
            sector,
            memory: BioMemory::Write(vec![IoSlice::new(memory)]),
            op: Op::Write,
            flags,
            owner: IoOwner::current(),
        }
    }

    /// A flush of the device's volatile cache.
    pub fn flush() -> Self {
        Self {
            sector: Sector(0),
            memory: BioMemory::None(0),
            op: Op::Flush,
            flags: BioFlags::SYNC,
            owner: IoOwner::current(),
        }
    }

    /// A discard or write-zeroes of `len` bytes.
    pub fn without_memory(op: Op, sector: Sector, len: u64) -> Self {
        assert!(matches!(op, Op::Discard | Op::WriteZeroes), "{op} needs memory or has no range");
        Self { sector, memory: BioMemory::None(len), op, flags: BioFlags::SYNC, owner: IoOwner::current() }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match &self.memory {
            BioMemory::Read(segments) => segments.iter().map(|s| s.len() as u64).sum(),
            BioMemory::Write(segments) => segments.iter().map(|s| s.len() as u64).sum(),
            BioMemory::None(len) => *len,
        }
    }

    /// Whether nothing is transferred, as by a flush.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of memory segments.
    pub fn segment_count(&self) -> usize {
        match &self.memory {
            BioMemory::Read(segments) => segments.len(),
            BioMemory::Write(segments) => segments.len(),
            BioMemory::None(_) => 0,
        }
    }

    /// First sector after the range.
    pub fn end(&self) -> Sector {
        self.sector.after_bytes(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_a_task_of_its_own_until_it_says_otherwise() {
        let mine = IoOwner::current();
        let other = std::thread::spawn(IoOwner::current).join().unwrap();
        assert_ne!(mine.task, other.task);
        assert_eq!(IoOwner::current(), mine);
        let charged = IoOwner { task: TaskId(7), priority: IoPriority::Idle };
        {
            let _guard = charged.enter();
            assert_eq!(IoOwner::current(), charged);
        }
        assert_eq!(IoOwner::current(), mine);
        assert_eq!(TaskId(7).to_string(), "task 7");
        assert!(mine.task.to_string().starts_with("thread "));
    }
}
