//! The owners that a process sees unchanged.
//!
//! In a user namespace, every user without a number there has one and the same number, the overflow number (`user_namespaces(7)`).
#![allow(clippy::disallowed_methods, reason = "the kernel shows its tables as files")]

/// The numbers that stand for unknown users and groups; none where every number is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnknownOwners {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl UnknownOwners {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let unknown = |map, overflow| unmapped(&read(map), read(overflow).trim().parse().ok()?);
        Self {
            uid: unknown("/proc/self/uid_map", "/proc/sys/kernel/overflowuid"),
            gid: unknown("/proc/self/gid_map", "/proc/sys/kernel/overflowgid"),
        }
    }

    /// Whether one of the two is unknown.
    pub(crate) fn has(self, uid: u32, gid: u32) -> bool {
        self.uid == Some(uid) || self.gid == Some(gid)
    }
}

/// `overflow`, unless a line of `map` (first number here, first number outside, count) has it as a number of its own.
fn unmapped(map: &str, overflow: u32) -> Option<u32> {
    let mut lines = map.lines().map(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let (first, count) = (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0));
        first..first.saturating_add(count)
    });
    (!map.is_empty() && !lines.any(|range| range.contains(&overflow.into()))).then_some(overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_number_is_unknown_where_the_map_leaves_it_out() {
        assert_eq!(unmapped("         0          0 4294967295\n", 65534), None);
        assert_eq!(unmapped("         0       1000          1\n", 65534), Some(65534));
        assert_eq!(unmapped("0 1000 1\n1 100000 65535\n", 65534), None);
        assert_eq!(unmapped("", 65534), None, "a kernel without user namespaces");
    }
}
