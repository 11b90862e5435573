//! Runs the bios of one call on one file or several, and waits for them.
//!
//! Where it sits: under `execute` of [`FileDevice`] and of joined files. With `io_uring`, all bios go to the calling thread's own ring in one
//! system call, without another thread or a lock. A single transfer may be a call instead ([`super::method`]).
//!
//! Order: flushes, also those of `PREFLUSH`; then all transfers at once; then one flush of each device with several durable writes. (A
//! single durable write carries `RWF_DSYNC`.)
//!
//! Invariants:
//! 1. No function here returns or unwinds while the system may still touch the memory of a bio.
//!
//! Safety policy: transfers are made from bios that stay mutably borrowed for the whole call. They are pushed to the ring under a guard
//! whose drop waits for all of them.
#![allow(unsafe_code)]

use diorite_block::{Bio, BioFlags, BlockDevice, IoError, IoErrorKind, Op, Sector};

use super::method::{Company, Method};
use super::polling::{self, Wait};
use super::raw::{RawTransfer, Step};
use super::thread_ring;
use super::uring::Ring;
use super::workers;
use crate::open::file::FileDevice;
use crate::options::Polling;

/// The bios of one device within a call.
#[derive(Debug)]
pub(crate) struct Part<'p, 'b> {
    pub(crate) device: &'p FileDevice,
    pub(crate) bios: &'p mut [Bio<'b>],
}

/// Run all bios of one device; the first error, after all have ended.
pub(crate) fn execute(device: &FileDevice, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
    if let [bio] = bios
        && matches!(bio.op, Op::Read | Op::Write)
        && !bio.flags.contains(BioFlags::PREFLUSH)
    {
        let truncation = truncation_of(device, std::slice::from_ref(bio));
        check(device, bio, truncation.as_ref()).map_err(|kind| device_error(device, bio, kind))?;
        device.counters().count(bio.op, bio.len());
        // SAFETY: the bio is borrowed for the whole call, and the job has ended when `run` returns or unwinds.
        let mut job = unsafe { Job::of_bio(device, bio) };
        if let Some(job) = &mut job {
            job.run_alone();
        }
        return job.map_or(Ok(()), Job::into_result);
    }
    execute_parts(&mut [Part { device, bios }])
}

fn device_error(device: &FileDevice, bio: &Bio<'_>, kind: IoErrorKind) -> IoError {
    (device as &dyn BlockDevice).error(bio, kind)
}

/// Run all bios of several devices at once; the first error, after all have ended.
pub(crate) fn execute_parts(parts: &mut [Part<'_, '_>]) -> Result<(), IoError> {
    let mut outcome = Ok(());
    let flushed = flush_first(parts, &mut outcome);
    let mut jobs = Vec::with_capacity(parts.iter().map(|part| part.bios.len()).sum());
    let mut flush_last = Vec::new();
    for (part, flushed) in parts.iter_mut().zip(flushed) {
        let device = part.device;
        let several_durable = part.bios.iter().filter(|bio| is_durable_write(bio)).count() > 1;
        let truncation = truncation_of(device, part.bios);
        for bio in &mut *part.bios {
            if let Err(kind) = check(device, bio, truncation.as_ref()) {
                outcome = outcome.and(Err(device_error(device, bio, kind)));
                continue;
            }
            if bio.flags.contains(BioFlags::PREFLUSH) && !flushed {
                // The writes before it are not durable. The failed flush is reported.
                continue;
            }
            if bio.op != Op::Flush {
                device.counters().count(bio.op, bio.len());
            }
            if matches!(bio.op, Op::Discard | Op::WriteZeroes) {
                let done = device.without_memory_now(bio.op, bio.sector.to_bytes(), bio.len());
                outcome = outcome.and(done.map_err(|kind| device_error(device, bio, kind)));
            }
            // SAFETY: the bios are borrowed for the whole call, and the jobs have ended when `run` returns or unwinds.
            if let Some(mut job) = unsafe { Job::of_bio(device, bio) } {
                if several_durable && !device.geometry().fua {
                    job.lasts_only_until_flushed();
                }
                jobs.push(job);
            }
        }
        if several_durable && !device.geometry().fua {
            flush_last.push(device);
        }
    }
    match jobs.as_mut_slice() {
        [job] => job.run_alone(),
        jobs => run(jobs),
    }
    for job in jobs {
        outcome = outcome.and(job.into_result());
    }
    flush_all(&flush_last).into_iter().fold(outcome, Result::and)
}

/// The error for writes to a truncated file. Checked once for all bios, if one of them is a write.
fn truncation_of(device: &FileDevice, bios: &[Bio<'_>]) -> Option<IoErrorKind> {
    bios.iter().any(|bio| bio.op != Op::Read).then(|| device.check_not_truncated().err())?
}

fn check(device: &FileDevice, bio: &Bio<'_>, truncation: Option<&IoErrorKind>) -> Result<(), IoErrorKind> {
    match truncation {
        Some(kind) if bio.op != Op::Read => Err(kind.duplicate()),
        _ => device.geometry().check(bio),
    }
}

fn is_durable_write(bio: &Bio<'_>) -> bool {
    bio.op == Op::Write && bio.flags.contains(BioFlags::FUA)
}

/// Flush the devices of bios that need it. Returns whether each is flushed, or needed none.
fn flush_first(parts: &[Part<'_, '_>], outcome: &mut Result<(), IoError>) -> Vec<bool> {
    let wants = |part: &Part<'_, '_>| {
        part.bios.iter().any(|bio| bio.op == Op::Flush || bio.flags.contains(BioFlags::PREFLUSH))
    };
    let devices: Vec<_> = parts.iter().filter(|part| wants(part)).map(|part| part.device).collect();
    let mut results = flush_all(&devices).into_iter();
    let mut flushed = |part: &Part<'_, '_>| {
        let result = if wants(part) { results.next().unwrap_or(Ok(())) } else { Ok(()) };
        let is_flushed = result.is_ok();
        if outcome.is_ok() {
            *outcome = result;
        }
        is_flushed
    };
    parts.iter().map(&mut flushed).collect()
}

/// Flush each device. A ring passes a flush to a kernel thread, which pays only for several.
fn flush_all(devices: &[&FileDevice]) -> Vec<Result<(), IoError>> {
    let mut jobs: Vec<_> = devices.iter().map(|device| Job::flush(device)).collect();
    match jobs.as_mut_slice() {
        [job] => job.run_here(),
        jobs => run(jobs),
    }
    jobs.into_iter().map(Job::into_result).collect()
}

/// The work of a job.
#[derive(Debug)]
enum Work {
    Move(RawTransfer),
    Flush,
}

/// One transfer or flush, and its result.
#[derive(Debug)]
struct Job<'d> {
    device: &'d FileDevice,
    work: Work,
    op: Op,
    sector: Sector,
    len: u64,
    result: Option<Result<(), IoErrorKind>>,
}

impl<'d> Job<'d> {
    /// The job of a read or write; none for other operations.
    ///
    /// # Safety
    /// The bio and its memory must stay borrowed by the caller until the job has ended.
    unsafe fn of_bio(device: &'d FileDevice, bio: &mut Bio<'_>) -> Option<Self> {
        let (op, sector) = (bio.op, bio.sector);
        // SAFETY: promised by the caller.
        let transfer = unsafe { RawTransfer::from_bio(bio, device.granularity()) }?;
        let len = transfer.len();
        let result = (len == 0).then_some(Ok(()));
        Some(Self { device, work: Work::Move(transfer), op, sector, len, result })
    }

    fn flush(device: &'d FileDevice) -> Self {
        device.counters().count(Op::Flush, 0);
        let result = device.check_size().err().map(Err);
        Self { device, work: Work::Flush, op: Op::Flush, sector: Sector(0), len: 0, result }
    }

    fn lasts_only_until_flushed(&mut self) {
        if let Work::Move(transfer) = &mut self.work {
            transfer.durable = false;
        }
    }

    /// Run it as the only job of its thread.
    fn run_alone(&mut self) {
        let Work::Move(transfer) = &self.work else { return self.run_here() };
        if self.result.is_some() {
            return;
        }
        match self.device.method(transfer.direction, transfer.len(), Company::Alone) {
            Method::Call => self.run_here(),
            Method::Poll if self.device.polling() == Polling::Never => self.run_here(),
            Method::Poll if !polling::may_poll() => {
                // A sleep on a ring takes longer than a call.
                let _wait = Wait::begin();
                self.run_here();
            }
            Method::Ring | Method::Poll => run(std::slice::from_mut(self)),
        }
    }

    fn run_here(&mut self) {
        if self.result.is_none() {
            self.result = Some(match &mut self.work {
                Work::Move(transfer) => transfer.run_by_call(self.device.raw_fd()),
                Work::Flush => self.device.flush_now(),
            });
        }
    }

    /// Record a result of the ring. Returns whether the job is complete.
    fn record(&mut self, result: i32) -> bool {
        let step = match &mut self.work {
            Work::Move(transfer) => transfer.record(i64::from(result)),
            Work::Flush => Step::of_flush(result),
        };
        match step {
            Step::Again => false,
            Step::Done => {
                self.result = Some(Ok(()));
                true
            }
            Step::Failed(kind) => {
                self.result = Some(Err(kind));
                true
            }
        }
    }

    fn into_result(self) -> Result<(), IoError> {
        let result = self.result.expect("every job is run");
        let (device, op, sector, len) = (self.device, self.op, self.sector, self.len);
        result.map_err(|kind| IoError { device: device.name(), op, sector, len, kind })
    }
}

/// Run all jobs: copies by calls, other jobs of ring devices on this thread's ring, the rest by several threads.
fn run(jobs: &mut [Job<'_>]) {
    for job in &mut *jobs {
        if let Work::Move(transfer) = &job.work
            && job.device.moves_by_calls(transfer.direction, job.len)
        {
            job.run_here();
        }
    }
    if jobs.iter().any(|job| job.result.is_none() && job.device.uses_ring()) {
        thread_ring::with(|ring| run_on_ring(ring, jobs));
    }
    // The remaining jobs belong to the thread back end, or to a thread without a ring.
    match jobs {
        [job] => job.run_here(),
        _ if jobs.iter().all(|job| job.result.is_some()) => {}
        _ => workers::run_all(jobs, Job::run_here),
    }
}

/// Waits for everything in flight, also on unwind (invariant 1).
struct Draining<'r>(&'r mut Ring);

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.drain();
    }
}

fn run_on_ring(ring: &mut Ring, jobs: &mut [Job<'_>]) {
    let guard = Draining(ring);
    let ring = &mut *guard.0;
    // The ring polls only for a single transfer.
    let polling = jobs.first().map_or(Polling::Never, |job| job.device.polling());
    let mut again: Vec<usize> = Vec::new();
    let mut next = 0;
    loop {
        while ring.has_space() {
            let index = match again.pop() {
                Some(index) => index,
                None if next < jobs.len() => {
                    next += 1;
                    next - 1
                }
                None => break,
            };
            let job = &jobs[index];
            if job.result.is_some() || !job.device.uses_ring() {
                continue;
            }
            let file = job.device.raw_fd();
            match &job.work {
                // SAFETY: the memory is lent to this call, the transfer lies in `jobs` and is not changed before its
                // completion is popped, and `guard` waits for that on every way out.
                Work::Move(transfer) => unsafe { ring.push(file, transfer, index as u64) },
                Work::Flush => ring.push_flush(file, index as u64),
            }
        }
        if ring.in_flight() == 0 {
            break;
        }
        // Wait for all of the last wave. Before it, half a ring of space is enough to continue.
        let wave = if next < jobs.len() { ring.in_flight().div_ceil(2) } else { ring.in_flight() };
        ring.enter(wave, polling);
        while let Some((index, result)) = ring.pop() {
            let index = index as usize;
            if !jobs[index].record(result) {
                again.push(index);
            }
        }
    }
}
