//! The usage of users, groups and projects is correct at any time, compared with e2fsck, which counts it again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use crate::common;
use std::sync::Arc;

use common::{Bench, MemoryDevice, have, pattern, write_blocks};
use diorite_ext::layout::InodeFlags;
use diorite_ext::{
    Error, FileBlock, FileKind, Inode, NodeSpec, Owner, RenameMode, SetAttributes, Volume, VolumeOptions,
    XattrMode,
};

fn spec(kind: FileKind, uid: u32) -> NodeSpec {
    NodeSpec { kind, permissions: 0o755, umask: 0, owner: Owner { uid, gid: uid / 2 }, device: (0, 0) }
}

fn root(volume: &Volume) -> Arc<Inode> {
    volume.inodes.get(diorite_ext::InodeNumber::ROOT).unwrap()
}

/// A person as the test sees it: numbers near and far.
fn person(random: &mut fastrand::Rng) -> u32 {
    match random.u32(..4) {
        0 => 0,
        1 => random.u32(..60),
        2 => random.u32(..6) * 0x0100_0100,
        _ => u32::MAX - 1 - random.u32(..3),
    }
}

/// One step of random work; errors of full volumes are part of it.
fn step(volume: &Volume, random: &mut fastrand::Rng, files: &mut Vec<(Arc<Inode>, String)>) {
    let directory = root(volume);
    let block = volume.block_size().bytes() as usize;
    let expect = |result: diorite_ext::Result<()>| match result {
        Ok(()) | Err(Error::NoSpace | Error::AttributeTooLarge | Error::Unsupported(_)) => {}
        Err(error) => panic!("{error}"),
    };
    if files.len() < 8 || random.u32(..4) == 0 {
        let name = format!("f{}", random.u64(..));
        let kinds = [FileKind::Regular, FileKind::Regular, FileKind::Directory, FileKind::Fifo];
        let kind = kinds[random.usize(..4)];
        if random.u32(..8) == 0 {
            let target = "t".repeat(random.usize(1..200));
            let owner = Owner { uid: person(random), gid: 3 };
            volume.names.symlink(&directory, name.as_bytes(), target.as_bytes(), owner).unwrap();
            return;
        }
        match volume.names.create(&directory, name.as_bytes(), &spec(kind, person(random))) {
            Ok(inode) => files.push((inode, name)),
            result => expect(result.map(drop)),
        }
        return;
    }
    let index = random.usize(..files.len());
    let (inode, name) = files[index].clone();
    let regular = inode.kind() == FileKind::Regular;
    match random.u32(..9) {
        0 | 1 if regular => {
            let (at, blocks) = (random.u64(..40), random.usize(1..30));
            let size = Some((at + blocks as u64) * block as u64);
            expect(write_blocks(volume, &inode, at, &pattern(at, blocks * block), size));
        }
        2 if regular => {
            expect(volume.files.allocate_unwritten(&inode, FileBlock(random.u64(..90)), 20, None));
        }
        3 if regular => expect(volume.files.truncate(&inode, random.u64(..30) * 700)),
        4 if regular => expect(volume.files.punch(&inode, FileBlock(random.u64(..20)), random.u64(1..20))),
        5 => {
            let mut changes = SetAttributes::default();
            match random.u32(..3) {
                0 => changes.uid = Some(person(random)),
                1 => changes.gid = Some(person(random)),
                _ => changes.project = Some(person(random)),
            }
            expect(volume.set_attributes(&inode, &changes));
        }
        6 if inode.kind() != FileKind::Fifo => {
            let value = pattern(7, random.usize(..3000));
            expect(volume.set_xattr(&inode, b"user.value", &value, XattrMode::Set));
        }
        7 if inode.kind() == FileKind::Directory => {
            for _ in 0..random.u32(..60) {
                let name = format!("long name {:0>80}", random.u64(..));
                volume.names.create(&inode, name.as_bytes(), &spec(FileKind::Fifo, 7)).map(drop).unwrap();
            }
        }
        8 => {
            let gone = match inode.kind() {
                FileKind::Directory => volume.names.remove_directory(&directory, name.as_bytes()).map(drop),
                _ => volume.names.unlink(&directory, name.as_bytes()).map(drop),
            };
            match gone {
                Ok(()) => drop(files.swap_remove(index)),
                Err(Error::NotEmpty) => {}
                Err(error) => panic!("{error}"),
            }
        }
        _ => {}
    }
}

fn reopened(device: Arc<MemoryDevice>) -> Arc<Volume> {
    let volume = Volume::open(device, VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    volume
}

#[test]
fn use_is_counted_on_every_format_through_random_work() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let all = "-E quotatype=usrquota:grpquota:prjquota";
    for (seed, arguments) in [
        "-t ext4 -b 1024 -O quota,project,ea_inode",
        "-t ext4 -b 4096 -O quota,project,inline_data,orphan_file",
        "-t ext4 -b 4096 -O quota,^has_journal",
        "-t ext3 -b 1024 -O quota -I 128",
        "-t ext4 -b 1024 -C 8192 -O bigalloc,quota,project,ea_inode",
        "-t ext2 -b 2048 -O quota,project -I 256",
        "-t ext4 -b 65536 -O quota,project,^resize_inode",
    ]
    .iter()
    .enumerate()
    {
        println!("{arguments}");
        let bench = Bench::new();
        let kinds = if arguments.contains("project") { all } else { "" };
        let is_wasteful = ["65536", "bigalloc"].iter().any(|word| arguments.contains(word));
        let size = if is_wasteful { "128M" } else { "24M" };
        let (device, mut volume) = bench.open(&bench.image(&format!("{arguments} {kinds}"), size));
        assert_eq!(volume.read_only_reason(), None);
        let mut random = fastrand::Rng::with_seed(seed as u64);
        for _ in 0..3 {
            let mut files = Vec::new();
            for _ in 0..250 {
                step(&volume, &mut random, &mut files);
            }
            // One that is removed while open is counted until it is closed.
            let open = files.iter().position(|(inode, _)| inode.kind() == FileKind::Regular);
            if let Some((inode, name)) = open.map(|index| &files[index]) {
                inode.open().unwrap();
                volume.names.unlink(&root(&volume), name.as_bytes()).unwrap();
                volume.sync().unwrap();
                volume.lifecycle.close(inode).unwrap();
            }
            volume.close().unwrap();
            drop(files);
            bench.check(&device);
            volume = reopened(device.clone());
        }
    }
}

#[test]
fn a_person_without_an_entry_gets_one_and_debugfs_shows_what_they_use() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let (device, volume) = bench.open(&bench.image("-t ext4 -b 4096 -O quota", "16M"));
    let inode = volume.names.create(&root(&volume), b"file", &spec(FileKind::Regular, 1234)).unwrap();
    write_blocks(&volume, &inode, 0, &pattern(1, 5 * 4096), Some(5 * 4096)).unwrap();
    volume.close().unwrap();
    let listed = bench.debugfs(&device, "lq user");
    let line = listed.lines().find(|line| line.trim_start().starts_with("1234 ")).unwrap();
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!((columns[1], columns[4]), ("20480", "1"), "{listed}");
    bench.check(&device);
}

#[test]
fn projects_are_inherited_and_keep_others_out() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let kinds = "-E quotatype=usrquota:grpquota:prjquota";
    let (device, volume) = bench.open(&bench.image(&format!("-t ext4 -O quota,project {kinds}"), "16M"));
    let top = root(&volume);
    let project = volume.names.create(&top, b"project", &spec(FileKind::Directory, 0)).unwrap();
    let flags = project.attributes().flags | InodeFlags::PROJECT_INHERIT.bits();
    let changes = SetAttributes { project: Some(42), flags: Some(flags), ..SetAttributes::default() };
    volume.set_attributes(&project, &changes).unwrap();
    let inside = volume.names.create(&project, b"inside", &spec(FileKind::Regular, 5)).unwrap();
    let below = volume.names.create(&project, b"below", &spec(FileKind::Directory, 5)).unwrap();
    let deep = volume.names.create(&below, b"deep", &spec(FileKind::Regular, 5)).unwrap();
    let outside = volume.names.create(&top, b"outside", &spec(FileKind::Regular, 5)).unwrap();
    for (inode, project) in [(&inside, 42), (&below, 42), (&deep, 42), (&outside, 0)] {
        assert_eq!(inode.attributes().project, project);
    }
    // As the kernel: into a project nothing of another comes, out of it everything goes.
    let crossing = |error: Error| assert_eq!(error.errno(), 18, "{error}");
    crossing(volume.names.link(&outside, &project, b"link").unwrap_err());
    crossing(volume.names.rename(&top, b"outside", &project, b"moved", RenameMode::Replace).unwrap_err());
    crossing(volume.names.rename(&top, b"outside", &project, b"inside", RenameMode::Exchange).unwrap_err());
    crossing(volume.names.rename(&project, b"inside", &top, b"outside", RenameMode::Exchange).unwrap_err());
    volume.names.link(&inside, &below, b"second name").unwrap();
    volume.names.rename(&project, b"inside", &top, b"taken out", RenameMode::Replace).unwrap();
    assert_eq!(inside.attributes().project, 42);
    volume.close().unwrap();
    bench.check(&device);
}

#[test]
fn a_volume_whose_quota_files_are_damaged_is_only_read_and_says_why() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let path = bench.image("-t ext4 -O quota", "16M");
    let (device, volume) = bench.open(&path);
    volume.close().unwrap();
    let listed = bench.debugfs(&device, "blocks <3>");
    let first: usize = listed.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    device.bytes.write().unwrap()[first * 1024] ^= 0xff;
    let volume = Volume::open(device, VolumeOptions::default()).unwrap();
    let reason = volume.read_only_reason().unwrap();
    assert!(reason.contains("inode 3") && reason.contains("e2fsck"), "{reason}");
    assert!(volume.names.create(&root(&volume), b"new", &spec(FileKind::Regular, 0)).is_err());
}

/// The check reports the inconsistencies that e2fsck reports, with the same numbers.
#[test]
fn wrong_use_and_missing_entries_are_found_as_by_e2fsck() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for (command, expected) in [
        ("set_inode_field file uid 6", "user 6 uses 8192 bytes and 1 inodes, but has no entry"),
        (
            "set_inode_field file gid 0",
            "group 2 uses 0 bytes and 0 inodes, but the quota file has 8192 and 1",
        ),
    ] {
        let bench = Bench::new();
        let (device, volume) = bench.open(&bench.image("-t ext4 -b 4096 -O quota", "16M"));
        let inode = volume.names.create(&root(&volume), b"file", &spec(FileKind::Regular, 5)).unwrap();
        write_blocks(&volume, &inode, 0, &pattern(1, 8192), Some(8192)).unwrap();
        volume.close().unwrap();
        let path = bench.path("damaged");
        device.save(&path);
        let text = path.to_string_lossy().into_owned();
        let (code, output) = common::run("debugfs", &["-w", "-R", command, &text]);
        assert_eq!(code, 0, "{output}");
        let (code, output) = common::run("e2fsck", &["-fn", &text]);
        assert!(code == 4 && output.contains("QUOTA WARNING"), "{output}");
        #[allow(clippy::disallowed_methods, reason = "the image that debugfs has changed")]
        let damaged = MemoryDevice::new(std::fs::read(&path).unwrap());
        let options = diorite_ext_tools::check::CheckOptions::default();
        let report = diorite_ext_tools::check::check(&*damaged, &options, &mut |_| {}).unwrap();
        let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{problems:#?}");
    }
}
