//! A forked child has none of its parent's threads: a volume or a file that it uses or drops waits for none of them. It has a copy of
//! its parent's unwritten data, and does not write this copy when it is dropped.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step is a failed test; the host's own view of a file"
)]

use crate::child;
use crate::common;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use child::{in_child, in_child_after};
use common::assert_clean;
use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{
    AlignedBuf, AsyncQueue, DirectIo, DirectQueue, DirectReader, DirectWriter, ErrorKind, File, Filesystem,
    FilesystemOptions, HostFile, RawFile,
};
use diorite_device::{Backend, FileDevice, OpenOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn a_child_drops_a_volume() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let filesystem =
        Filesystem::create(directory.path().join("disk.img"), 8 << 20, &MkfsOptions::default()).unwrap();
    let file = filesystem.create_file("/file").unwrap();
    // Starts the threads that read ahead and write back.
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    let mut all = Some((file, filesystem));
    in_child(|| drop(all.take()));
}

#[test]
fn a_child_uses_and_drops_a_host_file() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = HostFile::options().read(true).write(true).create(true);
    let file = options.open(directory.path().join("file")).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let mut file = Some(file);
    in_child(|| {
        let file = file.take().unwrap();
        file.write_all_at(&[2; 4096], 0).unwrap();
        file.sync_all().unwrap();
        let mut memory = [0; 4096];
        file.read_exact_at(&mut memory, 0).unwrap();
        assert_eq!(memory, [2; 4096]);
    });
}

/// Whether the host's file is so many bytes of one value.
fn is_filled(path: &Path, len: usize, value: u8) -> bool {
    let content = std::fs::read(path).unwrap();
    content.len() == len && content.iter().all(|byte| *byte == value)
}

/// The child's drop made the file as long as it had been to be when the process forked.
#[test]
fn a_child_that_drops_a_host_file_leaves_it_as_long_as_its_parent_made_it() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = HostFile::options().read(true).write(true).create(true).open(&path).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    let file = RefCell::new(Some(file));
    let meanwhile = || {
        let file = file.borrow();
        file.as_ref().unwrap().write_all_at(&vec![2; 1 << 20], 0).unwrap();
        file.as_ref().unwrap().sync_all().unwrap();
    };
    in_child_after(meanwhile, || drop(file.take()));
    assert!(is_filled(&path, 1 << 20, 2));
    in_child(|| {
        let error = file.borrow().as_ref().unwrap().set_len(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    });
    assert!(is_filled(&path, 1 << 20, 2));
}

/// So did the drop of a queue there, with a write in flight that made the file longer. One of a batch was also executed again.
fn a_child_drops_a_queue(queue: DirectQueue<AlignedBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let options = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Required);
    let file = options.open(&path).unwrap();
    let queue = RefCell::new(queue);
    let write = |value: u8| {
        let mut memory = file.buffer(4096).unwrap();
        memory.fill(value);
        queue.borrow_mut().write(&file, 0, memory, 4096, 0).unwrap();
    };
    write(1);
    let meanwhile = || {
        queue.borrow_mut().reap(1, &mut Vec::new()).unwrap();
        let mut memory = file.buffer(1 << 20).unwrap();
        memory.fill(2);
        file.write_all_at(&memory, 0).unwrap();
        file.sync_all().unwrap();
    };
    in_child_after(meanwhile, || drop(queue.replace(DirectQueue::new(1))));
    assert!(is_filled(&path, 1 << 20, 2));
}

#[test]
fn a_child_drops_a_queue_with_a_write_in_flight() {
    if !is_own_process!() {
        return;
    }
    a_child_drops_a_queue(DirectQueue::new(4));
}

#[test]
fn a_child_drops_a_queue_with_a_batch_that_waits() {
    if !is_own_process!() {
        return;
    }
    a_child_drops_a_queue(DirectQueue::batched(4));
}

/// A watched queue with a write that can be reaped.
fn watched(filesystem: &Filesystem) -> (DirectQueue, OwnedFd) {
    let options = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
    let file = options.open("/file").unwrap();
    let mut queue = DirectQueue::new(4);
    let descriptor = queue.descriptor().unwrap().try_clone_to_owned().unwrap();
    queue.write(&file, 0, file.buffer(4096).unwrap(), 4096, 0).unwrap();
    queue.issue().unwrap();
    assert!(is_readable(&descriptor, 5));
    (queue, descriptor)
}

fn is_readable(descriptor: &OwnedFd, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// The descriptor that says what can be reaped is the child's, too: its drop took back what its parent had been notified of, which waited for ever.
#[test]
fn a_child_that_drops_a_watched_queue_takes_no_notification_of_its_parent() {
    if !is_own_process!() {
        return;
    }
    let device = common::memory_volume(8, &MkfsOptions::default());
    let filesystem = FilesystemOptions::new().open_device(device).unwrap();
    let (queue, descriptor) = watched(&filesystem);
    let mut queue = Some(queue);
    in_child(|| drop(queue.take()));
    assert!(is_readable(&descriptor, 5));
    assert_eq!(queue.as_mut().unwrap().reap(0, &mut Vec::new()).unwrap(), 1);
}

fn by_threads(image: &Path) -> Arc<FileDevice> {
    FileDevice::open(image, &OpenOptions::read_write().backend(Backend::Threads)).unwrap()
}

/// Its drop also notified its parent of transfers that it had canceled: the descriptor was readable from then on, with nothing to reap.
#[test]
fn a_child_that_drops_a_watched_queue_does_not_notify_its_parent() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    Filesystem::create(&image, 8 << 20, &MkfsOptions::default()).unwrap().close().unwrap();
    let filesystem = FilesystemOptions::new().open_device(by_threads(&image)).unwrap();
    let (queue, descriptor) = watched(&filesystem);
    let queue = RefCell::new(queue);
    let meanwhile = || {
        let mut queue = queue.borrow_mut();
        assert_eq!(queue.reap(0, &mut Vec::new()).unwrap(), 1);
        // The worker may still be at its notification, which the next reap takes back then.
        while is_readable(&descriptor, 0) {
            assert_eq!(queue.reap(0, &mut Vec::new()).unwrap(), 0);
        }
    };
    in_child_after(meanwhile, || drop(queue.replace(DirectQueue::new(1))));
    assert!(!is_readable(&descriptor, 0));
}

/// The child wrote back and committed what it had inherited, emptied the journal and marked the volume clean: what its parent went on
/// to commit was not replayed after a crash.
#[test]
fn a_child_that_drops_a_volume_leaves_its_journal() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (path, crashed) = (directory.path().join("disk.img"), directory.path().join("crashed.img"));
    let filesystem = Filesystem::create(&path, 32 << 20, &MkfsOptions::new(Flavor::Ext4)).unwrap();
    let file = filesystem.create_file("/file").unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&vec![2; 4096], 0).unwrap();
    filesystem.create_dir("/inherited").unwrap();
    let all = RefCell::new(Some((file, filesystem)));
    let change = |name: &str| {
        let all = all.borrow();
        let (file, filesystem) = all.as_ref().unwrap();
        file.write_all_at(&vec![3; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        filesystem.write(name, name).unwrap();
        filesystem.sync().unwrap();
    };
    in_child_after(|| change("/before"), || drop(all.take()));
    change("/after");
    std::fs::copy(&path, &crashed).unwrap();
    let replayed = Filesystem::open(&crashed).unwrap();
    let mut content = vec![0; 1 << 20];
    replayed.open_file("/file").unwrap().read_exact_at(&mut content, 0).unwrap();
    assert!(content.iter().all(|byte| *byte == 3), "a synced page is old");
    for name in ["/before", "/after"] {
        assert_eq!(replayed.read(name).unwrap(), name.as_bytes());
    }
    replayed.close().unwrap();
    assert_clean(&crashed);
    drop(all.take());
    assert_clean(&path);
}

/// In a child changes of its parent's volume are errors that say so, and reads are not.
#[test]
fn a_childs_changes_of_a_volume_are_errors() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&path, 32 << 20, &MkfsOptions::new(Flavor::Ext4)).unwrap();
    let file = filesystem.create_file("/file").unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    in_child(|| refuses_changes(&file, &filesystem));
    assert_eq!(filesystem.read("/file").unwrap(), vec![1; 1 << 20].as_slice());
    drop((file, filesystem));
    assert_clean(&path);
}

fn refuses_changes(file: &File, filesystem: &Filesystem) {
    let aligned = AlignedBuf::zeroed(4096, 4096);
    let direct = filesystem.open_options().write(true).direct(DirectIo::Required).open("/file").unwrap();
    let results = [
        file.write_all_at(&[4; 4096], 0).and(file.sync_all()),
        direct.write_all_at(&aligned, 65536),
        filesystem.create_dir("/child").map(drop),
        filesystem.sync(),
        filesystem.clone().close(),
    ];
    for result in results {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("forked"), "{error}");
    }
    file.read_exact_at(&mut [0; 4096], 8192).unwrap();
}

/// The child's drop of a device wrote what it had inherited over what its parent has written since.
#[test]
fn a_child_that_drops_a_device_writes_nothing() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let file = RawFile::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    let file = RefCell::new(Some(file));
    let meanwhile = || {
        let file = file.borrow();
        file.as_ref().unwrap().write_all_at(&vec![2; 1 << 20], 0).unwrap();
        file.as_ref().unwrap().sync_all().unwrap();
    };
    in_child_after(meanwhile, || drop(file.take()));
    assert!(is_filled(&path, 1 << 20, 2));
}

/// Everything else that a child can drop: a stream with data that is not submitted, transfers that are under way, memory of the parent's queues, and a
/// view that it is in the middle of. The parent goes on with its own.
#[test]
fn a_child_drops_streams_transfers_memory_and_views() {
    const BYTES: usize = 64 << 10;
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&path, 32 << 20, &MkfsOptions::new(Flavor::Ext4)).unwrap();
    filesystem.write("/read", vec![1; 1 << 20]).unwrap();
    filesystem.sync().unwrap();
    let open = |path| -> File {
        let options = filesystem.open_options().read(true).write(true).create(true);
        options.direct(DirectIo::Required).open(path).unwrap()
    };
    let mut writer = DirectWriter::new(open("/written"), 0, BYTES, 2).unwrap();
    writer.buffer().unwrap().fill(7);
    writer.submit(BYTES).unwrap();
    writer.buffer().unwrap().fill(8);
    let mut reader = DirectReader::new(open("/read"), 0, BYTES, 2).unwrap();
    let first = reader.next_chunk().unwrap().unwrap().len();
    let queue = AsyncQueue::new(2).unwrap();
    let queued = open("/queued");
    let transfer = queue.write(&queued, 0, queued.buffer(BYTES).unwrap(), BYTES);
    let all = RefCell::new(Some((writer, reader, queue, transfer, queued.buffer(BYTES).unwrap())));
    let viewed = filesystem.open_file("/read").unwrap();
    let mut seen = 0;
    viewed
        .view(0, BYTES, &mut |bytes| {
            if seen == 0 {
                in_child(|| drop(all.take()));
            }
            seen += bytes.iter().map(|byte| usize::from(*byte == 1)).sum::<usize>();
        })
        .unwrap();
    assert_eq!(seen, BYTES);
    let (mut writer, mut reader, queue, transfer, memory) = all.take().unwrap();
    writer.submit(BYTES).unwrap();
    drop(writer.finish().unwrap());
    let mut read = first;
    while let Some(chunk) = reader.next_chunk().unwrap() {
        assert!(chunk.iter().all(|byte| *byte == 1));
        read += chunk.len();
    }
    assert_eq!(read, 1 << 20);
    drop((reader, transfer, queue, queued, memory, viewed));
    let written = filesystem.read("/written").unwrap();
    assert!(written.len() == 2 * BYTES);
    assert!(written[..BYTES].iter().all(|byte| *byte == 7) && written[BYTES..].iter().all(|byte| *byte == 8));
    filesystem.close().unwrap();
    assert_clean(&path);
}
