//! Hard limits of a quota file hold where that was asked for, for writes of any kind, new inodes and inodes that change hands.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{aligned_pattern, assert_device_clean, memory_volume};
use diorite::{
    BlockDevice, DirectIo, File, FileKind, Filesystem, FilesystemOptions, NodeSpec, Owner, QuotaLimits,
    Result, SetAttributes,
};
use diorite_ext::layout::QuotaKind;
use diorite_ext::layout::quota::{QuotaEntry, QuotaHeader};
use diorite_ext::mkfs::{Flavor, MkfsOptions};

const USER: Owner = Owner { uid: 1000, gid: 0 };

fn open(device: &Arc<dyn BlockDevice>, limits: QuotaLimits) -> Filesystem {
    FilesystemOptions::new().quota_limits(limits).open_device(Arc::clone(device)).unwrap()
}

fn file(filesystem: &Filesystem, path: &str, direct: DirectIo) -> Result<File> {
    filesystem.open_options().read(true).write(true).create(true).owner(USER).direct(direct).open(path)
}

/// A volume on which the user may have 64 KiB and 4 inodes; one inode is there.
fn limited_volume() -> Arc<dyn BlockDevice> {
    let options = MkfsOptions {
        flavor: Flavor::Ext4,
        block_size: Some(4096),
        features: "quota".to_owned(),
        ..MkfsOptions::default()
    };
    let device = memory_volume(32, &options);
    let filesystem = open(&device, QuotaLimits::Ignored);
    file(&filesystem, "/first", DirectIo::Off).unwrap();
    filesystem.close().unwrap();
    let mut all = diorite::AlignedBuf::zeroed(32 << 20, 4096);
    device.read_bytes(0, &mut all).unwrap();
    let is_header = |at: &usize| QuotaHeader::parse(QuotaKind::User, &all[*at..*at + 1024]).is_ok();
    // Made by mkfs: header, four levels of the tree, entries. The journal has old copies of it.
    let headers: Vec<usize> = (0..all.len() - 8192).step_by(4096).filter(is_header).collect();
    for entries in headers.into_iter().map(|header| header + 5 * 1024) {
        let place = &mut all[entries..entries + 1024];
        for slot in 0..14 {
            if let Some(found) = QuotaEntry::parse(place, slot).filter(|entry| entry.id == USER.uid) {
                let limited = QuotaEntry { space_limit_kib: 64, inodes_limit: 4, ..found };
                limited.write_into(place, slot);
            }
        }
        let block = entries / 4096 * 4096;
        device.write_bytes(block as u64, &all[block..block + 4096], diorite_block::BioFlags::NONE).unwrap();
    }
    device
}

fn assert_exceeded<T: std::fmt::Debug>(result: Result<T>, what: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.errno(), 122, "{error}");
    let text = format!("quota exceeded: user 1000 may have no more {what}");
    assert!(error.to_string().contains(&text), "{error}");
}

#[test]
fn limits_hold_for_every_kind_of_write() {
    let device = limited_volume();
    let filesystem = open(&device, QuotaLimits::Enforced);
    let data = aligned_pattern(40 << 10, 1);
    let cached = file(&filesystem, "/first", DirectIo::Off).unwrap();
    cached.write_all_at(&data, 0).unwrap();
    // What waits in the cache counts, before it has blocks.
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
    // What is given up can be used again.
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
    let spec = NodeSpec { kind: FileKind::Fifo, permissions: 0o600, owner: USER, device: (0, 0) };
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
    // Nobody asked for limits here.
    let filesystem = open(&device, QuotaLimits::Ignored);
    filesystem.create_node("/fifth", &spec).unwrap();
    filesystem.close().unwrap();
    assert_device_clean(&device);
}
