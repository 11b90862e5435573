//! Programs with a time limit, in a process group of their own.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tempfile::TempDir;

use crate::failure::{Failure, Result};
use crate::interrupt;

/// Bytes of a program's output that are kept for messages.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Time after which an interrupt is seen.
const TICK: Duration = Duration::from_millis(100);

/// A directory for the mount and the files beside it.
pub(super) fn scratch() -> Result<TempDir> {
    let failed = |error: io::Error| Failure::host("crash", "make a directory for the volume", &error);
    let scratch = tempfile::Builder::new().prefix("diorite-crash-").tempdir().map_err(failed)?;
    std::fs::create_dir(scratch.path().join("volume")).map_err(failed)?;
    Ok(scratch)
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Status(ExitStatus),
    TimeIsOver,
    Interrupted,
}

impl End {
    /// What went wrong, in words that follow the name of the program.
    pub(super) fn problem(self, limit: Duration) -> Option<String> {
        match self {
            Self::Status(status) if status.success() => None,
            Self::Status(status) => Some(match (status.code(), status.signal()) {
                (Some(code), _) => format!("ended with exit status {code}"),
                (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
            }),
            Self::TimeIsOver => Some(format!("was ended after its time limit of {} s", limit.as_secs())),
            Self::Interrupted => Some("was interrupted".to_owned()),
        }
    }
}

/// Run a program until it ends, its time is over, or the user interrupts. Processes that it left in its group are killed.
pub(super) fn run(command: &mut Command, limit: Duration) -> io::Result<End> {
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let end = wait(&mut child, limit);
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    match end? {
        Some(end) => {
            child.wait()?;
            Ok(end)
        }
        None => Ok(End::Status(child.wait()?)),
    }
}

/// Wait for the end; `None` if the program has ended by itself. It is not reaped, so that its number stays its own.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<End>> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::NotFound)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let step = left.min(TICK);
        let time = Timespec { tv_sec: step.as_secs() as i64, tv_nsec: step.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&time)) {
            Ok(1..) => return Ok(None),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if interrupt::cancel().is_cancelled() {
            return Ok(Some(End::Interrupted));
        }
        if left.is_zero() {
            return Ok(Some(End::TimeIsOver));
        }
    }
}

/// The last line of a program's output.
pub(super) fn last_line(output: &mut File) -> io::Result<String> {
    let len = output.seek(SeekFrom::End(0))?;
    output.seek(SeekFrom::Start(len.saturating_sub(OUTPUT_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned())
}
