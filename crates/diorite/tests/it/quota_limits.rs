//! Hard limits of a quota file are enforced if requested, for writes of any kind, new inodes and changes of owner.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use common::{aligned_pattern, assert_device_clean, memory_volume};
use diorite::front_end::Clock;
use diorite::{
    BlockDevice, DirectIo, ErrorKind, File, FileKind, Filesystem, FilesystemOptions, NodeSpec, Owner,
    QuotaLimits, Result, SetAttributes, Timestamp,
};
use diorite_ext::layout::QuotaKind;
use diorite_ext::layout::quota::{QuotaEntry, QuotaHeader};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const USER: Owner = Owner { uid: 1000, gid: 0 };

fn open(device: &Arc<dyn BlockDevice>, limits: QuotaLimits) -> Filesystem {
    FilesystemOptions::new().quota_limits(limits).open_device(Arc::clone(device)).unwrap()
}

fn file(filesystem: &Filesystem, path: &str, direct: DirectIo) -> Result<File> {
    filesystem.open_options().read(true).write(true).create(true).owner(USER).direct(direct).open(path)
}

/// A volume on which the user may have 64 KiB and 4 inodes; one inode is there.
fn limited_volume() -> Arc<dyn BlockDevice> {
    volume_with("quota", &|entry| QuotaEntry { space_limit_kib: 64, inodes_limit: 4, ..entry })
}

/// Where a quota file of users has its entries, as mkfs made it: header, four levels of the tree, entries.
fn entries_in(image: &[u8]) -> Vec<usize> {
    let is_header = |at: &usize| QuotaHeader::parse(QuotaKind::User, &image[*at..*at + 1024]).is_ok();
    (0..image.len() - 8192).step_by(4096).filter(is_header).map(|header| header + 5 * 1024).collect()
}

/// A volume with one inode of the user, whose entry is changed.
fn volume_with(features: &str, change: &dyn Fn(QuotaEntry) -> QuotaEntry) -> Arc<dyn BlockDevice> {
    let options = MkfsOptions {
        flavor: Flavor::Ext4,
        block_size: Some(4096),
        features: features.to_owned(),
        ..MkfsOptions::default()
    };
    let device = memory_volume(32, &options);
    let filesystem = open(&device, QuotaLimits::Ignored);
    file(&filesystem, "/first", DirectIo::Off).unwrap();
    filesystem.close().unwrap();
    let mut all = diorite::AlignedBuf::zeroed(32 << 20, 4096);
    device.read_bytes(0, &mut all).unwrap();
    // The journal has old copies of it.
    for entries in entries_in(&all) {
        let place = &mut all[entries..entries + 1024];
        for slot in 0..14 {
            if let Some(found) = QuotaEntry::parse(place, slot).filter(|entry| entry.id == USER.uid) {
                change(found).write_into(place, slot);
            }
        }
        let block = entries / 4096 * 4096;
        device.write_bytes(block as u64, &all[block..block + 4096], diorite_block::BioFlags::NONE).unwrap();
    }
    device
}

/// The user's entry on the device of a volume without a journal.
fn entry_on(device: &Arc<dyn BlockDevice>) -> QuotaEntry {
    let mut all = diorite::AlignedBuf::zeroed(32 << 20, 4096);
    device.read_bytes(0, &mut all).unwrap();
    let [entries] = entries_in(&all)[..] else { panic!("one quota file of users") };
    let found = (0..14).find_map(|slot| {
        QuotaEntry::parse(&all[entries..entries + 1024], slot).filter(|entry| entry.id == USER.uid)
    });
    found.expect("the user has an entry")
}

/// A clock that is set.
#[derive(Debug)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Ordering::Relaxed), nanoseconds: 0 }
    }
}

/// Above a soft limit a week runs; then it holds like a hard one, until the user is below it again.
#[test]
fn soft_limits_hold_when_their_time_is_over() {
    // Without a journal, so that what is synced is in its place.
    let device = volume_with("quota,^has_journal", &|entry| QuotaEntry {
        space_soft_kib: 16,
        inodes_soft: 2,
        ..entry
    });
    let clock = Arc::new(SetClock(AtomicI64::new(1_700_000_000)));
    let options = || FilesystemOptions::new().clock(clock.clone());
    let filesystem = options().quota_limits(QuotaLimits::Enforced).open_device(device.clone()).unwrap();
    let data = aligned_pattern(40 << 10, 1);
    let first = file(&filesystem, "/first", DirectIo::Required).unwrap();
    first.write_all_at(&data[..16 << 10], 0).unwrap();
    filesystem.sync().unwrap();
    assert_eq!(entry_on(&device).space_time, 0, "at the limit");
    first.write_all_at(&data[..4096], 16 << 10).unwrap();
    let spec = NodeSpec { kind: FileKind::Fifo, permissions: 0o600, umask: 0, owner: USER, device: (0, 0) };
    filesystem.create_node("/second", &spec).unwrap();
    clock.0.fetch_add(100, Ordering::Relaxed);
    filesystem.create_node("/third", &spec).unwrap();
    filesystem.sync().unwrap();
    let week = 7 * 24 * 3600;
    let entry = entry_on(&device);
    assert_eq!((entry.space_time, entry.inodes_time), (1_700_000_000 + week, 1_700_000_100 + week));
    clock.0.store(1_700_000_000 + week as i64 - 1, Ordering::Relaxed);
    first.write_all_at(&data[..4096], 20 << 10).unwrap();
    clock.0.fetch_add(1, Ordering::Relaxed);
    assert_exceeded(first.write_all_at(&data[..4096], 24 << 10), "space");
    filesystem.create_node("/fourth", &spec).unwrap();
    clock.0.fetch_add(100, Ordering::Relaxed);
    assert_exceeded(filesystem.create_node("/fifth", &spec), "inodes");
    // Below the limits no time runs, and a new one begins when they are passed again.
    first.set_len(4096).unwrap();
    first.write_all_at(&data[..12 << 10], 4096).unwrap();
    for name in ["/second", "/third", "/fourth"] {
        filesystem.remove_file(name).unwrap();
    }
    filesystem.sync().unwrap();
    let entry = entry_on(&device);
    assert_eq!((entry.space_time, entry.inodes_time), (0, 0));
    first.write_all_at(&data[..4096], 16 << 10).unwrap();
    drop(first);
    filesystem.close().unwrap();
    assert_eq!(entry_on(&device).space_time, 1_700_000_100 + 2 * week);
    // No limits are asked for here: no time begins, and none holds.
    let filesystem = options().quota_limits(QuotaLimits::Ignored).open_device(device.clone()).unwrap();
    clock.0.fetch_add(10 * week as i64, Ordering::Relaxed);
    for name in ["/second", "/third"] {
        filesystem.create_node(name, &spec).unwrap();
    }
    filesystem.close().unwrap();
    assert_eq!(entry_on(&device).inodes_time, 0);
    assert_device_clean(&device);
}

fn assert_exceeded<T: std::fmt::Debug>(result: Result<T>, what: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    let text = format!("quota exceeded: user 1000 has reached the limit of {what}");
    assert!(error.to_string().contains(&text), "{error}");
}

#[test]
fn limits_hold_for_every_kind_of_write() {
    let device = limited_volume();
    let filesystem = open(&device, QuotaLimits::Enforced);
    let data = aligned_pattern(40 << 10, 1);
    let cached = file(&filesystem, "/first", DirectIo::Off).unwrap();
    cached.write_all_at(&data, 0).unwrap();
    // Dirty data in the cache counts before it has blocks.
    let direct = file(&filesystem, "/second", DirectIo::Required).unwrap();
    assert_exceeded(direct.write_all_at(&data, 0), "space");
    direct.write_all_at(&data[..24 << 10], 0).unwrap();
    let other = file(&filesystem, "/third", DirectIo::Off).unwrap();
    assert_exceeded(other.write_all_at(&data[..100], 0), "space");
    assert_exceeded(direct.write_all_at(&data[..4096], 24 << 10), "space");
    assert_exceeded(direct.allocate(24 << 10, 4096), "space");
    // Blocks that are there can be written again.
    direct.write_all_at(&data[..24 << 10], 0).unwrap();
    cached.write_all_at(&data, 0).unwrap();
    cached.sync_all().unwrap();
    assert_exceeded(other.write_all_at(&data[..100], 0), "space");
    // Freed space can be used again.
    cached.set_len(4096).unwrap();
    other.write_all_at(&data[..36 << 10], 0).unwrap();
    other.sync_all().unwrap();
    assert_exceeded(direct.write_all_at(&data[..4096], 24 << 10), "space");
    drop((cached, direct, other));
    filesystem.close().unwrap();
    assert_device_clean(&device);
}

#[test]
fn limits_hold_for_inodes() {
    let device = limited_volume();
    let filesystem = open(&device, QuotaLimits::Enforced);
    let spec = NodeSpec { kind: FileKind::Fifo, permissions: 0o600, umask: 0, owner: USER, device: (0, 0) };
    for name in ["/second", "/third"] {
        filesystem.create_node(name, &spec).unwrap();
    }
    let others = NodeSpec { owner: Owner::default(), ..spec };
    filesystem.create_node("/others", &others).unwrap();
    let large = filesystem.create_file("/large").unwrap();
    large.write_all_at(&aligned_pattern(65 << 10, 2), 0).unwrap();
    large.sync_all().unwrap();
    let chown = |path: &str| {
        let changes = SetAttributes { uid: Some(USER.uid), ..SetAttributes::default() };
        filesystem.resolve(path).unwrap().set_attributes(&changes)
    };
    assert_exceeded(chown("/large"), "space");
    filesystem.create_node("/fourth", &spec).unwrap();
    assert_exceeded(filesystem.create_node("/fifth", &spec), "inodes");
    assert_exceeded(chown("/others"), "inodes");
    chown("/fourth").unwrap();
    filesystem.remove_file("/third").unwrap();
    chown("/others").unwrap();
    drop(large);
    filesystem.close().unwrap();
    // No limits are asked for here.
    let filesystem = open(&device, QuotaLimits::Ignored);
    filesystem.create_node("/fifth", &spec).unwrap();
    filesystem.close().unwrap();
    assert_device_clean(&device);
}
