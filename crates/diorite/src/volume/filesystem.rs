//! An open volume: options, life cycle, and the operations on paths.
//!
//! Where it sits: the entry point of the library. Each operation on a path resolves it (`resolve.rs`) and calls the node that
//! it finds (`node.rs`). Errors have the path.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diorite_device::{OpenOptions as DeviceOptions, host_name};
use diorite_ext::{MmpWait, MmpWatch, Volume, VolumeOptions};

use crate::cache::engine::{Engine, EngineOptions, WriteBack};
use crate::error::AtPath;
use crate::store::pending_time::ContentTimes;
use crate::volume::nodes::NodeRef;
use crate::volume::nodes::{Nodes, while_stale};
use crate::volume::volume_target::open_volume_target;
use crate::{
    Access, Attributes, BlockDevice, DataMode, DirectIo, Error, InodeNumber, Owner, QuotaLimits, Result,
    SchedulerKind, SetAttributes, SetTime, SpaceUse, Stats, Timestamp, XattrMode,
};
use diorite_ext::{AllocationPolicy, Clock, ReservedBlocks};
use diorite_scheduler::ScheduledDevice;

/// Options to open a filesystem.
#[derive(Clone, Debug)]
pub struct FilesystemOptions {
    volume: VolumeOptions,
    engine: EngineOptions,
    /// Of the image, when it is opened by name.
    device: DeviceOptions,
    direct: DirectIo,
    scheduler: Option<SchedulerKind>,
}

impl Default for FilesystemOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FilesystemOptions {
    /// Reads and writes, 64 MiB of page cache, up to 8 MiB of readahead.
    pub fn new() -> Self {
        Self {
            volume: VolumeOptions { host_name: host_name(), ..VolumeOptions::default() },
            engine: EngineOptions::default(),
            device: DeviceOptions::read_write(),
            direct: DirectIo::Off,
            scheduler: None,
        }
    }

    /// The caller has just made the volume. The open that fills it is not recorded as a mount, so that `resize2fs` accepts it without a
    /// check.
    #[must_use]
    pub fn new_volume(mut self) -> Self {
        self.volume.is_new = true;
        self
    }

    /// Whether the volume may be changed.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.volume.access = access;
        self
    }

    /// Memory for the page cache in bytes, at least 256 KiB.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.engine.cache_bytes = bytes;
        self
    }

    /// Memory for metadata blocks in bytes, with the journal's copies of them; 64 MiB. Unused inodes and names in
    /// memory take at most one and a half times as much. A volume therefore takes at most two and a half times this and
    /// [`Self::cache_bytes`], for any number of files.
    #[must_use]
    pub fn metadata_cache_bytes(mut self, bytes: usize) -> Self {
        self.volume.metadata_cache_bytes = bytes;
        self
    }

    /// Largest readahead window in bytes; 8 MiB, and a twentieth of the page cache at most. 0 turns readahead off.
    #[must_use]
    pub fn read_ahead_bytes(mut self, bytes: usize) -> Self {
        self.engine.read_ahead_bytes = bytes;
        self
    }

    /// Age at which dirty pages are written back; 5 seconds.
    #[must_use]
    pub fn dirty_age(mut self, age: Duration) -> Self {
        self.engine.dirty_age = age;
        self
    }

    /// The journal mode of file data (`data=` of a mount); by default that of the superblock, which is
    /// [`DataMode::Ordered`] if it is not set there. Data is in its place before its metadata in all modes.
    #[must_use]
    pub fn data_mode(mut self, mode: DataMode) -> Self {
        self.volume.data_mode = Some(mode);
        self
    }

    /// Age at which changes of metadata become durable without a sync; 5 seconds. A thread commits them, also without further
    /// calls. With [`Self::dirty_age`] it bounds the unsynced data that a crash can lose.
    #[must_use]
    pub fn commit_interval(mut self, commit_interval: Duration) -> Self {
        self.volume.commit_interval = commit_interval;
        self
    }

    /// Whether the hard limits in the volume's quota files are enforced. By default they are not, as for root.
    #[must_use]
    pub fn quota_limits(mut self, quota_limits: QuotaLimits) -> Self {
        self.volume.quota_limits = quota_limits;
        self
    }

    /// Whether calls may use the blocks that are reserved for root (`mke2fs -m`). By default they may not, not even the calls of root.
    /// [`ReservedBlocks::enter`] allows it for single calls.
    #[must_use]
    pub fn reserved_blocks(mut self, reserved_blocks: ReservedBlocks) -> Self {
        self.volume.reserved_blocks = reserved_blocks;
        self
    }

    /// The order in which free blocks and inodes are taken.
    #[must_use]
    pub fn allocation(mut self, allocation: AllocationPolicy) -> Self {
        self.volume.allocation = allocation;
        self
    }

    /// The thread that writes back dirty pages.
    #[must_use]
    pub fn write_back(mut self, write_back: WriteBack) -> Self {
        self.engine.write_back = write_back;
        self
    }

    /// Call `watch` several times a second while an open waits to see whether another host uses the volume (feature `mmp`): for 22
    /// seconds with usual settings, and 12 minutes at most. [`ControlFlow::Break`] ends the open with an error.
    #[must_use]
    pub fn mmp_watch(mut self, watch: impl Fn(&MmpWait) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        self.volume.mmp_watch = Some(MmpWatch::new(watch));
        self
    }

    /// Whether files bypass the page cache if their own options do not choose.
    #[must_use]
    pub fn direct(self, direct: DirectIo) -> Self {
        Self { direct, ..self }
    }

    /// Whether the image itself bypasses the host's page cache.
    #[must_use]
    pub fn device_direct(mut self, direct: DirectIo) -> Self {
        self.device.direct = direct;
        self
    }

    /// The I/O scheduler on the device. If this is not called, a target opened by name gets the scheduler for its kind
    /// ([`SchedulerKind::default_for`]: `inject` on a rotational block device, else none), and a device passed by the caller
    /// is used unchanged. With `none`, requests go directly to the device.
    #[must_use]
    pub fn scheduler(self, kind: SchedulerKind) -> Self {
        Self { scheduler: Some(kind), ..self }
    }

    /// The owner of the modification time of a written file: the write, by default, or a caller with a cache of its own
    /// ([`NodeRef::set_attributes`]), such as a mount's kernel.
    #[must_use]
    pub fn content_times(mut self, content_times: ContentTimes) -> Self {
        self.engine.content_times = content_times;
        self
    }

    /// The clock for times of files.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.engine.clock = clock;
        self
    }

    /// Open the volume on an image, a device or another target of [`open_target`](crate::front_end::open_target).
    ///
    /// # Errors
    /// [`Error::open_error`] if the image or device does not exist, is locked by another program, or has no direct I/O and that is required;
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if it holds no volume ([`Error::is_no_volume`]) or a damaged one;
    /// [`Busy`](crate::ErrorKind::Busy) if another host uses the volume.
    pub fn open(&self, target: impl AsRef<Path>) -> Result<Filesystem> {
        let target = target.as_ref();
        let Some(spec) = target.to_str() else {
            return Err(Error::InvalidArgument(
                "the name of an image must be UTF-8; rename the image, or make a link to it",
            )
            .at(target));
        };
        let options = DeviceOptions { access: self.volume.access, ..self.device.clone() };
        let device = open_volume_target(spec, &options)?;
        let kind = self.scheduler.unwrap_or_else(|| SchedulerKind::default_for(device.geometry().rotational));
        self.open_scheduled(device, kind).at_path(target)
    }

    /// Open the volume on a device.
    ///
    /// # Errors
    /// As [`Self::open`], except errors of opening the device.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        self.open_scheduled(device, self.scheduler.unwrap_or_default())
    }

    fn open_scheduled(&self, device: Arc<dyn BlockDevice>, kind: SchedulerKind) -> Result<Filesystem> {
        let scheduler = ScheduledDevice::of_kind(&device, kind);
        let device = scheduler.clone().map_or(device, |scheduled| scheduled);
        let options = VolumeOptions { clock: Arc::clone(&self.engine.clock), ..self.volume.clone() };
        let volume = Volume::open(device, options)?;
        let engine = Engine::new(&self.engine)?;
        Ok(Filesystem { nodes: Nodes::new(volume, engine), direct: self.direct, scheduler })
    }
}

/// An open volume. Clones share it. [`Filesystem::close`] syncs and closes it; so does the drop of the last clone, node and file,
/// which reports no errors.
#[derive(Clone, Debug)]
pub struct Filesystem {
    nodes: Arc<Nodes>,
    pub(super) direct: DirectIo,
    scheduler: Option<Arc<ScheduledDevice>>,
}

impl Filesystem {
    /// Open for reading and writing with default options.
    ///
    /// # Errors
    /// As [`FilesystemOptions::open`].
    pub fn open(target: impl AsRef<Path>) -> Result<Self> {
        FilesystemOptions::new().open(target)
    }

    /// Call `act` with the node at a path.
    fn with_node<T>(
        &self,
        path: &Path,
        follow_last: bool,
        act: impl FnOnce(NodeRef) -> Result<T>,
    ) -> Result<T> {
        self.nodes.find(path, follow_last).and_then(act).at_path(path)
    }

    /// Options to set before opening.
    pub fn options() -> FilesystemOptions {
        FilesystemOptions::new()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.volume().device()
    }

    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// The lower volume, for tests. Its type may change in any release.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.nodes.volume
    }

    /// The I/O scheduler, if there is one: statistics by owner, its state as text, the owners' weights. An owner is
    /// the thread, or the owner it has set with [`IoOwner::enter`](crate::front_end::IoOwner::enter), with a
    /// priority.
    pub fn scheduler(&self) -> Option<&Arc<ScheduledDevice>> {
        self.scheduler.as_ref()
    }

    /// Counters since the volume was opened.
    pub fn stats(&self) -> Stats {
        self.nodes.engine.shared.counters.snapshot(self.device().counters().snapshot())
    }

    /// Space and inodes.
    pub fn statfs(&self) -> SpaceUse {
        self.volume().space()
    }

    /// The volume's label, as it was when the volume was opened.
    pub fn label(&self) -> &[u8] {
        self.volume().superblock().label()
    }

    /// The user and the group that may use the reserved blocks; group 0 means no group.
    pub fn reserved_blocks_owner(&self) -> Owner {
        self.volume().superblock().reserved_blocks_owner()
    }

    /// Discard the free space within a range of bytes of the volume (`fstrim`): a disk can reuse it, an image file gets holes.
    /// Runs of free space shorter than `shortest` bytes are skipped. Other threads can use the volume in the meantime; a few blocks at a time
    /// cannot be allocated, and a write that needs them waits. Returns the number of discarded bytes.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) by the device, [`ReadOnly`](crate::ErrorKind::ReadOnly), or
    /// [`Error::InvalidArgument`]: the range begins after the volume or is shorter than a block, or `shortest` is longer than any free
    /// space can be; the device failed.
    pub fn trim(&self, range: std::ops::Range<u64>, shortest: u64) -> Result<u64> {
        self.trim_while(range, shortest, || true)
    }

    /// As [`Self::trim`], while `goes_on` returns true. It is called between two steps: a step examines the free
    /// space of one block group, and discards 64 MiB at most.
    ///
    /// # Errors
    /// As [`Self::trim`].
    pub fn trim_while(
        &self,
        range: std::ops::Range<u64>,
        shortest: u64,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<u64> {
        let mut trim = self.volume().trim(range, shortest)?;
        // A thread that takes the last blocks waits for a step to end, and none begins until it has them.
        while self.nodes.engine.while_shared(|| self.volume().trim_step(&mut trim))? && goes_on() {}
        Ok(trim.discarded())
    }

    /// The reason why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<String> {
        self.volume().read_only_reason()
    }

    /// Damage that was found when the volume was opened. Reads may miss data, or return an older state.
    pub fn defects(&self) -> &[String] {
        self.volume().defects()
    }

    /// The reason why the volume should be checked before it is changed, and how, as a text for users: it was not closed cleanly, errors were found, or a
    /// check is due. It can be changed without a check, as with a mount by the kernel.
    pub fn check_advice(&self) -> Option<String> {
        let reason = self.volume().check_reason()?;
        let device = self.device().name();
        // Partitions and arrays of this library have no name that e2fsck knows.
        let object = if device.contains(['?', ':']) { "on it" } else { device.as_str() };
        Some(format!("{reason}; run e2fsck -f {object}"))
    }

    /// The largest size of a file in bytes; [`File::max_size`](crate::File::max_size) is the limit of one file, which can be lower.
    pub fn max_file_size(&self) -> u64 {
        self.volume().files.max_file_size()
    }

    /// The resolution of times in nanoseconds: inodes of 128 bytes store whole seconds.
    pub fn time_granularity_ns(&self) -> u32 {
        if self.volume().superblock().inode_size() > 128 { 1 } else { 1_000_000_000 }
    }

    /// A time as the volume stores it: in its range and in its resolution.
    pub fn stored_time(&self, time: Timestamp) -> Timestamp {
        self.volume().superblock().stored_time(time)
    }

    /// Whether some directories may ignore the case of names (feature `casefold`): a name that is not found may exist in another form.
    pub fn ignores_case(&self) -> bool {
        self.volume().superblock().encoding().is_some()
    }

    /// Make everything durable. It also reports errors of files that are no longer open, if no handle has reported them.
    ///
    /// # Errors
    /// The device failed: unwritten data stays in the cache, and the next sync retries. The volume is
    /// read-only since an earlier write
    /// failed.
    pub fn sync(&self) -> Result<()> {
        self.nodes.sync()
    }

    /// Sync and drop all clean pages.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn drop_caches(&self) -> Result<()> {
        self.sync()?;
        self.nodes.drop_clean();
        Ok(())
    }

    /// Sync, mark the volume clean and close it. Fails while files are open.
    ///
    /// # Errors
    /// [`Error::Busy`] if files, nodes or other clones are open, and the volume stays open with them; otherwise as [`Self::sync`].
    pub fn close(self) -> Result<()> {
        self.nodes.close()
    }

    /// The root directory.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn root(&self) -> Result<NodeRef> {
        self.node(InodeNumber::ROOT)
    }

    /// The inode of that number, if it is in use.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the inode is not in use; it cannot be read.
    pub fn node(&self, number: InodeNumber) -> Result<NodeRef> {
        let inode = self.volume().inodes.get(number).map_err(|error| {
            // A number from outside is no sign of damage.
            let is_beyond = u64::from(number.0) > self.statfs().inodes;
            if is_beyond { diorite_ext::Error::NotFound } else { error }
        })?;
        self.nodes.acquire(inode)
    }

    /// Read many inodes into memory at once, for a caller that will look up each of them ([`Self::node`]) in the
    /// order of a listing. Errors are left to that call.
    pub fn read_ahead_nodes(&self, numbers: impl IntoIterator<Item = InodeNumber>) {
        self.volume().inodes.read_ahead(numbers.into_iter());
    }

    /// The inode at a path, symbolic links followed.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`NotADirectory`](crate::ErrorKind::NotADirectory),
    /// [`FilesystemLoop`](crate::ErrorKind::FilesystemLoop); the device or the volume failed.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<NodeRef> {
        self.with_node(path.as_ref(), true, Ok)
    }

    /// The inode at a path; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_link(&self, path: impl AsRef<Path>) -> Result<NodeRef> {
        self.with_node(path.as_ref(), false, Ok)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) if it is not a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = self.nodes.find(path, false).and_then(|node| node.read_link()).at_path(path)?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
    }

    /// The attributes of a file; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        let path = path.as_ref();
        while_stale(|| self.nodes.attributes(&self.nodes.find_inode(path, true)?)).at_path(path)
    }

    /// The attributes of a file; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        let path = path.as_ref();
        while_stale(|| self.nodes.attributes(&self.nodes.find_inode(path, false)?)).at_path(path)
    }

    /// Whether the path exists. "Not found" is `false`; other errors are returned.
    ///
    /// # Errors
    /// As [`Self::resolve`], except [`NotFound`](crate::ErrorKind::NotFound).
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Set permission bits.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`ReadOnly`](crate::ErrorKind::ReadOnly);
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) if the inode is immutable or append-only.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        self.with_node(path.as_ref(), true, |node| node.set_attributes(&changes))
    }

    /// Set user and group of a file; a symbolic link is not followed. As with chown(2), set-user-ID, set-group-ID and capabilities of a
    /// regular file are cleared, for any caller, and also if both are `None`.
    ///
    /// # Errors
    /// As [`Self::set_permissions`], and [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded) if limits are enforced.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let changes = SetAttributes { uid, gid, clear_privileges: true, ..SetAttributes::default() };
        self.with_node(path.as_ref(), false, |node| node.set_attributes(&changes))
    }

    /// Set times of a file; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Self::set_permissions`].
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SetTime>,
        modified: Option<SetTime>,
    ) -> Result<()> {
        let changes = SetAttributes { accessed, modified, ..SetAttributes::default() };
        self.with_node(path.as_ref(), false, |node| node.set_attributes(&changes))
    }

    /// An extended attribute of a file; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`NoAttribute`](crate::ErrorKind::NoAttribute).
    pub fn xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<Vec<u8>> {
        self.with_node(path.as_ref(), false, |node| node.xattr(name))
    }

    /// Names of all extended attributes.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        self.with_node(path.as_ref(), false, |node| node.xattr_names())
    }

    /// Set an extended attribute.
    ///
    /// # Errors
    /// As [`Self::set_permissions`]; [`AlreadyExists`](crate::ErrorKind::AlreadyExists) or
    /// [`NoAttribute`](crate::ErrorKind::NoAttribute) as `mode` says; [`Error::is_about_attribute`] if the volume cannot hold this attribute.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.with_node(path.as_ref(), false, |node| node.set_xattr(name, value, mode))
    }

    /// Remove an extended attribute.
    ///
    /// # Errors
    /// As [`Self::set_permissions`]; [`NoAttribute`](crate::ErrorKind::NoAttribute).
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<()> {
        self.with_node(path.as_ref(), false, |node| node.remove_xattr(name))
    }
}
