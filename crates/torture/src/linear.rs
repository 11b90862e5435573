//! Is there an order of calls, each taking effect at one moment between its begin and its end, that explains all answers?
//!
//! The file is a list of units. Each unit holds the number of its write. A call acts on several units
//! at once, so an order exists only if each call is atomic as well. The search is that of Wing and Gong with the memory of Lowe:
//! a set of calls done and a state that were met before are not tried again.

use std::collections::HashSet;
use std::ops::Range;

/// A file: content of each unit, zero where nothing was written.
pub type State = Vec<u32>;

/// A call and its answer, in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Units of a range hold this number; the file grows if it ends before.
    Write(Range<usize>, u32),
    /// The same at the end, which was at this unit.
    Append {
        /// The offset of the write.
        at: usize,
        /// Units.
        len: usize,
        /// The number.
        value: u32,
    },
    /// The units read from here on, up to a limit.
    Read {
        /// First unit.
        at: usize,
        /// Units asked for.
        len: usize,
        /// The result of the read.
        found: Vec<u32>,
    },
    /// The file was cut or grew to this size.
    SetSize(usize),
    /// Zeros, as far as the file reaches.
    Zero(Range<usize>),
    /// The file is at least this long.
    Allocate(usize),
    /// The size was this.
    Size(usize),
    /// It failed, or changes nothing.
    Nothing,
}

/// A call with the moments of its begin and end.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it was called.
    pub begin: u64,
    /// When it returned.
    pub end: u64,
    /// Which thread called.
    pub thread: usize,
    /// The call.
    pub call: Call,
}

impl Call {
    /// The state afterwards, if the answer fits the state before.
    fn apply(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        match self {
            Self::Write(range, value) => put(&mut next, range.clone(), *value),
            Self::Append { at, len, value } => {
                if *at != state.len() {
                    return None;
                }
                put(&mut next, *at..at + len, *value);
            }
            Self::Read { at, len, found } => {
                let end = (at + len).min(state.len());
                let there = state.get(*at..end).unwrap_or(&[]);
                return (there == found).then_some(next);
            }
            Self::SetSize(size) => next.resize(*size, 0),
            Self::Zero(range) => {
                let end = range.end.min(next.len());
                next[range.start.min(end)..end].fill(0);
            }
            Self::Allocate(size) => next.resize(next.len().max(*size), 0),
            Self::Size(size) => return (*size == state.len()).then_some(next),
            Self::Nothing => {}
        }
        Some(next)
    }
}

fn put(state: &mut State, range: Range<usize>, value: u32) {
    if range.is_empty() {
        return;
    }
    if state.len() < range.end {
        state.resize(range.end, 0);
    }
    state[range].fill(value);
}

/// Whether there is such an order, from `initial` on. At most 64 calls.
pub fn is_linearizable(initial: &State, history: &[Entry]) -> bool {
    assert!(history.len() <= 64, "a bit for each call");
    let all = if history.len() == 64 { u64::MAX } else { (1 << history.len()) - 1 };
    let mut met = HashSet::new();
    let mut open = vec![(0u64, initial.clone())];
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        let left = || history.iter().enumerate().filter(move |(index, _)| done >> index & 1 == 0);
        // A call may be next if no other that is left had ended before it began.
        let first_end = left().map(|(_, entry)| entry.end).min().unwrap_or(u64::MAX);
        for (index, entry) in left().filter(|(_, entry)| entry.begin <= first_end) {
            if let Some(next) = entry.call.apply(&state) {
                let step = (done | 1 << index, next);
                if met.insert(step.clone()) {
                    open.push(step);
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(begin: u64, end: u64, call: Call) -> Entry {
        Entry { begin, end, thread: 0, call }
    }

    fn read(at: usize, found: &[u32]) -> Call {
        Call::Read { at, len: found.len(), found: found.to_vec() }
    }

    #[test]
    fn a_read_beside_a_write_sees_old_or_new() {
        for seen in [[0, 0], [5, 5]] {
            let history = [entry(1, 4, Call::Write(0..2, 5)), entry(2, 3, read(0, &seen))];
            assert!(is_linearizable(&vec![0, 0], &history), "{seen:?}");
        }
    }

    #[test]
    fn a_read_that_sees_half_a_write_is_no_order() {
        let history = [entry(1, 4, Call::Write(0..2, 5)), entry(2, 3, read(0, &[5, 0]))];
        assert!(!is_linearizable(&vec![0, 0], &history));
    }

    #[test]
    fn a_read_after_a_write_must_see_it() {
        let history = [entry(1, 2, Call::Write(0..2, 5)), entry(3, 4, read(0, &[0, 0]))];
        assert!(!is_linearizable(&vec![0, 0], &history));
    }

    #[test]
    fn what_one_read_has_seen_a_later_one_sees_too() {
        let write = entry(1, 10, Call::Write(0..1, 5));
        let history = [write.clone(), entry(2, 3, read(0, &[5])), entry(4, 5, read(0, &[0]))];
        assert!(!is_linearizable(&vec![0], &history));
        let history = [write, entry(2, 3, read(0, &[0])), entry(4, 5, read(0, &[5]))];
        assert!(is_linearizable(&vec![0], &history));
    }

    #[test]
    fn two_appends_do_not_share_a_place() {
        let append = |at, value| Call::Append { at, len: 1, value };
        assert!(is_linearizable(&vec![], &[entry(1, 4, append(1, 1)), entry(2, 3, append(0, 2))]));
        assert!(!is_linearizable(&vec![], &[entry(1, 4, append(0, 1)), entry(2, 3, append(0, 2))]));
    }

    #[test]
    fn truncated_units_do_not_come_back() {
        let history =
            [entry(1, 2, Call::SetSize(1)), entry(3, 4, Call::SetSize(2)), entry(5, 6, read(0, &[7, 7]))];
        assert!(!is_linearizable(&vec![7, 7], &history));
    }

    #[test]
    fn writes_that_swap_order_between_units_are_found() {
        let history = [
            entry(1, 5, Call::Write(0..2, 1)),
            entry(2, 6, Call::Write(0..2, 2)),
            entry(7, 8, read(0, &[1, 2])),
        ];
        assert!(!is_linearizable(&vec![0, 0], &history));
    }
}
