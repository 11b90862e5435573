//! A file is in a filesystem, on the host, or a whole device. All have the same calls.
//!
//! Data moves through the page cache of this library, or directly between the device and the caller's memory (O_DIRECT). Direct I/O makes no copy; it
//! needs offset, length and address aligned as `diorite_get_alignment` says. Buffered and direct calls on one file see each other's writes.
//! Calls on overlapping ranges are atomic and take effect one after the other.
//!
//! Threads: many threads may call on one file at once. `diorite_file_close` must be the last call.
//!
//! Safety policy: the policy of the crate.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use diorite::{
    DirectIo, Error, Extent, ExtentKind, File, HostCache, HostFile, IoFlags, OpenOptions, RawFile, Unaligned,
};

use crate::boundary::{
    Outcome, as_text, bytes, bytes_mut, check_range, close, count, give_text, handle, invalid, open, output,
    path_of, status, string,
};
use crate::error::Failure;
use crate::filesystem::{diorite_counters, diorite_filesystem, direct_io};
use crate::names::{diorite_attributes, permissions};

/// An open file.
#[derive(Debug)]
pub struct diorite_file {
    pub(crate) file: File,
    /// Transfers in flight hold clones.
    pub(crate) uses: Arc<()>,
}

/// The flags of an open, which are known and do not contradict each other.
#[derive(Clone, Copy)]
struct Flags(c_int);

impl Flags {
    fn of(flags: c_int) -> Outcome<Self> {
        /// Flags without an effect: there is no descriptor, no terminal, and no recorded access time.
        const IGNORED: c_int =
            libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_LARGEFILE;
        const KNOWN: c_int = libc::O_ACCMODE
            | libc::O_APPEND
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_TRUNC
            | libc::O_DIRECT
            | libc::O_DSYNC
            | libc::O_SYNC
            | IGNORED;
        if flags & !KNOWN != 0 {
            return Err(invalid("an unsupported flag of open"));
        }
        let all = Self(flags);
        if all.has(libc::O_ACCMODE) {
            return Err(invalid("the flags need one of O_RDONLY, O_WRONLY and O_RDWR"));
        }
        if all.has(libc::O_EXCL) && !all.has(libc::O_CREAT) {
            return Err(invalid("O_EXCL needs O_CREAT"));
        }
        Ok(all)
    }

    fn has(self, flag: c_int) -> bool {
        self.0 & flag == flag
    }

    /// Whether the file is truncated after the open: `O_APPEND` with `O_TRUNC`.
    fn truncates_later(self) -> bool {
        self.has(libc::O_TRUNC | libc::O_APPEND)
    }

    fn apply<P>(self, options: OpenOptions<P>) -> OpenOptions<P> {
        let reads = self.0 & libc::O_ACCMODE != libc::O_WRONLY;
        let writes = self.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let options = options.read(reads).write(writes).append(self.has(libc::O_APPEND) && writes);
        let options =
            if self.has(libc::O_SYNC) { options.sync(true) } else { options.dsync(self.has(libc::O_DSYNC)) };
        if self.has(libc::O_DIRECT) { options.direct(DirectIo::Required) } else { options }
    }

    fn apply_creating<P: diorite::Creates>(self, options: OpenOptions<P>) -> OpenOptions<P> {
        let truncates = self.has(libc::O_TRUNC) && !self.has(libc::O_APPEND);
        let options = self.apply(options).truncate(truncates);
        if self.has(libc::O_EXCL) {
            options.create_new(true)
        } else {
            options.create(self.has(libc::O_CREAT))
        }
    }

    fn opened(self, file: File) -> Outcome<diorite_file> {
        if self.truncates_later() {
            file.set_len(0)?;
        }
        Ok(diorite_file { file, uses: Arc::new(()) })
    }
}

/// As open(2), for a file in a filesystem. `flags`: one of O_RDONLY, O_WRONLY, O_RDWR; O_CREAT, O_EXCL, O_TRUNC (these need O_WRONLY or O_RDWR),
/// O_APPEND (for `diorite_write`; `diorite_pwrite` writes at its offset), O_DSYNC, O_SYNC, O_DIRECT. With O_DIRECT an unaligned transfer
/// fails with -EINVAL; see `diorite_set_direct` and `diorite_set_bounce`. A new file gets the permissions of `mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_file_open(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut diorite_file,
) -> c_int {
    status(|| {
        open(output!(file), || {
            let flags = Flags::of(flags)?;
            let options = flags.apply_creating(handle!(filesystem).filesystem.open_options());
            let options = if flags.has(libc::O_CREAT) { options.mode(permissions(mode)) } else { options };
            flags.opened(options.open(path_of!(path))?)
        })
    })
}

/// As `diorite_file_open`, for a file of the host's filesystem. It uses this library's page cache instead of the host's, or with O_DIRECT none.
/// A new file has the permissions 0666 without the umask. All opens of a process on one file, by any name, share one content. A write of another
/// program is seen by direct reads, and by cached reads after the next open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_host_open(
    path: *const c_char,
    flags: c_int,
    file: *mut *mut diorite_file,
) -> c_int {
    status(|| {
        open(output!(file), || {
            let flags = Flags::of(flags)?;
            let options = flags.apply_creating(HostFile::options());
            flags.opened(options.open(path_of!(path))?)
        })
    })
}

/// As `diorite_host_open`, without a cache. Data goes to the disk by direct I/O, if the host's filesystem has it, and transfers of any
/// alignment are accepted. Calls of `diorite_read` and `diorite_write` that follow each other have readahead and write-behind.
/// `diorite_file_close` reports data that could not be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_host_open_uncached(
    path: *const c_char,
    flags: c_int,
    file: *mut *mut diorite_file,
) -> c_int {
    status(|| {
        open(output!(file), || {
            let flags = Flags::of(flags)?;
            let options = flags.apply_creating(HostFile::options()).cache(HostCache::None);
            flags.opened(options.open(path_of!(path))?)
        })
    })
}

/// Get the reason why direct transfers of a host file go through the host's page cache: its filesystem refuses direct I/O. Text and result are as
/// for diorite_read_only_reason; 0 if transfers bypass the host's page cache, and for other files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_direct_refusal(
    file: *mut diorite_file,
    text: *mut c_char,
    size: usize,
) -> i64 {
    count(|| {
        // SAFETY: `size` bytes that nothing else uses (the crate's safety policy).
        let memory = unsafe { bytes_mut(text.cast(), size) }?;
        Ok(give_text(handle!(file).file.direct_refusal().unwrap_or(""), memory))
    })
}

/// Open a whole device, an image or a part of one as a file of fixed size. `target` is a name as for `diorite_filesystem_open`: `/dev/sdb`,
/// `disk.img?partition=2`, `nbd://HOST/EXPORT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_raw_open(
    target: *const c_char,
    flags: c_int,
    file: *mut *mut diorite_file,
) -> c_int {
    status(|| {
        open(output!(file), || {
            let flags = Flags::of(flags)?;
            if flags.has(libc::O_CREAT) || flags.has(libc::O_TRUNC) {
                return Err(invalid("a device cannot be created or truncated"));
            }
            let options = flags.apply(RawFile::options());
            flags.opened(options.open(as_text(string!(target))?)?)
        })
    })
}

/// Close a file. Cached data of a host file or device is written back. The result is the error of that, or of an earlier writeback that no
/// `diorite_fsync` has reported. A close makes nothing durable: call `diorite_fsync` before, or `diorite_filesystem_close` later.
///
/// -EBUSY if transfers of a queue on the file are in flight; the file stays open. Any other result closes the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_file_close(file: *mut diorite_file) -> c_int {
    status(|| {
        let open = handle!(file);
        if Arc::strong_count(&open.uses) > 1 {
            let text = "the file has transfers in flight; reap the queue first";
            return Err(Failure::Call(libc::EBUSY, text));
        }
        let written = open.file.clone().close();
        // SAFETY: a handle that was not closed, and this is its last use (the crate's safety policy).
        unsafe { close(file) };
        Ok(written?)
    })
}

/// As pread(2): returns the number of bytes, fewer only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_pread(
    file: *mut diorite_file,
    memory: *mut c_void,
    len: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: `len` bytes that nothing else uses (the crate's safety policy).
        let memory = unsafe { bytes_mut(memory.cast(), len) }?;
        Ok(handle!(file).file.read_at(memory, offset)?)
    })
}

/// As pwrite(2): returns the number of bytes, fewer only if the volume becomes full. Buffered data is durable after a sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_pwrite(
    file: *mut diorite_file,
    memory: *const c_void,
    len: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: `len` bytes that do not change (the crate's safety policy).
        let memory = unsafe { bytes(memory.cast(), len) }?;
        Ok(handle!(file).file.write_at(memory, offset)?)
    })
}

/// preadv, pwritev: the write is durable as with O_DSYNC (RWF_DSYNC).
pub const DIORITE_RWF_DSYNC: c_int = 1 << 1;
/// preadv, pwritev: the write is durable as with O_SYNC (RWF_SYNC).
pub const DIORITE_RWF_SYNC: c_int = 1 << 2;
/// preadv, pwritev: fail with -EAGAIN, without a transfer, if the call would wait for another call, for space or for uncached data (RWF_NOWAIT).
/// The call still waits for a direct transfer itself.
pub const DIORITE_RWF_NOWAIT: c_int = 1 << 3;
/// preadv, pwritev: a direct write that is all or nothing after a power failure (RWF_ATOMIC). The length is a power of two, at most
/// `atomic_write` of the alignment; the offset is a multiple of the length, and the range is within the file.
pub const DIORITE_RWF_ATOMIC: c_int = 1 << 6;
/// preadv, pwritev: use the page cache, and drop the pages that the call added (RWF_DONTCACHE).
pub const DIORITE_RWF_DONTCACHE: c_int = 1 << 7;

/// The flags of one read or write.
fn io_flags(flags: c_int) -> Outcome<IoFlags> {
    const KNOWN: c_int = DIORITE_RWF_DSYNC
        | DIORITE_RWF_SYNC
        | DIORITE_RWF_NOWAIT
        | DIORITE_RWF_ATOMIC
        | DIORITE_RWF_DONTCACHE;
    if flags & !KNOWN != 0 {
        return Err(Failure::Call(libc::EOPNOTSUPP, "an unsupported flag of preadv or pwritev"));
    }
    let pairs = [
        (DIORITE_RWF_NOWAIT, IoFlags::NOWAIT),
        (DIORITE_RWF_ATOMIC, IoFlags::ATOMIC),
        (DIORITE_RWF_DONTCACHE, IoFlags::DONTCACHE),
        (DIORITE_RWF_DSYNC, IoFlags::DSYNC),
        (DIORITE_RWF_SYNC, IoFlags::SYNC),
    ];
    let set = pairs.into_iter().filter(|(flag, _)| flags & flag != 0);
    Ok(set.fold(IoFlags::NONE, |all, (_, flag)| all | flag))
}

/// The segments of a vector.
///
/// # Safety
/// `segments` points to `number` segments.
unsafe fn vector<'a>(segments: *const libc::iovec, number: c_int) -> Outcome<&'a [libc::iovec]> {
    const MOST: usize = 1024;
    let number = usize::try_from(number).ok().filter(|number| *number <= MOST);
    let number = number.ok_or_else(|| invalid("the number of segments must be 0 to 1024"))?;
    check_range(segments.cast(), number * size_of::<libc::iovec>())?;
    if number == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(segments, number) })
}

/// As preadv2(2), with the flags DIORITE_RWF_NOWAIT and DIORITE_RWF_DONTCACHE. At most 1024 segments; direct I/O needs each of them aligned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_preadv(
    file: *mut diorite_file,
    segments: *const libc::iovec,
    number: c_int,
    offset: u64,
    flags: c_int,
) -> i64 {
    count(|| {
        let with = io_flags(flags)?;
        // SAFETY: `number` segments (the crate's safety policy).
        let segments = unsafe { vector(segments, number) }?.iter();
        // SAFETY: the memory of each, which nothing else uses.
        let memory = segments.map(|part| unsafe { bytes_mut(part.iov_base.cast(), part.iov_len) });
        let mut memory = memory.map(|part| part.map(IoSliceMut::new)).collect::<Outcome<Vec<_>>>()?;
        Ok(handle!(file).file.read_with(&mut memory, offset, with)?)
    })
}

/// As pwritev2(2), with the flags DIORITE_RWF_....
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_pwritev(
    file: *mut diorite_file,
    segments: *const libc::iovec,
    number: c_int,
    offset: u64,
    flags: c_int,
) -> i64 {
    count(|| {
        let with = io_flags(flags)?;
        // SAFETY: `number` segments (the crate's safety policy).
        let segments = unsafe { vector(segments, number) }?.iter();
        // SAFETY: the memory of each, which does not change.
        let data = segments.map(|part| unsafe { bytes(part.iov_base.cast(), part.iov_len) });
        let data = data.map(|part| part.map(IoSlice::new)).collect::<Outcome<Vec<_>>>()?;
        Ok(handle!(file).file.write_with(&data, offset, with)?)
    })
}

/// The library's error inside an error of `std`.
fn from_io(error: io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let error = error.into_inner().and_then(|inner| inner.downcast::<Error>().ok());
    error.map_or(Failure::Call(errno, "an error of the operating system"), |error| Failure::Library(*error))
}

/// As read(2): reads at the position of the file and advances it. Threads that share a file take turns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_read(file: *mut diorite_file, memory: *mut c_void, len: usize) -> i64 {
    count(|| {
        // SAFETY: `len` bytes that nothing else uses (the crate's safety policy).
        let memory = unsafe { bytes_mut(memory.cast(), len) }?;
        (&handle!(file).file).read(memory).map_err(from_io)
    })
}

/// As write(2): writes at the position of the file and advances it; with O_APPEND writes at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_write(file: *mut diorite_file, memory: *const c_void, len: usize) -> i64 {
    count(|| {
        // SAFETY: `len` bytes that do not change (the crate's safety policy).
        let memory = unsafe { bytes(memory.cast(), len) }?;
        (&handle!(file).file).write(memory).map_err(from_io)
    })
}

/// As lseek(2) with SEEK_SET, SEEK_CUR and SEEK_END.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_seek(file: *mut diorite_file, offset: i64, whence: c_int) -> i64 {
    count(|| {
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(
                u64::try_from(offset).map_err(|_| invalid("the position is before the start of the file"))?,
            ),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(invalid("whence must be SEEK_SET, SEEK_CUR or SEEK_END")),
        };
        (&handle!(file).file).seek(to).map_err(from_io)
    })
}

/// Append all bytes at the current end of the file, or fail. `offset`, if not NULL, receives the offset of the data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_append(
    file: *mut diorite_file,
    memory: *const c_void,
    len: usize,
    offset: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: `len` bytes that do not change (the crate's safety policy).
        let memory = unsafe { bytes(memory.cast(), len) }?;
        let at = handle!(file).file.append(memory)?;
        if !offset.is_null() {
            *output!(offset) = at;
        }
        Ok(())
    })
}

/// As fsync(2). It also reports failures of earlier writeback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_fsync(file: *mut diorite_file) -> c_int {
    status(|| Ok(handle!(file).file.sync_all()?))
}

/// As fdatasync(2): makes the data durable, and the metadata needed to read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_fdatasync(file: *mut diorite_file) -> c_int {
    status(|| Ok(handle!(file).file.sync_data()?))
}

/// As fstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_fstat(
    file: *mut diorite_file,
    attributes: *mut diorite_attributes,
) -> c_int {
    status(|| {
        *output!(attributes) = handle!(file).file.metadata()?.into();
        Ok(())
    })
}

/// The size in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_size(file: *mut diorite_file) -> i64 {
    count(|| Ok(handle!(file).file.size()))
}

/// As ftruncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_ftruncate(file: *mut diorite_file, size: u64) -> c_int {
    status(|| Ok(handle!(file).file.set_len(size)?))
}

/// fallocate: the size stays (FALLOC_FL_KEEP_SIZE).
pub const DIORITE_FALLOC_KEEP_SIZE: c_int = 1 << 0;
/// fallocate: free the blocks of the range, which reads as zeros; with DIORITE_FALLOC_KEEP_SIZE (FALLOC_FL_PUNCH_HOLE).
pub const DIORITE_FALLOC_PUNCH_HOLE: c_int = 1 << 1;
/// fallocate: remove the range from the file (FALLOC_FL_COLLAPSE_RANGE).
pub const DIORITE_FALLOC_COLLAPSE_RANGE: c_int = 1 << 3;
/// fallocate: the range reads as zeros and has blocks allocated (FALLOC_FL_ZERO_RANGE).
pub const DIORITE_FALLOC_ZERO_RANGE: c_int = 1 << 4;
/// fallocate: insert a hole, and move the content after it (FALLOC_FL_INSERT_RANGE).
pub const DIORITE_FALLOC_INSERT_RANGE: c_int = 1 << 5;

/// As fallocate(2). Mode 0 allocates the blocks of the range, so later writes in it do not fail for lack of space, and extends the file to the
/// end of the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_fallocate(
    file: *mut diorite_file,
    mode: c_int,
    offset: u64,
    len: u64,
) -> c_int {
    const PUNCH_HOLE: c_int = DIORITE_FALLOC_PUNCH_HOLE | DIORITE_FALLOC_KEEP_SIZE;
    const ZERO_WITHIN: c_int = DIORITE_FALLOC_ZERO_RANGE | DIORITE_FALLOC_KEEP_SIZE;
    status(|| {
        let file = &handle!(file).file;
        if len == 0 || offset.checked_add(len).is_none() {
            return Err(invalid("the range is empty or too long"));
        }
        match mode {
            0 => file.allocate(offset, len)?,
            DIORITE_FALLOC_KEEP_SIZE => file.allocate_keep_size(offset, len)?,
            PUNCH_HOLE => file.punch_hole(offset, len)?,
            DIORITE_FALLOC_COLLAPSE_RANGE => file.collapse_range(offset, len)?,
            DIORITE_FALLOC_INSERT_RANGE => file.insert_range(offset, len)?,
            ZERO_WITHIN => file.zero_range(offset, len)?,
            DIORITE_FALLOC_ZERO_RANGE => {
                file.allocate(offset, len)?;
                file.zero_range(offset, len)?;
            }
            _ => return Err(Failure::Call(libc::EOPNOTSUPP, "an unsupported mode of fallocate")),
        }
        Ok(())
    })
}

/// The offset of the first data at or after `offset`, as lseek with SEEK_DATA; -ENXIO if there is none. The position does not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_seek_data(file: *mut diorite_file, offset: u64) -> i64 {
    count(|| Ok(handle!(file).file.seek_data(offset)?))
}

/// The offset of the first hole at or after `offset`, as lseek with SEEK_HOLE. The end of the file counts as a hole; -ENXIO at or after it.
/// The position does not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_seek_hole(file: *mut diorite_file, offset: u64) -> i64 {
    count(|| Ok(handle!(file).file.seek_hole(offset)?))
}

/// Kinds of extents.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum diorite_extent_kind {
    /// Data.
    Data = 0,
    /// Allocated, never written: reads as zeros.
    Unwritten = 1,
    /// In the cache; blocks are allocated at writeback.
    Delayed = 2,
    /// In the inode.
    Inline = 3,
    /// A kind that this version does not know.
    Other = 4,
}

/// A range of a file and its offset on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_extent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte on the volume's device; UINT64_MAX if there is none.
    pub device_offset: u64,
    /// The kind.
    pub kind: diorite_extent_kind,
    /// Zeros.
    pub spare: u32,
}

impl From<&Extent> for diorite_extent {
    fn from(extent: &Extent) -> Self {
        let kind = match extent.kind {
            ExtentKind::Data => diorite_extent_kind::Data,
            ExtentKind::Unwritten => diorite_extent_kind::Unwritten,
            ExtentKind::Delayed => diorite_extent_kind::Delayed,
            ExtentKind::Inline => diorite_extent_kind::Inline,
            _ => diorite_extent_kind::Other,
        };
        let device_offset = extent.sector.map_or(u64::MAX, diorite::Sector::to_bytes);
        Self { offset: extent.offset, len: extent.len, device_offset, kind, spare: 0 }
    }
}

/// The extents of the file in file order, without holes. Stores at most `number` extents; returns the number of all extents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_extents(
    file: *mut diorite_file,
    extents: *mut diorite_extent,
    number: usize,
) -> i64 {
    count(|| {
        let found = handle!(file).file.extents()?;
        let number = number.min(found.len());
        check_range(extents.cast(), number * size_of::<diorite_extent>())?;
        for (at, extent) in found[..number].iter().enumerate() {
            // SAFETY: not NULL, and one of `number` extents of the caller (the crate's safety policy).
            unsafe { extents.add(at).write(extent.into()) };
        }
        Ok(found.len())
    })
}

/// The requirements of direct I/O on a file, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_alignment {
    /// Offset and length must be multiples of this.
    pub offset: u32,
    /// The address of the memory must be a multiple of this.
    pub memory: u32,
    /// The largest single transfer of the device; larger ones are split.
    pub max_transfer: u32,
    /// The largest atomic write (DIORITE_RWF_ATOMIC); 0 if the device has none.
    pub atomic_write: u32,
}

/// Get the requirements of direct I/O on a file. They do not change while the file is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_get_alignment(
    file: *mut diorite_file,
    alignment: *mut diorite_alignment,
) -> c_int {
    status(|| {
        let needs = handle!(file).file.alignment();
        *output!(alignment) = diorite_alignment {
            offset: needs.offset,
            memory: needs.memory,
            max_transfer: needs.max_transfer,
            atomic_write: needs.atomic_write,
        };
        Ok(())
    })
}

/// Set direct I/O for later calls: DIORITE_DIRECT_OFF, DIORITE_DIRECT_PREFERRED or DIORITE_DIRECT_REQUIRED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_set_direct(file: *mut diorite_file, direct: u32) -> c_int {
    status(|| {
        if direct == 0 {
            return Err(invalid(
                "an open file has no default; use DIORITE_DIRECT_OFF, _PREFERRED or _REQUIRED",
            ));
        }
        Ok(handle!(file).file.set_direct(direct_io(direct, DirectIo::Off)?)?)
    })
}

/// Set whether later unaligned direct transfers are copied through aligned memory: 1, or 0 (the default), which makes them errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_set_bounce(file: *mut diorite_file, bounce: c_int) -> c_int {
    status(|| {
        let unaligned = match bounce {
            0 => Unaligned::Error,
            1 => Unaligned::Bounce,
            _ => return Err(invalid("bounce must be 0 or 1")),
        };
        handle!(file).file.set_unaligned(unaligned);
        Ok(())
    })
}

/// Write back the cached pages of a range, and drop them from the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_drop_cached(file: *mut diorite_file, offset: u64, len: u64) -> c_int {
    status(|| Ok(handle!(file).file.drop_cached(offset, len)?))
}

/// Get the counters of the file's filesystem or device since its open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_file_counters(
    file: *mut diorite_file,
    counters: *mut diorite_counters,
) -> c_int {
    status(|| {
        *output!(counters) = handle!(file).file.stats().into();
        Ok(())
    })
}
