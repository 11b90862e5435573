//! Readahead of a handle without a cache.
//!
//! States: random, without pieces. A read that starts where the last one ended begins a stream: pieces of the file are read into memory of
//! their own by the threads of the cache, two at first and twice as many with each piece that is used. A read elsewhere, or a change of the
//! file, ends the stream, and is a single transfer.
//!
//! A piece is current while no range of the file has been locked exclusively since it was read
//! ([`RangeLock::changes`](crate::store::range_lock::RangeLock::changes)). It holds no lock after its transfer, so no thread waits for a reader.

use std::collections::VecDeque;
use std::sync::Arc;

use diorite_block::sync::{Condvar, Mutex, Rank, Work, work};

use crate::content::Content;
use crate::{AlignedBuf, File, Result};

/// Bytes of a piece: one transfer on most devices.
const PIECE: usize = 1 << 20;
/// Most pieces of a stream.
const PIECES_MAX: usize = 8;
/// A read of this size is worth a transfer into the caller's memory.
const LARGE: usize = 4 << 20;
/// Pieces start at multiples of this, where their offset has a choice.
const ALIGNMENT: u64 = 4096;

/// A piece that was read.
#[derive(Debug)]
struct Filled {
    memory: AlignedBuf,
    len: usize,
    /// The number of changes of the file before it was read.
    changes: u64,
}

#[derive(Debug)]
enum State {
    Reading,
    Filled(Filled),
    /// Its range is in use, or has an error that a plain read meets too.
    Unavailable,
}

/// A piece that is being read by another thread.
#[derive(Debug)]
struct Piece {
    state: Mutex<State>,
    ended: Condvar,
}

impl Piece {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::ranked(Rank::AheadPiece, State::Reading), ended: Condvar::new() })
    }

    fn end(&self, state: State) {
        *self.state.lock() = state;
        self.ended.notify_all();
    }

    /// Wait until it is read. It is taken by its only reader.
    fn take(&self) -> Option<Filled> {
        let mut state = self.state.lock();
        while matches!(*state, State::Reading) {
            state = self.ended.wait(state);
        }
        match std::mem::replace(&mut *state, State::Unavailable) {
            State::Filled(filled) => Some(filled),
            State::Reading | State::Unavailable => None,
        }
    }
}

/// A transfer of a piece. If it is dropped before it was run, no thread waits for it.
struct Transfer {
    content: Arc<Content>,
    piece: Arc<Piece>,
    memory: Option<AlignedBuf>,
    offset: u64,
    len: usize,
}

impl Transfer {
    fn run(mut self) {
        let Some(mut memory) = self.memory.take() else { return };
        if let Ok(Some((len, changes))) = self.content.read_ahead_direct(&mut memory[..self.len], self.offset)
        {
            self.piece.end(State::Filled(Filled { memory, len, changes }));
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut state = self.piece.state.lock();
        if matches!(*state, State::Reading) {
            *state = State::Unavailable;
            drop(state);
            self.piece.ended.notify_all();
        }
    }
}

/// The reads at the position of a handle.
#[derive(Debug, Default)]
pub(super) struct AheadReader {
    /// The end of the last read.
    next: u64,
    /// The start of the first piece.
    start: u64,
    filled: VecDeque<Filled>,
    reading: VecDeque<Arc<Piece>>,
    /// Most pieces at this moment.
    depth: usize,
    /// Memory of pieces that were used.
    free: Vec<AlignedBuf>,
}

impl AheadReader {
    /// Read at `offset`; fewer bytes only at the end of the file.
    pub(super) fn read(&mut self, file: &File, memory: &mut [u8], offset: u64) -> Result<usize> {
        file.check_read()?;
        let follows = offset == self.next && offset > 0;
        if follows && !memory.is_empty() && memory.len() < LARGE {
            if self.is_idle() {
                let unit = u64::from(file.alignment().offset).max(ALIGNMENT);
                (self.start, self.depth) = (offset / unit * unit, 2);
            }
            let needed = (offset + memory.len() as u64 - self.start).div_ceil(PIECE as u64);
            self.depth = self.depth.max(needed as usize + 1);
            self.submit(file)?;
            if let Some(got) = self.copy(file, memory, offset) {
                self.next = offset + got as u64;
                self.submit(file)?;
                return Ok(got);
            }
        }
        self.end();
        let got = file.read_at(memory, offset)?;
        self.next = offset + got as u64;
        Ok(got)
    }

    fn is_idle(&self) -> bool {
        self.filled.is_empty() && self.reading.is_empty()
    }

    /// End the stream. Transfers that are under way end by themselves.
    fn end(&mut self) {
        self.free.extend(self.filled.drain(..).map(|filled| filled.memory));
        self.reading.clear();
    }

    /// Begin transfers up to the depth, or the end of the file.
    fn submit(&mut self, file: &File) -> Result<()> {
        let size = file.size();
        loop {
            let pieces = self.filled.len() + self.reading.len();
            let offset = self.start + (pieces * PIECE) as u64;
            if pieces >= self.depth || offset >= size {
                return Ok(());
            }
            let memory = match self.free.pop() {
                Some(memory) => memory,
                None => file.buffer(PIECE)?,
            };
            let unit = u64::from(file.alignment().offset);
            let len = (size - offset).next_multiple_of(unit).min(PIECE as u64) as usize;
            let (piece, content) = (Piece::new(), Arc::clone(file.content()));
            self.reading.push_back(Arc::clone(&piece));
            let transfer = Transfer { content, piece, memory: Some(memory), offset, len };
            file.content().engine.workers.run(Box::new(move || transfer.run()));
        }
    }

    /// Copy from the pieces, if they have the range, or the end of the file, and are current.
    fn copy(&mut self, file: &File, memory: &mut [u8], offset: u64) -> Option<usize> {
        let end = offset + memory.len() as u64;
        while self.start + ((self.filled.len() * PIECE) as u64) < end {
            let Some(piece) = self.reading.pop_front() else { break };
            self.filled.push_back(piece.take()?);
        }
        let changes = file.content().store.ranges.changes();
        if self.filled.iter().any(|piece| piece.changes != changes) {
            return None;
        }
        let mut got = 0;
        for (piece, start) in self.filled.iter().zip((self.start..).step_by(PIECE)) {
            let from = (offset + got as u64).saturating_sub(start) as usize;
            let bytes = piece.memory[..piece.len].get(from..)?;
            let len = bytes.len().min(memory.len() - got);
            memory[got..got + len].copy_from_slice(&bytes[..len]);
            got += len;
            if piece.len < PIECE {
                break;
            }
        }
        // A short read is the end of the file.
        let is_end =
            self.filled.back().is_some_and(|last| last.len < PIECE) || offset + got as u64 >= file.size();
        if got == 0 || (got < memory.len() && !is_end) {
            return None;
        }
        let counters = &file.content().store.shared.counters;
        counters.bytes_copied.add(got as u64);
        work(Work::Copy(got as u64));
        while self.start + PIECE as u64 <= offset + got as u64
            && let Some(used) = self.filled.pop_front()
        {
            self.free.push(used.memory);
            self.start += PIECE as u64;
            self.depth = (self.depth * 2).min(PIECES_MAX);
        }
        Some(got)
    }
}
