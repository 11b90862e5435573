//! Many threads on one volume: names, data, sync; then e2fsck and a comparison of content.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::sync::Arc;

use common::{Bench, have, pattern, read_file, write_blocks};
use diorite_ext::{
    Error, FileBlock, FileKind, Inode, InodeNumber, NodeSpec, Owner, RenameMode, Result, SetAttributes,
    SyncKind, Volume, XattrMode,
};

const THREADS: u64 = 6;
const ROUNDS: u64 = 60;

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, permissions: 0o755, umask: 0, owner: Owner::default(), device: (0, 0) }
}

/// The work of one thread: every operation in a directory shared by all, and in its own.
fn worker(volume: &Volume, shared: &Arc<Inode>, thread: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let own = volume.names.create(shared, format!("own{thread}").as_bytes(), &spec(FileKind::Directory))?;
    let mut left = Vec::new();
    let mut random = thread + 1;
    for round in 0..ROUNDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = format!("file-{thread}-{round}").into_bytes();
        let file = volume.names.create(shared, &name, &spec(FileKind::Regular))?;
        let blocks = 1 + (random >> 33) % 30;
        let content = pattern(random, (blocks * volume.block_size().bytes()) as usize);
        write_blocks(volume, &file, 0, &content, Some(content.len() as u64))?;
        match (random >> 40) % 6 {
            0 => drop(volume.names.unlink(shared, &name)?),
            1 => {
                // Removed while it is open: it stays readable until it is closed.
                file.open().unwrap();
                volume.names.unlink(shared, &name)?;
                assert!(read_file(volume, &file) == content);
                volume.lifecycle.close(&file)?;
            }
            2 => {
                volume.names.rename(shared, &name, &own, &name, RenameMode::Replace)?;
                left.push(([b"own", thread.to_string().as_bytes(), b"/", &name].concat(), content));
            }
            3 => {
                volume.files.truncate(&file, volume.block_size().bytes())?;
                left.push((name, content[..volume.block_size().bytes() as usize].to_vec()));
            }
            4 => {
                volume.files.punch(&file, FileBlock(0), 1)?;
                let mut content = content;
                content[..volume.block_size().bytes() as usize].fill(0);
                left.push((name, content));
            }
            _ => {
                volume.sync_inode(&file, SyncKind::All)?;
                left.push((name, content));
            }
        }
        if round % 20 == thread {
            volume.sync()?;
        }
    }
    Ok(left)
}

fn storm(arguments: &str) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.image(arguments, "48M");
    let (device, volume) = bench.open(&image);
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let shared = volume.names.create(&root, b"shared", &spec(FileKind::Directory)).unwrap();
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (volume, shared) = (&volume, &shared);
                scope.spawn(move || worker(volume, shared, thread).unwrap())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    volume.close().unwrap();
    bench.check(&device);
    let bytes = device.bytes.read().unwrap().clone();
    let again =
        Volume::open(common::MemoryDevice::new(bytes), diorite_ext::VolumeOptions::default()).unwrap();
    for (path, content) in results {
        let mut inode = again.names.lookup(&again.inodes.get(InodeNumber::ROOT).unwrap(), b"shared").unwrap();
        for name in path.split(|byte| *byte == b'/') {
            inode = again.names.lookup(&inode, name).unwrap();
        }
        assert!(read_file(&again, &inode) == content, "{}", String::from_utf8_lossy(&path));
    }
}

#[test]
fn threads_leave_a_sound_volume() {
    for arguments in ["-t ext2 -b 1024", "-t ext3 -b 1024", "-t ext4 -b 4096", "-t ext4 -b 1024"] {
        storm(arguments);
    }
}

/// Threads that fill the volume and remove what they wrote: every failure is `NoSpace`, and all space comes back.
#[test]
fn full_volume_under_threads_loses_nothing() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext4 -b 1024"] {
        let bench = Bench::new();
        let image = bench.image(arguments, "8M");
        let (device, volume) = bench.open(&image);
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        volume.sync().unwrap();
        let free = volume.space().blocks_free;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (volume, root) = (&volume, &root);
                scope.spawn(move || fill_and_remove(volume, root, thread));
            }
        });
        volume.sync().unwrap();
        // The directory may have grown; nothing else may be missing.
        let missing = free - volume.space().blocks_free;
        assert!(missing < 24, "{missing} blocks are missing ({arguments})");
        volume.close().unwrap();
        bench.check(&device);
    }
}

fn fill_and_remove(volume: &Volume, root: &Arc<Inode>, thread: u64) {
    for round in 0..3 {
        let mut names = Vec::new();
        for number in 0..60u64 {
            let name = format!("{thread}-{round}-{number}").into_bytes();
            let result = volume.names.create(root, &name, &spec(FileKind::Regular)).and_then(|file| {
                names.push(name);
                write_blocks(volume, &file, 0, &pattern(number, 60 << 10), Some(60 << 10))
            });
            match result {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        for name in names {
            volume.names.unlink(root, &name).unwrap();
        }
    }
}

/// A holder of a directory looks at a child; a thread that locks both begins with the lower number, which may be the child's.
#[test]
fn a_directory_older_than_its_parent_blocks_no_thread() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let (device, volume) = bench.open(&bench.image("-t ext4 -b 1024", "8M"));
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let child = volume.names.create(&root, b"child", &spec(FileKind::Directory)).unwrap();
    let parent = volume.names.create(&root, b"parent", &spec(FileKind::Directory)).unwrap();
    assert!(child.number() < parent.number());
    volume.names.rename(&root, b"child", &parent, b"even", RenameMode::Replace).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20_000 {
                volume.names.rename(&parent, b"even", &parent, b"odd", RenameMode::Replace).unwrap();
                volume.names.rename(&parent, b"odd", &parent, b"even", RenameMode::Replace).unwrap();
            }
        });
        for _ in 0..80_000 {
            let result = volume.names.unlink(&parent, b"even");
            assert!(matches!(result, Err(Error::IsADirectory | Error::NotFound)), "{result:?}");
        }
    });
    volume.close().unwrap();
    bench.check(&device);
}

/// A reference from before a removal changes nothing: the number is another's by now.
#[test]
fn an_inode_that_was_freed_takes_no_change_and_shows_nothing_of_its_successor() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let (device, volume) = bench.open(&bench.image("-t ext4 -b 4096", "16M"));
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let old = volume.names.create(&root, b"old", &spec(FileKind::Regular)).unwrap();
    let target = "far/".repeat(40);
    let old_link = volume.names.symlink(&root, b"link", target.as_bytes(), Owner::default()).unwrap();
    let old_directory = volume.names.create(&root, b"directory", &spec(FileKind::Directory)).unwrap();
    volume.names.unlink(&root, b"old").unwrap();
    volume.names.unlink(&root, b"link").unwrap();
    volume.names.remove_directory(&root, b"directory").unwrap();

    let new = volume.names.create(&root, b"new", &spec(FileKind::Regular)).unwrap();
    let new_link = volume.names.create(&root, b"not a link", &spec(FileKind::Regular)).unwrap();
    let new_directory = volume.names.create(&root, b"new directory", &spec(FileKind::Directory)).unwrap();
    assert_eq!(new.number(), old.number(), "the number is used again");
    assert_eq!(new_link.number(), old_link.number());
    volume.names.create(&new_directory, b"inside", &spec(FileKind::Regular)).unwrap();
    let value = pattern(3, 200);
    volume.set_xattr(&new, b"user.note", &value, XattrMode::Set).unwrap();

    let stale = |result: Result<()>| assert!(matches!(result, Err(Error::Stale)), "{result:?}");
    stale(volume.set_xattr(&old, b"user.other", &value, XattrMode::Set));
    stale(volume.remove_xattr(&old, b"user.note"));
    stale(volume.xattrs.get(&old, b"user.note").map(drop));
    stale(volume.xattrs.names(&old).map(drop));
    stale(volume.files.truncate(&old, 0));
    stale(volume.files.punch(&old, FileBlock(0), 1));
    stale(volume.files.make_not_inline(&old));
    stale(volume.files.allocate_unwritten(&old, FileBlock(0), 4, None));
    stale(volume.files.reserve(&old, FileBlock(0), 4).map(drop));
    stale(volume.files.map(&old, FileBlock(0), 4).map(drop));
    stale(volume.set_attributes(&old, &SetAttributes { uid: Some(1), ..SetAttributes::default() }));
    stale(volume.names.read_link(&old_link).map(drop));
    stale(old.open());
    let found = volume.names.lookup(&old_directory, b"inside");
    assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
    let linked = volume.names.link(&old, &root, b"again");
    assert!(matches!(linked, Err(Error::NotFound)), "{linked:?}");

    assert_eq!(volume.xattrs.get(&new, b"user.note").unwrap(), value);
    assert_eq!(volume.names.lookup(&new_directory, b"inside").unwrap().kind(), FileKind::Regular);
    drop((root, old, old_link, old_directory, new, new_link, new_directory));
    volume.close().unwrap();
    bench.check(&device);
}
