//! Runs the workload on a mount, and records the disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diorite::{Access, Filesystem};
use diorite_block::BlockDevice;
use diorite_crash::examine::point_of;
use diorite_mount::{MountOptions, Observer};
use diorite_sim::crash::{Event, Fate, Recording, RecordingDevice};
use diorite_sim::faults::{Effect, Fault};
use diorite_sim::image::SparseImage;
use rustix::fs::{Mode, OFlags};

use super::judge::Mounted;
use super::process::run;
use super::promises::Promises;
use crate::args::{Crash, FaultKind};
use crate::failure::{Failure, Result};

/// A call of a process on the mount.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Events of the disk before it.
    pub(super) event: usize,
    /// Such as `FSync`.
    pub(super) name: &'static str,
    pub(super) process: u32,
    /// Inode of the file or the directory.
    pub(super) inode: u64,
}

/// How often an error happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    Once,
    FromThenOn,
}

/// An error of the disk while the workload runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskError {
    /// Transfers before it.
    pub(super) at: u64,
    pub(super) error: FaultKind,
    pub(super) repeats: Repeats,
}

impl DiskError {
    fn fault(self) -> Fault {
        let times = if self.repeats == Repeats::Once { 1 } else { u64::MAX };
        Fault::any(Effect::Error(self.error.error().0)).after(self.at).times(times).sparing_reads()
    }

    /// In words.
    pub(super) fn words(self) -> String {
        let when = if self.repeats == Repeats::Once { "once" } else { "from then on" };
        format!("{} at transfer {} {when}", self.error.error().1, self.at)
    }
}

/// What the disk and the mount have seen.
pub(super) struct Record {
    pub(super) recording: Recording,
    /// The acknowledged lines.
    pub(super) lines: Vec<String>,
    pub(super) calls: Vec<Call>,
    /// Names of the programs by process.
    pub(super) programs: HashMap<u32, String>,
    /// Paths by inode.
    pub(super) paths: HashMap<u64, PathBuf>,
    /// Transfers of the disk during the workload.
    pub(super) transfers: u64,
    /// The error of the disk.
    pub(super) error: Option<DiskError>,
    /// Time of the workload.
    pub(super) time: Duration,
    /// What the workload did wrong.
    pub(super) problem: Option<String>,
}

/// The calls that change something, or make it durable.
fn is_recorded(name: &str) -> bool {
    const NAMES: [&str; 15] = [
        "Write",
        "FSync",
        "FSyncDir",
        "SyncFs",
        "SetAttr",
        "Rename",
        "Rename2",
        "Unlink",
        "RmDir",
        "MkDir",
        "Create",
        "MkNod",
        "Link",
        "Symlink",
        "FAllocate",
    ];
    NAMES.contains(&name)
}

#[derive(Debug, Default)]
struct Seen {
    calls: Vec<Call>,
    programs: HashMap<u32, String>,
}

/// The observer of a mount, and what it has seen.
fn observer(device: &Arc<RecordingDevice>) -> (Observer, Arc<Mutex<Seen>>) {
    let (device, seen) = (Arc::clone(device), Arc::<Mutex<Seen>>::default());
    let kept = Arc::clone(&seen);
    let observer = Observer::new(move |name, process, inode| {
        if !is_recorded(name) {
            return;
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.programs.entry(process).or_insert_with(|| program_of(process));
        seen.calls.push(Call { event: device.now(), name, process, inode });
    });
    (observer, kept)
}

/// The name of a process's program.
fn program_of(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

impl Record {
    /// Run the workload on `image`.
    pub(super) fn of(
        arguments: &Crash,
        image: SparseImage,
        scratch: &Path,
        error: Option<DiskError>,
    ) -> Result<Self> {
        let device = RecordingDevice::on_image(image);
        let mut options = MountOptions::default();
        for words in &arguments.options {
            let wrong = |error| Failure::Usage(format!("{error} (the options: `diorite help mount`)"));
            options.set(words).map_err(wrong)?;
        }
        let directory = scratch.join("volume");
        let (observer, seen) = observer(&device);
        let opened = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let mounted = Mounted::new(opened, &directory, &options, Some(observer))
            .map_err(|error| Failure::Failed(format!("crash: {error}")))?;
        let promises = Promises::new(scratch, &device)?;
        let limit = Duration::from_secs(arguments.time);
        device.set_faults(error.map(DiskError::fault));
        let started = Instant::now();
        let end = run(&mut workload(arguments, &directory, &promises)?, limit);
        let (time, transfers) = (started.elapsed(), device.transfers());
        let lines = promises.end()?;
        let settled = settle(&mounted, &directory);
        let (recording, paths) = (device.recording(), paths_of(mounted.filesystem()));
        mounted.end();
        let end = end.map_err(|error| {
            let program = Path::new(&arguments.workload[0]).display();
            Failure::host(program, "start", &error)
        })?;
        if error.is_none() {
            settled?;
        }
        let Seen { calls, programs } =
            std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        let problem = end.problem(limit);
        Ok(Self { recording, lines, calls, programs, paths, transfers, error, time, problem })
    }

    /// Add the paths of files that exist at a moment and not at the end.
    pub(super) fn add_paths_at(&mut self, event: usize) {
        let point = point_of(&self.recording, event);
        let device = point.device(&vec![Fate::Whole; point.unflushed_count()]);
        let Ok(filesystem) = Filesystem::options().access(Access::ReadOnly).open_device(device) else {
            return;
        };
        for (inode, path) in paths_of(&filesystem) {
            self.paths.entry(inode).or_insert(path);
        }
    }

    /// A write in words: its number, and the call during which it was written.
    pub(super) fn name_of(&self, write: usize) -> String {
        let issued = self.recording.events().iter().position(|event| *event == Event::Issued(write));
        let before = self.calls.partition_point(|call| issued.is_some_and(|issued| call.event <= issued));
        match self.calls[..before].last() {
            Some(call) => format!("write {write}, after {}", self.words_of(call)),
            None => format!("write {write}"),
        }
    }

    /// A call in words.
    pub(super) fn words_of(&self, call: &Call) -> String {
        let Call { name, process, inode, .. } = call;
        let name = name.to_lowercase();
        let is_in_directory =
            !matches!(&*name, "write" | "fsync" | "fsyncdir" | "syncfs" | "setattr" | "fallocate");
        let relation = if is_in_directory { "in" } else { "of" };
        let file = match self.paths.get(inode) {
            Some(path) => format!(" {relation} `{}`", path.display()),
            None => String::new(),
        };
        let who = match self.programs.get(process) {
            Some(program) if !program.is_empty() => format!(" by {program}[{process}]"),
            _ => " by the kernel".to_owned(),
        };
        format!("{name}{file}{who}")
    }
}

/// The command of the workload.
fn workload(arguments: &Crash, directory: &Path, promises: &Promises) -> Result<Command> {
    let [program, rest @ ..] = &*arguments.workload else {
        return Err(Failure::Usage("crash: a workload is missing; write -- WORKLOAD".to_owned()));
    };
    let mut command = Command::new(program);
    command
        .args(rest)
        .current_dir(directory)
        .env("DIORITE_CRASH_DIR", directory)
        .env("DIORITE_CRASH_ACK", promises.path());
    // Standard output has the answer.
    let errors = std::io::stderr();
    if let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&errors, 3) {
        command.stdout(Stdio::from(copy));
    }
    Ok(command)
}

/// What the system does some time after the workload: it commits metadata, and later writes the rest.
fn settle(mounted: &Mounted, directory: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("crash: the volume cannot be synced after the workload: {error}"))
    };
    mounted.filesystem().volume().sync().map_err(|error| failed(&error))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::open(directory, flags, Mode::empty()).and_then(|root| rustix::fs::syncfs(&root));
    synced.map_err(|error| failed(&error))?;
    mounted.filesystem().sync().map_err(|error| failed(&error))
}

/// The paths of all files, by inode.
fn paths_of(filesystem: &Filesystem) -> HashMap<u64, PathBuf> {
    let entries = filesystem.walk("/").flatten();
    let paths = entries.filter_map(|entry| Some((entry.metadata().ok()?.inode.0.into(), entry.path.clone())));
    // The kernel's number of the root.
    paths.chain([(1, PathBuf::from("/"))]).collect()
}
