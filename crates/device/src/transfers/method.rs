//! The method of a transfer: a ring, a call of its thread, or a ring with polling for the completion.
//!
//! Where it sits: under `execute` and the queues. The choice is static, by the kind of file, the direction, the size, and whether the thread
//! has other transfers. The first matching rule of [`RULES`] decides. Each rule states its reason and the stored run that shows it.

use super::raw::Direction;
use crate::open::file::{FileDevice, HostIo};

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Ring,
    Call,
    Poll,
}

/// Whether the thread waits for one transfer or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    Several,
}

const KIB: u64 = 1 << 10;

/// Kind of file, direction (none for both), company, largest size in bytes, method.
type Rule = (HostIo, Option<Direction>, Company, u64, Method);

const RULES: [Rule; 8] = [
    // Sleep and wake-up take longer than a short read of a fast device: 1.30 of fio (bench/runs/2026-11-26-vm/natural, randread-4k).
    (HostIo::Asynchronous, Some(Direction::Read), Company::Alone, 64 * KIB, Method::Poll),
    // The transfer takes longer than a wake-up, and a ring uses registered memory: 0.98 of fio with a third of its CPU time
    // (bench/runs/2026-11-26-vm/natural, read-1m).
    (HostIo::Asynchronous, Some(Direction::Read), Company::Alone, u64::MAX, Method::Ring),
    // The host may complete an asynchronous write in a thread of its own, which waits for the CPU of a polling thread. A call completes in
    // its caller: 1.03 of fio (bench/runs/2026-11-26-vm/natural, write-1m).
    (HostIo::Asynchronous, Some(Direction::Write), Company::Alone, u64::MAX, Method::Call),
    // One system call submits all (bench/runs/2026-11-26-vm/natural, randread-4k-qd32).
    (HostIo::Asynchronous, None, Company::Several, u64::MAX, Method::Ring),
    // A ring hands each transfer to a thread of the kernel, which costs more than the copy (bench/runs/2026-11-26-vm/natural-tmpfs,
    // randread-4k and randread-4k-qd32).
    (HostIo::Memory, None, Company::Alone, u64::MAX, Method::Call),
    (HostIo::Memory, None, Company::Several, 128 * KIB, Method::Call),
    // Several threads of the kernel copy long transfers sooner (bench/runs/2026-11-26-vm/natural-tmpfs, read-1m).
    (HostIo::Memory, None, Company::Several, u64::MAX, Method::Ring),
    // As for files in memory. Several transfers may sleep, so kernel threads wait for all of them at once.
    (HostIo::Synchronous, None, Company::Alone, u64::MAX, Method::Call),
];

impl FileDevice {
    /// The method of a transfer of `bytes`.
    pub(crate) fn method(&self, direction: Direction, bytes: u64, company: Company) -> Method {
        method(self.host_io(), direction, bytes, company)
    }

    /// Whether one of several transfers is made by a call of its thread.
    pub(crate) fn moves_by_calls(&self, direction: Direction, bytes: u64) -> bool {
        self.uses_ring() && self.method(direction, bytes, Company::Several) == Method::Call
    }
}

fn method(file: HostIo, direction: Direction, bytes: u64, company: Company) -> Method {
    let fits = |rule: &&Rule| {
        rule.0 == file && rule.1.is_none_or(|of| of == direction) && rule.2 == company && bytes <= rule.3
    };
    RULES.iter().find(fits).map_or(Method::Ring, |rule| rule.4)
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
