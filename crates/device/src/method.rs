//! How a transfer is made: by a ring, by a call of its thread, or by a ring whose completion the thread polls for.
//!
//! Where it sits: under `execute` and the queues. The choice is static: the kind of file, the direction, the size, and whether the thread
//! has other transfers. The first rule of [`RULES`] that fits decides. Each rule states its reason and the stored run that shows it.

use crate::transfer::Direction;

/// What the host does for a transfer of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostIo {
    /// Direct I/O that the kernel completes without a thread of its own.
    Asynchronous,
    /// The file lies in memory (tmpfs): a transfer is a copy.
    Memory,
    /// The page cache, or a filesystem without asynchronous I/O: a transfer may sleep.
    Synchronous,
}

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Ring,
    Call,
    Poll,
}

/// Whether the thread waits for this transfer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    Several,
}

#[derive(Debug)]
struct Rule {
    file: HostIo,
    /// Both, if none is given.
    direction: Option<Direction>,
    company: Company,
    bytes_max: u64,
    method: Method,
}

const KIB: u64 = 1 << 10;

const fn rule(
    file: HostIo,
    direction: Option<Direction>,
    company: Company,
    bytes_max: u64,
    method: Method,
) -> Rule {
    Rule { file, direction, company, bytes_max, method }
}

const RULES: [Rule; 8] = [
    // Sleep and wake-up take longer than a short read of a fast device: 1.30 of fio (bench/runs/2026-11-26-vm/natural, randread-4k).
    rule(HostIo::Asynchronous, Some(Direction::Read), Company::Alone, 64 * KIB, Method::Poll),
    // The transfer takes longer than a wake-up, and a ring knows the registered memory: 0.98 of fio with a third of its CPU time
    // (bench/runs/2026-11-26-vm/natural, read-1m).
    rule(HostIo::Asynchronous, Some(Direction::Read), Company::Alone, u64::MAX, Method::Ring),
    // The host may end an asynchronous write in a thread of its own, which waits for the CPU of a thread that polls. A call ends in its
    // caller: 1.03 of fio (bench/runs/2026-11-26-vm/natural, write-1m).
    rule(HostIo::Asynchronous, Some(Direction::Write), Company::Alone, u64::MAX, Method::Call),
    // One system call submits all (bench/runs/2026-11-26-vm/natural, randread-4k-qd32).
    rule(HostIo::Asynchronous, None, Company::Several, u64::MAX, Method::Ring),
    // A ring hands each transfer to a thread of the kernel, which costs more than the copy (bench/runs/2026-11-26-vm/natural-tmpfs,
    // randread-4k and randread-4k-qd32).
    rule(HostIo::Memory, None, Company::Alone, u64::MAX, Method::Call),
    rule(HostIo::Memory, None, Company::Several, 128 * KIB, Method::Call),
    // Several threads of the kernel copy long transfers sooner (bench/runs/2026-11-26-vm/natural-tmpfs, read-1m).
    rule(HostIo::Memory, None, Company::Several, u64::MAX, Method::Ring),
    // As for files in memory; several may sleep, so threads of the kernel wait for them at once.
    rule(HostIo::Synchronous, None, Company::Alone, u64::MAX, Method::Call),
];

/// How a transfer of so many bytes is made.
pub(crate) fn method(file: HostIo, direction: Direction, bytes: u64, company: Company) -> Method {
    let fits = |rule: &&Rule| {
        rule.file == file
            && rule.direction.is_none_or(|of| of == direction)
            && rule.company == company
            && bytes <= rule.bytes_max
    };
    RULES.iter().find(fits).map_or(Method::Ring, |rule| rule.method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let (read, write) = (Direction::Read, Direction::Write);
        for (file, direction, bytes, company, expected) in [
            (HostIo::Asynchronous, read, 4096, Company::Alone, Method::Poll),
            (HostIo::Asynchronous, read, 1 << 20, Company::Alone, Method::Ring),
            (HostIo::Asynchronous, write, 4096, Company::Alone, Method::Call),
            (HostIo::Asynchronous, write, 4096, Company::Several, Method::Ring),
            (HostIo::Memory, read, 4096, Company::Several, Method::Call),
            (HostIo::Memory, write, 1 << 20, Company::Several, Method::Ring),
            (HostIo::Memory, write, 1 << 20, Company::Alone, Method::Call),
            (HostIo::Synchronous, read, 4096, Company::Alone, Method::Call),
            (HostIo::Synchronous, read, 4096, Company::Several, Method::Ring),
        ] {
            assert_eq!(method(file, direction, bytes, company), expected, "{file:?} {direction:?} {bytes}");
        }
    }
}
