//! Memory of a caller that is blocked, lent to the threads that move its data.
//!
//! Where it sits: between `execute` of a scheduled device, whose bios borrow their memory, and the queue that the device's threads
//! share. A [`LentMemory`] is the memory of one bio without its lifetime.
//!
//! Invariants:
//! 1. [`with_loans`] does not return or unwind before each loan was settled. If a loan is lost, the program aborts.
//! 2. No two loans have the same number, so a device that returns another loan than it got is detected.
//!
//! Safety policy: the one unsafe block removes a lifetime. By invariant 1 the memory outlives the loan. A device sees the memory only as a
//! bio whose lifetime it cannot name ([`LentMemory::with_bio`]), so no reference outlives that call.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Bio, BioFlags, BioMemory, IoOwner, Op, Sector};

/// The memory of a bio whose submitter waits.
#[derive(Debug)]
pub struct LentMemory {
    memory: BioMemory<'static>,
    number: u64,
}

impl LentMemory {
    /// Show the memory as a bio.
    pub(crate) fn with_bio<E>(
        &mut self,
        (op, sector): (Op, Sector),
        (flags, owner): (BioFlags, IoOwner),
        each: impl FnOnce(&mut Bio<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let memory = std::mem::replace(&mut self.memory, BioMemory::None(0));
        let mut bio = Bio { sector, memory, op, flags, owner };
        let result = each(&mut bio);
        self.memory = bio.memory;
        result
    }
}

/// The loans of one call.
pub struct Loans<'a> {
    /// Numbers of the loans that are not settled.
    open: Vec<u64>,
    memory: PhantomData<BioMemory<'a>>,
}

/// Run `body`, which may lend memory that outlives this call.
pub fn with_loans<'a, R>(body: impl FnOnce(&mut Loans<'a>) -> R) -> R {
    let mut loans = Loans { open: Vec::new(), memory: PhantomData };
    body(&mut loans)
}

impl<'a> Loans<'a> {
    /// Lend memory; it must be settled before `body` ends.
    pub fn lend(&mut self, memory: BioMemory<'a>) -> LentMemory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.open.push(number);
        // SAFETY: only the lifetime changes. The memory outlives the loan: `with_loans` ends after the loan was settled.
        let memory = unsafe { std::mem::transmute::<BioMemory<'a>, BioMemory<'static>>(memory) };
        LentMemory { memory, number }
    }

    /// Take the memory back; its transfer is over.
    pub fn settle(&mut self, lent: LentMemory) -> BioMemory<'a> {
        match self.open.iter().position(|number| *number == lent.number) {
            Some(at) => self.open.swap_remove(at),
            None => give_up(),
        };
        lent.memory
    }
}

impl Drop for Loans<'_> {
    fn drop(&mut self) {
        if !self.open.is_empty() {
            give_up();
        }
    }
}

/// Another thread or the kernel may still use the memory, so the program cannot go on.
fn give_up() -> ! {
    eprintln!("diorite: a device did not return lent memory");
    std::process::abort();
}
