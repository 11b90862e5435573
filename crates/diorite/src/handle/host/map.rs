//! The mapping of a file of the host: the identity up to the end of the file.
//!
//! The host manages holes and allocation. A write after the end extends the file in whole logical blocks, and its commit truncates the
//! file to its exact size.
//!
//! Other programs may change the size as well. Only a length that transfers of this process can have caused is truncated, so
//! bytes that another program appended stay. A change by another program is taken over where nothing is in flight
//! ([`Length::outside_size`]).

use std::sync::Arc;

use diorite_block::sync::Mutex;
use diorite_block::{Bio, BlockDevice, Op, Process, Sector};
use diorite_device::{FileDevice, FileVersion};

use crate::store::map::{MapBlocks, Mapping, ReservationToken, Reserved, ReservedRun, SyncKind, WriteCommit};
use crate::{Error, Result};

/// `EOPNOTSUPP`.
const UNSUPPORTED: i32 = 95;

pub(super) fn os(what: &'static str, source: std::io::Error) -> Error {
    Error::Os { what, source }
}

#[derive(Debug)]
pub(super) struct HostMap {
    pub(super) device: Arc<FileDevice>,
    /// The same.
    pub(super) shared: Arc<dyn BlockDevice>,
    pub(super) length: Arc<Mutex<Length>>,
}

/// The size of the file. Transfers are of whole logical blocks, so the file is longer than its recorded size while
/// one reaches past that. Transfers in flight are not truncated.
///
/// A forked child knows the size of the moment of the fork. Its parent may have made the file longer since, so it sets no size.
///
/// Locking: held while the host sets the size, so that no transfer begins in between.
#[derive(Debug, Default)]
pub(super) struct Length {
    /// The recorded size.
    pub(super) size: u64,
    /// Ends of the transfers in flight that reach past it.
    in_flight: Vec<u64>,
    /// Number of the last change of the size, and of the last that a sync has covered.
    pub(super) changes: u64,
    durable: u64,
    process: Process,
    /// The version of the file when cached pages were last known to be current.
    pub(super) version: Option<FileVersion>,
}

impl Length {
    /// Of a file that was opened. Changes from before that may not be durable.
    pub(super) fn new(size: u64) -> Self {
        Self { size, changes: 1, ..Self::default() }
    }

    /// Whether this process may set the size.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(diorite_ext::Error::Forked.into()) }
    }

    /// The size of the host's file, if another program has changed it.
    pub(super) fn outside_size(&self, device: &FileDevice) -> Result<Option<u64>> {
        if !self.process.is_current() || !self.in_flight.is_empty() {
            return Ok(None);
        }
        let actual = device.file_size().map_err(|source| os("cannot get the size", source))?;
        Ok((actual != self.size).then_some(actual))
    }

    /// Set the size of the file to the recorded size, or the end of the transfers in flight. `reached` is the end of the transfers that have
    /// just ended; `before` is the recorded size before that.
    fn settle(&mut self, device: &FileDevice, reached: u64, before: u64) -> Result<()> {
        if !self.process.is_current() {
            return Ok(());
        }
        let reach = self.in_flight.iter().copied().fold(self.size, u64::max);
        let actual = device.file_size().map_err(|source| os("cannot get the size", source))?;
        let is_grown_outside = actual > reach.max(reached);
        let is_cut_outside = actual < self.size && self.size == before;
        if (self.size..=reach).contains(&actual) || is_grown_outside || is_cut_outside {
            return Ok(());
        }
        self.changes += 1;
        device.set_file_size(reach).map_err(|source| os("cannot set the size", source))
    }

    fn ended(&mut self, end: u64) {
        let at = self.in_flight.iter().position(|other| *other == end);
        self.in_flight.swap_remove(at.expect("a transfer ends once"));
    }
}

/// A transfer that reaches past the recorded end. The host reserves nothing.
#[derive(Debug)]
struct Token {
    end: u64,
    length: Arc<Mutex<Length>>,
    device: Arc<FileDevice>,
    is_committed: bool,
}

impl ReservationToken for Token {}

impl Drop for Token {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        let mut length = self.length.lock();
        length.ended(self.end);
        let before = length.size;
        // The transfer's own error is reported; a size that cannot be set is set at the next commit.
        let _ = length.settle(&self.device, self.end, before);
    }
}

impl HostMap {
    fn in_flight(&self, end: u64) -> Token {
        self.length.lock().in_flight.push(end);
        let (length, device) = (Arc::clone(&self.length), Arc::clone(&self.device));
        Token { end, length, device, is_committed: false }
    }
}

impl MapBlocks for HostMap {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.shared
    }

    fn block_size(&self) -> u64 {
        u64::from(self.shared.geometry().logical_block_size)
    }

    fn recorded_size(&self) -> u64 {
        self.length.lock().size
    }

    fn max_size(&self) -> u64 {
        self.shared.geometry().capacity_bytes
    }

    fn map(&self, offset: u64, len: u64) -> Result<Mapping> {
        let block = self.block_size();
        Ok(Mapping::identity(offset, len, block, self.recorded_size().next_multiple_of(block)))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved> {
        self.length.lock().check_process()?;
        let runs = vec![ReservedRun { offset, len, sector: Sector::containing(offset) }];
        Ok(Reserved { runs, token: Box::new(self.in_flight(offset + len)) })
    }

    fn reserve_past_end(&self, end: u64) -> Result<Option<Reserved>> {
        let length = self.length.lock();
        let is_past = end > length.size;
        if is_past {
            length.check_process()?;
        }
        drop(length);
        Ok(is_past.then(|| Reserved { runs: Vec::new(), token: Box::new(self.in_flight(end)) }))
    }

    fn claim(&self, _blocks: u64) -> Result<()> {
        Ok(())
    }

    fn release_claim(&self, _blocks: u64) {}

    fn commit(&self, commit: WriteCommit) -> Result<()> {
        let mut length = self.length.lock();
        let (before, mut reached) = (length.size, 0);
        for reserved in commit.reserved {
            let mut token: Token = reserved.into_token();
            token.is_committed = true;
            length.ended(token.end);
            reached = token.end.max(reached);
        }
        if let Some(size) = commit.size_at_least.filter(|size| *size > length.size) {
            length.check_process()?;
            length.size = size;
            length.changes += 1;
        }
        length.settle(&self.device, reached, before)
    }

    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()> {
        self.length.lock().check_process()?;
        let file_end = self.recorded_size().max(size_at_least.unwrap_or(0));
        if offset + len > file_end.next_multiple_of(self.block_size()) {
            // The next write that is not of whole blocks would truncate them.
            return Err(Error::Unsupported("a file of the host cannot keep blocks beyond its end"));
        }
        self.device.reserve_blocks(offset, len).map_err(|source| match source.raw_os_error() {
            Some(UNSUPPORTED) => Error::Unsupported("the host's filesystem cannot reserve blocks"),
            _ => os("cannot allocate blocks", source),
        })?;
        self.commit(WriteCommit { size_at_least, ..WriteCommit::default() })
    }

    fn truncate(&self, new: u64) -> Result<()> {
        let mut length = self.length.lock();
        length.check_process()?;
        let old = std::mem::replace(&mut length.size, new);
        length.changes += 1;
        // Transfers in flight lie before both sizes: the caller has everything after them.
        self.device.set_file_size(new).map_err(|source| {
            length.size = old;
            os("cannot set the size", source)
        })
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.recorded_size().next_multiple_of(self.block_size()));
        if offset >= end {
            return Ok(());
        }
        let hole = |op| {
            self.shared.execute(&mut [Bio::without_memory(op, Sector::containing(offset), end - offset)])
        };
        // A filesystem without holes gets zeros.
        Ok(hole(Op::Discard).or_else(|_| hole(Op::WriteZeroes))?)
    }

    fn is_durable(&self, _kind: SyncKind) -> bool {
        let length = self.length.lock();
        length.durable == length.changes
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        let changes = self.length.lock().changes;
        self.shared.flush()?;
        let mut length = self.length.lock();
        length.durable = length.durable.max(changes);
        Ok(())
    }
}
