//! A volume that the program serves, in a temporary directory, in memory if possible.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Settings, Transport};
use crate::command::shell;

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The program that replays a volume after its daemon was killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replay {
    Diorite,
    E2fsck,
    Kernel,
}

impl Replay {
    pub(crate) fn of_round(round: u64) -> Self {
        match round % 3 {
            0 => Self::Diorite,
            1 => Self::E2fsck,
            _ => Self::Kernel,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Served {
    directory: PathBuf,
    target: String,
    diorite: PathBuf,
    options: String,
    transport: Transport,
    daemon: Option<Child>,
}

impl Served {
    /// Make a volume without mounting it.
    pub(crate) fn new(settings: &Settings, options: &str, mke2fs: &str, size: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("diorite-mount-{}-{number}", std::process::id()));
        std::fs::create_dir_all(directory.join("at")).map_err(|error| error.to_string())?;
        let served = Self {
            target: directory.join("a.img").display().to_string(),
            directory,
            diorite: settings.diorite.clone(),
            options: format!("{options},{}", settings.transport.option()),
            transport: settings.transport,
            daemon: None,
        };
        shell(&format!("mke2fs -q -F {mke2fs} {} {size}", served.image().display()))?;
        Ok(served)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.directory.join("a.img")
    }

    pub(crate) fn at(&self) -> PathBuf {
        self.directory.join("at")
    }

    /// Serve another target than the image itself.
    pub(crate) fn set_target(&mut self, target: String) {
        self.target = target;
    }

    pub(crate) fn mount(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.diorite);
        command.args(["mount", "-f", "-o", &self.options, &self.target]).arg(self.at());
        let _enabled = self.transport.enable()?;
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.diorite.display()))?;
        let start = Instant::now();
        while !self.is_mounted() {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("the daemon ended at once: {status}"));
            }
            if start.elapsed() > TIME_LIMIT {
                let _ = child.kill();
                return Err("it does not mount".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.daemon = Some(child);
        // The mount appears before the transport is negotiated.
        std::fs::metadata(self.at()).map(drop).map_err(|error| error.to_string())
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == self.at()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// Unmount, and wait for the end of the daemon.
    pub(crate) fn unmount(&mut self) -> Result<(), String> {
        until_done(&format!("umount {}", self.at().display()))?;
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> Result<(), String> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let status = daemon.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the daemon: {status}")) }
    }

    /// End the daemon at once, as a power cut would end its work.
    pub(crate) fn kill(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let _ = daemon.kill();
        let _ = daemon.wait();
    }

    /// After [`Self::kill`], when no program uses the directory any more: replay the journal, and mount again.
    pub(crate) fn recover(&mut self, replay: Replay) -> Result<(), String> {
        let (image, at) = (self.image(), self.at());
        until_done(&format!("umount {}", at.display()))?;
        match replay {
            Replay::Diorite => {
                self.mount()?;
                self.unmount()?;
            }
            Replay::E2fsck => {
                // It exits with 1 after a repair.
                shell(&format!("e2fsck -fp {} || [ $? = 1 ]", image.display()))?;
            }
            Replay::Kernel => {
                // The loop device of the previous mount may still exist.
                until_done(&format!("mount -o loop {} {}", image.display(), at.display()))?;
                shell(&format!("umount {}", at.display()))?;
            }
        }
        self.must_be_clean().map_err(|error| format!("replayed by {replay:?}: {error}"))?;
        self.mount()
    }

    pub(crate) fn must_be_clean(&self) -> Result<(), String> {
        shell(&format!("e2fsck -fn {}", self.image().display())).map(drop)
    }

    /// Unmount, and check that the volume is clean.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.unmount()?;
        self.must_be_clean()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = shell(&format!("umount -l {}", self.at().display()));
        }
        self.kill();
        if std::env::var_os("DIORITE_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Run a script until it succeeds, because a device stays busy for a short time after its last user.
fn until_done(script: &str) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match shell(script) {
            Err(error) if start.elapsed() > TIME_LIMIT => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
            done => return done.map(drop),
        }
    }
}
