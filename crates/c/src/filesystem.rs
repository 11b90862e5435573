//! A filesystem is an ext2, ext3 or ext4 volume in an image, on a disk or partition, or on an export of an NBD server. Only this process uses
//! it; it needs no mount and no root.
//!
//! A structure of options begins with its size. Zero selects the default of a field:
//!
//!     diorite_options options = {.size = sizeof options, .flags = DIORITE_READ_ONLY};
//!
//! Threads: many threads may call on one filesystem at once. `diorite_filesystem_close` must be the last call.
//!
//! Safety policy: the policy of the crate. A structure of options is read as bytes, up to the size that it states.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use diorite::front_end::ReservedBlocks;
use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{
    Access, DataMode, DirectIo, Error, Existing, Filesystem, FilesystemOptions, Owner, QuotaLimits,
    SchedulerKind, Stats, mkfs_on,
};

use crate::boundary::{
    Outcome, as_text, bytes_mut, close, count, give_text, handle, invalid, open, output, path_of, status,
    string,
};
use crate::error::Failure;

/// An open filesystem.
#[derive(Debug)]
pub struct diorite_filesystem {
    pub(crate) filesystem: Filesystem,
}

/// Direct I/O: the default of the option.
pub const DIORITE_DIRECT_DEFAULT: u32 = 0;
/// Direct I/O: off, through the page cache.
pub const DIORITE_DIRECT_OFF: u32 = 1;
/// Direct I/O: if a transfer is aligned, else through the page cache.
pub const DIORITE_DIRECT_PREFERRED: u32 = 2;
/// Direct I/O: always, or an error with the reason.
pub const DIORITE_DIRECT_REQUIRED: u32 = 3;

/// Open the volume read-only.
pub const DIORITE_READ_ONLY: u32 = 1;
/// No read-ahead.
pub const DIORITE_NO_READ_AHEAD: u32 = 2;
/// Calls may use the blocks reserved for root (`mke2fs -m`).
pub const DIORITE_RESERVED_BLOCKS: u32 = 4;
/// Enforce the hard limits of the volume's quota files.
pub const DIORITE_QUOTA_LIMITS: u32 = 8;

/// The mode in the volume's superblock.
pub const DIORITE_DATA_DEFAULT: u32 = 0;
/// data=ordered
pub const DIORITE_DATA_ORDERED: u32 = 1;
/// data=writeback
pub const DIORITE_DATA_WRITEBACK: u32 = 2;
/// data=journal: files cannot be opened for direct I/O.
pub const DIORITE_DATA_JOURNAL: u32 = 3;

/// Options of opening a filesystem. All fields except the size may be 0, which selects the defaults below.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_options {
    /// sizeof(diorite_options)
    pub size: usize,
    /// DIORITE_READ_ONLY, DIORITE_NO_READ_AHEAD, DIORITE_RESERVED_BLOCKS, DIORITE_QUOTA_LIMITS, joined by |.
    pub flags: u32,
    /// Direct I/O of files opened without O_DIRECT; DIORITE_DIRECT_OFF.
    pub direct: u32,
    /// Direct I/O of the image or device itself, past the host's page cache; DIORITE_DIRECT_PREFERRED.
    pub device_direct: u32,
    /// DIORITE_DATA_...
    pub data_mode: u32,
    /// Memory for cached file data in bytes; 64 MiB. An application with its own cache can use as little as 256 KiB.
    pub cache_bytes: u64,
    /// Memory for cached metadata in bytes; 64 MiB.
    pub metadata_cache_bytes: u64,
    /// Largest read-ahead in bytes; 8 MiB.
    pub read_ahead_bytes: u64,
    /// Age in milliseconds at which metadata changes become durable without a sync; 5000.
    pub commit_interval_ms: u32,
    /// Age in milliseconds at which cached data is written back; 5000.
    pub dirty_age_ms: u32,
    /// I/O scheduler: "none", "deadline", "cfq", "inject". NULL: "inject" on a rotating disk, else "none".
    pub scheduler: *const c_char,
}

/// Overwrite any content of the device.
pub const DIORITE_MKFS_OVERWRITE: u32 = 1;

/// Options of a new filesystem. All fields except the size may be 0, which selects the defaults of mke2fs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_mkfs_options {
    /// sizeof(diorite_mkfs_options)
    pub size: usize,
    /// DIORITE_MKFS_OVERWRITE
    pub flags: u32,
    /// 2, 3 or 4, for ext2, ext3 and ext4; 4.
    pub ext: u32,
    /// Block size in bytes: 1024 to 65536; the default depends on the size of the volume.
    pub block_size: u32,
    /// Size of an inode in bytes; 256.
    pub inode_size: u32,
    /// Bytes of the volume for each inode; the default depends on the size of the volume.
    pub bytes_per_inode: u32,
    /// Number of inodes, instead of bytes_per_inode.
    pub inodes: u32,
    /// Size of the journal in blocks; the default depends on the size of the volume.
    pub journal_blocks: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Blocks reserved for root, in thousandths of all; 50. UINT32_MAX: none.
    pub reserved_permille: u32,
    /// Label of at most 16 bytes, or NULL.
    pub label: *const c_char,
    /// Features to add, or with ^ to remove, in the syntax of `mke2fs -O`, or NULL: "^has_journal,inline_data"
    pub features: *const c_char,
    /// 16 bytes, or NULL: random.
    pub uuid: *const u8,
}

/// Space and inodes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_space {
    /// Block size in bytes.
    pub block_size: u64,
    /// Blocks for files, without the filesystem's own metadata.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that any user may allocate.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Zeros.
    pub spare: [u64; 4],
}

/// Counters since the open of the filesystem, host file or device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_counters {
    /// Bytes of file data that the CPU copied. Direct I/O with aligned memory copies none.
    pub bytes_copied: u64,
    /// Bytes read directly.
    pub direct_read_bytes: u64,
    /// Bytes written directly.
    pub direct_write_bytes: u64,
    /// Unaligned transfers copied through aligned memory (diorite_set_bounce).
    pub bounces: u64,
    /// Pages that cached reads and writes found in the cache.
    pub cache_hits: u64,
    /// Pages that cached reads and writes did not find in the cache.
    pub cache_misses: u64,
    /// Pages written back.
    pub writeback_pages: u64,
    /// Reads of the device.
    pub device_reads: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Writes to the device.
    pub device_writes: u64,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Flushes of the device.
    pub device_flushes: u64,
    /// Zeros.
    pub spare: [u64; 8],
}

impl From<Stats> for diorite_counters {
    fn from(stats: Stats) -> Self {
        Self {
            bytes_copied: stats.bytes_copied,
            direct_read_bytes: stats.direct_read_bytes,
            direct_write_bytes: stats.direct_write_bytes,
            bounces: stats.bounces,
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
            writeback_pages: stats.writeback_pages,
            device_reads: stats.device.reads,
            device_read_bytes: stats.device.read_bytes,
            device_writes: stats.device.writes,
            device_write_bytes: stats.device.write_bytes,
            device_flushes: stats.device.flushes,
            spare: [0; 8],
        }
    }
}

/// A structure whose first field is the size of the caller's version.
///
/// # Safety
/// All fields are numbers or pointers: any bytes are a value.
unsafe trait Growing: Copy {}

// SAFETY: its fields are numbers and a pointer.
unsafe impl Growing for diorite_options {}
// SAFETY: its fields are numbers and pointers.
unsafe impl Growing for diorite_mkfs_options {}

/// The caller's options in this version's form, as with `openat2(2)`: fields that an older caller does not have are zero, and fields that this
/// version does not have must be zero.
///
/// # Safety
/// `options` is NULL or points to a structure as large as its first field says.
unsafe fn sized<T: Growing>(options: *const T) -> Outcome<T> {
    // SAFETY: see `Growing`.
    let mut known: T = unsafe { std::mem::zeroed() };
    if options.is_null() {
        return Ok(known);
    }
    // SAFETY: every version of the structure begins with its size.
    let size = unsafe { options.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return Err(invalid("the field `size` of the options must be sizeof of their type"));
    }
    // A newer version may have a few more fields. A much larger size is an uninitialised field.
    if size > size_of::<T>() + 4096 {
        return Err(Failure::Call(
            libc::E2BIG,
            "the field `size` of the options is larger than any version of them",
        ));
    }
    // SAFETY: `size` bytes are there.
    let given = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    if given.get(size_of::<T>()..).is_some_and(|unknown| unknown.iter().any(|byte| *byte != 0)) {
        let text =
            "the options set a field that this version of libdiorite does not have (see diorite_version())";
        return Err(Failure::Call(libc::E2BIG, text));
    }
    let len = size.min(size_of::<T>());
    // SAFETY: both have `len` bytes, `known` is a local variable, and all bytes are valid for these types (integers and pointers).
    unsafe {
        std::ptr::copy_nonoverlapping(given.as_ptr(), std::ptr::from_mut(&mut known).cast::<u8>(), len);
    };
    Ok(known)
}

/// The value of a DIORITE_DIRECT_... constant.
pub(crate) fn direct_io(number: u32, default: DirectIo) -> Outcome<DirectIo> {
    match number {
        DIORITE_DIRECT_DEFAULT => Ok(default),
        DIORITE_DIRECT_OFF => Ok(DirectIo::Off),
        DIORITE_DIRECT_PREFERRED => Ok(DirectIo::Preferred),
        DIORITE_DIRECT_REQUIRED => Ok(DirectIo::Required),
        _ => Err(invalid("direct must be a value of DIORITE_DIRECT_...")),
    }
}

impl diorite_options {
    /// # Safety
    /// The scheduler is NULL or a string.
    unsafe fn translate(&self) -> Outcome<FilesystemOptions> {
        const KNOWN: u32 =
            DIORITE_READ_ONLY | DIORITE_NO_READ_AHEAD | DIORITE_RESERVED_BLOCKS | DIORITE_QUOTA_LIMITS;
        if self.flags & !KNOWN != 0 {
            return Err(invalid("the options have an unknown flag"));
        }
        let has = |flag| self.flags & flag != 0;
        let mut options = FilesystemOptions::new()
            .direct(direct_io(self.direct, DirectIo::Off)?)
            .device_direct(direct_io(self.device_direct, DirectIo::Preferred)?);
        if has(DIORITE_READ_ONLY) {
            options = options.access(Access::ReadOnly);
        }
        if has(DIORITE_RESERVED_BLOCKS) {
            options = options.reserved_blocks(ReservedBlocks::Usable);
        }
        if has(DIORITE_QUOTA_LIMITS) {
            options = options.quota_limits(QuotaLimits::Enforced);
        }
        options = match self.data_mode {
            DIORITE_DATA_DEFAULT => options,
            DIORITE_DATA_ORDERED => options.data_mode(DataMode::Ordered),
            DIORITE_DATA_WRITEBACK => options.data_mode(DataMode::Writeback),
            DIORITE_DATA_JOURNAL => options.data_mode(DataMode::Journal),
            _ => return Err(invalid("data_mode must be a value of DIORITE_DATA_...")),
        };
        let options = self.translate_sizes(options)?;
        let name = self.scheduler;
        if name.is_null() {
            return Ok(options);
        }
        let kind = as_text(string!(name))?.parse::<SchedulerKind>();
        let unknown = |_| invalid("the I/O scheduler must be none, deadline, cfq or inject");
        Ok(options.scheduler(kind.map_err(unknown)?))
    }

    fn translate_sizes(&self, mut options: FilesystemOptions) -> Outcome<FilesystemOptions> {
        let no_read_ahead = self.flags & DIORITE_NO_READ_AHEAD != 0;
        if no_read_ahead && self.read_ahead_bytes != 0 {
            return Err(invalid("DIORITE_NO_READ_AHEAD and read_ahead_bytes contradict each other"));
        }
        if self.cache_bytes != 0 {
            options = options.cache_bytes(in_memory(self.cache_bytes)?);
        }
        if self.metadata_cache_bytes != 0 {
            options = options.metadata_cache_bytes(in_memory(self.metadata_cache_bytes)?);
        }
        if no_read_ahead || self.read_ahead_bytes != 0 {
            options = options.read_ahead_bytes(in_memory(self.read_ahead_bytes)?);
        }
        if self.commit_interval_ms != 0 {
            options = options.commit_interval(Duration::from_millis(self.commit_interval_ms.into()));
        }
        if self.dirty_age_ms != 0 {
            options = options.dirty_age(Duration::from_millis(self.dirty_age_ms.into()));
        }
        Ok(options)
    }
}

fn in_memory(bytes: u64) -> Outcome<usize> {
    usize::try_from(bytes).map_err(|_| invalid("a cache is larger than the address space"))
}

impl diorite_mkfs_options {
    /// # Safety
    /// Label and features are NULL or strings, the UUID is NULL or 16 bytes.
    unsafe fn translate(&self) -> Outcome<MkfsOptions> {
        if self.flags & !DIORITE_MKFS_OVERWRITE != 0 {
            return Err(invalid("the options have an unknown flag"));
        }
        let flavor = match self.ext {
            2 => Flavor::Ext2,
            3 => Flavor::Ext3,
            0 | 4 => Flavor::Ext4,
            _ => return Err(invalid("the field `ext` must be 2, 3 or 4")),
        };
        let some = |number: u32| (number != 0).then_some(number);
        let mut options = MkfsOptions {
            block_size: some(self.block_size),
            bytes_per_inode: some(self.bytes_per_inode),
            inodes: some(self.inodes),
            journal_blocks: some(self.journal_blocks),
            root_owner: Owner { uid: self.root_uid, gid: self.root_gid },
            ..MkfsOptions::new(flavor)
        };
        if let Some(size) = some(self.inode_size) {
            options.inode_size =
                Some(u16::try_from(size).map_err(|_| invalid("the field `inode_size` is too large"))?);
        }
        match self.reserved_permille {
            0 => {}
            u32::MAX => options.reserved_percent = 0.0,
            permille => options.reserved_percent = f64::from(permille) / 10.0,
        }
        let (label, features, uuid) = (self.label, self.features, self.uuid);
        if !label.is_null() {
            options.label = string!(label).to_bytes().to_vec();
        }
        if !features.is_null() {
            as_text(string!(features))?.clone_into(&mut options.features);
        }
        if !uuid.is_null() {
            // SAFETY: 16 bytes, as the header says.
            options.uuid = Some(unsafe { uuid.cast::<[u8; 16]>().read() });
        }
        Ok(options)
    }
}

/// Open the filesystem on `target`: the path of an image or a disk (`disk.img`, `/dev/sdb`), with `?partition=2` or `?offset=1M` a part of
/// it; also `nbd://HOST/EXPORT` and the other names of the program `diorite`. If only one partition of a disk holds a volume, that
/// partition is opened. `options` may be NULL.
///
/// -ENOENT, -EACCES, -EBUSY (another program or host uses it), -EUCLEAN (no volume, or a damaged one), ...
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_filesystem_open(
    target: *const c_char,
    options: *const diorite_options,
    filesystem: *mut *mut diorite_filesystem,
) -> c_int {
    status(|| {
        open(output!(filesystem), || {
            let target = path_of!(target);
            // SAFETY: NULL, or a structure of the size that it states, with strings (the crate's safety policy).
            let options = unsafe { sized(options)?.translate() }?;
            Ok(diorite_filesystem { filesystem: options.open(target)? })
        })
    })
}

/// Make a filesystem in a new sparse image of `size` bytes, and open it. Both options may be NULL.
///
/// -EEXIST if the file exists; the file is not changed. After -EINVAL (a volume with these options is impossible) there is no image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_filesystem_create(
    path: *const c_char,
    size: u64,
    mkfs_options: *const diorite_mkfs_options,
    options: *const diorite_options,
    filesystem: *mut *mut diorite_filesystem,
) -> c_int {
    status(|| {
        open(output!(filesystem), || {
            let path = path_of!(path);
            // SAFETY: as in `diorite_filesystem_open`.
            let mkfs_options = unsafe { sized(mkfs_options)?.translate() }?;
            // SAFETY: the same.
            let options = unsafe { sized(options)?.translate() }?;
            Ok(diorite_filesystem { filesystem: options.create(path, size, &mkfs_options)? })
        })
    })
}

/// Make a filesystem on a disk, a partition or an existing image. All of its content is lost. `options` may be NULL.
///
/// -EEXIST if the target or a member device holds a filesystem, partitions or other known content, unless
/// DIORITE_MKFS_OVERWRITE is set. A mounted device is always rejected (-EBUSY).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mkfs(target: *const c_char, options: *const diorite_mkfs_options) -> c_int {
    status(|| {
        let name = string!(target);
        // SAFETY: as in `diorite_filesystem_open`.
        let options = unsafe { sized(options) }?;
        // SAFETY: the same.
        let translated = unsafe { options.translate() }?;
        let overwrites = options.flags & DIORITE_MKFS_OVERWRITE != 0;
        let existing = if overwrites { Existing::Overwrite } else { Existing::Keep };
        Ok(mkfs_on(as_text(name)?, &translated, existing)?)
    })
}

/// Make everything durable, and close the filesystem.
///
/// -EBUSY if files or directories are open or transfers of a queue are in flight; the filesystem stays open. Any other result closes
/// the handle. An error then means that earlier data or the last metadata is not on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_filesystem_close(filesystem: *mut diorite_filesystem) -> c_int {
    status(|| {
        let open = handle!(filesystem).filesystem.clone();
        match open.close() {
            Err(error) if matches!(error.without_path(), Error::Busy(_)) => Err(error.into()),
            closed => {
                // SAFETY: a handle that was not closed, and this is its last use (the crate's safety policy).
                unsafe { close(filesystem) };
                Ok(closed?)
            }
        }
    })
}

/// Make everything durable: data of all files, names and attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_sync(filesystem: *mut diorite_filesystem) -> c_int {
    status(|| Ok(handle!(filesystem).filesystem.sync()?))
}

/// Space and inodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_statfs(
    filesystem: *mut diorite_filesystem,
    space: *mut diorite_space,
) -> c_int {
    status(|| {
        let is = handle!(filesystem).filesystem.statfs();
        *output!(space) = diorite_space {
            block_size: is.block_size,
            blocks: is.blocks,
            blocks_free: is.blocks_free,
            blocks_available: is.blocks_available,
            inodes: is.inodes,
            inodes_free: is.inodes_free,
            spare: [0; 4],
        };
        Ok(())
    })
}

/// Get the reason why the filesystem is read-only: an open option, unknown features, or a failed metadata write. Copies at most `size` bytes
/// including a NUL, as snprintf does. Returns the length of the whole text, 0 if the filesystem is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_read_only_reason(
    filesystem: *mut diorite_filesystem,
    text: *mut c_char,
    size: usize,
) -> i64 {
    count(|| {
        // SAFETY: `size` bytes that nothing else uses (the crate's safety policy).
        let memory = unsafe { bytes_mut(text.cast(), size) }?;
        let reason = handle!(filesystem).filesystem.read_only_reason();
        Ok(give_text(&reason.unwrap_or_default(), memory))
    })
}

/// Get the damage that the open found. Data read from such a volume may be old or incomplete. Text and result are as for
/// diorite_read_only_reason; 0 if there is no damage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_defects(
    filesystem: *mut diorite_filesystem,
    text: *mut c_char,
    size: usize,
) -> i64 {
    count(|| {
        // SAFETY: `size` bytes that nothing else uses (the crate's safety policy).
        let memory = unsafe { bytes_mut(text.cast(), size) }?;
        Ok(give_text(&handle!(filesystem).filesystem.defects().join("; "), memory))
    })
}

/// Discard free extents of at least `shortest` bytes (fstrim). Returns the number of discarded bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_trim(filesystem: *mut diorite_filesystem, shortest: u64) -> i64 {
    count(|| Ok(handle!(filesystem).filesystem.trim(0..u64::MAX, shortest)?))
}

/// Get the counters since the open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_filesystem_counters(
    filesystem: *mut diorite_filesystem,
    counters: *mut diorite_counters,
) -> c_int {
    status(|| {
        *output!(counters) = handle!(filesystem).filesystem.stats().into();
        Ok(())
    })
}
