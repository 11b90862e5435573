//! Damaged directories cause errors with coordinates, and no other harm.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use crate::names_support;
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;

use diorite_ext::{Access, Corrupt, Error, FileKind, Inode, RenameMode, Volume};
use names_support::{Image, at, have, root, run, spec};

/// Offsets in the image of the blocks of a directory.
fn blocks_of(image: &Image, path: &str, block: u64) -> Vec<u64> {
    let (_, text) = run("debugfs", &["-R", &format!("blocks {path}"), image.path().to_str().unwrap()]);
    let numbers = text.lines().filter(|line| !line.starts_with("debugfs"));
    numbers
        .flat_map(|line| {
            line.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).map(move |n| n * block)
        })
        .collect()
}

/// Look at everything that can be reached; bounded, as the volume may show loops.
fn walk(volume: &Volume) -> (u32, u32) {
    let (mut good, mut bad) = (0, 0);
    let mut queue = VecDeque::from([root(volume)]);
    while let Some(directory) = queue.pop_front() {
        let mut names = Vec::new();
        let mut n = 0;
        let listed = volume.names.read_directory(&directory, 0, &mut |entry| {
            n += 1;
            names.push(entry.name.clone());
            n < 20_000
        });
        assert!(n < 20_000, "a listing without end");
        bad += u32::from(listed.is_err());
        for name in names {
            match volume.names.lookup(&directory, &name) {
                Ok(inode) => {
                    good += 1;
                    let _ = volume.names.read_link(&inode);
                    let _ = volume.xattrs.names(&inode);
                    if inode.kind() == FileKind::Directory && name != b"." && name != b".." && good < 20_000 {
                        queue.push_back(inode);
                    }
                }
                Err(_) => bad += 1,
            }
        }
        if queue.len() > 1000 {
            break;
        }
    }
    (good, bad)
}

fn change(volume: &Volume, directory: &std::sync::Arc<Inode>, n: u64) {
    let top = std::sync::Arc::new(root(volume));
    let name = format!("file-with-a-name-{}", n % 200).into_bytes();
    let _ = volume.names.create(directory, format!("new{n}").as_bytes(), &spec(FileKind::Regular));
    let _ = volume.names.create(directory, format!("newdir{n}").as_bytes(), &spec(FileKind::Directory));
    let _ = volume.names.rename(directory, &name, &top, b"moved", RenameMode::Replace);
    let _ = volume.names.unlink(directory, &name);
    let _ = volume.names.remove_directory(directory, format!("newdir{n}").as_bytes());
}

fn flips(arguments: &str, rounds: u64) {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::new(arguments, "8M");
    {
        let volume = image.open();
        let directory = volume.names.create(&root(&volume), b"d", &spec(FileKind::Directory)).unwrap();
        for n in 0..200 {
            volume
                .names
                .create(&directory, format!("file-with-a-name-{n}").as_bytes(), &spec(FileKind::Regular))
                .unwrap();
        }
        volume.names.create(&directory, b"inner", &spec(FileKind::Directory)).unwrap();
        volume.close().unwrap();
    }
    let sound = std::fs::read(image.path()).unwrap();
    let blocks = blocks_of(&image, "d", 1024);
    assert!(blocks.len() > 3);
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    let mut bad_total = 0;
    for round in 0..rounds {
        let mut random = fastrand::Rng::with_seed(round);
        let mut restore = Vec::new();
        for _ in 0..random.u32(1..6) {
            let range = if random.bool() { 48 } else { 1024 };
            let place = blocks[random.usize(..blocks.len())] + random.u64(..range);
            let byte = sound[place as usize] ^ (1 << random.u32(..8));
            file.write_all_at(&[byte], place).unwrap();
            restore.push(place);
        }
        {
            let volume = image.open_with(Access::ReadOnly);
            bad_total += walk(&volume).1;
            volume.close().unwrap();
        }
        if round % 4 == 0 {
            let volume = image.open();
            if let Ok(directory) = at(&volume, "d") {
                (0..20).for_each(|n| change(&volume, &directory, n));
            }
            walk(&volume);
            let _ = volume.close();
            drop(volume);
            std::fs::write(image.path(), &sound).unwrap();
        }
        for place in restore {
            file.write_all_at(&sound[place as usize..=place as usize], place).unwrap();
        }
    }
    assert!(bad_total > 0, "{arguments}: no flip was noticed");
}

#[test]
fn flipped_bits_in_a_line() {
    flips("-t ext2 -b 1024 -O ^dir_index", 120);
}

#[test]
fn flipped_bits_under_an_index() {
    flips("-t ext2 -b 1024 -O dir_index", 120);
    flips("-t ext4 -b 1024 -O ^has_journal,^metadata_csum", 40);
}

#[test]
fn flipped_bits_under_checksums() {
    flips("-t ext4 -b 1024 -O ^has_journal,metadata_csum", 60);
}

#[test]
fn bad_record_is_reported_with_its_place() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024 -O ^dir_index", "8M");
    {
        let volume = image.open();
        let directory = volume.names.create(&root(&volume), b"d", &spec(FileKind::Directory)).unwrap();
        volume.names.create(&directory, b"file", &spec(FileKind::Regular)).unwrap();
        volume.close().unwrap();
    }
    let block = blocks_of(&image, "d", 1024)[0];
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(&7_u16.to_le_bytes(), block + 24 + 4).unwrap();
    let volume = image.open();
    let directory = at(&volume, "d").unwrap();
    let error = volume.names.lookup(&directory, b"file").unwrap_err();
    let Error::Corrupt(Corrupt::Directory { inode, block: 0, offset: 24, .. }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*inode, directory.number());
    assert!(volume.names.create(&directory, b"new", &spec(FileKind::Regular)).is_err());
    // Nothing was written, and the volume is still of use.
    volume.names.create(&root(&volume), b"elsewhere", &spec(FileKind::Regular)).unwrap();
    volume.close().unwrap();
}

/// Directories that contain each other must not make two threads wait for each other.
#[test]
fn directories_in_a_circle_block_no_thread() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024", "8M");
    for command in ["mkdir a", "mkdir a/b", "link a a/b/a", "link a a/self"] {
        image.debugfs(command);
    }
    let volume = image.open();
    let (a, b) = (at(&volume, "a").unwrap(), at(&volume, "a/b").unwrap());
    assert!(matches!(volume.names.unlink(&a, b"self"), Err(Error::Corrupt(_))));
    let workers: Vec<_> = [(a.clone(), b"b", b.clone()), (b, b"a", a)]
        .into_iter()
        .map(|(directory, name, other)| {
            let volume = volume.clone();
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let _ = volume.names.remove_directory(&directory, name);
                    let _ = volume.names.rename(&directory, name, &other, b"x", RenameMode::Replace);
                    let _ = volume.names.rename(&other, b"x", &directory, name, RenameMode::Replace);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let _ = volume.close();
}

/// A directory without `..` stays where it is: its rename once added the new name and kept the old one.
#[test]
fn directory_without_its_parent_is_not_moved() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024 -O ^dir_index", "8M");
    image.debugfs("mkdir a");
    image.debugfs("mkdir a/d");
    let block = blocks_of(&image, "a/d", 1024)[0];
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(b".x", block + 12 + 8).unwrap();
    let volume = image.open();
    let (a, top) = (at(&volume, "a").unwrap(), root(&volume));
    let other = volume.names.create(&top, b"other", &spec(FileKind::Regular)).unwrap();
    for (name, mode) in [(&b"d"[..], RenameMode::Replace), (b"other", RenameMode::Exchange)] {
        let error = volume.names.rename(&a, b"d", &top, name, mode).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
    assert!(matches!(at(&volume, "d"), Err(Error::NotFound)));
    assert_eq!(at(&volume, "other").unwrap().number(), other.number());
    at(&volume, "a/d").unwrap();
    volume.close().unwrap();
}

/// A directory has no more blocks than the volume: what is done for each of them would have no bound.
#[test]
fn directory_larger_than_the_volume_is_damaged() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    for arguments in ["-t ext4 -b 1024 -O large_dir,^metadata_csum", "-t ext2 -b 1024"] {
        let image = Image::new(arguments, "8M");
        image.debugfs("mkdir d");
        // Without `large_dir` the size has 32 bits.
        let most = if arguments.contains("large_dir") { 1 << 28 } else { (1 << 21) - 1 };
        for (blocks, is_sound) in [(1_u64, true), (8192, true), (8193, false), (most, false)] {
            image.debugfs(&format!("set_inode_field d size {}", blocks * 1024));
            let volume = image.open_with(Access::ReadOnly);
            match at(&volume, "d") {
                Ok(_) => assert!(is_sound, "{arguments}: {blocks} blocks"),
                Err(Error::Corrupt(Corrupt::Inode { .. })) => {
                    assert!(!is_sound, "{arguments}: {blocks} blocks");
                }
                Err(error) => panic!("{arguments}: {blocks} blocks: {error}"),
            }
        }
    }
}

/// One bad name hid all others: of a listing, and of every lookup.
#[test]
fn bad_names_hide_no_others() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024 -O ^dir_index", "-t ext2 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum"]
    {
        // In one block, and in several.
        for count in [8_u32, 200] {
            let image = Image::new(arguments, "8M");
            let name = |n: u32| format!("file-{n:04}").into_bytes();
            {
                let volume = image.open();
                let directory =
                    volume.names.create(&root(&volume), b"d", &spec(FileKind::Directory)).unwrap();
                (0..count).for_each(|n| {
                    volume.names.create(&directory, &name(n), &spec(FileKind::Regular)).unwrap();
                });
                volume.close().unwrap();
            }
            let mut bytes = std::fs::read(image.path()).unwrap();
            // Old copies in the journal, too.
            let places = |bytes: &[u8], name: &[u8]| -> Vec<usize> {
                bytes
                    .windows(name.len())
                    .enumerate()
                    .filter(|(_, found)| *found == name)
                    .map(|(at, _)| at)
                    .collect()
            };
            for at in places(&bytes, &name(3)) {
                bytes[at + 1] = b'/';
            }
            for at in places(&bytes, &name(5)) {
                bytes[at - 8..at - 4].copy_from_slice(&u32::MAX.to_le_bytes());
            }
            std::fs::write(image.path(), &bytes).unwrap();
            let what = format!("{arguments}, {count} names");
            let volume = image.open();
            let directory = at(&volume, "d").unwrap();
            let mut listed = std::collections::BTreeSet::new();
            let mut cursor = 0;
            // In parts, as a mount lists; the error comes after the last entry.
            let error = loop {
                let mut taken = 0;
                let read = volume.names.read_directory(&directory, cursor, &mut |entry| {
                    taken += 1;
                    cursor = entry.next_cursor;
                    listed.insert(entry.name.clone());
                    taken < 3
                });
                match read {
                    Ok(()) => assert!(taken == 3, "{what}: no error at the end"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Corrupt(Corrupt::Directory { .. })), "{what}: {error}");
            let good: Vec<_> = (0..count).filter(|n| ![3, 5].contains(n)).map(name).collect();
            assert_eq!(listed.len(), good.len() + 2, "{what}: with the dots");
            for name in &good {
                assert!(listed.contains(name), "{what}");
                volume.names.lookup(&directory, name).unwrap();
            }
            // It may be the damaged one.
            let absent = volume.names.lookup(&directory, &name(5));
            assert!(matches!(absent, Err(Error::Corrupt(_) | Error::NotFound)), "{what}");
            volume.close().unwrap();
        }
    }
}
