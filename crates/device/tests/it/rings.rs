//! Behaviour of rings only: memory that the kernel registers or rejects, and processes that fork.
#![allow(unsafe_code, reason = "fork and exit have no safe form")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::process::Command;
use std::sync::Arc;

use common::image;
use diorite_block::{BioFlags, BlockDevice, IoOwner, Op, Piece, QueuedIo, QueuedMemory, Sector, Watch};
use diorite_device::{
    AlignedBuf, Backend, FileDevice, OpenOptions, Readiness, RegisteredBuffers, registered_memory,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn open(path: &std::path::Path) -> Arc<FileDevice> {
    FileDevice::open(path, &OpenOptions::read_write().backend(Backend::IoUring)).unwrap()
}

fn round_trip(device: &dyn BlockDevice, memory: &mut [u8], mark: u8) {
    memory.fill(mark);
    device.write_bytes(4096, memory, BioFlags::SYNC).unwrap();
    memory.fill(0);
    device.read_bytes(4096, memory).unwrap();
    assert!(memory.iter().all(|byte| *byte == mark));
}

/// Run one test of this file again in a process of its own.
fn again(test: &str, variable: &str, wrapper: &[&str]) -> Option<String> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(wrapper.first().map_or(program.as_os_str(), |first| first.as_ref()));
    if let Some(rest) = wrapper.get(1..) {
        command.args(rest).arg(&program);
    }
    let output =
        command.args(["--exact", &format!("rings::{test}"), "--nocapture"]).env(variable, "1").output();
    match output {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => {
            println!("{}", String::from_utf8_lossy(&output.stdout));
            println!("SKIPPED: {wrapper:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            println!("SKIPPED: {wrapper:?}: {error}");
            None
        }
    }
}

/// An arena is registered at the first transfer inside it, stays registered, and is unregistered when it is freed.
#[test]
fn arenas_are_registered_once_and_let_go_of() {
    if !is_own_process!() {
        return;
    }
    let (_directory, path) = image(8 << 20);
    let device = open(&path);
    let run = || {
        let ring = || registered_memory().unwrap();
        round_trip(&*device, &mut AlignedBuf::zeroed(4096, 4096), 1);
        assert_eq!(ring().arenas, 0, "plain memory is used as it is");
        // So long that the heap does not keep its memory.
        let mut memory = AlignedBuf::registered(40 << 20, 4096).unwrap();
        round_trip(&*device, &mut memory[..1 << 20], 2);
        round_trip(&*device, &mut memory[(3 << 20) + 4096..][..4096], 3);
        if let Some(errno) = ring().refused {
            println!("SKIPPED: registration is refused here: errno {errno}");
            return;
        }
        assert_eq!((ring().arenas, ring().bytes), (1, 40 << 20));
        drop(memory);
        round_trip(&*device, &mut AlignedBuf::zeroed(4096, 4096), 4);
        assert_eq!((ring().arenas, ring().bytes), (0, 0));
        let pools: Vec<_> = (0..100).map(|_| RegisteredBuffers::new(4096, 1).unwrap()).collect();
        for (mark, pool) in pools.iter().enumerate() {
            round_trip(&*device, &mut pool.take(), mark as u8);
        }
        assert_eq!(ring().arenas, 1, "small pools share one");
    };
    run();
}

/// The ring of a thread that does nothing kept freed memory pinned until its next transfer.
#[test]
fn idle_threads_pin_no_freed_memory() {
    if !is_own_process!() {
        return;
    }
    let (_directory, path) = image(8 << 20);
    let device = open(&path);
    let run = || {
        let (started, wait) = std::sync::mpsc::channel();
        let (go_on, idle) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // So long that the heap does not keep it.
            let mut memory = AlignedBuf::registered(40 << 20, 4096).unwrap();
            assert!(memory.is_registered());
            scope.spawn(move || {
                round_trip(&*device, &mut memory[..1 << 20], 1);
                let registered = registered_memory().unwrap();
                started.send((memory, registered)).unwrap();
                idle.recv().unwrap();
                assert_eq!(registered_memory().unwrap().arenas, 0, "another thread freed the memory");
                round_trip(&*device, &mut AlignedBuf::zeroed(4096, 4096), 2);
            });
            let (memory, registered) = wait.recv().unwrap();
            if registered.refused.is_some() {
                println!("SKIPPED: registration is refused here: {registered:?}");
                std::process::exit(0);
            }
            assert_eq!(registered.arenas, 1);
            drop(memory);
            go_on.send(()).unwrap();
        });
    };
    run();
}

/// A small limit on locked memory costs CPU time and nothing else.
#[test]
fn refused_registration_falls_back_and_tells() {
    if std::env::var_os("DIORITE_TEST_LIMITED").is_some() {
        let (_directory, path) = image(8 << 20);
        let device = open(&path);
        let pool = RegisteredBuffers::new(1 << 20, 8).unwrap();
        round_trip(&*device, &mut pool.take(), 7);
        println!("refused {:?}", registered_memory().unwrap().refused);
        return;
    }
    let wrapper = [
        "prlimit",
        "--memlock=65536:65536",
        "setpriv",
        "--bounding-set",
        "-ipc_lock",
        "--inh-caps",
        "-ipc_lock",
    ];
    let output = again("refused_registration_falls_back_and_tells", "DIORITE_TEST_LIMITED", &wrapper);
    if let Some(output) = output {
        assert!(output.contains("refused Some(12)"), "{output}");
    }
}

/// A child that used its parent's queue reaped the parent's transfers and waited for them. It has a ring of its own: what was in
/// flight fails there and ends here.
#[test]
fn forked_child_leaves_its_parents_queue_alone() {
    if !is_own_process!() {
        return;
    }
    let (_directory, path) = image(8 << 20);
    let device: Arc<dyn BlockDevice> = open(&path);
    let mut queue = Arc::clone(&device).open_queue(8).unwrap();
    let read = |tag: u64| QueuedIo {
        op: Op::Read,
        pieces: vec![Piece { sector: Sector(tag * 8), memory: 0..4096 }],
        memory: QueuedMemory::Owned(Box::new(AlignedBuf::zeroed(4096, 4096))),
        flags: BioFlags::SYNC,
        owner: IoOwner::default(),
        tag,
    };
    (0..4).for_each(|tag| queue.submit(read(tag)).unwrap());
    queue.issue().unwrap();
    // SAFETY: the child does nothing but this queue's work in this thread, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut done = Vec::new();
            queue.submit(read(7)).unwrap();
            queue.reap(5, &mut done).unwrap();
            let errors = done.iter().filter(|completed| completed.result.is_err()).count();
            let own = done.iter().find(|completed| completed.io.tag == 7).unwrap();
            assert!((done.len(), errors, own.result.is_ok()) == (5, 4, true), "{done:?}");
            drop(queue);
        }));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    assert!(child > 0, "fork");
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's checks");
    let mut done = Vec::new();
    queue.submit(read(5)).unwrap();
    assert_eq!(queue.reap(5, &mut done).unwrap(), 5);
    assert!(done.iter().all(|completed| completed.result.is_ok()), "{done:?}");
}

/// The child of a fork has rings of its own.
#[test]
fn forked_child_does_not_touch_its_parents_ring() {
    if !is_own_process!() {
        return;
    }
    let (_directory, path) = image(8 << 20);
    let device = open(&path);
    let mut memory = AlignedBuf::registered(1 << 20, 4096).unwrap();
    round_trip(&*device, &mut memory, 1);
    // SAFETY: the child does nothing but this device's work in this thread, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            memory.fill(2);
            (&*device as &dyn BlockDevice).read_bytes(4096, &mut memory).unwrap();
            assert!(memory.iter().all(|byte| *byte == 1));
        }));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    assert!(child > 0, "fork");
    round_trip(&*device, &mut memory[..4096], 1);
    let mut status = 0;
    // SAFETY: our own child, and a valid place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    round_trip(&*device, &mut memory, 3);
}

/// Direct I/O bug class 8: reads were lost when a process forked while they were in flight, since its pages were copied from under them.
#[test]
fn reads_in_flight_survive_a_fork() {
    if !is_own_process!() {
        return;
    }
    const LEN: usize = 1 << 20;
    let (_directory, path) = image(8 << 20);
    let device = open(&path);
    for (mark, at) in (0..8u64).map(|index| (index as u8 + 1, index * LEN as u64)) {
        let mut data = AlignedBuf::zeroed(LEN, 4096);
        data.fill(mark);
        (&*device as &dyn BlockDevice).write_bytes(at, &data, BioFlags::NONE).unwrap();
    }
    let device: Arc<dyn BlockDevice> = device;
    for round in 0..10 {
        let mut queue = Arc::clone(&device).open_queue(8).unwrap();
        for index in 0..8 {
            // Half of it as private memory as a program can have, half known to the ring.
            let memory = if index % 2 == 0 {
                AlignedBuf::zeroed(LEN, 4 << 20)
            } else {
                AlignedBuf::registered(LEN, 4096).unwrap()
            };
            let piece = Piece { sector: Sector::containing(index * LEN as u64), memory: 0..LEN };
            let read = QueuedIo {
                op: Op::Read,
                pieces: vec![piece],
                memory: QueuedMemory::Owned(Box::new(memory)),
                flags: BioFlags::SYNC,
                owner: IoOwner::current(),
                tag: index,
            };
            queue.submit(read).unwrap();
        }
        queue.issue().unwrap();
        // SAFETY: the child leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) };
        }
        let mut done = Vec::new();
        queue.reap(8, &mut done).unwrap();
        assert_eq!(done.len(), 8);
        for completed in done {
            completed.result.unwrap();
            let (mark, memory) = (completed.io.tag as u8 + 1, completed.io.memory.as_owned().unwrap());
            assert!(memory.as_slice().iter().all(|byte| *byte == mark), "round {round}, read {mark}");
        }
        let mut status = 0;
        // SAFETY: our own child, and a valid place for its status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
    }
}

/// A thread that ends while its ring is there takes it along; the next one has its own.
#[test]
fn threads_come_and_go() {
    let (_directory, path) = image(8 << 20);
    let device = open(&path);
    for mark in 0..20 {
        let device = Arc::clone(&device);
        let thread =
            std::thread::spawn(move || round_trip(&*device, &mut AlignedBuf::zeroed(8192, 4096), mark));
        thread.join().unwrap();
    }
}

/// Refuse `io_uring_setup` to this process from now on, as containers do.
fn refuse_io_uring() -> bool {
    const SECCOMP_SET_MODE_FILTER: libc::c_long = 1;
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: a filter that outlives the call; it binds this process only.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const filter) == 0
    }
}

/// The other back end is chosen by itself; a caller that demands `io_uring` gets the reason why there is none.
#[test]
fn refused_io_uring_is_replaced_by_threads() {
    if !is_own_process!() {
        return;
    }
    if !refuse_io_uring() {
        println!("SKIPPED: no seccomp filters here");
        return;
    }
    let (_directory, path) = image(8 << 20);
    let demanded = FileDevice::open(&path, &OpenOptions::read_only().backend(Backend::IoUring));
    let text = demanded.unwrap_err().to_string();
    assert!(
        text.contains("io_uring is not available") && text.contains("DIORITE_IO_BACKEND=threads"),
        "{text}"
    );
    let device = FileDevice::open(&path, &OpenOptions::read_write()).unwrap();
    assert_eq!(device.backend(), Backend::Threads);
    common::suite::run(device);
}

/// Signals end waits early, everywhere and often.
#[test]
fn signals_change_nothing() {
    if !is_own_process!() {
        return;
    }
    extern "C" fn nothing(_signal: libc::c_int) {}
    let every = libc::timeval { tv_sec: 0, tv_usec: 150 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: a handler that does nothing, without SA_RESTART, and a valid timer.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    while std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).is_err() {}
    common::make_file(&path, 8 << 20);
    for backend in [Backend::IoUring, Backend::Threads] {
        let device = FileDevice::open(&path, &OpenOptions::read_write().backend(backend)).unwrap();
        for _ in 0..3 {
            common::suite::run(device.clone());
        }
    }
}

/// On a file in memory a call is only a copy, and a ring would hand each transfer to a kernel thread: transfers end when they are submitted.
#[test]
fn memory_is_moved_by_calls_and_not_by_threads_of_the_kernel() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return println!("SKIPPED: there is no /dev/shm");
    };
    let path = directory.path().join("image");
    std::fs::File::options().write(true).create_new(true).open(&path).unwrap().set_len(8 << 20).unwrap();
    let device: Arc<dyn BlockDevice> = open(&path);
    let mut queue = device.open_queue(1).unwrap();
    let mut done = Vec::new();
    let mut at_once = 0;
    for round in 0..2000_u64 {
        let piece = Piece { sector: Sector(round % 1024 * 8), memory: 0..4096 };
        let read = QueuedIo {
            op: Op::Read,
            pieces: vec![piece],
            memory: QueuedMemory::Owned(Box::new(AlignedBuf::zeroed(4096, 4096))),
            flags: BioFlags::SYNC,
            owner: IoOwner::current(),
            tag: round,
        };
        queue.submit(read).unwrap();
        at_once += queue.reap(0, &mut done).unwrap();
        queue.reap(1, &mut done).unwrap();
    }
    assert!(done.iter().all(|completed| completed.result.is_ok()) && done.len() == 2000);
    assert_eq!(at_once, 2000, "all have ended when they were submitted");
}

/// Transfers of more parts than the ring has entries: what waits for an entry is submitted by the look that follows a completion, for nothing
/// else wakes a program that waits for the descriptor.
#[test]
fn a_watched_queue_submits_what_waited_for_an_entry() {
    const PARTS: usize = 12;
    let (_directory, path) = image(16 << 20);
    let mut readiness = Readiness::new().unwrap();
    let mut queue = (open(&path) as Arc<dyn BlockDevice>).open_queue(4).unwrap();
    if let Some(Watch::Descriptor(descriptor)) = queue.watch(readiness.notify()) {
        readiness.add(descriptor).unwrap();
    }
    for tag in 0..4 {
        let piece = |part: usize| Piece {
            sector: Sector((tag * PARTS as u64 + part as u64) * 16),
            memory: part * 4096..(part + 1) * 4096,
        };
        let memory = QueuedMemory::Owned(Box::new(AlignedBuf::zeroed(PARTS * 4096, 4096)));
        let pieces = (0..PARTS).map(piece).collect();
        let (op, flags, owner) = (Op::Write, BioFlags::SYNC, IoOwner::current());
        queue.submit(QueuedIo { op, pieces, memory, flags, owner, tag }).unwrap();
    }
    let mut done = Vec::new();
    queue.reap(0, &mut done).unwrap();
    while done.len() < 4 {
        let mut wait = [PollFd::new(&readiness, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut wait, Some(&timeout)).unwrap(), 1, "nothing ends any more: {} of 4", done.len());
        readiness.clear();
        queue.reap(0, &mut done).unwrap();
    }
}
