//! Many threads make, write, rename, link and remove the same names in the same directories, directly and through
//! the cache. At the end every remaining block was written as a whole (ARCHITECTURE invariants 2 and 5), and e2fsck
//! finds no problem.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Random, assert_device_clean, garbage_volume, pattern};
use diorite::{
    AlignedBuf, DirectIo, Error, ErrorKind, Filesystem, FilesystemOptions, Owner, RenameMode, Unaligned,
    XattrMode,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const THREADS: u64 = 8;
const STEPS: u64 = 220;
const DIRECTORIES: u64 = 3;
const NAMES: u64 = 25;
/// The data of one write: its seed, and bytes computed from it.
const UNIT: usize = 4096;

fn unit(seed: u64) -> Vec<u8> {
    let mut bytes = pattern(UNIT, seed);
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

/// Every unit is zero or as it was written, up to where the file was cut.
fn assert_whole(path: &str, bytes: &[u8]) {
    for (index, found) in bytes.chunks(UNIT).enumerate() {
        if found.len() < 8 || found.iter().all(|byte| *byte == 0) {
            continue;
        }
        let seed = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert!(unit(seed)[..found.len()] == *found, "{path}: unit {index} is torn, stale or never written");
    }
}

fn name(random: &mut Random) -> String {
    format!("/d{}/n{}", random.below(DIRECTORIES), random.below(NAMES))
}

fn write(filesystem: &Filesystem, path: &str, random: &mut Random) -> diorite::Result<()> {
    let (direct, unaligned) = match random.below(4) {
        0 => (DirectIo::Off, Unaligned::Error),
        1 => (DirectIo::Required, Unaligned::Bounce),
        _ => (DirectIo::Required, Unaligned::Error),
    };
    let owner = Owner { uid: random.below(5) as u32, gid: random.below(3) as u32 };
    let options = filesystem.open_options().read(true).write(true).create(true).owner(owner);
    let file = options.direct(direct).unaligned(unaligned).open(path)?;
    for _ in 0..=random.below(4) {
        let (at, units) = (random.below(24), 1 + random.below(6) as usize);
        let mut memory = AlignedBuf::zeroed(units * UNIT, 4096);
        memory.chunks_mut(UNIT).for_each(|place| place.copy_from_slice(&unit(random.next() | 1)));
        file.write_all_at(&memory, at * UNIT as u64)?;
        let mut back = AlignedBuf::zeroed(30 * UNIT, 4096);
        let got = file.read_at(&mut back, 0)?;
        assert_whole(path, &back[..got]);
    }
    match random.below(8) {
        0 => file.set_len(random.below(20) * UNIT as u64),
        1 => file.punch_hole(random.below(20) * UNIT as u64, 3 * UNIT as u64),
        2 => file.allocate(random.below(30) * UNIT as u64, 4 * UNIT as u64),
        3 => file.sync_all(),
        _ => Ok(()),
    }
}

fn step(filesystem: &Filesystem, random: &mut Random) -> diorite::Result<()> {
    let path = name(random);
    match random.below(12) {
        0..=4 => write(filesystem, &path, random),
        5 | 6 => filesystem.remove_file(&path),
        7 | 8 => filesystem.rename(&path, name(random)),
        9 => match random.below(3) {
            0 => filesystem.rename_with(&path, name(random), RenameMode::Exchange),
            1 => filesystem.hard_link(&path, name(random)),
            _ => filesystem.symlink("elsewhere/".repeat(1 + random.below(9) as usize), &path),
        },
        10 => match random.below(3) {
            0 => filesystem.create_dir(&path),
            1 => filesystem.remove_dir(&path),
            _ => filesystem.rename(&path, format!("{}/below", name(random))),
        },
        _ => filesystem.set_xattr(&path, b"user.note", &pattern(90, 3), XattrMode::Set),
    }
}

/// Changes that other threads may have made to a name in the meantime.
fn is_of_others(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::DirectoryNotEmpty
            | ErrorKind::InvalidInput // A directory into itself.
            | ErrorKind::FilesystemLoop
            | ErrorKind::PermissionDenied
            | ErrorKind::Busy
    )
}

fn storm(options: &MkfsOptions) {
    let device = garbage_volume(96, options);
    let filesystem = FilesystemOptions::new()
        .cache_bytes(1 << 20)
        .dirty_age(Duration::from_millis(10))
        .open_device(Arc::clone(&device))
        .unwrap();
    assert_eq!(filesystem.read_only_reason(), None);
    (0..DIRECTORIES).for_each(|number| filesystem.create_dir(format!("/d{number}")).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let filesystem = &filesystem;
            scope.spawn(move || {
                let mut random = Random((thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                for _ in 0..STEPS {
                    if let Err(error) = step(filesystem, &mut random)
                        && !is_of_others(&error)
                    {
                        panic!("{error}");
                    }
                }
            });
        }
    });
    filesystem.close().unwrap();
    assert_device_clean(&device);
    let report =
        diorite::check::check(&*device, &diorite::check::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    let filesystem = FilesystemOptions::new().open_device(device).unwrap();
    let mut files = 0;
    for entry in filesystem.walk("/") {
        let entry = entry.unwrap();
        if entry.kind == diorite::FileKind::Regular {
            let mut bytes = vec![0; entry.metadata().unwrap().size as usize];
            filesystem.open_file(&entry.path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            assert_whole(&entry.path.to_string_lossy(), &bytes);
            files += 1;
        }
    }
    assert!(files > 5, "{files} files are left");
}

fn options(flavor: Flavor, block_size: u32, features: &str) -> MkfsOptions {
    let features = features.to_owned();
    MkfsOptions { flavor, block_size: Some(block_size), features, ..MkfsOptions::default() }
}

/// A thread that opens a name, creating it where it is missing, gets a file, whether others remove it meanwhile or put a link there.
#[test]
fn making_what_is_missing_never_fails_for_what_others_do() {
    let device = garbage_volume(32, &MkfsOptions::new(Flavor::Ext4));
    let filesystem = FilesystemOptions::new().open_device(device).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                filesystem.symlink("/target", "/name").ok();
                filesystem.remove_file("/name").ok();
            }
        });
        for _ in 0..20_000 {
            let file = filesystem.open_options().write(true).create(true).open("/name");
            if let Err(error) = file {
                is_done.store(true, Ordering::Relaxed);
                panic!("{error}");
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    filesystem.close().unwrap();
}

#[test]
fn threads_on_ext2() {
    storm(&options(Flavor::Ext2, 1024, ""));
}

#[test]
fn threads_on_ext3() {
    storm(&options(Flavor::Ext3, 4096, ""));
}

#[test]
fn threads_on_ext4() {
    storm(&options(Flavor::Ext4, 4096, "orphan_file"));
}

#[test]
fn threads_on_ext4_with_quota_and_inline_data() {
    storm(&options(Flavor::Ext4, 1024, "quota,inline_data"));
}

/// A name that is replaced again and again is always there: no look-up, no opening and no change of what it names fails, or
/// meets what was removed.
#[test]
fn a_name_that_is_replaced_is_never_missing() {
    let device = garbage_volume(32, &options(Flavor::Ext4, 4096, ""));
    let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).unwrap();
    let far = format!("{}content", "./".repeat(50));
    filesystem.create_file("/content").unwrap().write_all_at(b"content", 0).unwrap();
    let replace = |round: u32| {
        filesystem.create_file("/new").unwrap().write_all_at(b"content", 0).unwrap();
        filesystem.rename("/new", "/file").unwrap();
        filesystem.symlink(if round.is_multiple_of(2) { "content" } else { &far }, "/new").unwrap();
        filesystem.rename("/new", "/link").unwrap();
    };
    replace(0);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    for path in ["/file", "/link"] {
                        let mut bytes = [0; 7];
                        filesystem.open_file(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
                        assert_eq!(&bytes, b"content", "{path}");
                        assert_eq!(filesystem.metadata(path).unwrap().links, 1);
                    }
                    assert!(filesystem.read_link("/link").unwrap().ends_with("content"));
                    filesystem.set_xattr("/file", b"user.note", &[7; 90], XattrMode::Set).unwrap();
                    filesystem.set_permissions("/link", 0o600).unwrap();
                }
            });
        }
        (0..1500).for_each(replace);
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    filesystem.close().unwrap();
    assert_device_clean(&device);
}

/// Writers whose pages in hand fill a tenth of the cache: each waited for ever for the others to give pages back, although most of
/// the cache was clean.
#[test]
fn many_buffered_writers_in_a_small_cache_come_to_an_end() {
    let with = FilesystemOptions::new().cache_bytes(4 << 20);
    let filesystem = common::open_memory(96, &options(Flavor::Ext2, 4096, ""), &with);
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let filesystem = &filesystem;
            scope.spawn(move || {
                let file = filesystem.create_file(format!("/{writer}")).expect("create");
                let (data, mut back) = (vec![writer; 256 << 10], vec![0; 256 << 10]);
                for round in 0..4 {
                    for at in 0..64_u64 {
                        file.write_all_at(&data, at * data.len() as u64).expect("write");
                    }
                    for at in 0..64_u64 {
                        file.read_exact_at(&mut back, at * data.len() as u64).expect("read");
                        assert!(back == data, "round {round}");
                    }
                }
            });
        }
    });
}
