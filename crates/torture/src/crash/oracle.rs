//! The legal states of a file after a power cut, derived from the calls and their promises alone.
//!
//! Each call is an operation with the moments (events and marks of the device) of its begin and end. After a cut:
//! 1. Each byte is that of some operation that had begun, or zero where none wrote; but none older than the last one that a
//!    sync (or `O_DSYNC`) has promised. So old, new or zero; never bytes of another file, never what the device held before.
//! 2. The size is one that some operation gives, and covers promised data.
//! 3. Truncated bytes do not come back: if the size can only be had after a truncation, so are the bytes beyond it.
//! 4. A name leads to the file if a sync has promised it.
//! 5. A call that moves bytes (a collapsed or inserted range) has taken place whole or not at all.

use super::era::{Era, View};
use super::names::Names;
use crate::random::stamp_byte;

/// Effect of an operation on the content.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes of a stamp.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// See [`stamp_byte`].
        stamp: u64,
    },
    /// The file ends here; later content is cut off.
    Truncate(u64),
    /// The file is longer, with zeros.
    Grow {
        /// Its size from now on.
        size: u64,
        /// Whether smaller steps may be seen.
        in_steps: bool,
    },
    /// Zeros in a range; the size stays.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Events when it was called.
    pub begin: usize,
    /// Events when it returned.
    pub end: Option<usize>,
    /// Whether it is durable when it has returned.
    pub durable: bool,
    /// The effect.
    pub change: Change,
}

/// A sync that returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync {
    /// Events when it was called.
    pub begin: usize,
    /// Events when it returned.
    pub end: usize,
    /// Whether it covers the name, too.
    pub names: bool,
}

/// Sizes may be rounded to a multiple of this while nothing is promised.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// Bytes of a block.
    pub block: u64,
    /// Whether the volume was repaired: a repair rounds a size up to the last block.
    pub repaired: bool,
}

/// The history of one file.
#[derive(Clone, Debug)]
pub struct FileLog {
    /// Its inode, once known.
    pub inode: Option<u32>,
    /// Its names.
    pub names: Names,
    eras: Vec<Era>,
    pub(super) syncs: Vec<Sync>,
    is_unknown: bool,
}

impl Default for FileLog {
    fn default() -> Self {
        let eras = vec![Era::default()];
        Self { inode: None, names: Names::default(), eras, syncs: Vec::new(), is_unknown: false }
    }
}

/// The class of a fault, so that known failures can be told from new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A call failed or gave a wrong answer with the power on, or none ever.
    Call,
    /// The volume cannot be opened, or reading it fails.
    Open,
    /// `check` finds something.
    Check,
    /// e2fsck finds something, or cannot repair it.
    Fsck,
    /// Old content of the device is readable.
    Stale,
    /// Truncated bytes came back.
    Truncated,
    /// Promised content is missing.
    Lost,
    /// Bytes that no write to the file has written.
    Foreign,
    /// A size that no call gives.
    Size,
    /// A name that was promised is missing, or one is there that should not be.
    Name,
    /// A transfer failed, and no caller had it reported.
    Unreported,
    /// A failed transfer was reported to a caller whom it does not concern.
    Misreported,
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Its class.
    pub class: Class,
    /// Description.
    pub what: String,
}

impl Violation {
    /// Of a class.
    pub fn new(class: Class, what: impl Into<String>) -> Self {
        Self { class, what: what.into() }
    }

    /// The same, with where it was found.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        Self { what: format!("{place}: {}", self.what), ..self }
    }
}

impl FileLog {
    fn view(&self) -> View<'_> {
        self.view_of(self.eras.len() - 1)
    }

    fn view_of(&self, era: usize) -> View<'_> {
        View { era: &self.eras[era], syncs: &self.syncs }
    }

    fn operations(&mut self) -> &mut Vec<Operation> {
        &mut self.eras.last_mut().expect("there is always one").operations
    }

    /// A call begins; its result goes to [`FileLog::end`].
    pub fn begin(&mut self, begin: usize, durable: bool, change: Change) -> usize {
        self.operations().push(Operation { begin, end: None, durable, change });
        self.operations().len() - 1
    }

    /// The call has returned.
    pub fn end(&mut self, number: usize, end: usize) {
        self.operations()[number].end = Some(end);
    }

    /// A call begins that makes `content` of everything, at once: bytes move. All calls before it have returned and are promised.
    pub fn begin_move(&mut self, begin: usize, content: Vec<u8>) {
        self.eras.push(Era { begin, end: None, base: content.into(), operations: Vec::new() });
    }

    /// That call has returned.
    pub fn end_move(&mut self, end: usize) {
        self.eras.last_mut().expect("there is always one").end = Some(end);
    }

    /// A call that moves bytes has failed in a transfer: its effect is unknown.
    pub fn forget_content(&mut self) {
        self.is_unknown = true;
    }

    /// A sync has returned.
    pub fn synced(&mut self, begin: usize, end: usize, names: bool) {
        self.syncs.push(Sync { begin, end, names });
    }

    /// A sync has failed and reported it: content that was not promised before never will be.
    pub fn give_up(&mut self) {
        let view = self.view();
        let lost: Vec<usize> =
            (0..view.era.operations.len()).filter(|number| !view.is_promised(*number, usize::MAX)).collect();
        for number in lost {
            self.operations()[number].end = None;
        }
        self.names.give_up();
    }

    /// The content if all that was called is there.
    pub fn content(&self) -> Vec<u8> {
        self.view().content()
    }

    /// Whether a write of this file has bytes that are these.
    pub fn has_written(&self, bytes: &[u8]) -> bool {
        self.eras.iter().flat_map(|era| &era.operations).any(|operation| match operation.change {
            Change::Write { offset, len, stamp } => (0..(len + 1).saturating_sub(bytes.len() as u64))
                .any(|at| bytes.iter().zip(offset + at..).all(|(byte, at)| stamp_byte(stamp, at) == *byte)),
            _ => false,
        })
    }

    /// When promises were made: the moments after which something must be there.
    pub fn promises(&self) -> impl Iterator<Item = usize> {
        let operations = self.eras.iter().flat_map(|era| &era.operations);
        let writes = operations.filter(|operation| operation.durable);
        writes.filter_map(|operation| operation.end).chain(self.syncs.iter().map(|sync| sync.end))
    }

    /// Whether some content of the file had been made durable, so that it may not be lost altogether.
    pub fn is_kept(&self, cut: usize) -> bool {
        let Some(created) = self.names.kept_since(cut) else { return false };
        self.syncs.iter().any(|sync| sync.end <= cut && created <= sync.begin)
            || self.eras.iter().flat_map(|era| &era.operations).any(|operation| {
                operation.durable && operation.end.is_some_and(|end| end <= cut) && created <= operation.begin
            })
    }

    /// Check the content found.
    pub fn judge(&self, cut: usize, found: &[u8], round: Rounding) -> Result<(), Violation> {
        if self.is_unknown {
            return Ok(());
        }
        let is_promised = |era: &Era| {
            let Some(end) = era.end.filter(|end| *end <= cut) else { return false };
            self.syncs.iter().any(|sync| sync.end <= cut && end <= sync.begin)
        };
        let first = self.eras.iter().rposition(is_promised).unwrap_or(0);
        let mut verdict = Ok(());
        for (number, _) in self.eras.iter().enumerate().skip(first).filter(|(_, era)| era.begin <= cut) {
            verdict = self.view_of(number).judge(cut, found, round);
            if verdict.is_ok() {
                return verdict;
            }
        }
        verdict.map_err(|wrong| wrong.at(self.tell_eras(cut)))
    }

    /// Sizes between moves and when they were made, for a message.
    fn tell_eras(&self, cut: usize) -> String {
        let text = |era: &Era| {
            let calls: Vec<String> =
                era.operations.iter().map(|operation| format!("{operation:?}")).collect();
            format!("{} bytes at {}..{:?}, then {}", era.base.len(), era.begin, era.end, calls.join("; "))
        };
        let earlier = self.eras[..self.eras.len() - 1].iter().filter(|era| era.begin <= cut);
        earlier.map(text).collect::<Vec<_>>().join(" | ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stamped;

    const EXACT: Rounding = Rounding { block: 1, repaired: false };

    fn write(offset: u64, len: u64, stamp: u64) -> Change {
        Change::Write { offset, len, stamp }
    }

    fn log(changes: &[(Change, bool)]) -> FileLog {
        let mut log = FileLog::default();
        for (at, (change, durable)) in changes.iter().enumerate() {
            let number = log.begin(at * 10, *durable, change.clone());
            log.end(number, at * 10 + 5);
        }
        log
    }

    #[test]
    fn a_promised_write_must_be_there_and_another_may_be() {
        let log = log(&[(write(0, 1000, 1), true), (write(0, 1000, 2), false)]);
        assert!(log.judge(100, &stamped(1, 0, 1000), EXACT).is_ok());
        assert!(log.judge(100, &stamped(2, 0, 1000), EXACT).is_ok());
        assert!(log.judge(100, &vec![0; 1000], EXACT).is_err());
        assert!(log.judge(100, &[], EXACT).is_err());
        assert!(log.judge(100, &stamped(3, 0, 1000), EXACT).is_err());
        assert!(log.judge(3, &[], EXACT).is_ok(), "not yet promised");
    }

    /// Issue "truncated bytes come back": a size that only the growth after the truncation gives, and bytes from before it.
    #[test]
    fn truncated_bytes_do_not_come_back() {
        let log =
            log(&[(write(0, 4096, 1), true), (Change::Truncate(100), false), (write(8192, 100, 2), false)]);
        let mut found = stamped(1, 0, 4096);
        assert!(log.judge(100, &found, EXACT).is_ok(), "before the truncation");
        found.resize(8292, 0);
        assert!(log.judge(100, &found, EXACT).is_err());
        found[100..4096].fill(0);
        assert!(log.judge(100, &found, EXACT).is_ok());
    }

    #[test]
    fn a_size_that_no_call_gives_is_wrong() {
        let log = log(&[(write(0, 1000, 1), true)]);
        let mut found = stamped(1, 0, 1000);
        found.resize(1024, 0);
        assert!(log.judge(100, &found, EXACT).is_err());
    }
}
