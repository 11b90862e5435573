//! Sound volumes are clean.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext_tools::check::{CheckOptions, ProblemKind, check};

use super::image::{Image, Spot, assert_judged_alike, our_check, run};
use crate::common::has_e2fsprogs;

const RECIPES: &[&[&str]] = &[
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext2", "-b", "4096", "-I", "128"],
    &["-t", "ext2", "-O", "^filetype,^dir_index,^resize_inode"],
    &["-t", "ext3", "-b", "2048"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"],
    &["-t", "ext4", "-b", "4096", "-O", "bigalloc,ea_inode,metadata_csum_seed,large_dir"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file,meta_bg,^resize_inode"],
    &["-t", "ext4", "-b", "4096", "-O", "quota,project,sparse_super2"],
    &["-t", "ext4", "-b", "65536"],
    &["-t", "ext4", "-b", "1024", "-O", "casefold,encrypt,verity,fast_commit"],
];

#[test]
fn sound_volumes_of_all_kinds_are_clean() {
    if !has_e2fsprogs() {
        return;
    }
    let mut failures = Vec::new();
    for recipe in RECIPES {
        let Some(image) = Image::new(recipe) else { continue };
        let report = our_check(&image.path());
        if !report.is_clean() {
            let first: Vec<String> = report.problems.iter().take(8).map(ToString::to_string).collect();
            failures.push(format!("{recipe:?}:\n  {}", first.join("\n  ")));
        }
        if report.files < 300 || report.directories < 5 || report.symlinks != 2 {
            failures.push(format!("{recipe:?}: {} files, {} directories", report.files, report.directories));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Each block of a table, a bitmap, a map or a directory was a read of its own: over 100 reads of these volumes.
#[test]
fn blocks_of_a_kind_are_read_together() {
    if !has_e2fsprogs() {
        return;
    }
    for (recipe, reads_max) in [(["-t", "ext4", "-b", "1024"], 50), (["-t", "ext2", "-b", "1024"], 50)] {
        let Some(image) = Image::new(&recipe) else { continue };
        let device: Arc<dyn BlockDevice> =
            FileDevice::open(image.path(), &OpenOptions::read_only().direct(DirectIo::Off)).unwrap();
        assert!(check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
        let done = device.counters().snapshot();
        assert!(done.reads < reads_max, "{recipe:?}: {} reads of {} bytes", done.reads, done.read_bytes);
    }
}

/// `tune2fs -O ^resize_inode` leaves inode 7 with all that it names, and files of a volume with `shared_blocks` have blocks in common:
/// false alarms, hundreds of them.
#[test]
fn former_resize_inodes_and_shared_blocks_are_no_damage() {
    if !has_e2fsprogs() {
        return;
    }
    for recipe in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let Some(image) = Image::new(recipe) else { continue };
        run("tune2fs", &["-O", "^resize_inode"], &image.path());
        assert_judged_alike(&image, "^resize_inode", true);
    }
    let recipe =
        ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum,^resize_inode,shared_blocks"];
    let Some(image) = Image::new(&recipe) else { return };
    let inode = |path| image.offset(Spot::Inode(path));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    // Two files with the map of one; the other's own block is leaked then, and found by both.
    let mut map = [0; 60];
    file.read_exact_at(&mut map, inode("/many/file-with-a-long-name-00001") + 0x28).unwrap();
    file.write_all_at(&map, inode("/many/file-with-a-long-name-00002") + 0x28).unwrap();
    let report = our_check(&image.path());
    assert!(!report.has(ProblemKind::SharedBlock), "{:?}", report.problems);
}
