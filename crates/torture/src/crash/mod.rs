//! The crash checker: a workload on a recording device, power cuts at any moment, and a judge that checks the promises.
//!
//! A case is a number: it decides the volume, the threads, the calls, the cuts and the writes that each cut loses. It runs in a
//! simulation, so a case that fails fails again.

mod era;
mod judge;
mod moves;
mod names;
mod oracle;
mod workload;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use diorite_block::{Op, SECTOR_SIZE};
use diorite_sim::crash::{Failed, Loss, RecordingDevice, SUPERBLOCK};
use diorite_sim::faults::{Effect, Fault};
use diorite_sim::image::SparseImage;

use crate::access::simulate;
use crate::disk::disk;
use crate::formats::{FORMATS, Format};
use crate::random::Random;

use judge::{Inspection, Judge};
pub use judge::{Scratch, has_e2fsck};
pub use oracle::{Class, Violation};
pub use workload::{Oracle, Plan, Ran, ReportedError};

/// The choices of a case, and how many crash states it checks.
#[derive(Clone, Debug)]
pub struct Options {
    /// The volumes.
    pub formats: Vec<Format>,
    /// Images that are looked at in one case.
    pub images: usize,
    /// One journalled image in so many is shown to e2fsck as well.
    pub outside: u64,
    /// Real threads in place of a simulation: then a seed does not decide all.
    pub real_threads: bool,
    /// Classes of failures that are passed over, by name.
    pub known: Vec<String>,
    /// Where the image of a case that fails is put, as the power cut left it.
    pub keep: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            formats: FORMATS.to_vec(),
            images: 40,
            outside: 8,
            real_threads: false,
            known: Vec::new(),
            keep: None,
        }
    }
}

impl Options {
    fn is_known(&self, class: Class) -> bool {
        self.known.iter().any(|name| name.eq_ignore_ascii_case(&format!("{class:?}")))
    }
}

/// Runs cases one after the other.
#[derive(Debug)]
pub struct Checker {
    options: Options,
    scratch: Scratch,
    empty: Vec<(&'static str, SparseImage)>,
}

impl Checker {
    /// A checker with a scratch file of its own.
    pub fn new(options: Options) -> std::io::Result<Self> {
        Ok(Self { options, scratch: Scratch::new()?, empty: Vec::new() })
    }

    fn empty_volume(&mut self, format: &Format) -> SparseImage {
        if let Some((_, image)) = self.empty.iter().find(|(name, _)| *name == format.name) {
            return image.clone();
        }
        let image = format.make();
        self.empty.push((format.name, image.clone()));
        image
    }

    /// Run one case: the number of checked images, or an error.
    pub fn run(&mut self, case: u64) -> Result<u64, Violation> {
        let mut random = Random::new(case);
        let format = random.pick(&self.options.formats);
        let threads = random.pick(&[1, 1, 1, 2, 3]);
        let (seed, calls) = (random.number(), random.within(15..60) as usize);
        let plan = Plan { seed, format, threads, calls, fault: None };
        let label = format!("case {case} ({}, {} threads, {} calls)", format.name, plan.threads, plan.calls);
        let disk = disk(self.empty_volume(&format), random.one_in(2), plan.seed);
        let ran = self.run_plan(plan, &disk).and_then(|ran| match &ran.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(ran),
        });
        let ran = ran.map_err(|what| Violation::new(Class::Call, what).at(&label))?;
        let recording = disk.recording();
        let mut replay = recording.replay();
        let whole = whole_sectors(&format);
        let mut looked_at = 0;
        for cut in cuts(&ran, recording.event_count(), self.options.images / 2, &mut random) {
            replay.advance(cut);
            let point = replay.point();
            for loss in [random.pick(&Loss::KINDS), random.pick(&Loss::KINDS)] {
                let image = point.image_after(loss, &whole, random.number());
                let how = Inspection {
                    outside: random.one_in(self.options.outside),
                    torn_superblock: whole.is_empty() && loss == Loss::Sectors,
                    second_cut: random.one_in(4).then(|| random.fork()),
                };
                let (files, scratch) = (&ran.oracle.files, &mut self.scratch);
                let verdict = Judge { format: &format, files, cut, scratch }.judge(&image, how);
                looked_at += 1;
                let Err(wrong) = verdict else { continue };
                if self.options.is_known(wrong.class) {
                    continue;
                }
                let wrong = wrong.at(format_args!("{label}: cut at event {cut}, {loss:?} lost"));
                let Some(directory) = &self.options.keep else { return Err(wrong) };
                let path = directory.join(format!("case-{case}.img"));
                return match judge::export(&image, &path) {
                    Ok(()) => Err(wrong.at(path.display())),
                    Err(error) => Err(wrong.at(error)),
                };
            }
        }
        Ok(looked_at)
    }

    /// Run one case for each of `faults` transfers that fails, spread over all there are, or for every one with 0: how many runs, or what
    /// was wrong.
    pub fn run_with_faults(&mut self, case: u64, faults: u64) -> Result<u64, Violation> {
        let mut random = Random::new(case ^ 0xfa17);
        let format = random.pick(&self.options.formats);
        let threads = random.pick(&[1, 1, 2]);
        let (seed, calls) = (random.number(), random.within(10..35) as usize);
        let mut plan = Plan { seed, format, threads, calls, fault: None };
        let label = format!("case {case} ({}, {threads} threads, {calls} calls)", format.name);
        let fua = random.one_in(2);
        let transfers = {
            let disk = disk(self.empty_volume(&format), fua, seed);
            let ran =
                self.run_plan(plan, &disk).map_err(|what| Violation::new(Class::Call, what).at(&label))?;
            if let Some(wrong) = ran.wrong {
                return Err(Violation::new(Class::Call, wrong).at(&label));
            }
            disk.transfers()
        };
        let step = transfers.checked_div(faults).unwrap_or(1).max(1);
        let mut runs = 0;
        for at in (random.below(step)..transfers).step_by(step as usize) {
            let once = Fault::any(Effect::Error(5)).after(at);
            let lasting = once.times(u64::MAX);
            for fault in [once, lasting, lasting.sparing_reads()] {
                plan.fault = Some(fault);
                let disk = disk(self.empty_volume(&format), fua, seed);
                let verdict = self.judge_fault(plan, &disk);
                runs += 1;
                match verdict {
                    Err(wrong) if !self.options.is_known(wrong.class) => {
                        return Err(wrong.at(format_args!("{label}, {fault:?} of {transfers}")));
                    }
                    _ => {}
                }
            }
        }
        Ok(runs)
    }

    fn judge_fault(&mut self, plan: Plan, disk: &Arc<RecordingDevice>) -> Result<(), Violation> {
        let call = |what: String| Violation::new(Class::Call, what);
        let ran = self.run_plan(plan, disk).map_err(call)?;
        if let Some(wrong) = ran.wrong {
            return Err(call(wrong));
        }
        // Write-back of data may be tried again, and then there is nothing to report: the files show whether it was.
        let first_failed = disk.first_failed();
        if disk.failed_metadata() > 0 && ran.oracle.errors.is_empty() {
            let what = format!("reported to no caller: {first_failed:?}");
            return Err(Violation::new(Class::Unreported, what));
        }
        if let Some(failed) = first_failed.filter(|_| plan.fault.is_some_and(|fault| fault.is_single())) {
            judge_callers(&failed, &ran.oracle)?;
        }
        // Without the fault, all promised data is there.
        let cut = disk.now();
        let (files, scratch) = (&ran.oracle.files, &mut self.scratch);
        let how = Inspection { outside: true, torn_superblock: false, second_cut: None };
        Judge { format: &plan.format, files, cut, scratch }.judge(&disk.content(), how)
    }

    fn run_plan(&self, plan: Plan, disk: &Arc<RecordingDevice>) -> Result<Ran, String> {
        if self.options.real_threads {
            return Ok(workload::run(&plan, disk));
        }
        let disk = Arc::clone(disk);
        simulate(plan.seed, move || workload::run(&plan, &disk))
    }
}

/// Sectors that no power cut tears: the primary superblock of a volume without a backup.
fn whole_sectors(format: &Format) -> Range<u64> {
    if format.has_backup() { 0..0 } else { SUPERBLOCK }
}

/// One transfer has failed: only callers with data in it may get the error.
fn judge_callers(failed: &Failed, oracle: &Oracle) -> Result<(), Violation> {
    let wrong = |heard: &ReportedError| {
        let what = format!("what failed: {failed}; reported to: {heard:?}");
        Err(Violation::new(Class::Misreported, what))
    };
    if failed.op == Op::Read {
        let is_meanwhile = |heard: &&ReportedError| (heard.begin..=heard.end).contains(&failed.event);
        // Write-back reads mappings in the background.
        let is_later =
            |heard: &&ReportedError| heard.what.contains("data written earlier is not on the device");
        let mut others = oracle.errors.iter().filter(|heard| !is_meanwhile(heard) && !is_later(heard));
        return others.next().map_or(Ok(()), wrong);
    }
    let Some(bytes) = failed.bytes.as_deref().filter(|_| failed.is_data()) else { return Ok(()) };
    let sectors = || bytes.chunks(SECTOR_SIZE as usize).map(|sector| &sector[..16]);
    let concerned: Vec<usize> = (0..oracle.files.len())
        .filter(|number| sectors().any(|bytes| oracle.files[*number].has_written(bytes)))
        .collect();
    let is_concerned = |heard: &&ReportedError| heard.file.is_none_or(|file| concerned.contains(&file));
    match oracle.errors.iter().find(|heard| !concerned.is_empty() && !is_concerned(heard)) {
        Some(heard) => wrong(heard),
        None => Ok(()),
    }
}

/// Moments to cut the power at: any, and those at which a promise has just been made.
fn cuts(ran: &Ran, end: usize, count: usize, random: &mut Random) -> Vec<usize> {
    let promises: Vec<usize> =
        ran.oracle.files.iter().flat_map(oracle::FileLog::promises).filter(|at| *at >= ran.start).collect();
    let mut cuts: Vec<usize> = (0..count)
        .map(|_| {
            if random.one_in(2) && !promises.is_empty() {
                random.pick(&promises)
            } else {
                random.within(ran.start as u64..end as u64 + 1) as usize
            }
        })
        .collect();
    cuts.sort_unstable();
    cuts
}
