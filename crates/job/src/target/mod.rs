//! Places of the files of jobs: the host, a volume, a device.

pub(crate) mod handle;

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite::front_end::ScheduledDevice;
use diorite::{
    BlockDevice, Creates, DirectIo, Error, File, Filesystem, HostFile, OpenOptions, RawFile, SchedulerKind,
};
use diorite_block::sync::Mutex;

use self::handle::{Handle, open_in_kernel};

/// How a file is opened, beside for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// For writing.
    pub write: bool,
    /// Created if it does not exist and is written.
    pub create: bool,
    /// With direct I/O.
    pub direct: bool,
}

impl FileUse {
    fn apply<P: Creates>(self, options: OpenOptions<P>) -> OpenOptions<P> {
        let direct = if self.direct { DirectIo::Required } else { DirectIo::Off };
        options.read(true).write(self.write).create(self.write && self.create).direct(direct)
    }
}

/// A job's path below `root`, also of an absolute path.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Opens files by name.
pub trait Target: Send + Sync {
    /// Make the directory of a file of a job, which is `directory` or below. As in fio, `directory` itself must exist on the host.
    fn prepare(&self, directory: &Path, parent: &Path) -> Result<(), Error>;

    /// Open a file.
    fn open(&self, path: &Path, purpose: FileUse) -> Result<File, Error>;

    /// Open a file for a job: buffered files of the host use the kernel's page cache.
    fn open_handle(&self, path: &Path, purpose: FileUse) -> Result<Handle, Error> {
        self.open(path, purpose).map(Handle::Stack)
    }

    /// Whether written files are preallocated by default.
    fn preallocates(&self) -> bool {
        false
    }

    /// The I/O scheduler under the files, if there is one.
    fn scheduler(&self) -> Option<Arc<ScheduledDevice>> {
        None
    }

    /// The file of a name: equal for all names of one file.
    fn file_of(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Size of a file in bytes; `None` if it does not exist.
    fn size_of(&self, path: &Path) -> Option<u64>;

    /// Free bytes for all files; `None` if unknown.
    fn free_bytes(&self) -> Option<u64>;

    /// Remove a file.
    fn remove(&self, path: &Path) -> Result<(), Error>;

    /// Whether the disk is simulated. Its files hold zeros, which need no memory. It has the files of an earlier run of the jobs:
    /// written files exist unless a job says otherwise.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// Files of the host's filesystem: at the jobs' paths, or below a directory.
#[derive(Clone, Debug, Default)]
pub struct HostTarget {
    root: Option<PathBuf>,
    /// Files open with direct I/O: jobs on one file share its handle, and so its size and locks.
    shared: Arc<Mutex<BTreeMap<PathBuf, (File, bool)>>>,
}

impl HostTarget {
    /// All paths are below `root`; directories of jobs are made in it.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: Some(root.into()), ..Self::default() }
    }

    fn on_host(&self, path: &Path) -> PathBuf {
        self.root.as_ref().map_or_else(|| path.to_owned(), |root| below(root, path))
    }
}

impl Target for HostTarget {
    fn prepare(&self, directory: &Path, parent: &Path) -> Result<(), Error> {
        if self.root.is_none() && !directory.as_os_str().is_empty() {
            let found = std::fs::metadata(directory);
            found.map_err(|source| Error::Os { what: "cannot open the directory of the job", source })?;
        }
        let made = std::fs::create_dir_all(self.on_host(parent));
        made.map_err(|source| Error::Os { what: "cannot make its directory", source })
    }

    fn open(&self, path: &Path, purpose: FileUse) -> Result<File, Error> {
        let path = self.on_host(path);
        if !purpose.direct {
            return purpose.apply(HostFile::options()).open(path);
        }
        let mut shared = self.shared.lock();
        if let Some((file, _)) = shared.get(&path).filter(|(_, writes)| *writes || !purpose.write) {
            return Ok(file.clone());
        }
        let file = purpose.apply(HostFile::options()).open(&path)?;
        shared.insert(path, (file.clone(), purpose.write));
        Ok(file)
    }

    fn open_handle(&self, path: &Path, purpose: FileUse) -> Result<Handle, Error> {
        if purpose.direct {
            return self.open(path, purpose).map(Handle::Stack);
        }
        open_in_kernel(&self.on_host(path), purpose.write, purpose.write && purpose.create)
    }

    fn preallocates(&self) -> bool {
        true
    }

    fn file_of(&self, path: &Path) -> PathBuf {
        self.on_host(path)
    }

    fn size_of(&self, path: &Path) -> Option<u64> {
        let path = self.on_host(path);
        let metadata = std::fs::metadata(&path).ok()?;
        if metadata.file_type().is_block_device() {
            // The metadata of a device has no size.
            let mut device = std::fs::OpenOptions::new().read(true).open(path).ok()?;
            return device.seek(SeekFrom::End(0)).ok();
        }
        // A character device such as /dev/zero has no end.
        if metadata.file_type().is_char_device() { Some(u64::MAX) } else { Some(metadata.len()) }
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        let path = self.on_host(path);
        // A later job of that name makes a new file.
        self.shared.lock().remove(&path);
        std::fs::remove_file(path).map_err(|source| Error::Os { what: "cannot remove", source })
    }
}

/// Files of a volume, below `root`. Directories of jobs are made.
#[derive(Clone, Debug)]
pub struct VolumeTarget {
    filesystem: Filesystem,
    root: PathBuf,
    simulated: bool,
}

impl VolumeTarget {
    /// Files of `filesystem`, under `root`.
    pub fn new(filesystem: Filesystem, root: impl Into<PathBuf>) -> Self {
        Self { filesystem, root: root.into(), simulated: false }
    }

    /// The volume is on a simulated disk.
    #[must_use]
    pub(crate) fn simulated(mut self) -> Self {
        self.simulated = true;
        self
    }

    fn inside(&self, path: &Path) -> PathBuf {
        below(&self.root, path)
    }
}

impl Target for VolumeTarget {
    fn prepare(&self, _directory: &Path, parent: &Path) -> Result<(), Error> {
        self.filesystem.create_dir_all(self.inside(parent))
    }

    fn open(&self, path: &Path, purpose: FileUse) -> Result<File, Error> {
        purpose.apply(self.filesystem.open_options()).open(self.inside(path))
    }

    fn file_of(&self, path: &Path) -> PathBuf {
        self.inside(path)
    }

    fn size_of(&self, path: &Path) -> Option<u64> {
        self.filesystem.metadata(self.inside(path)).ok().map(|attributes| attributes.size)
    }

    fn free_bytes(&self) -> Option<u64> {
        let space = self.filesystem.statfs();
        Some(space.blocks_available.saturating_mul(space.block_size))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.filesystem.remove_file(self.inside(path))
    }

    fn scheduler(&self) -> Option<Arc<ScheduledDevice>> {
        self.filesystem.scheduler().cloned()
    }

    fn is_simulated(&self) -> bool {
        self.simulated
    }
}

/// A device without a filesystem: every name is the whole device.
#[derive(Clone, Debug)]
pub struct RawTarget {
    device: Arc<dyn BlockDevice>,
    scheduler: Option<Arc<ScheduledDevice>>,
}

impl RawTarget {
    /// Page cache of each open buffered file.
    const CACHE_BYTES: usize = 64 << 20;

    /// All of `device`, through a scheduler of this kind.
    pub fn new(device: Arc<dyn BlockDevice>, kind: SchedulerKind) -> Self {
        let scheduler = ScheduledDevice::of_kind(&device, kind);
        Self { device: scheduler.clone().map_or(device, |scheduled| scheduled), scheduler }
    }
}

impl Target for RawTarget {
    fn prepare(&self, _directory: &Path, _parent: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn open(&self, _path: &Path, purpose: FileUse) -> Result<File, Error> {
        let direct = if purpose.direct { DirectIo::Required } else { DirectIo::Off };
        let options = RawFile::options().read(true).write(purpose.write).direct(direct);
        options.open_device(self.device.clone(), Self::CACHE_BYTES)
    }

    fn file_of(&self, _path: &Path) -> PathBuf {
        PathBuf::new()
    }

    fn size_of(&self, _path: &Path) -> Option<u64> {
        Some(self.device.geometry().capacity_bytes)
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(0)
    }

    fn remove(&self, _path: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn scheduler(&self) -> Option<Arc<ScheduledDevice>> {
        self.scheduler.clone()
    }
}
