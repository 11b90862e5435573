//! FUSE: a volume as a mount of the host's kernel.
//!
//! - `channel`, `readers`: the transport over `/dev/fuse`; `uring`, `ring`: that over io_uring
//! - `attach`, `namespace`: mounting and unmounting
//! - `remount`: changes of options
//! - `sys`: system calls that have no safe form elsewhere

mod attach;
mod channel;
mod namespace;
mod readers;
mod remount;
mod ring;
mod sys;
mod uring;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use diorite::front_end::{TargetKind, kind_of_target};
use diorite::{BlockDevice, Filesystem};

use crate::operations::Operations;
use crate::protocol::notify::Notifier;
use crate::protocol::session::{Behavior, MAX_CHANNEL_TRANSFER, MAX_TRANSFER, Session, status_of};
use crate::service::idle_polling::IdlePolling;
use crate::service::log::LimitedLog;
use crate::service::observer::Observer;
use crate::service::opened;
use crate::service::options::{IoUring, MountOptions};
use crate::service::threads::Threads;
use crate::service::watch::{Name, Watch};
use attach::{Backing, MountRequest, attach, is_over_io_uring_allowed, tune_writeback};
pub use attach::{abort, detach, detach_own};
use channel::Channels;
pub use namespace::{leave_namespace, own_namespace};
use remount::Remounts;
pub use remount::{RemountError, remount};
pub use sys::{keep_descriptors_here, keep_few_arenas};
use uring::PreparedRings;

/// Why something cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The volume cannot be opened, or failed when it was closed.
    #[error(transparent)]
    Volume(#[from] diorite::Error),
    /// The kernel has no FUSE.
    #[error(
        "/dev/fuse: cannot open: {source}; load the kernel's module fuse; a container also needs the device"
    )]
    NoFuse {
        /// The error of the system.
        source: io::Error,
    },
    /// `fusermount3`, which mounts for users, is missing.
    #[error("fusermount3: cannot run: {source}; install the package fuse3")]
    NoHelper {
        /// The error of the system.
        source: io::Error,
    },
    /// `fusermount3` failed.
    #[error("{}: cannot mount: {said}", directory.display())]
    Helper {
        /// The directory.
        directory: PathBuf,
        /// The error.
        said: String,
    },
    /// The kernel refused the mount.
    #[error("{}: cannot mount: {source}", directory.display())]
    Attach {
        /// The directory.
        directory: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// io_uring is required, and the kernel does not offer it, or has no rings for this process.
    #[error(
        "{}: cannot mount: FUSE over io_uring is not enabled; write Y to /sys/module/fuse/parameters/enable_uring (Linux 6.14), or mount with io_uring=auto",
        directory.display()
    )]
    NoIoUring {
        /// The directory.
        directory: PathBuf,
    },
    /// The unmount failed.
    #[error("{}: cannot unmount: {source}", directory.display())]
    Detach {
        /// The directory.
        directory: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A volume that is mounted, and served by [`Mount::serve`]. Dropped before that, it is unmounted; programs that use it then are served until
/// they end, and waited for.
pub struct Mount {
    session: Arc<Session>,
    channels: Arc<Channels>,
    threads: Threads,
    directory: PathBuf,
    watch: Mutex<Option<Watch>>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.session.is_closed() {
            self.end();
        }
    }
}

impl Mount {
    /// Open the volume of `target` and mount it on `directory`. It answers from [`Mount::serve`] on. Errors
    /// without a caller are logged (by the crate `log`).
    ///
    /// # Errors
    /// The volume cannot be opened, or the kernel does not mount it.
    pub fn new(target: &str, directory: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let (filesystem, log) = opened::open(target, options, &options.filesystem())?;
        Self::attach(filesystem, target, directory, options, log, None)
    }

    /// As [`Self::new`], for the volume on a device that is no file of the host. `name` is its name in messages. The observer gets each
    /// request.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn on_device(
        device: Arc<dyn BlockDevice>,
        name: &str,
        directory: &Path,
        options: &MountOptions,
        observer: Option<Observer>,
    ) -> Result<Self, MountError> {
        let filesystem = options.filesystem().open_device(device)?;
        let log = opened::log_of(name, options, &filesystem);
        Self::attach(filesystem, name, directory, options, log, observer)
    }

    fn attach(
        filesystem: Filesystem,
        target: &str,
        directory: &Path,
        options: &MountOptions,
        log: LimitedLog,
        observer: Option<Observer>,
    ) -> Result<Self, MountError> {
        let is_read_only = options.read_only || filesystem.read_only_reason().is_some();
        let mut images = diorite::front_end::host_paths(target);
        let checks_permissions = options.checks_permissions();
        // Before it is in the tree: without them, it would be there and not answer.
        let threads = Threads::default();
        let rings = prepare(target, directory, options.io_uring, &threads)?;
        let max_transfer = if rings.is_some() { MAX_TRANSFER } else { MAX_CHANNEL_TRANSFER };
        let has_loop = !is_read_only && options.source_name.is_none();
        let is_whole = kind_of_target(&options.target(target)) == TargetKind::Whole;
        let image = if images.len() == 1 { images.pop() } else { None };
        let request = MountRequest {
            directory,
            source: options.source_name.as_deref().unwrap_or(target),
            backing: has_loop.then_some(match image {
                Some(path) => Backing::Image { path, is_whole },
                None => Backing::Memory,
            }),
            flags: options.flags(is_read_only),
            allow_other: options.allow_other,
            default_permissions: checks_permissions,
            max_read: max_transfer,
        };
        let device = Arc::new(attach(&request)?);
        let behavior = Behavior {
            write_back: options.write_back(),
            uncached: options.direct,
            checks_permissions,
            idmap: options.idmap,
            io_uring: rings.is_some(),
            observer,
        };
        let name = namespace::in_callers(|| {
            tune_writeback(directory);
            Name::mounted_on(directory)
        });
        namespace::keep_only(&diorite::front_end::host_paths(target));
        let operations = Operations::new(filesystem, options.settings());
        let log = Arc::new(log);
        let notifier = Notifier::new(Arc::clone(&device), Arc::clone(&log));
        let idle_polling = if options.no_idle_polling { None } else { IdlePolling::start() };
        let session = Arc::new(Session::new(operations, behavior, Some(notifier), idle_polling, log));
        let options = MountOptions { read_only: is_read_only, ..options.clone() };
        let remounts = Remounts::new(Arc::downgrade(&session), options);
        let remount = move |step, words: &str| remounts.carry_out(step, words);
        let status = status_of(&session, target, &directory.to_string_lossy());
        let watch = Watch::start(target, name, status, Some(Arc::new(remount)));
        let channels = Channels::new(&session, device, &threads, max_transfer, rings);
        let (watch, directory) = (Mutex::new(watch), directory.to_owned());
        let mount = Self { session, channels, threads, directory, watch };
        mount.channels.set_up(&mount.directory)?;
        log::info!("{target}: mounted on {}", mount.directory.display());
        Ok(mount)
    }

    /// Unmount a volume that is not served. The kernel unmounts with requests, and waits for the answers.
    fn end(&self) {
        self.end_watch();
        let (session, channels, threads) =
            (Arc::clone(&self.session), Arc::clone(&self.channels), self.threads.clone());
        let serve = move || {
            let served = channels.serve();
            threads.wait_until_ended();
            if let Err(error) = served.and(session.close()) {
                session.log.say(&error.to_string());
            }
        };
        // Without a thread that answers, a mount without a daemon is left, which is better than a wait without end.
        let Ok(served) = thread::Builder::new().name("fuse-end".to_owned()).spawn(serve) else { return };
        match detach_own(&self.directory, true) {
            Ok(()) => drop(served.join()),
            Err(error) => self.session.log.say(&error.to_string()),
        }
    }

    /// End now, although programs have files open: their data is on the volume, and their next calls fail. For a mount that is in the tree
    /// no longer, so that it cannot be unmounted.
    ///
    /// # Errors
    /// As [`Filesystem::close`].
    pub fn end_now(&self) -> Result<(), MountError> {
        for inode in self.session.operations.clients().files_with_writers() {
            if let Some(notifier) = &self.session.notifier {
                notifier.forget_pages(inode, 0, 0);
            }
        }
        Ok(self.session.close()?)
    }

    fn end_watch(&self) {
        drop(self.watch.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The volume.
    pub fn filesystem(&self) -> &Filesystem {
        self.session.operations.filesystem()
    }

    /// Answer requests until it is unmounted, then close the volume.
    ///
    /// # Errors
    /// As [`Filesystem::close`].
    pub fn serve(&self) -> Result<(), MountError> {
        let served = self.channels.serve();
        self.threads.wait_until_ended();
        self.end_watch();
        log::info!("{}: unmounted", self.directory.display());
        Ok(served.and(self.session.close())?)
    }
}

/// The threads of io_uring, if it is used.
fn prepare(
    target: &str,
    directory: &Path,
    io_uring: IoUring,
    threads: &Threads,
) -> Result<Option<PreparedRings>, MountError> {
    let is_possible = is_over_io_uring_allowed() && ring::is_possible();
    let over_io_uring = match io_uring {
        // Threads of the rings use the mount by its path.
        IoUring::Auto => is_possible && !namespace::has_left(),
        IoUring::On => is_possible,
        IoUring::Off => false,
    };
    if io_uring == IoUring::On && !over_io_uring {
        return Err(MountError::NoIoUring { directory: directory.to_owned() });
    }
    if !over_io_uring {
        return Ok(None);
    }
    match PreparedRings::new(threads) {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if io_uring == IoUring::On => Err(error.into()),
        Err(error) => {
            log::warn!("{target}: requests come over /dev/fuse, not io_uring: {error}");
            Ok(None)
        }
    }
}
