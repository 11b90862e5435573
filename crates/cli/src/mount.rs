//! Mounting a volume, in the foreground or as a daemon, and unmounting.
//!
//! The daemon is a second process of this program. Its standard output is a pipe, on which it reports that the volume is mounted. So the command
//! returns when the volume can be used, and earlier errors are written to its standard error.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diorite_mount::fuse::{detach, detach_own, keep_descriptors_here, keep_few_arenas, leave_namespace};
use diorite_mount::mounted::{self, Mounted};
use diorite_mount::status::StatusError;
use diorite_mount::{MountError, MountOptions, option_words, users_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::args;
use crate::failure::{Failure, Result, complain, print_error, visible};
use crate::inherited::{raise_limits, warn_of_file_size};
use crate::interrupt;
use crate::logging::{self, Destination};

/// Set for the process that becomes the daemon.
const IS_DAEMON: &str = "DIORITE_MOUNT_DAEMON";

/// Before this process starts threads: a daemon leaves the mount namespace of its caller.
pub(crate) fn prepare_daemon() {
    if std::env::var_os(IS_DAEMON).is_some() {
        leave_namespace();
    }
}

/// `diorite mount`.
pub(crate) fn mount(arguments: &args::Mount) -> Result<()> {
    if arguments.options.iter().flat_map(|words| option_words(words)).any(|word| word == "remount") {
        return remount(arguments);
    }
    let Some(directory) = &arguments.directory else {
        return Err(Failure::Usage(format!(
            "{}: the directory to mount on is missing; write IMAGE DIR",
            arguments.image
        )));
    };
    let mut options = MountOptions { read_only: arguments.read_only, ..MountOptions::default() };
    for words in &arguments.options {
        let wrong = |error| Failure::Usage(format!("{error} (the options: `diorite help mount`)"));
        options.set(words).map_err(wrong)?;
    }
    // As in the kernel's list of mounts, by which other programs find the daemon.
    let directory = directory.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Failure::Failed(format!("{}: cannot mount: there is no such directory", directory.display()))
        }
        _ => Failure::host(directory.display(), "be mounted on", &error),
    })?;
    let reason = match std::fs::metadata(&directory) {
        Err(error) if is_left(&error) => {
            Some("the mount on it has lost its daemon: unmount it first (`diorite umount`)")
        }
        Err(error) => return Err(Failure::host(directory.display(), "be mounted on", &error)),
        Ok(found) if !found.is_dir() => Some("it is not a directory"),
        Ok(_) if directory.parent().is_none() => Some("it is the root of the host's tree"),
        Ok(_) => None,
    };
    if let Some(reason) = reason {
        return Err(Failure::Failed(format!("{}: cannot mount: {reason}", directory.display())));
    }
    if arguments.fake {
        return Ok(());
    }
    // Before the daemon is started too: it may need more to begin.
    raise_limits();
    let is_daemon = std::env::var_os(IS_DAEMON).is_some();
    if !arguments.foreground && !is_daemon {
        return start_daemon();
    }
    if is_daemon {
        // The signals of the terminal are not for the daemon.
        let _ = rustix::process::setsid();
    }
    keep_few_arenas();
    // Before the volume is mounted: an error is one of this command.
    let null = if is_daemon { Some(open_log(Path::new("/dev/null"))?) } else { None };
    let destination = match (is_daemon, &arguments.log) {
        (true, Some(path)) => Destination::File(open_log(path)?),
        (true, None) => Destination::SystemLog,
        (false, _) => Destination::StandardError,
    };
    logging::install(destination, arguments.log_level);
    warn_of_file_size(&arguments.image);
    // A signal between the mount and the first answer would leave a mount without a daemon.
    interrupt::is_changing();
    let mount = diorite_mount::Mount::new(&arguments.image, &directory, &options)
        .map_err(|error| failure(&arguments.image, &options, "mount", error))?;
    let mount = Arc::new(mount);
    let served = Arc::clone(&mount);
    let is_unmounted = Arc::<Mutex<bool>>::default();
    let unmounts = Arc::clone(&is_unmounted);
    let action: interrupt::Action = Arc::new(move |_| end(&served, &unmounts));
    interrupt::act(Arc::clone(&action));
    if interrupt::cancel().is_cancelled() {
        // The kernel unmounts with requests, which are answered below.
        let name = "unmount".to_owned();
        let ends = std::thread::Builder::new().name(name).spawn(move || action(1));
        ends.map_err(|error| {
            Failure::Failed(format!("{}: cannot start a thread: {error}", arguments.image))
        })?;
    }
    if let Some(null) = null {
        leave_caller(&null)?;
    }
    let served = mount
        .serve()
        .map_err(|error| failure(&arguments.image, &options, "close the volume", error))
        .inspect_err(|failed| {
            if let (true, Failure::Failed(text)) = (is_daemon, failed) {
                log::error!("{text}");
            }
        });
    // Until a program that unmounts has ended, the image is in use by the loop device.
    drop(is_unmounted.lock());
    served
}

/// Change options of a mount. `mount(8)` passes the source, too, and all options of the mount.
fn remount(arguments: &args::Mount) -> Result<()> {
    let directory = arguments.directory.clone().unwrap_or_else(|| arguments.image.clone().into());
    // As the kernel's list of mounts has it.
    let directory = directory.canonicalize().unwrap_or(directory);
    let mut words = arguments.options.join(",");
    if arguments.read_only {
        words += ",ro";
    }
    if arguments.fake {
        return Ok(());
    }
    diorite_mount::remount(&directory, &words).map_err(|error| Failure::Failed(error.to_string()))
}

/// Whether the error is that of a mount whose daemon was killed.
fn is_left(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Users of a mount that an error names.
const USERS_SHOWN: usize = 8;
/// Time after which `umount` reports that it waits for a daemon, and the limit.
const WAIT_UNREPORTED: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(600);

/// `diorite umount`: when it returns, everything is on the image, and the daemon has ended. The kernel waits for that with mounts of type
/// `fuseblk` only. After a failure the other directories are unmounted.
pub(crate) fn umount(arguments: &args::Umount) -> Result<()> {
    let mut all = Ok(());
    for directory in &arguments.directories {
        if let Err(failure) = unmount(directory, arguments.lazy) {
            failure.report();
            all = Err(Failure::Reported);
        }
    }
    all
}

fn unmount(directory: &Path, lazily: bool) -> Result<()> {
    // As in the kernel's list of mounts. A mount without a daemon has no canonical path.
    let directory = &directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mount = mounted::on(directory);
    if let Some(Mounted { kind, .. }) = mount.as_ref().filter(|mount| !mount.is_own()) {
        return Err(Failure::Failed(format!(
            "{}: cannot unmount: the mount is of type {kind}, not of Diorite: use `umount`",
            directory.display()
        )));
    }
    let daemon = if lazily { None } else { daemon_of(directory)? };
    // Errors of the daemon's last writes are in its log only.
    let written = if daemon.is_some() { write_back(directory) } else { Ok(()) };
    detach(directory, lazily).map_err(|error| not_unmounted(directory, &error))?;
    // If it is mounted elsewhere, too, as by `mount --bind`, the daemon continues.
    let elsewhere = mount.and_then(|mount| {
        mounted::all().into_iter().find(|other| other.is_own() && other.numbers == mount.numbers)
    });
    match (daemon, elsewhere) {
        (Some(_), Some(elsewhere)) => complain(&format!(
            "{}: unmounted; the volume is still in use on {}",
            directory.display(),
            elsewhere.directory.display()
        )),
        (Some(daemon), None) => wait_for_end(directory, &daemon)?,
        (None, _) => {}
    }
    written.map_err(|error| {
        let why = std::io::Error::from(error);
        let directory = directory.display();
        Failure::Failed(format!("{directory}: unmounted, but unsynced data may be lost: {why}"))
    })
}

/// The error of an unmount. If the mount is in use, it names the users.
fn not_unmounted(directory: &Path, error: &MountError) -> Failure {
    let users = match error {
        // `fusermount3` has no number for it.
        MountError::Detach { source, .. } if source.to_string().to_lowercase().contains("busy") => {
            users_of(directory)
        }
        _ => return Failure::Failed(error.to_string()),
    };
    let directory = directory.display();
    let who = match users.split_at_checked(USERS_SHOWN) {
        Some((shown, rest)) if !rest.is_empty() => {
            format!("by {} and {} others", shown.join(", "), rest.len())
        }
        _ if users.is_empty() => "by processes of other users".to_owned(),
        _ => format!("by {}", users.join(", ")),
    };
    Failure::Failed(format!(
        "{directory}: cannot unmount: it is in use {who}; end them, or detach the mount: diorite umount -l {directory}"
    ))
}

/// Write all data of a mount to the image.
fn write_back(directory: &Path) -> rustix::io::Result<()> {
    let opened =
        rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let opened = match opened {
        // The directory may be closed to the unmounting user.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
        opened => opened?,
    };
    // After a program was killed in a copy, the kernel returns `EINTR` once.
    if let Err(error) = rustix::io::retry_on_intr(|| rustix::fs::syncfs(&opened)) {
        // The error may be old, as of a full volume: it was reported to the programs that synced.
        complain(&format!(
            "{}: some written data could not be written to the image: {}",
            directory.display(),
            std::io::Error::from(error)
        ));
    }
    // Reports a volume that has failed.
    rustix::fs::fsync(&opened)
}

/// The process of a mount's daemon, if it answers. A stopped daemon would never answer the unmount.
fn daemon_of(directory: &Path) -> Result<Option<OwnedFd>> {
    let daemon = match diorite_mount::status::ask(directory) {
        Err(StatusError::Stopped { directory, daemon }) => {
            let directory = directory.display();
            return Err(Failure::Failed(format!(
                "{directory}: cannot unmount: its daemon, process {daemon}, is stopped; continue it: kill -CONT {daemon}, \
                 or detach the mount: diorite umount -l {directory}"
            )));
        }
        status => status.ok().and_then(|status| i32::try_from(status.daemon).ok()).and_then(Pid::from_raw),
    };
    Ok(daemon.and_then(|daemon| pidfd_open(daemon, PidfdFlags::empty()).ok()))
}

fn wait_for_end(directory: &Path, daemon: &OwnedFd) -> Result<()> {
    if has_ended_within(daemon, WAIT_UNREPORTED) {
        return Ok(());
    }
    print_error(&format!(
        "diorite: {}: unmounted; waiting until everything is written to the image",
        visible(&directory.display().to_string())
    ));
    if has_ended_within(daemon, WAIT_MAX) {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{}: unmounted, but its daemon still runs: it is writing data, or the mount exists in another mount namespace",
        directory.display()
    )))
}

/// A pidfd can be read when the process has ended.
fn has_ended_within(process: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    loop {
        let mut events = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut events, Some(&limit)) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

fn failure(image: &str, options: &MountOptions, what: &str, error: MountError) -> Failure {
    match error {
        MountError::Volume(error) => Failure::of_mount(image, options, what, &error),
        error => Failure::Failed(error.to_string()),
    }
}

/// A signal unmounts. Open files can be used until they are closed. After the unmount further signals change nothing: the kernel's cache would be
/// lost with the process.
fn end(mount: &diorite_mount::Mount, is_unmounted: &Mutex<bool>) {
    let directory = mount.directory();
    let shown = directory.display();
    let mut is_unmounted = is_unmounted.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_unmounted {
        log::warn!(
            "{shown}: unmounted already; it ends when open files are closed and everything is written; SIGKILL ends it at once and loses data"
        );
        return;
    }
    let detached = detach_own(directory, false).or_else(|_| {
        let detached = detach_own(directory, true);
        if detached.is_ok() {
            log::warn!("{shown}: unmounted; files are open, and the volume is closed when they are");
        }
        detached
    });
    match detached {
        Ok(()) => *is_unmounted = true,
        // As after `umount -l`.
        Err(_) if mounted::on(directory).is_none_or(|mount| !mount.is_own()) => {
            log::warn!(
                "{shown}: it is not in the tree; it ends, and programs that have files open get errors"
            );
            let ended = mount.end_now().inspect_err(|error| log::error!("{shown}: {error}"));
            std::process::exit(ended.is_err().into());
        }
        Err(error) => log::error!("{error}"),
    }
}

/// Start the daemon, and wait until it has mounted the volume.
fn start_daemon() -> Result<()> {
    let failed = |error: std::io::Error| Failure::host("daemon", "be started", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    // By the same name: the name of a mount helper has a meaning.
    std::os::unix::process::CommandExt::arg0(&mut command, std::env::args_os().next().unwrap_or_default());
    command.args(std::env::args_os().skip(1)).env(IS_DAEMON, "1");
    keep_descriptors_here();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut ready = [0];
    let is_ready = child.stdout.as_mut().is_some_and(|pipe| pipe.read(&mut ready).is_ok_and(|got| got == 1));
    if is_ready {
        return Ok(());
    }
    let status: ExitStatus = child.wait().map_err(failed)?;
    // It has printed the reason.
    if status.code().is_some() {
        Err(Failure::Reported)
    } else {
        Err(Failure::Failed(format!("daemon: {status}")))
    }
}

/// A file to which a daemon's messages go.
fn open_log(path: &Path) -> Result<File> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map_err(|error| Failure::host(path.display(), "be written", &error))
}

/// The volume is mounted: report it to the caller, and close the caller's files.
fn leave_caller(null: &File) -> Result<()> {
    let _ = std::io::stdout().write_all(b"\n").and_then(|()| std::io::stdout().flush());
    let redirected = rustix::stdio::dup2_stdout(null).and_then(|()| rustix::stdio::dup2_stderr(null));
    redirected.map_err(|error| Failure::host("standard error", "be redirected", &error.into()))?;
    logging::leave_caller();
    let _ = std::env::set_current_dir("/");
    Ok(())
}
