//! A power-cut test in one process.

use std::cell::Cell;
use std::error::Error;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once, PoisonError};

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{BlockDevice, File, Filesystem, Timestamp};
use diorite_sim::crash::{PlanOptions, Recording, RecordingDevice, Tearing};
use diorite_sim::faults::Fault;
use diorite_sim::image::{ImageDevice, SparseImage};

use crate::case::Case;
use crate::examine::{Failing, Findings, State, examine, point_of, shrink};
use crate::explain::Explanation;
use crate::report::{Failure, Report};
use crate::subject::{FILE, OfDevice, OfFile, OfVolume, Purpose, Subject, Timing};

/// The result of a workload or a check.
pub type Result = std::result::Result<(), Box<dyn Error + Send + Sync>>;

/// The content before the workload.
type Preparation = Box<dyn FnOnce(&Filesystem) -> Result>;

/// A test of what survives a power cut. Without other settings it uses an ext4 volume of 64 MiB, at most 100 states at one moment, and tears
/// at 512 bytes.
pub struct CrashTest {
    bytes: u64,
    format: MkfsOptions,
    preparation: Option<Preparation>,
    options: PlanOptions,
    jobs: NonZeroUsize,
    case: Option<Case>,
}

impl std::fmt::Debug for CrashTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrashTest")
            .field("bytes", &self.bytes)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Default for CrashTest {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashTest {
    /// A test with the usual settings.
    pub fn new() -> Self {
        let jobs = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let options = PlanOptions { tearing: Tearing::Allowed, ..PlanOptions::default() };
        let format = MkfsOptions { journal_blocks: Some(1024), ..MkfsOptions::new(Flavor::Ext4) };
        Self { bytes: 64 << 20, format, preparation: None, options, jobs, case: None }
    }

    /// Size of the volume or the device in bytes.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// The format of the volume.
    #[must_use]
    pub fn format(mut self, format: MkfsOptions) -> Self {
        self.format = format;
        self
    }

    /// Content of the volume before the workload. It is durable.
    #[must_use]
    pub fn prepared(mut self, prepare: impl FnOnce(&Filesystem) -> Result + 'static) -> Self {
        self.preparation = Some(Box::new(prepare));
        self
    }

    /// Most states at one moment; 100. If all subsets of the unflushed writes are fewer, all are tested.
    #[must_use]
    pub fn states(mut self, states: usize) -> Self {
        self.options.states_at_once = states;
        self
    }

    /// Most states of the whole test; without limit. Moments with many states get fewer.
    #[must_use]
    pub fn total_states(mut self, states: usize) -> Self {
        self.options.states = states;
        self
    }

    /// Whether the cut can tear a write.
    #[must_use]
    pub fn tearing(mut self, tearing: Tearing) -> Self {
        self.options.tearing = tearing;
        self
    }

    /// Decides the random states.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Number of threads that check states; by default one for each CPU.
    #[must_use]
    pub fn jobs(mut self, jobs: NonZeroUsize) -> Self {
        self.jobs = jobs;
        self
    }

    /// Check only this case, which a failed test printed.
    ///
    /// # Panics
    /// The text is no case.
    #[must_use]
    pub fn case(mut self, case: &str) -> Self {
        self.case = Some(case.parse().unwrap_or_else(|wrong| panic!("{case}: {wrong}")));
        self
    }

    /// Run a workload on a volume, and a check on each state of it.
    ///
    /// # Panics
    /// The workload fails without a power cut.
    pub fn filesystem(
        mut self,
        workload: impl Fn(&Filesystem, &Power) -> Result,
        check: impl Fn(&Filesystem, &Acknowledged<'_>) -> Result + Sync,
    ) -> Report {
        let image = self.volume();
        self.run::<OfVolume>(
            &image,
            |volume, power| workload(volume, power),
            |volume, lines| check(volume, lines),
        )
    }

    /// Run a workload on one file of a volume. The file exists and is empty, apart from [`Self::prepared`], which finds it as `/file`.
    ///
    /// # Panics
    /// The workload fails without a power cut.
    pub fn file(
        mut self,
        workload: impl Fn(&File, &Power) -> Result,
        check: impl Fn(&File, &Acknowledged<'_>) -> Result + Sync,
    ) -> Report {
        let prepare = self.preparation.take();
        self.preparation = Some(Box::new(move |volume| {
            volume.write(FILE, "")?;
            prepare.map_or(Ok(()), |prepare| prepare(volume))
        }));
        let image = self.volume();
        self.run::<OfFile>(
            &image,
            |(_, file), power| workload(file, power),
            |(_, file), lines| check(file, lines),
        )
    }

    /// Run a workload on a raw device that is full of zeros.
    ///
    /// # Panics
    /// The workload fails without a power cut.
    pub fn raw(
        mut self,
        workload: impl Fn(&File, &Power) -> Result,
        check: impl Fn(&File, &Acknowledged<'_>) -> Result + Sync,
    ) -> Report {
        self.options.whole = 0..0;
        let image = SparseImage::new(self.bytes);
        self.run::<OfDevice>(&image, |file, power| workload(file, power), |file, lines| check(file, lines))
    }

    /// The volume before the workload.
    fn volume(&mut self) -> SparseImage {
        let device = ImageDevice::new(SparseImage::new(self.bytes));
        let format = std::mem::take(&mut self.format);
        let format = format.reproducible(1, Timestamp { seconds: 1_700_000_000, nanoseconds: 0 });
        let made = mkfs(&*device, &format);
        made.unwrap_or_else(|error| panic!("the volume of the test cannot be made: {error}"));
        if let Some(prepare) = self.preparation.take() {
            let prepared = || -> Result {
                let opened = Arc::clone(&device) as Arc<dyn BlockDevice>;
                let volume = OfVolume::open(opened, Purpose::Workload(Timing::Late))?;
                prepare(&volume)?;
                Ok(volume.close()?)
            };
            prepared()
                .unwrap_or_else(|error| panic!("the content before the workload cannot be made: {error}"));
        }
        device.image()
    }

    fn run<S: Subject>(
        self,
        image: &SparseImage,
        workload: impl Fn(&S::Handle, &Power) -> Result,
        check: impl Fn(&S::Handle, &Acknowledged<'_>) -> Result + Sync,
    ) -> Report {
        let (mut findings, mut first) = (Findings::default(), None);
        for timing in S::TIMINGS {
            if self.case.as_ref().is_some_and(|case| case.timing != *timing) {
                continue;
            }
            let (recording, lines) = record::<S>(image, *timing, &workload);
            let judge = |state: State<'_>| judge::<S>(state, &lines, &check);
            let found = if let Some(case) = &self.case {
                judge_one(&recording, case, &judge)
            } else {
                let plan = recording.plan(self.options.clone());
                examine(&recording, &plan, *timing, self.jobs, &judge, &|_| ControlFlow::Continue(()))
            };
            if let (Some(failing), None) = (found.failing.first(), &first) {
                let smallest = shrink(&recording, failing, &judge);
                let name = |number| format!("write {number}");
                let explanation = Explanation::of(&recording, &smallest.case, &name);
                first = Some(Failure::new(smallest, &lines, explanation));
            }
            findings.merge(found);
        }
        Report { progress: findings.progress, moments: findings.moments.len(), failure: first }
    }
}

/// Run a workload. Returns the record, and the acknowledged lines.
fn record<S: Subject>(
    image: &SparseImage,
    timing: Timing,
    workload: impl Fn(&S::Handle, &Power) -> Result,
) -> (Recording, Vec<String>) {
    let power = Power { device: RecordingDevice::on_image(image.clone()), lines: Mutex::default() };
    let run = || -> std::result::Result<Recording, Box<dyn Error + Send + Sync>> {
        let device = Arc::clone(&power.device) as Arc<dyn BlockDevice>;
        let handle = S::open(device, Purpose::Workload(timing))?;
        workload(&handle, &power)?;
        S::settle(&handle)?;
        // What the volume writes when it is closed is not part of the test.
        Ok(power.device.recording())
    };
    let recording = run().unwrap_or_else(|error| panic!("the workload failed without a power cut: {error}"));
    (recording, power.lines.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Judge one case of a recording.
fn judge_one(
    recording: &Recording,
    case: &Case,
    judge: &dyn Fn(State<'_>) -> std::result::Result<(), String>,
) -> Findings {
    let event = case.event.min(recording.event_count());
    let point = point_of(recording, event);
    assert!(
        event == case.event && point.unflushed_count() == case.fates.len(),
        "{case}: not a case of this test: the workload has changed, or does not do the same each time"
    );
    let mut findings = Findings::default();
    findings.progress.states = 1;
    if let Err(why) = judge(State { point: &point, fates: &case.fates, worker: 0 }) {
        findings.progress.failed = 1;
        findings.failing.push(Failing { case: case.clone(), promises: point.marks().len(), why });
    }
    findings
}

/// Open a state and check it.
fn judge<S: Subject>(
    state: State<'_>,
    lines: &[String],
    check: &(impl Fn(&S::Handle, &Acknowledged<'_>) -> Result + Sync),
) -> std::result::Result<(), String> {
    let device = state.point.device(state.fates);
    let acknowledged = Acknowledged(&lines[..state.point.marks().len()]);
    let handle = S::open(device, Purpose::Check).map_err(|error| format!("it cannot be opened: {error}"))?;
    let verdict = quietly(|| catch_unwind(AssertUnwindSafe(|| check(&handle, &acknowledged))));
    match verdict {
        Ok(verdict) => verdict.map_err(|error| error.to_string()),
        Err(panic) => Err(match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (_, Some(text)) => (*text).to_owned(),
            _ => "the check panicked".to_owned(),
        }),
    }
}

thread_local! {
    /// Whether panics of this thread are not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Do not print panics of a check: the report has one of them.
fn quietly<T>(act: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let result = act();
    IS_QUIET.set(before);
    result
}

/// The side of the workload that makes promises.
#[derive(Debug)]
pub struct Power {
    device: Arc<RecordingDevice>,
    lines: Mutex<Vec<String>>,
}

impl Power {
    /// Let transfers of the disk fail from now on.
    pub fn fail(&self, fault: Fault) {
        self.device.add(fault);
    }

    /// Promise something: a check gets this line for each power cut from now on.
    pub fn acknowledge(&self, line: impl Into<String>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.mark(lines.len() as u64);
        lines.push(line.into());
    }
}

/// The lines that the workload had acknowledged before the power cut.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a>(&'a [String]);

impl<'a> Acknowledged<'a> {
    /// The lines, in order.
    pub fn lines(&self) -> &'a [String] {
        self.0
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this line is among them.
    pub fn contains(&self, line: &str) -> bool {
        self.0.iter().any(|known| known == line)
    }
}
