//! File data survives crashes: appends with fsync, holes, truncation, a full disk (ARCHITECTURE invariants 5 and 6).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use common::have;
use crash::{Workload, at, file, make_image, scratch};
use diorite_block::BlockDevice as _;
use diorite_ext::{Error, FileBlock, SetAttributes};

fn start(workload: &mut Workload, names: &[&str]) {
    for name in names {
        workload
            .step(|volume| volume.names.create(&at(volume, ""), name.as_bytes(), &file()).map(drop))
            .unwrap();
    }
    workload.sync();
}

fn blocks_of(workload: &Workload, path: &str) -> u64 {
    at(&workload.volume, path).attributes().size / workload.volume.block_size().bytes()
}

fn appends_survive(arguments: &str, fua: bool, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let mut workload = Workload::on(make_image(scratch.path(), arguments, "12M"), fua, seed);
    let names = ["log", "wal", "other"];
    start(&mut workload, &names);
    for _ in 0..60 {
        let name = names[workload.random.usize(..names.len())];
        let (end, blocks) = (blocks_of(&workload, name), workload.random.u64(1..20));
        workload.write(name, end, blocks).unwrap();
        if workload.random.bool() {
            workload.fsync(name);
        }
    }
    workload.check_crashes(scratch.path(), seed);
}

#[test]
fn synced_appends_survive_on_ext4() {
    appends_survive("-t ext4 -b 1024 -J size=1", true, 1);
}

#[test]
fn synced_appends_survive_on_ext3_without_fua() {
    appends_survive("-t ext3 -b 1024 -J size=1", false, 2);
}

#[test]
fn synced_appends_survive_in_clusters() {
    appends_survive("-t ext4 -O bigalloc -b 1024 -C 8192 -J size=1", true, 8);
}

#[test]
fn holes_and_cuts_survive_in_clusters() {
    holes_and_cuts_survive("-t ext4 -O bigalloc,orphan_file -b 1024 -C 4096 -J size=1", 9);
}

#[test]
fn long_cuts_survive_in_clusters() {
    long_cuts_survive("-t ext4 -O bigalloc -b 1024 -C 2048 -J size=1", 10);
}

fn holes_and_cuts_survive(arguments: &str, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let mut workload = Workload::on(make_image(scratch.path(), arguments, "12M"), true, seed);
    start(&mut workload, &["sparse", "cut"]);
    let mut used = [false; 600];
    for _ in 0..50 {
        let block = workload.random.u64(..590);
        let blocks = workload.random.u64(1..6);
        let range = block as usize..(block + blocks) as usize;
        if !used[range.clone()].contains(&true) {
            used[range].fill(true);
            workload.write("sparse", block, blocks).unwrap();
        }
        let (from, length) = (workload.random.u64(..590), workload.random.u64(1..20));
        match workload.random.u8(..5) {
            0 => match workload.step(|volume| {
                volume.files.allocate_unwritten(&at(volume, "sparse"), FileBlock(from), length, None)
            }) {
                Ok(()) | Err(Error::Unsupported(_)) => {}
                Err(error) => panic!("{error}"),
            },
            1 => {
                workload
                    .step(|volume| volume.files.punch(&at(volume, "sparse"), FileBlock(from), length))
                    .unwrap();
                used[from as usize..600.min((from + length) as usize)].fill(false);
            }
            _ => {}
        }
        let end = blocks_of(&workload, "cut");
        if end > 30 {
            let size = workload.random.u64(..end) * workload.volume.block_size().bytes();
            workload.step(|volume| volume.files.truncate(&at(volume, "cut"), size)).unwrap();
        } else {
            let blocks = workload.random.u64(1..40);
            workload.write("cut", end, blocks).unwrap();
        }
        match workload.random.u8(..4) {
            0 => workload.fsync("cut"),
            1 => workload.fsync("sparse"),
            _ => {}
        }
    }
    workload.check_crashes(scratch.path(), seed);
}

#[test]
fn holes_and_cuts_survive_on_ext4() {
    holes_and_cuts_survive("-t ext4 -b 1024 -J size=1", 3);
}

#[test]
fn holes_and_cuts_survive_on_ext3() {
    holes_and_cuts_survive("-t ext3 -b 1024 -J size=1", 4);
}

/// Fill the disk, remove, fill again: blocks go from file to file, and none shows what another file had.
#[test]
fn full_disk_survives() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let mut workload =
        Workload::on(make_image(scratch.path(), "-t ext4 -b 1024 -m 0 -J size=1", "3M"), true, 5);
    let mut number = 0;
    for _round in 0..4 {
        loop {
            number += 1;
            let name = format!("f{number}");
            workload
                .step(|volume| volume.names.create(&at(volume, ""), name.as_bytes(), &file()).map(drop))
                .unwrap();
            let blocks = workload.random.u64(20..200);
            match workload.write(&name, 0, blocks) {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
            if number % 4 == 0 {
                workload.fsync(&name);
            }
        }
        let names: Vec<_> = workload.tree().keys().filter(|path| path.starts_with("/f")).cloned().collect();
        for path in names.iter().step_by(2) {
            workload
                .step(|volume| volume.names.unlink(&at(volume, ""), &path.as_bytes()[1..]).map(drop))
                .unwrap();
        }
        if workload.random.bool() {
            workload.sync();
        }
    }
    workload.volume.close().unwrap();
    workload.check_crashes(scratch.path(), 5);
}

/// A fragmented file of many pieces is cut and removed while every handle is a transaction of its own: whatever
/// transaction is the last, recovery finishes the cut.
fn long_cuts_survive(arguments: &str, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let mut workload = Workload::committing_always(make_image(scratch.path(), arguments, "12M"), seed);
    start(&mut workload, &["large", "small"]);
    for piece in 0..14 {
        workload.write("large", piece * 190, 1 + piece % 5).unwrap();
        workload.write("small", piece, 1).unwrap();
    }
    let block = workload.volume.block_size().bytes();
    for size in [2000 * block, 90 * block, 5 * block, 0] {
        workload.step(|volume| volume.files.truncate(&at(volume, "large"), size)).unwrap();
    }
    for piece in 0..14 {
        workload.write("large", piece * 77, 2).unwrap();
    }
    workload.step(|volume| volume.names.unlink(&at(volume, ""), b"large").map(drop)).unwrap();
    workload.fsync("small");
    workload.check_crashes(scratch.path(), seed);
}

#[test]
fn long_cuts_survive_on_ext4() {
    long_cuts_survive("-t ext4 -b 1024 -J size=1", 6);
}

#[test]
fn long_cuts_survive_on_ext3() {
    long_cuts_survive("-t ext3 -b 1024 -J size=1", 7);
}

/// Size and permissions change together: however long the cut takes, no crash shows one without the other.
fn attributes_change_together(arguments: &str, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let mut workload = Workload::committing_always(make_image(scratch.path(), arguments, "12M"), seed);
    start(&mut workload, &["large", "small"]);
    for piece in 0..14 {
        workload.write("large", piece * 190, 1 + piece % 5).unwrap();
        workload.write("small", piece, 1).unwrap();
    }
    let block = workload.volume.block_size().bytes();
    for (size, permissions) in [(2000 * block, 0o4755), (5 * block, 0o640), (9 * block, 0o444), (0, 0o600)] {
        let changes =
            SetAttributes { size: Some(size), permissions: Some(permissions), ..SetAttributes::default() };
        workload.step(|volume| volume.set_attributes(&at(volume, "large"), &changes)).unwrap();
    }
    workload.check_crashes(scratch.path(), seed);
}

#[test]
fn attributes_change_together_on_ext4() {
    attributes_change_together("-t ext4 -b 1024 -J size=1", 11);
}

#[test]
fn attributes_change_together_on_ext3() {
    attributes_change_together("-t ext3 -b 1024 -J size=1", 12);
}

/// An open file without a name is still an orphan after it was cut or punched: it was taken from the list, and a crash left an inode
/// that is in use and has no links.
fn nameless_files_are_cut(arguments: &str, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let mut workload = Workload::committing_always(make_image(scratch.path(), arguments, "12M"), seed);
    start(&mut workload, &["open"]);
    for block in 0..20 {
        workload.write("open", block, 1).unwrap();
    }
    let inode = at(&workload.volume, "open");
    inode.open().unwrap();
    workload.step(|volume| volume.names.unlink(&at(volume, ""), b"open").map(drop)).unwrap();
    let block = workload.volume.block_size().bytes();
    workload.step(|volume| volume.files.punch(&inode, FileBlock(2), 3)).unwrap();
    workload.step(|volume| volume.files.truncate(&inode, 9 * block)).unwrap();
    workload.step(|volume| volume.files.truncate(&inode, 0)).unwrap();
    workload.sync();
    workload.check_crashes(scratch.path(), seed);
}

#[test]
fn nameless_files_are_cut_on_ext4() {
    nameless_files_are_cut("-t ext4 -b 1024 -J size=1", 13);
}

#[test]
fn nameless_files_are_cut_on_ext3() {
    nameless_files_are_cut("-t ext3 -b 1024 -J size=1", 15);
}

/// Trim discards what is free for good: files that a crash brings back are whole.
#[test]
fn trim_leaves_what_a_crash_brings_back() {
    for (arguments, seed) in
        [("-t ext4 -b 1024 -J size=1", 16), ("-t ext4 -O bigalloc -b 1024 -C 4096 -J size=1", 17)]
    {
        if !have(&["mke2fs", "e2fsck"]) {
            return;
        }
        let scratch = scratch();
        let mut workload = Workload::on(make_image(scratch.path(), arguments, "12M"), true, seed);
        let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
        start(&mut workload, &names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names {
            for piece in 0..8 {
                workload.write(name, piece * 4, 4).unwrap();
                workload.fsync(name);
            }
        }
        for (number, name) in names.iter().enumerate() {
            workload.step(|volume| volume.names.unlink(&at(volume, ""), name.as_bytes()).map(drop)).unwrap();
            if number % 4 == 3 {
                workload.fsync("");
            }
            workload.step(|volume| {
                let mut trim = volume.trim(0..u64::MAX, 0).unwrap();
                while volume.trim_step(&mut trim).unwrap() {}
            });
        }
        assert!(workload.recorder.counters().snapshot().discards > 10);
        workload.check_crashes(scratch.path(), seed);
    }
}
