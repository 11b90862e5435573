//! The content of a file between two changes that move its bytes (an era), and whether the content after a power cut can belong to it.

use std::sync::Arc;

use super::oracle::{Change, Class, Operation, Rounding, Sync, Violation};
use crate::random::stamp_byte;

/// The state of a file at the start of the era, and the calls since.
#[derive(Clone, Debug)]
pub(super) struct Era {
    /// Start of the call that made `base`.
    pub begin: usize,
    /// When it returned.
    pub end: Option<usize>,
    /// The content then: all at once.
    pub base: Arc<[u8]>,
    /// The calls.
    pub operations: Vec<Operation>,
}

impl Default for Era {
    fn default() -> Self {
        Self { begin: 0, end: Some(0), base: Arc::default(), operations: Vec::new() }
    }
}

/// A legal value of a byte.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// Its value at the start of the era.
    Base,
    /// Zero.
    Zero,
    /// Of a write.
    Stamp(u64),
}

/// An era and the syncs of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub era: &'a Era,
    pub syncs: &'a [Sync],
}

impl View<'_> {
    /// The content if all that was called is there.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = self.era.base.to_vec();
        for operation in &self.era.operations {
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

    /// Whether operation `number` is promised at a cut.
    pub(super) fn is_promised(&self, number: usize, cut: usize) -> bool {
        let operation = &self.era.operations[number];
        let Some(end) = operation.end.filter(|end| *end <= cut) else { return false };
        operation.durable || self.syncs.iter().any(|sync| sync.end <= cut && end <= sync.begin)
    }

    /// Operations that had begun, by number.
    pub(super) fn begun(&self, cut: usize) -> impl Iterator<Item = (usize, &Operation)> {
        self.era.operations.iter().enumerate().filter(move |(_, operation)| operation.begin <= cut)
    }

    /// Check the content found.
    pub(super) fn judge(&self, cut: usize, found: &[u8], round: Rounding) -> Result<(), Violation> {
        let size = found.len() as u64;
        let floors = self.explain_size(cut, size, round)?;
        let mut edges: Vec<u64> = vec![0, self.era.base.len() as u64, size];
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
    fn versions(&self, cut: usize, at: u64, floors: &[(u64, usize)]) -> Vec<(usize, Version)> {
        let is_in_base = at < self.era.base.len() as u64;
        let first = if is_in_base { Version::Base } else { Version::Zero };
        let mut versions = vec![(usize::MAX, first)];
        for (number, operation) in self.begun(cut) {
            let version = match operation.change {
                Change::Write { offset, len, stamp } if (offset..offset + len).contains(&at) => {
                    Version::Stamp(stamp)
                }
                Change::Zero { offset, len } if (offset..offset + len).contains(&at) => Version::Zero,
                Change::Truncate(size) if at >= size => Version::Zero,
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

    fn value(&self, version: Version, at: u64) -> u8 {
        match version {
            Version::Base => self.era.base[at as usize],
            Version::Zero => 0,
            Version::Stamp(stamp) => stamp_byte(stamp, at),
        }
    }

    fn judge_range(
        &self,
        cut: usize,
        at: u64,
        found: &[u8],
        floors: &[(u64, usize)],
    ) -> Result<(), Violation> {
        let versions = self.versions(cut, at, floors);
        for (index, byte) in found.iter().enumerate() {
            let here = at + index as u64;
            if versions.iter().any(|(_, version)| self.value(*version, here) == *byte) {
                continue;
            }
            let (class, origin) = self.origin(here, *byte, &found[index..], &versions);
            let wrong = found[index..]
                .iter()
                .zip(here..)
                .take_while(|(byte, at)| {
                    versions.iter().all(|(_, version)| self.value(*version, *at) != **byte)
                })
                .count();
            let allowed: Vec<String> = versions.iter().map(|(number, _)| self.tell(*number)).collect();
            let what = format!(
                "bytes {here}..{} are {origin}; allowed: {}; the calls: {}",
                here + wrong as u64,
                allowed.join(", or "),
                self.history(cut)
            );
            return Err(Violation::new(class, what));
        }
        Ok(())
    }

    /// Where bytes come from that may not be there.
    fn origin(&self, at: u64, byte: u8, rest: &[u8], versions: &[(usize, Version)]) -> (Class, String) {
        let sample = &rest[..rest.len().min(8)];
        if sample.iter().all(|byte| *byte == 0) {
            return (Class::Lost, "zeros".to_owned());
        }
        if sample.iter().all(|byte| *byte == crate::random::MARKER) {
            return (Class::Stale, "what the device held before".to_owned());
        }
        for (number, operation) in self.era.operations.iter().enumerate() {
            if let Change::Write { stamp, .. } = operation.change
                && sample.iter().zip(at..).all(|(byte, at)| stamp_byte(stamp, at) == *byte)
            {
                let is_truncated = versions
                    .first()
                    .and_then(|(first, _)| self.era.operations.get(*first))
                    .is_some_and(|first| matches!(first.change, Change::Truncate(_)));
                let class = if is_truncated { Class::Truncated } else { Class::Lost };
                return (class, format!("those of {}", self.tell(number)));
            }
        }
        (Class::Foreign, format!("of no write to it ({byte:#x}...)"))
    }

    /// An operation, for a message.
    fn tell(&self, number: usize) -> String {
        let Some(operation) = self.era.operations.get(number) else {
            return "zeros, or what was moved there".to_owned();
        };
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
    fn explain_size(&self, cut: usize, size: u64, round: Rounding) -> Result<Vec<(u64, usize)>, Violation> {
        // Each truncation begins an epoch in which the file only grows.
        let mut epochs: Vec<(u64, Option<usize>)> = vec![(self.era.base.len() as u64, None)];
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
            return Err(Violation::new(Class::Lost, what));
        }
        for last in first..epochs.len() {
            let from = epochs[last].1.map_or(0, |number| number + 1);
            // One that has failed, or goes on still, may never happen.
            let has_ended = |number: &usize| self.era.operations[*number].end.is_some_and(|end| end <= cut);
            let to =
                epochs[last + 1..].iter().filter_map(|epoch| epoch.1).find(has_ended).unwrap_or(usize::MAX);
            if size == epochs[last].0 || self.grows_to(cut, from..to, size, round) {
                return Ok(epochs[1..=last]
                    .iter()
                    .filter_map(|(to, number)| number.map(|number| (*to, number)))
                    .collect());
            }
        }
        let what = format!("no call gives it the size {size}; the calls: {}", self.history(cut));
        Err(Violation::new(Class::Size, what))
    }

    /// The promised minimum size.
    fn least_size(&self, cut: usize) -> u64 {
        let mut least = self.era.base.len() as u64;
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
        let longest = longest.max(self.era.base.len() as u64);
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
