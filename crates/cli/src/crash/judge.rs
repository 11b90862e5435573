//! Mounts one state after a power cut, and runs the check in it.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use diorite::Filesystem;
use diorite_block::BlockDevice;
use diorite_crash::examine::State;
use diorite_mount::fuse::{abort, detach, own_namespace};
use diorite_mount::{MountError, MountOptions, Observer, mounted};
use diorite_sim::image::{ImageDevice, SparseImage};

use super::process::{End, last_line, run};
use super::volume;
use crate::args::ReplayedBy;

/// Time in which a detached mount must end.
const END_MAX: Duration = Duration::from_secs(5);
/// Memory of a volume that is checked.
const CHECK_OPTIONS: &str = "fsname=diorite-crash,cache=4M,io_uring=off,idle_polling=off";

/// A volume that is mounted and served.
pub(super) struct Mounted {
    mount: Arc<diorite_mount::Mount>,
    server: JoinHandle<()>,
    ended: mpsc::Receiver<()>,
    directory: PathBuf,
}

impl Mounted {
    /// Mount a volume in memory on `directory`.
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        directory: &Path,
        options: &MountOptions,
        observer: Option<Observer>,
    ) -> Result<Self, MountError> {
        let mount = diorite_mount::Mount::on_device(device, "diorite-crash", directory, options, observer)?;
        let mount = Arc::new(mount);
        let (served, (sender, ended)) = (Arc::clone(&mount), mpsc::channel());
        let serve = move || {
            // A volume in memory is lost anyway; errors of its files were reported to their programs.
            let _ = served.serve();
            let _ = sender.send(());
        };
        let server = thread::Builder::new().name("crash-mount".to_owned()).spawn(serve);
        let server =
            server.map_err(|source| MountError::Attach { directory: directory.to_owned(), source })?;
        Ok(Self { mount, server, ended, directory: directory.to_owned() })
    }

    pub(super) fn filesystem(&self) -> &Filesystem {
        self.mount.filesystem()
    }

    /// Unmount. Programs that have files open get errors.
    pub(super) fn end(self) {
        let numbers = mounted::on(&self.directory).map(|mounted| mounted.numbers);
        if detach(&self.directory, true).is_err() {
            return;
        }
        if self.ended.recv_timeout(END_MAX).is_err() {
            // A process has left its group, and has files open.
            let aborted = numbers.is_some_and(|numbers| abort(&numbers).is_ok());
            if !aborted || self.ended.recv_timeout(END_MAX).is_err() {
                return;
            }
        }
        let _ = self.server.join();
    }

    /// Wait until it is unmounted.
    pub(super) fn wait(self) {
        let _ = self.server.join();
    }
}

thread_local! {
    /// Whether this thread has a mount namespace of its own.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Checks states.
pub(super) struct Judge<'a> {
    /// For the shell.
    pub(super) check: &'a str,
    /// Time of one check.
    pub(super) limit: Duration,
    /// The acknowledged lines of the whole record.
    pub(super) lines: &'a [String],
    pub(super) scratch: &'a Path,
    /// Several states are mounted at the same time.
    pub(super) has_own_namespaces: bool,
    /// The filesystem that mounts a state.
    pub(super) by: ReplayedBy,
    /// Without a journal, `e2fsck -fy` repairs a volume before it is mounted.
    pub(super) needs_repair: bool,
}

impl Judge<'_> {
    /// Whether the check is content with a state.
    pub(super) fn judge(&self, state: State<'_>) -> Result<(), String> {
        let lines = &self.lines[..state.point.marks().len()];
        if !self.needs_repair && self.by == ReplayedBy::Diorite {
            return self.check_mounted(state.point.device(state.fates), lines, state.worker);
        }
        let mut image = state.point.image(state.fates);
        let file = self.scratch.join(format!("image-{}", state.worker));
        if self.needs_repair {
            image = volume::repaired(&image, &file)?;
        }
        match self.by {
            ReplayedBy::Diorite => self.check_mounted(device_of(image), lines, state.worker),
            ReplayedBy::Kernel => self.check_in_kernel(&image, &file, lines, state.worker),
        }
    }

    /// Check a volume that the kernel mounts.
    fn check_in_kernel(
        &self,
        image: &SparseImage,
        file: &Path,
        lines: &[String],
        worker: usize,
    ) -> Result<(), String> {
        let host = |error: std::io::Error| format!("the check cannot run: {error}");
        let acknowledged = self.prepare(lines, worker)?;
        volume::save(image, file).map_err(host)?;
        let directory = self.scratch.join("volume");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-o", "loop"]).arg(file).arg(&directory).output().map_err(host)?;
        if !mounted.status.success() {
            let said = String::from_utf8_lossy(&mounted.stderr);
            return Err(format!(
                "the kernel does not mount the volume: {}",
                said.lines().next().unwrap_or_default()
            ));
        }
        let verdict = self.run_check(&directory, &acknowledged);
        // A process of the check may still use it.
        detach(&directory, true).map_err(|error| error.to_string())?;
        verdict
    }

    /// Enter the namespace of this thread, and write the acknowledged lines to a file. Returns its path.
    fn prepare(&self, lines: &[String], worker: usize) -> Result<PathBuf, String> {
        if self.has_own_namespaces && !IS_APART.replace(true) {
            own_namespace().map_err(|error| format!("no mount namespace of its own: {error}"))?;
        }
        let acknowledged = self.scratch.join(format!("acked-{worker}"));
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        std::fs::write(&acknowledged, text).map_err(|error| format!("the check cannot run: {error}"))?;
        Ok(acknowledged)
    }

    /// Check a volume.
    pub(super) fn check_mounted(
        &self,
        device: Arc<dyn BlockDevice>,
        lines: &[String],
        worker: usize,
    ) -> Result<(), String> {
        let acknowledged = self.prepare(lines, worker)?;
        let directory = self.scratch.join("volume");
        let mut options = MountOptions::default();
        options.set(CHECK_OPTIONS)?;
        let mounted = Mounted::new(device, &directory, &options, None)
            .map_err(|error| format!("the volume cannot be mounted: {error}"))?;
        let verdict = self.run_check(&directory, &acknowledged);
        mounted.end();
        verdict
    }

    fn run_check(&self, directory: &Path, acknowledged: &Path) -> Result<(), String> {
        let host = |error: std::io::Error| format!("the check cannot run: {error}");
        let mut output = tempfile::tempfile().map_err(host)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", self.check])
            .current_dir(directory)
            .env("DIORITE_CRASH_DIR", directory)
            .env("DIORITE_CRASH_ACKED", acknowledged)
            .stdout(Stdio::from(output.try_clone().map_err(host)?))
            .stderr(Stdio::from(output.try_clone().map_err(host)?));
        let end = run(&mut command, self.limit).map_err(host)?;
        let Some(problem) = end.problem(self.limit) else { return Ok(()) };
        if end == End::Interrupted {
            // Not a verdict.
            return Ok(());
        }
        let said = last_line(&mut output).map_err(host)?;
        Err(if said.is_empty() { format!("the check {problem}") } else { said })
    }
}

/// A state as a device.
pub(super) fn device_of(image: SparseImage) -> Arc<dyn BlockDevice> {
    ImageDevice::new(image)
}
