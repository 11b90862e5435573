//! Records of a program's calls on regular files, in shared memory.
//!
//! The caller makes a sparse file with a [`Head`], and names it in [`super::RECORD`]. Each process claims chunks of it. A chunk has
//! [`SLOTS`] slots of [`SLOT_BYTES`]. The first slot describes the chunk, the others are claimed in order. A process that is killed leaves
//! slots without a kind.
//!
//! Layout: the head in the first [`HEAD_BYTES`], then the chunks. A slot is [`WORDS`] words of 64 bits in the byte order of the host. A
//! record of a file is followed by slots with its identity and its path.
//!
//! Times are ticks of a counter of the CPU, or nanoseconds where it has no steady one. Some records have a moment in both.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words of a slot.
pub const WORDS: usize = 5;
/// Size of a slot.
pub const SLOT_BYTES: usize = WORDS * 8;
/// Size of a chunk.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Slots of a chunk, with the first one.
pub const SLOTS: usize = CHUNK_BYTES / SLOT_BYTES;
/// Size of the head, a page.
pub const HEAD_BYTES: usize = 4096;
/// The longest path in a record; longer ones are cut at their begin.
pub const PATH_BYTES_MAX: usize = 1000;
/// Unit of a duration.
pub const DURATION_UNIT: u64 = 16;

/// The begin of the file.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// Chunks that processes have claimed; may be greater than `chunks_max`.
    pub claimed: AtomicU64,
    /// Chunks of the file.
    pub chunks_max: AtomicU64,
    /// Records without space.
    pub dropped: AtomicU64,
}

/// A slot as it is in the file.
pub type Slot = [AtomicU64; WORDS];

/// What a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first slot of a chunk: `file` is the process, `len` the number of claimed slots, `offset` the nanoseconds of `CLOCK_MONOTONIC` at
    /// `start`.
    Chunk = 1,
    /// A file that the process uses for the first time since it was opened: `offset` is its size, `len` the length of its path,
    /// `flags` are bits of [`flag`]. Slots with [`Identity`] and the path follow.
    File = 2,
    /// A read: `offset`, and `len` bytes that were read.
    Read = 3,
    /// A write.
    Write = 4,
    /// Data made durable: `fsync`, `fdatasync`, `sync_file_range`.
    Sync = 5,
    /// A new size, `len`.
    Truncate = 6,
    /// Bytes that moved the position without a call that the library sees, by streams of the C library: `len` bytes from `offset`.
    Stream = 7,
    /// A mapping of `len` bytes from `offset`.
    Map = 8,
}

impl Kind {
    /// The kind of a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Chunk,
            2 => Self::File,
            3 => Self::Read,
            4 => Self::Write,
            5 => Self::Sync,
            6 => Self::Truncate,
            7 => Self::Stream,
            8 => Self::Map,
            _ => return None,
        })
    }
}

/// Bits of a record's flags.
pub mod flag {
    /// The file was opened with `O_DIRECT`.
    pub const DIRECT: u8 = 1;
    /// The file was opened with `O_APPEND`.
    pub const APPEND: u8 = 2;
    /// The file was opened with `O_SYNC` or `O_DSYNC`.
    pub const SYNC: u8 = 4;
    /// Of a [`super::Kind::Stream`]: bytes were written.
    pub const WRITTEN: u8 = 8;
    /// The kernel moved the bytes: `copy_file_range`, `sendfile`.
    pub const IN_KERNEL: u8 = 16;
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Begin, in ticks.
    pub start: u64,
    /// See [`Kind`].
    pub offset: u64,
    /// See [`Kind`].
    pub len: u64,
    /// Number of the file in its process, or see [`Kind`].
    pub file: u32,
    /// A number that no other thread of the process has at the time.
    pub thread: u32,
    /// Duration of the call in ticks, rounded down to [`DURATION_UNIT`].
    pub duration: u64,
    /// What it describes.
    pub kind: Kind,
    /// Bits of [`flag`].
    pub flags: u8,
}

impl Record {
    /// As words of a slot.
    #[must_use]
    pub fn words(&self) -> [u64; WORDS] {
        let units = (self.duration / DURATION_UNIT).min(u32::MAX as u64);
        let kind = (self.kind as u64) << 32 | (self.flags as u64) << 40;
        [self.start, self.offset, self.len, self.file as u64 | (self.thread as u64) << 32, units | kind]
    }

    /// Of words. `None` if the kind is unknown.
    #[must_use]
    pub fn of(words: [u64; WORDS]) -> Option<Self> {
        let [start, offset, len, ids, rest] = words;
        Some(Self {
            start,
            offset,
            len,
            file: ids as u32,
            thread: (ids >> 32) as u32,
            duration: (rest as u32) as u64 * DURATION_UNIT,
            kind: Kind::of((rest >> 32) as u8)?,
            flags: (rest >> 40) as u8,
        })
    }

    /// Write a slot; its last word, with the kind, at the end.
    pub fn store(&self, slot: &Slot) {
        for (to, word) in slot.iter().zip(self.words()) {
            to.store(word, Ordering::Release);
        }
    }
}

/// The slot after a [`Kind::File`]: device, inode, the position at first use, and one moment in ticks and by `CLOCK_MONOTONIC`.
pub type Identity = [u64; WORDS];

/// Slots that a path needs.
#[must_use]
pub fn path_slots(len: usize) -> usize {
    len.div_ceil(SLOT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_the_same_after_a_slot() {
        let record = Record {
            start: u64::MAX - 7,
            offset: 1 << 60,
            len: 4096,
            file: 0xffff_fffe,
            thread: 0x8000_0001,
            duration: 1600,
            kind: Kind::Stream,
            flags: flag::WRITTEN | flag::IN_KERNEL,
        };
        assert_eq!(Record::of(record.words()), Some(record));
        let long = Record { duration: u64::MAX, ..record };
        assert_eq!(
            Record::of(long.words()).map(|read| read.duration),
            Some(u64::from(u32::MAX) * DURATION_UNIT)
        );
        assert_eq!(Record::of([0; WORDS]), None);
        assert_eq!(Record::of([u64::MAX; WORDS]), None);
    }
}
