//! Values of attributes in inodes of their own (`ea_inode`): their blocks are metadata, and no user can open them as files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use crate::common;
use common::{Bench, MemoryDevice, entries_of, have, pattern, read_file, write_blocks};
use diorite_ext::{Error, FileKind, Inode, InodeNumber, NodeSpec, Owner, Volume, VolumeOptions, XattrMode};
use std::sync::Arc;

const BLOCK: usize = 1024;
const FILE_BLOCKS: usize = 64;
const OWNERS: usize = 200;

fn file() -> NodeSpec {
    let owner = Owner::default();
    NodeSpec { kind: FileKind::Regular, permissions: 0o644, umask: 0, owner, device: (0, 0) }
}

fn root(volume: &Volume) -> Arc<Inode> {
    volume.inodes.get(InodeNumber::ROOT).unwrap()
}

/// Files until the volume is full; how many.
fn fill(volume: &Volume) -> u64 {
    for number in 0.. {
        let created = volume.names.create(&root(volume), format!("fill{number}").as_bytes(), &file());
        let content = pattern(number, FILE_BLOCKS * BLOCK);
        let written = created
            .and_then(|inode| write_blocks(volume, &inode, 0, &content, Some((FILE_BLOCKS * BLOCK) as u64)));
        match written {
            Ok(()) => {}
            Err(Error::NoSpace) => return number,
            Err(error) => panic!("file {number}: {error}"),
        }
    }
    unreachable!()
}

fn is_filled(volume: &Volume, files: u64, what: &str) {
    for number in 0..files {
        let inode = volume.names.lookup(&root(volume), format!("fill{number}").as_bytes()).unwrap();
        assert!(read_file(volume, &inode) == pattern(number, FILE_BLOCKS * BLOCK), "{what}: file {number}");
    }
}

/// The blocks of a value went through the journal, but were freed as data: its old bytes were written over what files had put there
/// since, when the journal was written back or replayed.
#[test]
fn removed_values_do_not_come_back_over_files() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext4 -b 1024 -O ea_inode -J size=4", "-t ext4 -b 1024 -O ea_inode,^has_journal"] {
        // Whether the value is durable before it is removed.
        for sync_between in [true, false] {
            let what = format!("{arguments}, a sync between: {sync_between}");
            let bench = Bench::new();
            let (device, volume) = bench.open(&bench.image(arguments, "12M"));
            let owner = volume.names.create(&root(&volume), b"owner", &file()).unwrap();
            volume.sync().unwrap();
            for number in 0..8 {
                let name = format!("user.large{number}");
                volume.set_xattr(&owner, name.as_bytes(), &vec![0xa5; 20_000], XattrMode::Set).unwrap();
            }
            if sync_between {
                volume.sync().unwrap();
            }
            for number in 0..8 {
                volume.remove_xattr(&owner, format!("user.large{number}").as_bytes()).unwrap();
            }
            volume.sync().unwrap();
            let files = fill(&volume);
            volume.sync().unwrap();
            assert!(files > 50, "{what}: {files} files");
            // As a crash leaves it.
            let crashed = MemoryDevice::new(device.bytes.read().unwrap().clone());
            let replayed = Volume::open(crashed, VolumeOptions::default()).unwrap();
            is_filled(&replayed, files, &format!("{what}, after a crash"));
            volume.close().unwrap();
            drop((owner, volume));
            bench.check(&device);
            let again = Volume::open(device, VolumeOptions::default()).unwrap();
            is_filled(&again, files, &format!("{what}, closed"));
        }
    }
}

/// The inode of a value, or of a quota file, was given to a caller that named its number, and a change of it could wait for themselves for ever.
#[test]
fn inodes_of_values_and_of_the_volume_are_no_files() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.image("-t ext4 -b 1024 -O ea_inode,quota,project,orphan_file", "16M");
    let (device, volume) = bench.open(&image);
    let owner = volume.names.create(&root(&volume), b"owner", &file()).unwrap();
    volume.set_xattr(&owner, b"user.large", &vec![7; 20_000], XattrMode::Set).unwrap();
    volume.sync().unwrap();
    let named: Vec<_> = entries_of(&volume, &root(&volume)).into_iter().map(|(_, number)| number).collect();
    for reopened in [false, true] {
        let volume = if reopened {
            volume.close().unwrap();
            Volume::open(device.clone(), VolumeOptions::default()).unwrap()
        } else {
            Arc::clone(&volume)
        };
        for number in (1..64).map(InodeNumber) {
            let is_file = number == InodeNumber::ROOT || named.contains(&number);
            let found = volume.inodes.get(number);
            assert_eq!(found.is_ok(), is_file, "inode {}, reopened: {reopened}: {found:?}", number.0);
        }
        let owner = volume.names.lookup(&root(&volume), b"owner").unwrap();
        assert_eq!(volume.xattrs.get(&owner, b"user.large").unwrap(), vec![7; 20_000]);
        if reopened {
            drop(owner);
            volume.close().unwrap();
        }
    }
    bench.check(&device);
}

/// A value that found space for itself, while the block of attributes found none, stayed as an inode that nothing used, and was counted
/// to the file.
#[test]
fn value_without_space_for_its_attribute_leaves_nothing() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    // No space inside of the inodes.
    let (device, volume) = bench.open(&bench.image("-t ext4 -b 1024 -I 128 -O ea_inode", "8M"));
    for number in 0..OWNERS {
        volume.names.create(&root(&volume), format!("owner{number}").as_bytes(), &file()).unwrap();
    }
    fill(&volume);
    let mut refused = 0;
    for number in 0..OWNERS {
        let owner = volume.names.lookup(&root(&volume), format!("owner{number}").as_bytes()).unwrap();
        let sectors = owner.attributes().sectors;
        let value = vec![number as u8; 1500 + 1024 * (number % 3)];
        if let Err(error) = volume.set_xattr(&owner, b"user.large", &value, XattrMode::Set) {
            assert!(matches!(error, Error::NoSpace), "{error}");
            assert_eq!(owner.attributes().sectors, sectors, "owner {number}");
            refused += 1;
        }
    }
    assert!(refused > 0, "the volume was not full");
    volume.close().unwrap();
    drop(volume);
    bench.check(&device);
}
