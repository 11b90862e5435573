//! Opening: locks, sizes, direct I/O, and messages that name the remedy.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{LoopDevice, image, is_root, make_file};
use diorite_block::{BioFlags, BlockDevice, IoOwner, Op, Piece, QueuedIo, Sector};
use diorite_device::{
    Access, Backend, Create, DirectIo, FileDevice, OpenError, OpenOptions, PartitionDevice,
};

/// A user who may do nothing.
const NOBODY: u32 = 65534;

fn message(result: Result<impl std::fmt::Debug, OpenError>) -> String {
    result.expect_err("it must not open").to_string()
}

#[test]
fn one_writer_or_many_readers() {
    let (_directory, path) = image(1 << 20);
    let read = || FileDevice::open(&path, &OpenOptions::read_only());
    let write = || FileDevice::open(&path, &OpenOptions::read_write());
    let writer = write().unwrap();
    assert!(matches!(write(), Err(OpenError::Locked { .. })));
    let text = message(read());
    assert!(text.contains("locked by this process") && text.contains("two steps"), "{text}");
    drop(writer);
    let (first, second) = (read().unwrap(), read().unwrap());
    assert!(matches!(write(), Err(OpenError::Locked { .. })));
    drop((first, second));
    write().unwrap();
}

/// A write past the new end would make the file grow again, and what was cut off would read as zeros.
#[test]
fn a_file_truncated_while_open_is_not_written() {
    for backend in [Backend::Threads, Backend::Auto] {
        let (_directory, path) = image(1 << 20);
        let device = FileDevice::open(&path, &OpenOptions::read_write().backend(backend)).unwrap();
        let disk = &*device as &dyn BlockDevice;
        let mut queue = std::sync::Arc::clone(&device).open_queue(4).unwrap();
        let mut block = diorite_device::AlignedBuf::zeroed(4096, 4096);
        disk.write_bytes(512 << 10, &block, BioFlags::FUA).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(256 << 10).unwrap();
        // It is looked for once in a tick of the coarse clock.
        std::thread::sleep(std::time::Duration::from_millis(20));
        for offset in [0, 512 << 10] {
            let text = disk.write_bytes(offset, &block, BioFlags::SYNC).unwrap_err().to_string();
            assert!(text.contains("truncated to 262144 bytes"), "{text}");
        }
        for op in [Op::Write, Op::Flush] {
            let piece = Piece { sector: Sector(1024), memory: 0..4096 };
            let (pieces, memory) = match op {
                Op::Flush => (Vec::new(), diorite_block::QueuedMemory::None),
                _ => (
                    vec![piece],
                    diorite_block::QueuedMemory::Owned(Box::new(diorite_device::AlignedBuf::zeroed(
                        4096, 4096,
                    ))),
                ),
            };
            let io =
                QueuedIo { op, flags: BioFlags::SYNC, owner: IoOwner::current(), pieces, memory, tag: 0 };
            queue.submit(io).unwrap();
            let mut done = Vec::new();
            queue.reap(1, &mut done).unwrap();
            assert!(done[0].result.as_ref().unwrap_err().to_string().contains("truncated to"));
        }
        assert!(device.execute(&mut [diorite_block::Bio::flush()]).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 256 << 10);
        disk.read_bytes(0, &mut block).unwrap();
    }
}

/// The place of an error that concerns the file as a whole was counted from the start of the window, below zero.
#[test]
fn a_window_on_a_truncated_file_reports_the_error() {
    for backend in [Backend::Threads, Backend::Auto] {
        let (_directory, path) = image(4 << 20);
        let options = OpenOptions::read_write().backend(backend);
        let file = FileDevice::open(&path, &options).unwrap();
        let window: std::sync::Arc<dyn BlockDevice> = PartitionDevice::at_offset(file, 1 << 20).unwrap();
        let mut queue = std::sync::Arc::clone(&window).open_queue(4).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(256 << 10).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        for sector in [0, 1024] {
            let buffer = diorite_device::AlignedBuf::zeroed(4096, 4096);
            queue
                .submit(QueuedIo {
                    op: Op::Write,
                    flags: BioFlags::SYNC,
                    owner: IoOwner::current(),
                    pieces: vec![Piece { sector: Sector(sector), memory: 0..4096 }],
                    memory: diorite_block::QueuedMemory::Owned(Box::new(buffer)),
                    tag: 0,
                })
                .unwrap();
            let mut done = Vec::new();
            queue.reap(1, &mut done).unwrap();
            let error = done[0].result.as_ref().unwrap_err();
            assert!(error.to_string().contains("truncated to"), "{error}");
            assert!(error.sector.0 < 8192, "{error:?}");
        }
    }
}

/// Noting it would cost the host a write to an inode, and a small read a tenth of its time.
#[test]
fn the_host_does_not_note_that_an_image_was_read() {
    let (_directory, path) = image(1 << 20);
    let times = std::fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
    std::fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let device = FileDevice::open(&path, &OpenOptions::read_only()).unwrap();
    let mut block = diorite_device::AlignedBuf::zeroed(4096, 4096);
    device.execute(&mut [diorite_block::Bio::read(Sector(0), &mut block)]).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().accessed().unwrap(), std::time::UNIX_EPOCH);
}

/// A queue's ring keeps the file open; the lock must be free all the same when all is dropped.
#[test]
fn lock_is_free_as_soon_as_the_device_is_dropped() {
    let (_directory, path) = image(1 << 20);
    for _ in 0..50 {
        let device = FileDevice::open(&path, &OpenOptions::read_write()).unwrap();
        let mut queue = std::sync::Arc::clone(&device).open_queue(4).unwrap();
        let mut memory = diorite_device::AlignedBuf::zeroed(8192, 4096);
        (&*device as &dyn BlockDevice).read_bytes(0, &mut memory).unwrap();
        device.execute(&mut [diorite_block::Bio::flush()]).unwrap();
        for op in [Op::Read, Op::Write, Op::Flush] {
            let (flags, owner) = (BioFlags::SYNC | BioFlags::FUA, IoOwner::current());
            let piece = Piece { sector: Sector(0), memory: 0..8192 };
            let memory = diorite_device::AlignedBuf::zeroed(8192, 4096);
            let (pieces, memory) = (vec![piece], diorite_block::QueuedMemory::Owned(Box::new(memory)));
            queue.submit(QueuedIo { op, pieces, memory, flags, owner, tag: 0 }).unwrap();
        }
        drop(device);
        assert!(FileDevice::open(&path, &OpenOptions::read_only()).is_err(), "the queue is a user too");
        drop(queue);
    }
}

#[test]
fn creation_gives_a_size_and_leaves_nothing_after_an_error() {
    let (directory, _) = image(0);
    let path = directory.path().join("new");
    let create = |how| OpenOptions::read_write().create(how);
    let device = FileDevice::open(&path, &create(Create::NewSized(5 << 20))).unwrap();
    assert_eq!(device.geometry().capacity_bytes, 5 << 20);
    drop(device);
    let text = message(FileDevice::open(&path, &create(Create::NewSized(1 << 20))));
    assert!(text.contains("already exists"), "{text}");
    let device = FileDevice::open(&path, &create(Create::Sized(1 << 20))).unwrap();
    assert_eq!(device.geometry().capacity_bytes, 1 << 20);
    let other = directory.path().join("other");
    assert!(matches!(FileDevice::open(&other, &create(Create::Sized(0))), Err(OpenError::TooSmall { .. })));
    assert!(!other.exists(), "what could not be opened is removed again");
    let missing = directory.path().join("no/such/directory/image");
    assert!(matches!(
        FileDevice::open(missing, &create(Create::Sized(512))),
        Err(OpenError::NotFound { .. })
    ));
}

#[test]
fn size_is_rounded_down_to_whole_blocks() {
    let (_directory, path) = image((1 << 20) + 1000);
    let device = FileDevice::open(&path, &OpenOptions::read_only()).unwrap();
    let block = u64::from(device.geometry().logical_block_size);
    assert_eq!(device.geometry().capacity_bytes, ((1 << 20) + 1000) / block * block);
}

#[test]
fn what_has_no_sectors_is_refused_by_name() {
    let (directory, path) = image(100);
    let open = |path: &Path| message(FileDevice::open(path, &OpenOptions::read_only()));
    assert!(open(&path).contains("too small"));
    assert!(open(directory.path()).contains("a directory"));
    assert!(open(Path::new("/dev/null")).contains("a character device"));
    assert!(open(&directory.path().join("missing")).contains("no such file"));
    let fifo = directory.path().join("fifo");
    if Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()) {
        assert!(open(&fifo).contains("a fifo"), "and not waited for");
    }
}

/// Root may open everything, so as root the test runs itself again as another user.
#[test]
fn no_permission_is_reported_with_the_access() {
    let (directory, path) = image(1 << 20);
    if is_root() {
        let program = directory.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let readable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), readable).unwrap();
        let mut test = Command::new(program);
        test.args(["--exact", "open::no_permission_is_reported_with_the_access"])
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY);
        let output = test.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    assert!(message(FileDevice::open(&path, &OpenOptions::read_write())).contains("read-only"));
    FileDevice::open(&path, &OpenOptions::read_only()).unwrap();
}

/// A file of procfs has no direct I/O at all.
#[test]
fn refused_direct_io_is_explained_or_fallen_back_from() {
    let path = Path::new("/proc/self/mem");
    let Ok(metadata) = std::fs::metadata(path) else {
        println!("SKIPPED: no procfs");
        return;
    };
    assert!(metadata.is_file());
    let text = message(FileDevice::open(path, &OpenOptions::read_only().direct(DirectIo::Required)));
    assert!(text.contains("direct I/O refused") && text.contains("--buffered"), "{text}");
    let text = message(FileDevice::open(path, &OpenOptions::read_only()));
    assert!(text.contains("too small"), "the fallback got as far as the size: {text}");
}

/// tmpfs takes `O_DIRECT` on newer kernels and refuses it on older ones: believed is what a real read says.
#[test]
fn tmpfs_is_probed_like_any_other() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIPPED: no /dev/shm");
        return;
    };
    let path = directory.path().join("image");
    make_file(&path, 1 << 20);
    match FileDevice::open(&path, &OpenOptions::read_write().direct(DirectIo::Required)) {
        Ok(device) => assert!(device.is_direct()),
        Err(error) => assert!(error.to_string().contains("direct I/O refused"), "{error}"),
    }
    let device = FileDevice::open(&path, &OpenOptions::read_write()).unwrap();
    device.execute(&mut [diorite_block::Bio::flush()]).unwrap();
}

#[test]
fn policy_and_back_end_are_what_was_asked_for() {
    let (_directory, path) = image(1 << 20);
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::read_only() };
    let off = FileDevice::open(&path, &options.clone().direct(DirectIo::Off)).unwrap();
    assert!(!off.is_direct());
    assert_eq!((off.geometry().logical_block_size, off.geometry().memory_alignment), (512, 1));
    drop(off);
    let threads = FileDevice::open(&path, &options.backend(Backend::Threads)).unwrap();
    assert_eq!(threads.backend(), Backend::Threads);
}

#[test]
fn block_device_in_use_is_refused_for_writing() {
    let (_directory, path) = image(8 << 20);
    let Some(disk) = LoopDevice::attach(&path, 512) else { return };
    let writer = FileDevice::open(disk.path(), &OpenOptions::read_write()).unwrap();
    let second = FileDevice::open(disk.path(), &OpenOptions::read_write());
    assert!(matches!(second, Err(OpenError::Busy { .. })), "{second:?}");
    drop(writer);
    let writer = FileDevice::open(disk.path(), &OpenOptions::read_write()).unwrap();
    // One image, whether it is reached through the file or through the device.
    for options in [OpenOptions::read_write(), OpenOptions::read_only()] {
        let image = FileDevice::open(&path, &options);
        assert!(matches!(image, Err(OpenError::Locked { .. })), "{image:?}");
    }
    drop(writer);
    let image = FileDevice::open(&path, &OpenOptions::read_write()).unwrap();
    let text = message(FileDevice::open(disk.path(), &OpenOptions::read_write()));
    assert!(text.contains("locked by this process") && text.contains(path.to_str().unwrap()), "{text}");
    drop(image);
    // The kernel takes no lock on the backing file of a loop device: an image that it had mounted could be written here.
    let holder = claimed(disk.path());
    let text = message(FileDevice::open(&path, &OpenOptions::read_write()));
    assert!(text.contains(&format!("in use through {}", disk.path().display())), "{text}");
    FileDevice::open(&path, &OpenOptions::read_only()).unwrap();
    drop(holder);
    let options = OpenOptions::read_write().create(Create::Sized(16 << 20));
    assert!(matches!(FileDevice::open(disk.path(), &options), Err(OpenError::CannotGrow { .. })));
}

/// A loop device is claimed for a moment after `umount`: the image was in use, once in a thousand times.
#[test]
fn a_loop_device_that_is_about_to_be_free_is_waited_for() {
    let (_directory, path) = image(8 << 20);
    let Some(disk) = LoopDevice::attach(&path, 512) else { return };
    let holder = claimed(disk.path());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            drop(holder);
        });
        FileDevice::open(&path, &OpenOptions::read_write()).unwrap();
    });
}

/// The device, claimed as a mount claims it.
fn claimed(device: &Path) -> rustix::fd::OwnedFd {
    use rustix::fs::{Mode, OFlags};
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match rustix::fs::open(device, OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            // A device that was just closed is claimed for a moment.
            Err(rustix::io::Errno::BUSY) if std::time::Instant::now() < limit => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// The kernel lets a read-only loop device be opened for writing, and refuses each write.
#[test]
fn read_only_device_is_refused_for_writing() {
    let (_directory, path) = image(8 << 20);
    let Some(disk) = LoopDevice::attach_read_only(&path) else { return };
    let text = message(FileDevice::open(disk.path(), &OpenOptions::read_write()));
    assert!(text.contains("the device is read-only") && text.contains("blockdev --setrw"), "{text}");
    FileDevice::open(disk.path(), &OpenOptions::read_only()).unwrap();
}

/// The environment chooses where the program does not; run again as a child so that no other test sees it.
#[test]
fn environment_chooses_the_back_end() {
    const IN_CHILD: &str = "DIORITE_TEST_IMAGE";
    if let Ok(path) = std::env::var(IN_CHILD) {
        match FileDevice::open(&path, &OpenOptions::read_only()) {
            Ok(device) => println!("backend {:?}", device.backend()),
            Err(error) => println!("error {error}"),
        }
        return;
    }
    let (_directory, path) = image(1 << 20);
    let run_with = |variable: &str, value: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "open::environment_chooses_the_back_end", "--nocapture"])
            .env(IN_CHILD, &path)
            .env(variable, value)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let run = |value: &str| run_with("DIORITE_IO_BACKEND", value);
    assert!(run("threads").contains("backend Threads"));
    assert!(run("io_uring").contains("backend IoUring"));
    let text = run("turbo");
    assert!(text.contains("DIORITE_IO_BACKEND") && text.contains("\"threads\""), "{text}");
    let text = run_with("DIORITE_IO_POLLING", "always");
    assert!(text.contains("DIORITE_IO_POLLING") && text.contains("\"never\""), "{text}");
}

/// Content survives from one access to the next, through whichever way.
#[test]
fn bytes_written_by_others_are_read() {
    let (_directory, path) = image(1 << 20);
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&[42; 8192]).unwrap();
    drop(file);
    for direct in [DirectIo::Required, DirectIo::Off] {
        let device: std::sync::Arc<dyn BlockDevice> =
            FileDevice::open(&path, &OpenOptions::read_only().direct(direct)).unwrap();
        let mut memory = diorite_device::AlignedBuf::zeroed(8192, 4096);
        device.read_bytes(0, &mut memory).unwrap();
        assert!(memory.iter().all(|byte| *byte == 42));
    }
}
