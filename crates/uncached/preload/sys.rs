//! System calls. They leave `errno` alone and return its negative value.

use core::sync::atomic::{AtomicU32, Ordering};

pub(crate) use crate::shared::cleaning::PAGE_BYTES;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const READ: usize = 0;
    pub(super) const CLOSE: usize = 3;
    pub(super) const LSEEK: usize = 8;
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const PREAD: usize = 17;
    pub(super) const PWRITE: usize = 18;
    pub(super) const MINCORE: usize = 27;
    pub(super) const GETPID: usize = 39;
    pub(super) const FCNTL: usize = 72;
    pub(super) const GETTID: usize = 186;
    pub(super) const FUTEX: usize = 202;
    pub(super) const FADVISE: usize = 221;
    pub(super) const EXIT_GROUP: usize = 231;
    pub(super) const OPENAT: usize = 257;
    pub(super) const READLINKAT: usize = 267;
    pub(super) const SYNC_FILE_RANGE: usize = 277;
    pub(super) const PROCESS_VM_READV: usize = 310;
    pub(super) const PROCESS_VM_WRITEV: usize = 311;
    pub(super) const PREADV2: usize = 327;
    pub(super) const PWRITEV2: usize = 328;
    pub(super) const STATX: usize = 332;
    pub(super) const SCHED_YIELD: usize = 24;
    pub(super) const SENDMSG: usize = 46;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const READ: usize = 63;
    pub(super) const CLOSE: usize = 57;
    pub(super) const LSEEK: usize = 62;
    pub(super) const MMAP: usize = 222;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const PREAD: usize = 67;
    pub(super) const PWRITE: usize = 68;
    pub(super) const MINCORE: usize = 232;
    pub(super) const GETPID: usize = 172;
    pub(super) const FCNTL: usize = 25;
    pub(super) const GETTID: usize = 178;
    pub(super) const FUTEX: usize = 98;
    pub(super) const FADVISE: usize = 223;
    pub(super) const EXIT_GROUP: usize = 94;
    pub(super) const OPENAT: usize = 56;
    pub(super) const READLINKAT: usize = 78;
    pub(super) const SYNC_FILE_RANGE: usize = 84;
    pub(super) const PROCESS_VM_READV: usize = 270;
    pub(super) const PROCESS_VM_WRITEV: usize = 271;
    pub(super) const PREADV2: usize = 286;
    pub(super) const PWRITEV2: usize = 287;
    pub(super) const STATX: usize = 291;
    pub(super) const SCHED_YIELD: usize = 124;
    pub(super) const SENDMSG: usize = 211;
}

/// The same on all machines.
const CACHESTAT: usize = 451;

pub(crate) const O_WRONLY: i32 = 1;
pub(crate) const O_ACCMODE: i32 = 3;
pub(crate) const O_APPEND: i32 = 0o2000;
pub(crate) const O_CLOEXEC: i32 = 0o2_000_000;
/// `O_SYNC` includes `O_DSYNC`.
pub(crate) const O_SYNC: i32 = 0o4_010_000;
pub(crate) const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
pub(crate) const F_DUPFD: i32 = 0;
pub(crate) const F_SETLK: i32 = 6;
pub(crate) const F_SETLKW: i32 = 7;
pub(crate) const F_DUPFD_CLOEXEC: i32 = 1030;
pub(crate) const RWF_DONTCACHE: i32 = 0x80;

pub(crate) const EBADF: isize = -9;
pub(crate) const EINVAL: isize = -22;
pub(crate) const EFBIG: isize = -27;
pub(crate) const ENOSPC: isize = -28;
pub(crate) const ENOSYS: isize = -38;
pub(crate) const EOPNOTSUPP: isize = -95;
pub(crate) const EDQUOT: isize = -122;

/// A system call.
///
/// # Safety
/// The arguments are valid for the call with this number.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, words: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the convention of x86-64 (`syscall(2)`); the caller answers for the arguments.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") words[0], in("rsi") words[1],
            in("rdx") words[2], in("r10") words[3], in("r8") words[4], in("r9") words[5], lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    result
}

/// A system call.
///
/// # Safety
/// The arguments are valid for the call with this number.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, words: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the convention of arm64 (`syscall(2)`); the caller answers for the arguments.
    unsafe {
        core::arch::asm!("svc #0", in("x8") number, inlateout("x0") words[0] as isize => result, in("x1") words[1],
            in("x2") words[2], in("x3") words[3], in("x4") words[4], in("x5") words[5], options(nostack));
    }
    result
}

fn plain(number: usize, words: [usize; 6]) -> isize {
    // SAFETY: the functions below pass descriptors, numbers, and addresses of memory that lives for the call; the kernel
    // checks addresses of the caller's memory.
    unsafe { call(number, words) }
}

pub(crate) fn set_errno(error: isize) {
    unsafe extern "C" {
        safe fn __errno_location() -> *mut i32;
    }
    // SAFETY: the C library returns the address of this thread's variable.
    unsafe { *__errno_location() = -error as i32 };
}

/// The result as the C library returns it.
pub(crate) fn c_result(result: isize) -> isize {
    if result < 0 {
        set_errno(result);
        return -1;
    }
    result
}

pub(crate) fn process_id() -> u32 {
    plain(number::GETPID, [0; 6]) as u32
}

fn thread_id() -> u32 {
    plain(number::GETTID, [0; 6]) as u32
}

/// A number that no other thread of the process has: a part of the address of its own data.
#[cfg(target_arch = "x86_64")]
pub(crate) fn thread_token() -> u32 {
    let address: usize;
    // SAFETY: the ABI of x86-64 for thread-local storage: the word at FS:0 is the address of the thread's control block.
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) address, options(nostack, readonly, preserves_flags));
    }
    (address >> 4) as u32
}

/// A number that no other thread of the process has: a part of the address of its own data.
#[cfg(target_arch = "aarch64")]
pub(crate) fn thread_token() -> u32 {
    let address: usize;
    // SAFETY: reading this register has no effect.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) address, options(nomem, nostack, preserves_flags));
    }
    (address >> 4) as u32
}

/// The time by `CLOCK_MONOTONIC`, without a system call.
pub(crate) fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: i32 = 1;
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    let mut time = [0; 2];
    // SAFETY: the type of `struct timespec` on these machines.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    (time[0] as u64).wrapping_mul(1_000_000_000).wrapping_add(time[1] as u64)
}

/// Ticks of the CPU's counter if its rate is constant, else nanoseconds.
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    if HAS_STEADY_TICKS.load(Ordering::Relaxed) {
        #[allow(unused_unsafe, reason = "as below")]
        // SAFETY: each x86-64 CPU has the instruction.
        return unsafe { core::arch::x86_64::_rdtsc() };
    }
    now_ns()
}

/// Nanoseconds: reading the counter is no faster.
#[cfg(target_arch = "aarch64")]
pub(crate) fn ticks() -> u64 {
    now_ns()
}

#[cfg(target_arch = "x86_64")]
static HAS_STEADY_TICKS: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Find out whether ticks have a constant rate: the invariant TSC of the manuals of AMD and Intel.
pub(crate) fn init_ticks() {
    #[cfg(target_arch = "x86_64")]
    {
        const EXTENSIONS: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
        // SAFETY: each x86-64 CPU has the instruction.
        let cpuid = |leaf| unsafe { core::arch::x86_64::__cpuid(leaf) };
        let is_steady = cpuid(EXTENSIONS).eax >= POWER && cpuid(POWER).edx & 1 << 8 != 0;
        HAS_STEADY_TICKS.store(is_steady, Ordering::Relaxed);
    }
}

pub(crate) fn yield_now() {
    plain(number::SCHED_YIELD, [0; 6]);
}

pub(crate) fn exit_group(status: i32) -> ! {
    loop {
        plain(number::EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]);
    }
}

pub(crate) fn close(fd: i32) {
    plain(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
}

pub(crate) fn position(fd: i32) -> Option<u64> {
    const SEEK_CUR: usize = 1;
    u64::try_from(plain(number::LSEEK, [fd as usize, 0, SEEK_CUR, 0, 0, 0])).ok()
}

/// Move the position of a description in one step. Returns the new one.
pub(crate) fn advance(fd: i32, by: i64) -> Option<u64> {
    const SEEK_CUR: usize = 1;
    u64::try_from(plain(number::LSEEK, [fd as usize, by as usize, SEEK_CUR, 0, 0, 0])).ok()
}

pub(crate) fn flags(fd: i32) -> Option<i32> {
    const F_GETFL: usize = 3;
    i32::try_from(plain(number::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0])).ok().filter(|flags| *flags >= 0)
}

/// Duplicate a descriptor to a number of at least `from`; it is closed by `exec`.
pub(crate) fn duplicate(fd: i32, from: i32) -> Option<i32> {
    let result = plain(number::FCNTL, [fd as usize, F_DUPFD_CLOEXEC as usize, from as usize, 0, 0, 0]);
    i32::try_from(result).ok().filter(|fd| *fd >= 0)
}

/// `path` ends with a NUL byte.
pub(crate) fn open(path: &[u8], flags: i32) -> Option<i32> {
    const AT_FDCWD: usize = -100_isize as usize;
    debug_assert_eq!(path.last(), Some(&0));
    let result =
        plain(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, (flags | O_CLOEXEC) as usize, 0, 0, 0]);
    i32::try_from(result).ok().filter(|fd| *fd >= 0)
}

/// `path` ends with a NUL byte.
pub(crate) fn read_link<'a>(path: &[u8], memory: &'a mut [u8]) -> Option<&'a [u8]> {
    const AT_FDCWD: usize = -100_isize as usize;
    debug_assert_eq!(path.last(), Some(&0));
    let words = [AT_FDCWD, path.as_ptr() as usize, memory.as_mut_ptr() as usize, memory.len(), 0, 0];
    let len = usize::try_from(plain(number::READLINKAT, words)).ok()?;
    memory.get(..len)
}

pub(crate) fn read(fd: i32, memory: &mut [u8]) -> isize {
    plain(number::READ, [fd as usize, memory.as_mut_ptr() as usize, memory.len(), 0, 0, 0])
}

/// Read into the caller's memory, or memory of [`map_memory`].
pub(crate) fn read_at(fd: i32, address: usize, len: usize, offset: u64) -> isize {
    plain(number::PREAD, [fd as usize, address, len, offset as usize, 0, 0])
}

/// Write from the caller's memory, or memory of [`map_memory`].
pub(crate) fn write_at(fd: i32, address: usize, len: usize, offset: u64) -> isize {
    plain(number::PWRITE, [fd as usize, address, len, offset as usize, 0, 0])
}

/// `preadv2`; an offset of -1 is the position.
pub(crate) fn read_vector(fd: i32, vector: usize, count: usize, offset: i64, flags: i32) -> isize {
    plain(number::PREADV2, [fd as usize, vector, count, offset as usize, 0, flags as usize])
}

/// `pwritev2`; an offset of -1 is the position.
pub(crate) fn write_vector(fd: i32, vector: usize, count: usize, offset: i64, flags: i32) -> isize {
    plain(number::PWRITEV2, [fd as usize, vector, count, offset as usize, 0, flags as usize])
}

/// A structure of `statx(2)`.
#[repr(C, align(8))]
pub(crate) struct Statx([u8; 256]);

impl Statx {
    fn at<const LEN: usize>(&self, at: usize) -> [u8; LEN] {
        let mut raw = [0; LEN];
        raw.copy_from_slice(&self.0[at..at + LEN]);
        raw
    }

    pub(crate) fn mode(&self) -> u16 {
        u16::from_ne_bytes(self.at(28))
    }

    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.at(at))
    }

    pub(crate) fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.at(at))
    }
}

/// The attributes of an open file.
pub(crate) fn statx(fd: i32) -> Option<Statx> {
    const AT_EMPTY_PATH: usize = 0x1000;
    // STATX_TYPE, STATX_INO, STATX_SIZE, STATX_DIOALIGN
    const MASK: usize = 0x1 | 0x100 | 0x200 | 0x2000;
    let mut found = Statx([0; 256]);
    let words = [
        fd as usize,
        c"".as_ptr() as usize,
        AT_EMPTY_PATH,
        MASK,
        core::ptr::from_mut(&mut found) as usize,
        0,
    ];
    (plain(number::STATX, words) == 0).then_some(found)
}

/// The number of cached pages of a range (`cachestat(2)`, Linux 6.5). `None` if it is unknown.
pub(crate) fn cached_pages(fd: i32, start: u64, len: u64) -> Option<u64> {
    let range = [start, len];
    let mut found = [0_u64; 5];
    let words = [fd as usize, range.as_ptr() as usize, found.as_mut_ptr() as usize, 0, 0, 0];
    (plain(CACHESTAT, words) == 0).then_some(found[0])
}

/// The cached pages of a range, a byte for each (`mincore(2)`). `None` if it is unknown; the descriptor needs read access.
pub(crate) fn cached_map(fd: i32, start: u64, pages: &mut [u8]) -> Option<()> {
    const PROT_READ: usize = 1;
    const MAP_SHARED: usize = 1;
    let len = pages.len() * PAGE_BYTES as usize;
    let address = plain(number::MMAP, [0, len, PROT_READ, MAP_SHARED, fd as usize, start as usize]);
    let address = usize::try_from(address).ok()?;
    let result = plain(number::MINCORE, [address, len, pages.as_mut_ptr() as usize, 0, 0, 0]);
    unmap(address, len);
    (result == 0).then_some(())
}

pub(crate) fn drop_pages(fd: i32, start: u64, len: u64) {
    const POSIX_FADV_DONTNEED: usize = 4;
    plain(number::FADVISE, [fd as usize, start as usize, len as usize, POSIX_FADV_DONTNEED, 0, 0]);
}

/// Begin to write back dirty pages of a range.
pub(crate) fn begin_writeback(fd: i32, start: u64, len: u64) {
    const WRITE: usize = 2;
    plain(number::SYNC_FILE_RANGE, [fd as usize, start as usize, len as usize, WRITE, 0, 0]);
}

/// Write back dirty pages of a range, and wait.
pub(crate) fn write_back(fd: i32, start: u64, len: u64) {
    const WAIT_BEFORE_WRITE_WAIT_AFTER: usize = 1 | 2 | 4;
    plain(
        number::SYNC_FILE_RANGE,
        [fd as usize, start as usize, len as usize, WAIT_BEFORE_WRITE_WAIT_AFTER, 0, 0],
    );
}

/// `struct msghdr` of `sendmsg(2)`, with one range of memory and one descriptor.
#[repr(C)]
struct Message {
    name: usize,
    name_len: usize,
    parts: usize,
    parts_len: usize,
    control: usize,
    control_len: usize,
    flags: usize,
}

/// `struct cmsghdr` with one descriptor (`cmsg(3)`, `unix(7)`).
#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fd: i32,
    padding: i32,
}

/// Send the bytes of a value with a descriptor. Waits while the socket is full. Returns whether all was sent.
pub(crate) fn send_with<T: Copy>(socket: i32, value: &T, fd: i32) -> bool {
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const MSG_NOSIGNAL: usize = 0x4000;
    let part = [core::ptr::from_ref(value) as usize, size_of::<T>()];
    let len = size_of::<Control>() - size_of::<i32>();
    let control = Control { len, level: SOL_SOCKET, kind: SCM_RIGHTS, fd, padding: 0 };
    let message = Message {
        name: 0,
        name_len: 0,
        parts: part.as_ptr() as usize,
        parts_len: 1,
        control: core::ptr::from_ref(&control) as usize,
        control_len: size_of::<Control>(),
        flags: 0,
    };
    let words = [socket as usize, core::ptr::from_ref(&message) as usize, MSG_NOSIGNAL, 0, 0, 0];
    plain(number::SENDMSG, words) == size_of::<T>() as isize
}

/// Private memory, or a shared mapping of a file that is open for writing.
pub(crate) fn map_memory(len: usize, file: Option<i32>) -> Option<usize> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_SHARED: usize = 1;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    let (kind, fd) = match file {
        Some(fd) => (MAP_SHARED, fd),
        None => (MAP_PRIVATE_ANONYMOUS, -1),
    };
    usize::try_from(plain(number::MMAP, [0, len, PROT_READ_WRITE, kind, fd as usize, 0])).ok()
}

/// A shared mapping of a part of a file that is open for writing.
pub(crate) fn map_file(fd: i32, offset: u64, len: usize) -> Option<usize> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_SHARED: usize = 1;
    let words = [0, len, PROT_READ_WRITE, MAP_SHARED, fd as usize, offset as usize];
    usize::try_from(plain(number::MMAP, words)).ok()
}

/// Remove a mapping that nothing refers to.
pub(crate) fn unmap(address: usize, len: usize) {
    plain(number::MUNMAP, [address, len, 0, 0, 0, 0]);
}

/// Copy from memory that may not exist. Returns whether all of it exists.
pub(crate) fn copy_in(from: usize, to: usize, len: usize) -> bool {
    copy(number::PROCESS_VM_READV, to, from, len)
}

/// Copy to memory that may not exist. Returns whether all of it exists.
pub(crate) fn copy_out(from: usize, to: usize, len: usize) -> bool {
    copy(number::PROCESS_VM_WRITEV, from, to, len)
}

fn copy(number: usize, own: usize, callers: usize, len: usize) -> bool {
    let (local, remote) = ([own, len], [callers, len]);
    let words = [process_id() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
    plain(number, words) == len as isize
}

/// A lock whose owner is known, so that a signal handler does not wait for the thread that it interrupts.
pub(crate) struct Lock {
    /// Thread, or 0.
    owner: AtomicU32,
    waiters: AtomicU32,
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Self { owner: AtomicU32::new(0), waiters: AtomicU32::new(0) }
    }

    /// Returns whether this thread has the lock now; false if it had it before.
    pub(crate) fn lock(&self) -> bool {
        const FUTEX_WAIT_PRIVATE: usize = 128;
        let own = thread_id();
        loop {
            match self.owner.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(found) if found == own => return false,
                Err(found) => {
                    self.waiters.fetch_add(1, Ordering::SeqCst);
                    plain(
                        number::FUTEX,
                        [self.owner.as_ptr() as usize, FUTEX_WAIT_PRIVATE, found as usize, 0, 0, 0],
                    );
                    self.waiters.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
    }

    pub(crate) fn unlock(&self) {
        const FUTEX_WAKE_PRIVATE: usize = 129;
        self.owner.store(0, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            plain(number::FUTEX, [self.owner.as_ptr() as usize, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]);
        }
    }

    /// In a forked child no other thread exists.
    pub(crate) fn reset(&self) {
        self.waiters.store(0, Ordering::SeqCst);
        self.owner.store(0, Ordering::SeqCst);
    }
}
