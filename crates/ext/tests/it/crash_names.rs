//! Names survive crashes: create, rename, link and unlink storms, growing directories (ARCHITECTURE invariant 6).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use common::have;
use crash::{Workload, at, directory, file, make_image, scratch};
use diorite_ext::{RenameMode, SetAttributes};

/// Random operations on names in three directories.
fn storm(workload: &mut Workload, operations: usize) {
    for name in ["a", "b", "c"] {
        workload
            .step(|volume| volume.names.create(&at(volume, ""), name.as_bytes(), &directory()).map(drop))
            .unwrap();
    }
    for number in 0..operations {
        let files: Vec<_> = workload.tree().keys().filter(|path| path.contains("/f")).cloned().collect();
        let parent = ["/a", "/b", "/c"][workload.random.usize(..3)];
        let victim = (!files.is_empty()).then(|| files[workload.random.usize(..files.len())].clone());
        match (workload.random.u8(..10), victim) {
            (0..4, _) | (_, None) => {
                let name = format!("f{number}");
                workload
                    .step(|volume| {
                        volume.names.create(&at(volume, parent), name.as_bytes(), &file()).map(drop)
                    })
                    .unwrap();
                if number % 3 == 0 {
                    let blocks = workload.random.u64(1..5);
                    workload.write(&format!("{parent}/{name}"), 0, blocks).unwrap();
                }
                if number % 4 == 0 {
                    let changes = SetAttributes {
                        uid: Some(number as u32 * 99),
                        gid: Some(7),
                        ..SetAttributes::default()
                    };
                    let path = format!("{parent}/{name}");
                    workload.step(|volume| volume.set_attributes(&at(volume, &path), &changes)).unwrap();
                }
            }
            (4..6, Some(victim)) => {
                let (from, name) = victim.rsplit_once('/').unwrap();
                // A file's space is given back in a step of its own, which no tree shows.
                workload
                    .step(|volume| volume.names.unlink(&at(volume, from), name.as_bytes()).map(drop))
                    .unwrap();
            }
            (6..8, Some(victim)) => {
                let (from, name) = victim.rsplit_once('/').unwrap();
                let target = &files[workload.random.usize(..files.len())];
                let new = if workload.random.bool() {
                    target.rsplit_once('/').unwrap().1.to_owned()
                } else {
                    format!("f{number}")
                };
                workload
                    .step(|volume| {
                        let (from, to) = (at(volume, from), at(volume, parent));
                        volume.names.rename(&from, name.as_bytes(), &to, new.as_bytes(), RenameMode::Replace)
                    })
                    .unwrap();
            }
            (_, Some(victim)) => {
                let new = format!("f{number}");
                workload
                    .step(|volume| {
                        volume.names.link(&at(volume, &victim), &at(volume, parent), new.as_bytes())
                    })
                    .unwrap();
            }
        }
        if number % 5 == 0 {
            directories_and_links(workload, number);
        }
        match workload.random.u8(..8) {
            0 => workload.sync(),
            1 => workload.fsync(parent),
            _ => {}
        }
    }
}

/// Directories come, move and go; symbolic links short and long; names change places.
fn directories_and_links(workload: &mut Workload, number: usize) {
    let name = format!("s{number}").into_bytes();
    let target = "target/".repeat(1 + workload.random.usize(..20)).into_bytes();
    workload
        .step(|volume| {
            volume.names.symlink(&at(volume, "a"), &name, &target, diorite_ext::Owner::default()).map(drop)
        })
        .unwrap();
    let name = format!("d{number}").into_bytes();
    workload.step(|volume| volume.names.create(&at(volume, "b"), &name, &directory()).map(drop)).unwrap();
    match workload.random.u8(..3) {
        0 => workload.step(|volume| volume.names.remove_directory(&at(volume, "b"), &name)).unwrap(),
        1 => workload
            .step(|volume| {
                volume
                    .names
                    .rename(&at(volume, "b"), &name, &at(volume, "c"), &name, RenameMode::Replace)
                    .map(drop)
            })
            .unwrap(),
        _ => {
            let link = format!("s{number}").into_bytes();
            workload
                .step(|volume| {
                    volume
                        .names
                        .rename(&at(volume, "a"), &link, &at(volume, "b"), &name, RenameMode::Exchange)
                        .map(drop)
                })
                .unwrap();
        }
    }
}

fn names_survive(arguments: &str, fua: bool, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let image = make_image(scratch.path(), arguments, "12M");
    let mut workload = Workload::on(image, fua, seed);
    storm(&mut workload, 90);
    workload.volume.close().unwrap();
    workload.check_crashes(scratch.path(), seed);
}

#[test]
fn names_survive_on_ext4() {
    names_survive("-t ext4 -b 1024 -J size=1", true, 1);
}

#[test]
fn names_survive_on_ext4_without_checksums_and_fua() {
    names_survive("-t ext4 -b 4096 -O ^metadata_csum,^64bit,^orphan_file -J size=4", false, 2);
}

/// The usage of owners is correct after every crash: e2fsck compares it with its own count.
#[test]
fn names_survive_on_ext4_with_quota() {
    names_survive("-t ext4 -b 1024 -J size=2 -O quota,ea_inode", true, 5);
}

#[test]
fn names_survive_on_ext3() {
    names_survive("-t ext3 -b 1024 -J size=1", true, 3);
}

/// A directory that grows from one block to an index of two levels, and shrinks again.
#[test]
fn growing_directory_survives() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let image = make_image(scratch.path(), "-t ext4 -b 1024 -N 512 -J size=1", "12M");
    let mut workload = Workload::on(image, true, 4);
    workload.step(|volume| volume.names.create(&at(volume, ""), b"d", &directory()).map(drop)).unwrap();
    for number in 0..220 {
        let name = format!("{number:04}{}", "long".repeat(20));
        workload
            .step(|volume| volume.names.create(&at(volume, "d"), name.as_bytes(), &file()).map(drop))
            .unwrap();
        if number % 15 == 0 {
            workload.fsync("d");
        }
    }
    for number in (0..220).step_by(3) {
        let name = format!("{number:04}{}", "long".repeat(20));
        workload.step(|volume| volume.names.unlink(&at(volume, "d"), name.as_bytes()).map(drop)).unwrap();
        if number % 30 == 0 {
            workload.fsync("d");
        }
    }
    workload.check_crashes(scratch.path(), 4);
}

#[test]
fn names_survive_when_every_handle_is_a_transaction() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let image = make_image(scratch.path(), "-t ext4 -b 1024 -J size=1", "12M");
    let mut workload = Workload::committing_always(image, 5);
    storm(&mut workload, 50);
    workload.check_crashes(scratch.path(), 5);
}
