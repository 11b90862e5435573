//! What a file may be after a power cut, from nothing but the calls that were made and what they promise.
//!
//! Each call is an operation with the moments (events and marks of the device) of its begin and end. After a cut:
//! 1. Each byte is that of some operation that had begun, or zero where none wrote; but none older than the last one that a
//!    sync (or `O_DSYNC`) has promised. So old, new or zero; never bytes of another file, never what the device held before.
//! 2. The size is one that some operation gives, and covers what was promised.
//! 3. Truncated bytes do not come back: if the size can only be had after a truncation, so are the bytes beyond it.
//! 4. A name leads to the file if a sync has promised it.

use crate::random::stamp_byte;

/// What an operation does to the content.
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
    /// The file ends here: what lies beyond is gone.
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
    /// What it does.
    pub change: Change,
}

/// The file has this name from some moment on, or none.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    begin: usize,
    end: Option<usize>,
    name: Option<String>,
}

/// A sync that returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync {
    begin: usize,
    end: usize,
    /// Whether it covers the name, too.
    names: bool,
}

/// What sizes may be rounded to while nothing is promised.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// Bytes of a block.
    pub block: u64,
    /// Whether the volume was repaired: a repair rounds a size up to the last block.
    pub repaired: bool,
}

/// The history of one file.
#[derive(Clone, Debug, Default)]
pub struct FileLog {
    /// Its inode, once known.
    pub inode: Option<u32>,
    operations: Vec<Operation>,
    syncs: Vec<Sync>,
    names: Vec<Naming>,
}

/// What is wrong, by class: so that known failures are distinguished from new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A call failed or gave a wrong answer with the power on, or none ever.
    Call,
    /// The volume cannot be opened, or reading it fails.
    Open,
    /// `check` finds something.
    Check,
    /// e2fsck finds something, or cannot repair it.
    Fsck,
    /// What the device held before is readable.
    Stale,
    /// Truncated bytes came back.
    Truncated,
    /// What was promised is not there.
    Lost,
    /// Bytes that no write to the file has written.
    Foreign,
    /// A size that no call gives.
    Size,
    /// A name that was promised is missing, or one is there that should not be.
    Name,
    /// A transfer failed, and no caller had it reported.
    Unreported,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 11] = [
        Self::Call,
        Self::Open,
        Self::Check,
        Self::Fsck,
        Self::Stale,
        Self::Truncated,
        Self::Lost,
        Self::Foreign,
        Self::Size,
        Self::Name,
        Self::Unreported,
    ];
}

/// What is wrong.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Its class.
    pub class: Class,
    /// What was found.
    pub what: String,
}

impl Wrong {
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

/// What was promised of a file's presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is under one of these names.
    Under(Vec<String>),
    /// It may be missing.
    Free,
}

impl FileLog {
    /// A call begins; what it returns goes to [`FileLog::end`].
    pub fn begin(&mut self, begin: usize, durable: bool, change: Change) -> usize {
        self.operations.push(Operation { begin, end: None, durable, change });
        self.operations.len() - 1
    }

    /// The call has returned.
    pub fn end(&mut self, number: usize, end: usize) {
        self.operations[number].end = Some(end);
    }

    /// A sync has returned.
    pub fn synced(&mut self, begin: usize, end: usize, names: bool) {
        self.syncs.push(Sync { begin, end, names });
    }

    /// A sync has failed, and has said so: what was not promised before never will be.
    pub fn give_up(&mut self) {
        let lost: Vec<usize> =
            (0..self.operations.len()).filter(|number| !self.is_promised(*number, usize::MAX)).collect();
        for number in lost {
            self.operations[number].end = None;
        }
        if let Some(naming) = self.names.last_mut() {
            naming.end = None;
        }
    }

    /// A call that names the file begins.
    pub fn begin_name(&mut self, begin: usize, name: Option<String>) {
        self.names.push(Naming { begin, end: None, name });
    }

    /// It has returned.
    pub fn end_name(&mut self, end: usize) {
        self.names.last_mut().expect("a call has begun").end = Some(end);
    }

    /// The name now.
    pub fn name(&self) -> Option<&str> {
        self.names.last()?.name.as_deref()
    }

    /// Whether it ever had the name.
    pub fn had_name(&self, name: &str) -> bool {
        self.names.iter().any(|naming| naming.name.as_deref() == Some(name))
    }

    /// The content if all that was called is there.
    pub fn content(&self) -> Vec<u8> {
        let mut content = Vec::new();
        for operation in &self.operations {
            match operation.change {
                Change::Write { offset, len, stamp } => {
                    let end = (offset + len) as usize;
                    if len > 0 && content.len() < end {
                        content.resize(end, 0);
                    }
                    for at in offset..offset + len {
                        content[at as usize] = stamp_byte(stamp, at);
                    }
                }
                Change::Truncate(size) => content.truncate(size as usize),
                Change::Grow { size, .. } => content.resize(content.len().max(size as usize), 0),
                Change::Zero { offset, len } => {
                    let end = (offset + len).min(content.len() as u64) as usize;
                    let start = (offset as usize).min(end);
                    content[start..end].fill(0);
                }
            }
        }
        content
    }

    /// When promises were made: the moments after which something must be there.
    pub fn promises(&self) -> impl Iterator<Item = usize> {
        let writes = self.operations.iter().filter(|operation| operation.durable);
        writes.filter_map(|operation| operation.end).chain(self.syncs.iter().map(|sync| sync.end))
    }

    /// Whether operation `number` is promised at a cut.
    fn is_promised(&self, number: usize, cut: usize) -> bool {
        let operation = &self.operations[number];
        let Some(end) = operation.end.filter(|end| *end <= cut) else { return false };
        operation.durable || self.syncs.iter().any(|sync| sync.end <= cut && end <= sync.begin)
    }

    /// Operations that had begun, by number.
    fn begun(&self, cut: usize) -> impl Iterator<Item = (usize, &Operation)> {
        self.operations.iter().enumerate().filter(move |(_, operation)| operation.begin <= cut)
    }

    /// Where the file must be.
    pub fn presence(&self, cut: usize) -> Presence {
        let is_promised = |naming: &Naming| {
            let Some(end) = naming.end.filter(|end| *end <= cut) else { return false };
            self.syncs.iter().any(|sync| sync.names && sync.end <= cut && end <= sync.begin)
        };
        let Some(floor) = self.names.iter().rposition(is_promised) else { return Presence::Free };
        let possible = self.names[floor..].iter().filter(|naming| naming.begin <= cut);
        let names: Option<Vec<String>> = possible.map(|naming| naming.name.clone()).collect();
        names.map_or(Presence::Free, Presence::Under)
    }

    /// Whether the file may be there under a name at a cut.
    pub fn may_have_name(&self, name: &str, cut: usize) -> bool {
        let has_begun = |naming: &&Naming| naming.begin <= cut;
        self.names.iter().filter(has_begun).any(|naming| naming.name.as_deref() == Some(name))
    }

    /// Whether a rename may be under way.
    pub fn is_renamed(&self, cut: usize) -> bool {
        matches!(self.presence(cut), Presence::Under(names) if names.len() > 1)
    }

    /// Whether some content of the file had been made durable, so that it may not be lost altogether.
    pub fn is_kept(&self, cut: usize) -> bool {
        let has_ended =
            self.names.iter().filter(|naming| naming.begin <= cut).all(|naming| naming.name.is_some());
        let created = self.names.first().and_then(|naming| naming.end);
        let after = |moment: usize| created.is_some_and(|created| created <= moment);
        has_ended
            && (self.syncs.iter().any(|sync| sync.end <= cut && after(sync.begin))
                || self.operations.iter().any(|operation| {
                    operation.durable && operation.end.is_some_and(|end| end <= cut) && after(operation.begin)
                }))
    }

    /// Check what was found.
    pub fn judge(&self, cut: usize, found: &[u8], round: Rounding) -> Result<(), Wrong> {
        let size = found.len() as u64;
        let floors = self.explain_size(cut, size, round)?;
        let mut edges: Vec<u64> = vec![0, size];
        for (_, operation) in self.begun(cut) {
            match operation.change {
                Change::Write { offset, len, .. } | Change::Zero { offset, len } => {
                    edges.extend([offset, offset + len]);
                }
                Change::Truncate(at) => edges.push(at),
                Change::Grow { .. } => {}
            }
        }
        edges.retain(|edge| *edge <= size);
        edges.sort_unstable();
        edges.dedup();
        for pair in edges.windows(2) {
            self.judge_range(cut, pair[0], &found[pair[0] as usize..pair[1] as usize], &floors)?;
        }
        Ok(())
    }

    /// The values that operations give to a byte range which none of them divides: a stamp, or zeros.
    fn versions(&self, cut: usize, at: u64, floors: &[(u64, usize)]) -> Vec<(usize, Option<u64>)> {
        let mut versions = vec![(usize::MAX, None)];
        for (number, operation) in self.begun(cut) {
            let version = match operation.change {
                Change::Write { offset, len, stamp } if (offset..offset + len).contains(&at) => Some(stamp),
                Change::Zero { offset, len } if (offset..offset + len).contains(&at) => None,
                Change::Truncate(size) if at >= size => None,
                _ => continue,
            };
            let has_happened = self.is_promised(number, cut)
                || floors.iter().any(|(size, floor)| *floor == number && at >= *size);
            if has_happened {
                versions.clear();
            }
            versions.push((number, version));
        }
        versions
    }

    fn judge_range(&self, cut: usize, at: u64, found: &[u8], floors: &[(u64, usize)]) -> Result<(), Wrong> {
        let versions = self.versions(cut, at, floors);
        let value = |version: Option<u64>, at: u64| version.map_or(0, |stamp| stamp_byte(stamp, at));
        for (index, byte) in found.iter().enumerate() {
            let here = at + index as u64;
            if versions.iter().any(|(_, version)| value(*version, here) == *byte) {
                continue;
            }
            let (class, origin) = self.origin(here, *byte, &found[index..], &versions);
            let wrong = found[index..]
                .iter()
                .zip(here..)
                .take_while(|(byte, at)| versions.iter().all(|(_, version)| value(*version, *at) != **byte))
                .count();
            let allowed: Vec<String> = versions.iter().map(|(number, _)| self.tell(*number)).collect();
            let what = format!(
                "bytes {here}..{} are {origin}; allowed: {}; the calls: {}",
                here + wrong as u64,
                allowed.join(", or "),
                self.history(cut)
            );
            return Err(Wrong::new(class, what));
        }
        Ok(())
    }

    /// Where bytes come from that may not be there.
    fn origin(&self, at: u64, byte: u8, rest: &[u8], versions: &[(usize, Option<u64>)]) -> (Class, String) {
        let sample = &rest[..rest.len().min(8)];
        if sample.iter().all(|byte| *byte == 0) {
            return (Class::Lost, "zeros".to_owned());
        }
        if sample.iter().all(|byte| *byte == crate::random::MARKER) {
            return (Class::Stale, "what the device held before".to_owned());
        }
        for (number, operation) in self.operations.iter().enumerate() {
            if let Change::Write { stamp, .. } = operation.change
                && sample.iter().zip(at..).all(|(byte, at)| stamp_byte(stamp, at) == *byte)
            {
                let is_truncated = versions
                    .first()
                    .and_then(|(first, _)| self.operations.get(*first))
                    .is_some_and(|first| matches!(first.change, Change::Truncate(_)));
                let class = if is_truncated { Class::Truncated } else { Class::Lost };
                return (class, format!("those of {}", self.tell(number)));
            }
        }
        (Class::Foreign, format!("of no write to it ({byte:#x}...)"))
    }

    /// An operation, for a message.
    fn tell(&self, number: usize) -> String {
        let Some(operation) = self.operations.get(number) else { return "zeros, never written".to_owned() };
        let durable = if operation.durable { ", durable" } else { "" };
        format!("#{number} {:?} at {}..{:?}{durable}", operation.change, operation.begin, operation.end)
    }

    /// All calls and syncs, for a message.
    fn history(&self, cut: usize) -> String {
        let mut lines: Vec<(usize, String)> =
            self.begun(cut).map(|(number, operation)| (operation.begin, self.tell(number))).collect();
        lines.extend(
            self.syncs.iter().map(|sync| (sync.begin, format!("sync at {}..{}", sync.begin, sync.end))),
        );
        lines.sort_by_key(|(begin, _)| *begin);
        let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
        format!("\n    {}", lines.join("\n    "))
    }

    /// Which truncations must have happened for the file to have this size: how far, and their operations.
    fn explain_size(&self, cut: usize, size: u64, round: Rounding) -> Result<Vec<(u64, usize)>, Wrong> {
        // Each truncation begins an epoch in which the file only grows.
        let mut epochs: Vec<(u64, Option<usize>)> = vec![(0, None)];
        let mut first = 0;
        for (number, operation) in self.begun(cut) {
            if let Change::Truncate(to) = operation.change {
                epochs.push((to, Some(number)));
                if self.is_promised(number, cut) {
                    first = epochs.len() - 1;
                }
            }
        }
        let least = self.least_size(cut);
        if size < least {
            let what =
                format!("its size is {size}, and {least} were promised; the calls: {}", self.history(cut));
            return Err(Wrong::new(Class::Lost, what));
        }
        for last in first..epochs.len() {
            let from = epochs[last].1.map_or(0, |number| number + 1);
            let to = epochs.get(last + 1).and_then(|epoch| epoch.1).unwrap_or(usize::MAX);
            if size == epochs[last].0 || self.grows_to(cut, from..to, size, round) {
                return Ok(epochs[1..=last]
                    .iter()
                    .filter_map(|(to, number)| number.map(|number| (*to, number)))
                    .collect());
            }
        }
        let what = format!("no call gives it the size {size}; the calls: {}", self.history(cut));
        Err(Wrong::new(Class::Size, what))
    }

    /// What was promised to be within the file.
    fn least_size(&self, cut: usize) -> u64 {
        let mut least = 0;
        for (number, operation) in self.begun(cut) {
            match operation.change {
                Change::Write { offset, len, .. } if len > 0 && self.is_promised(number, cut) => {
                    least = least.max(offset + len);
                }
                Change::Grow { size, .. } if self.is_promised(number, cut) => least = least.max(size),
                Change::Truncate(size) => least = least.min(size),
                _ => {}
            }
        }
        least
    }

    /// Whether an operation of `numbers` gives the file this size, wholly or on its way.
    fn grows_to(&self, cut: usize, numbers: std::ops::Range<usize>, size: u64, round: Rounding) -> bool {
        let begun = || self.begun(cut).filter(|(number, _)| numbers.contains(number));
        let reaches = |change: &Change| match change {
            Change::Write { offset, len, .. } => offset + len,
            Change::Grow { size, .. } => *size,
            Change::Truncate(_) | Change::Zero { .. } => 0,
        };
        // Pages within the file are written back whole.
        let longest = begun().map(|(_, operation)| reaches(&operation.change)).max().unwrap_or(0);
        let is_rounded = |end: u64| round.repaired && size == end.next_multiple_of(round.block);
        begun().any(|(_, operation)| match operation.change {
            Change::Write { offset, len, .. } => {
                let end = offset + len;
                len > 0
                    && (size == end
                        || size > offset && size < end
                        || size == end.next_multiple_of(round.block) && (round.repaired || size <= longest)
                        || size == end.next_multiple_of(4096) && size <= longest)
            }
            Change::Grow { size: to, in_steps } => size == to || in_steps && (size < to || is_rounded(to)),
            // Zeros may be recorded before data that lies around them.
            Change::Zero { offset, len } => {
                let end = (offset + len).min(longest);
                size == end || size > offset && size < end || is_rounded(end)
            }
            Change::Truncate(_) => false,
        })
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
