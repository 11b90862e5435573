//! `{:?}` of any public type is short: a derived one walked caches and printed gigabytes.
#![allow(clippy::unwrap_used, clippy::large_stack_arrays, reason = "a test fails where it stands")]
#![allow(clippy::disallowed_methods, reason = "the device below a file of the host")]

use std::fmt::Debug;
use std::sync::Arc;

use diorite::check::CheckOptions;
use diorite::front_end::SeenDirectories;
use diorite::front_end::{ScheduledDevice, VolumeInfo};
use diorite::mkfs::MkfsOptions;
use diorite::{
    AlignedBuf, AsyncQueue, BlockDevice, DirectIo, DirectQueue, DirectReader, DirectWriter, Filesystem,
    HostFile, SchedulerKind,
};
use diorite_block::{Bio, IoCounters, Plug, Sector};
use diorite_device::OpenOptions as DeviceOptions;
use diorite_device::{FileDevice, JoinedDevice, PartitionDevice, RegisteredBuffers};
use diorite_scheduler::Histogram;
use diorite_scheduler::{Cfq, CfqRules, Deadline, Inject, Statistics};
use diorite_sim::image::ImageDevice;

/// Bytes of `{:?}`; `{:#?}`, with a line for each element, may take twice as many.
const LONGEST: usize = 2048;

#[track_caller]
fn assert_short(what: &str, value: &dyn Debug) {
    for (text, most) in [(format!("{value:?}"), LONGEST), (format!("{value:#?}"), 2 * LONGEST)] {
        assert!(text.len() < most, "{what}: {} bytes: {}", text.len(), &text[..most]);
    }
}

/// Names in numbers that fill caches, and more content than any one value should print.
fn fill(filesystem: &Filesystem) {
    filesystem.create_dir("/d").unwrap();
    for n in 0..400 {
        filesystem.write(format!("/d/file-{n}"), format!("content {n}").repeat(100)).unwrap();
    }
}

#[test]
fn filesystems_files_and_queues() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.img");
    let filesystem = Filesystem::create(&path, 64 << 20, &MkfsOptions::default()).unwrap();
    fill(&filesystem);
    let file = filesystem.open_options().read(true).write(true).create(true).open("/x").unwrap();
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    assert_short("Filesystem", &filesystem);
    assert_short("File", &file);
    let text = format!("{file:?}");
    assert!(text.contains("/x"), "{text}");
    assert_short("FilesystemOptions", &Filesystem::options());
    assert_short("OpenOptions", &filesystem.open_options());
    assert_short("MkfsOptions", &MkfsOptions::default());
    assert_short("CheckOptions", &CheckOptions::default());
    let node = filesystem.resolve("/d").unwrap();
    assert_short("NodeRef", &node);
    assert_short("Attributes", &node.attributes().unwrap());
    let mut entries = filesystem.read_dir("/d").unwrap();
    entries.next().unwrap().unwrap();
    assert_short("ReadDir", &entries);
    let mut walk = filesystem.walk("/");
    let met = walk.nth(100).unwrap().unwrap();
    assert_short("Walk", &walk);
    assert_short("WalkEntry", &met);
    let mut seen = SeenDirectories::default();
    seen.note(node.number()).unwrap();
    assert_short("SeenDirectories", &seen);
    assert_short("FilesystemStatus", &filesystem.status());
    assert_short("Stats", &filesystem.stats());
    let mut queue = DirectQueue::<AlignedBuf>::new(64);
    (0..32).for_each(|tag| queue.read(&file, tag * 4096, AlignedBuf::zeroed(4096, 4096), 4096, tag).unwrap());
    assert_short("DirectQueue", &queue);
    let mut done = Vec::new();
    queue.reap(32, &mut done).unwrap();
    assert_short("DirectQueue", &queue);
    assert_short("Finished", &done[0]);
    assert_short("AsyncQueue", &AsyncQueue::<AlignedBuf>::new(16).unwrap());
    assert_short("DirectReader", &DirectReader::new(file.clone(), 0, 1 << 16, 8).unwrap());
    assert_short("DirectWriter", &DirectWriter::new(file.clone(), 0, 1 << 16, 8).unwrap());
    let host =
        HostFile::options().read(true).write(true).create(true).open(scratch.path().join("host")).unwrap();
    host.write_all_at(&[1; 1 << 20], 0).unwrap();
    assert_short("HostFile's File", &host);
    drop((file, host, queue, node, entries, walk, met));
    filesystem.close().unwrap();
    let device = FileDevice::open(&path, &DeviceOptions::read_only().direct(DirectIo::Off)).unwrap();
    assert_short("FileDevice", &device);
    assert_short("VolumeInfo", &VolumeInfo::read(&*device).unwrap());
    assert_short("Superblock", &diorite_ext::read_superblock(&*device).unwrap());
    let volume = diorite_ext::Volume::open(device, diorite_ext::VolumeOptions::default());
    let volume = volume.unwrap();
    let inode = volume.inodes.get(diorite::InodeNumber::ROOT).unwrap();
    let mut batch = diorite_ext::EntryBatch::default();
    volume.names.list_directory(&inode, 0, &mut batch).unwrap();
    assert_short("Volume", &volume);
    assert_short("VolumeOptions", &diorite_ext::VolumeOptions::default());
    assert_short("InodeStore", &volume.inodes);
    assert_short("Inode", &inode);
    assert_short("Names", &volume.names);
    assert_short("Files", &volume.files);
    assert_short("Xattrs", &volume.xattrs);
    assert_short("Quotas", &volume.quotas);
    assert_short("Lifecycle", &volume.lifecycle);
    assert_short("VolumeStatus", &volume.status());
    assert_short("EntryBatch", &batch);
}

#[test]
fn devices_bios_and_schedulers() {
    let memory: Arc<dyn BlockDevice> = ImageDevice::zeroed(64 << 20);
    assert_short("ImageDevice", &memory);
    assert_short("Geometry", memory.geometry());
    for kind in [SchedulerKind::Deadline, SchedulerKind::Cfq(CfqRules::default()), SchedulerKind::Inject] {
        assert_short("ScheduledDevice", &ScheduledDevice::attach(Arc::clone(&memory), kind));
    }
    let devices = vec![Arc::clone(&memory); 32];
    assert_short("JoinedDevice", &JoinedDevice::linear(devices).unwrap());
    assert_short("PartitionDevice", &PartitionDevice::at_offset(Arc::clone(&memory), 1 << 20).unwrap());
    let mut bytes = vec![7; 1 << 20];
    let bio = Bio::read(Sector(0), &mut bytes);
    assert_short("Bio", &bio);
    assert_short("IoCounters", memory.counters());
    assert_short("IoCounters", &IoCounters::default());
    let zeros = vec![0; 1 << 20];
    let mut plug = Plug::new(memory.geometry(), diorite_block::BioFlags::NONE);
    for part in zeros.chunks(4096).enumerate() {
        plug.write(Sector(part.0 as u64 * 100), part.1);
    }
    assert_short("Plug", &plug);
    assert_short("AlignedBuf", &AlignedBuf::zeroed(1 << 20, 4096));
    assert_short("RegisteredBuffers", &RegisteredBuffers::new(64 << 10, 64).unwrap());
    assert_short("Deadline", &Deadline::default());
    assert_short("Cfq", &Cfq::new(CfqRules::Fixed, true));
    assert_short("Inject", &Inject::new(true));
    assert_short("Histogram", &Histogram::default());
    assert_short("Statistics", &Statistics::default());
}
