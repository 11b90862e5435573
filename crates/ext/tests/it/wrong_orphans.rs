//! An inode that is recorded as an orphan and cannot be one is skipped and reported. It kept the whole volume from being opened.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use crate::crash;
use std::path::{Path, PathBuf};

use common::{have, pattern, run, shell, write_blocks};
use crash::{at, file, load, make_image, save, scratch};
use diorite_ext::{FileKind, NodeSpec, Volume, VolumeOptions};
use diorite_ext_format::{FsBlock, orphan, put};
use diorite_ext_tools::check::{CheckOptions, check_replayed};
use diorite_sim::image::{ImageDevice, SparseImage};

/// Files that are made orphans, `f0` and so on.
const FILES: usize = 4;

/// An image with files of some blocks and a directory `d`, and the numbers of the files' inodes.
fn image(directory: &Path, arguments: &str) -> (PathBuf, Vec<u32>) {
    let source = directory.join("source");
    std::fs::create_dir_all(source.join("d")).unwrap();
    for number in 0..FILES {
        std::fs::write(source.join(format!("f{number}")), pattern(3, 5000)).unwrap();
    }
    let script = format!("mke2fs -q -F -b 1024 -t ext4 {arguments} -d source image 16M");
    shell(directory, &script);
    let path = directory.join("image");
    let numbers = (0..FILES).map(|number| common::inode_of(&path, &format!("/f{number}")).0).collect();
    (path, numbers)
}

fn debugfs(path: &Path, commands: &str) {
    let script = path.with_file_name("commands");
    std::fs::write(&script, commands).unwrap();
    let (code, text) = run("debugfs", &["-w", "-f", script.to_str().unwrap(), path.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
}

/// The files lose their names and are a list of orphans, whose last one leads to `next`.
fn make_list(path: &Path, numbers: &[u32], next: u32) {
    let following = numbers.iter().skip(1).copied().chain([next]);
    let first = numbers.first().copied().unwrap_or(next);
    let make_one = |(index, (number, next))| {
        format!("unlink /f{index}\nsif <{number}> links_count 0\nsif <{number}> dtime {next}\n")
    };
    let orphans: Vec<String> = numbers.iter().zip(following).enumerate().map(make_one).collect();
    let commands = format!("ssv last_orphan {first}\n{}", orphans.concat());
    debugfs(path, &commands);
}

/// Open it, which says what is wrong; use it, close it. What it is then.
fn opens_and_says(image: SparseImage, what: &str) -> SparseImage {
    let device = ImageDevice::new(image);
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    assert!(volume.defects().iter().any(|defect| defect.contains(what)), "{what}: {:?}", volume.defects());
    volume.names.create(&at(&volume, ""), b"new", &file()).unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    volume.close().unwrap();
    device.image()
}

/// e2fsck finds nothing, but that the volume says that it has errors.
fn is_sound_but_for_its_state(image: &SparseImage, directory: &Path) {
    let path = directory.join("checked");
    save(image, &path);
    let path = path.to_str().unwrap();
    let (_, header) = run("dumpe2fs", &["-h", path]);
    assert!(header.contains("clean with errors"), "{header}");
    let (code, text) = run("e2fsck", &["-fn", path]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn list_that_leads_to_what_is_no_orphan_is_followed_up_to_it() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in ["-O ^orphan_file", "-O ^metadata_csum,^orphan_file,^extent,^64bit"] {
        let scratch = scratch();
        let (path, numbers) = image(scratch.path(), arguments);
        let directory = common::inode_of(&path, "/d").0;
        let sound = load(&path);
        let wrong = [
            (1_000_000, "its number is not that of a file"),
            (7, "its number is not that of a file"),
            (900, "it is a free inode"),
            (directory, "it has a name and is not a regular file"),
            (numbers[1], "the orphan list has a loop"),
        ];
        for (next, what) in wrong {
            for before in [FILES, 0] {
                if before == 0 && next == numbers[1] {
                    continue;
                }
                save(&sound, &path);
                make_list(&path, &numbers[..before], next);
                let says = format!("inode {next} is recorded as an orphan, which it cannot be: {what}");
                let after = opens_and_says(load(&path), &says);
                is_sound_but_for_its_state(&after, scratch.path());
            }
        }
    }
}

/// The others are freed; a damaged one stays on the list, where e2fsck finds it.
#[test]
fn damaged_orphan_is_skipped() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = scratch();
    let (path, numbers) = image(scratch.path(), "-O ^orphan_file");
    make_list(&path, &numbers, 0);
    debugfs(
        &path,
        &format!("sif <{}> block[4] 0xffff\nsif <{}> block[5] 0xffffff\n", numbers[1], numbers[1]),
    );
    let after = opens_and_says(load(&path), &format!("inode {}, which is an orphan, is damaged", numbers[1]));
    save(&after, &path);
    let text = |command: &str| run("debugfs", &["-R", command, path.to_str().unwrap()]).1;
    // The first one is the file that was made since.
    for (index, number) in numbers.iter().enumerate().skip(1) {
        let said = text(&format!("testi <{number}>"));
        assert_eq!(said.contains("not in use"), index != 1, "inode {number}: {said}");
    }
    assert!(text("show_super_stats -h").contains(&format!("First orphan inode:       {}", numbers[1])));
    let (code, output) = run("e2fsck", &["-fy", path.to_str().unwrap()]);
    assert!(code <= 1, "{output}");
}

#[test]
fn orphan_file_with_what_is_no_orphan_is_cleared_of_it() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = scratch();
    let (path, numbers) = image(scratch.path(), "-O orphan_file,^metadata_csum");
    let (_, header) = run("dumpe2fs", &["-h", path.to_str().unwrap()]);
    if !header.contains("orphan_file") {
        println!("SKIPPED: mke2fs does not know orphan files");
        return;
    }
    let inode = header.split("Orphan file inode:").nth(1).unwrap().split_whitespace().next().unwrap();
    let (_, blocks) = run("debugfs", &["-R", &format!("blocks <{inode}>"), path.to_str().unwrap()]);
    let mut blocks = blocks.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (first, second) = (blocks.next().unwrap(), blocks.next().unwrap());
    make_list(&path, &numbers, 0);
    debugfs(&path, "ssv last_orphan 0\nfeature orphan_present\n");
    let mut image = load(&path);
    let mut block = [0; 1024];
    let listed = [numbers[0], 7, numbers[1], 900, numbers[1], u32::MAX, numbers[2], numbers[3]];
    listed.iter().enumerate().for_each(|(slot, number)| put(&mut block, slot * 8, &number.to_le_bytes()));
    orphan::write_tail(&mut block, FsBlock(first), None);
    image.write(first * 1024, &block);
    let after = opens_and_says(image.clone(), "inode 900 is recorded as an orphan, which it cannot be");
    is_sound_but_for_its_state(&after, scratch.path());
    // A block of it that is no such block.
    image.write(second * 1024, &[0xee; 1024]);
    let after = opens_and_says(image, "block 1 of the orphan file is damaged");
    let mut left = [0; 1024];
    after.read(second * 1024, &mut left);
    assert!(left == [0xee; 1024], "it is left for e2fsck");
}

/// Orphans past block 512 of the orphan file were not seen, and the volume was closed as if it had none.
#[test]
fn orphan_file_of_many_blocks_is_read_whole() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = scratch();
    let (path, numbers) = image(scratch.path(), "-O orphan_file,^metadata_csum -E orphan_file_size=1M");
    let text = |command: &str| run("debugfs", &["-R", command, path.to_str().unwrap()]).1;
    let header = text("show_super_stats -h");
    let Some(inode) = header.split("Orphan file inode:").nth(1) else {
        println!("SKIPPED: mke2fs does not know orphan files");
        return;
    };
    let inode = inode.split_whitespace().next().unwrap();
    let blocks: Vec<u64> =
        text(&format!("blocks <{inode}>")).split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(blocks.len() > 1000, "{} blocks", blocks.len());
    make_list(&path, &numbers, 0);
    debugfs(&path, "ssv last_orphan 0\nfeature orphan_present\n");
    let mut image = load(&path);
    for (orphan, at) in numbers.iter().zip([0, 511, 512, 1000]) {
        let mut block = [0; 1024];
        put(&mut block, 0, &orphan.to_le_bytes());
        orphan::write_tail(&mut block, FsBlock(blocks[at]), None);
        image.write(blocks[at] * 1024, &block);
    }
    let device = ImageDevice::new(image);
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    assert!(volume.defects().is_empty(), "{:?}", volume.defects());
    volume.close().unwrap();
    save(&device.image(), &path);
    let (code, output) = run("e2fsck", &["-fn", path.to_str().unwrap()]);
    assert_eq!(code, 0, "{output}");
}

/// Files and directories that were removed while open are not damage after a crash.
#[test]
fn what_was_open_when_it_was_removed_is_no_damage() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext4 -b 1024 -O ^orphan_file", "-t ext4 -b 1024 -O orphan_file", "-t ext3 -b 1024"]
    {
        let scratch = scratch();
        let device = ImageDevice::new(make_image(scratch.path(), arguments, "16M"));
        let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
        let root = at(&volume, "");
        let directory = NodeSpec { kind: FileKind::Directory, ..file() };
        let directory = volume.names.create(&root, b"d", &directory).unwrap();
        let open = volume.names.create(&root, b"f", &file()).unwrap();
        write_blocks(&volume, &open, 0, &pattern(1, 9 << 10), Some(9 << 10)).unwrap();
        directory.open().unwrap();
        open.open().unwrap();
        volume.names.remove_directory(&root, b"d").unwrap();
        volume.names.unlink(&root, b"f").unwrap();
        volume.sync().unwrap();
        let image: std::sync::Arc<dyn diorite_block::BlockDevice> = ImageDevice::new(device.image());
        let report = check_replayed(&image, &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{arguments}: {:?}", report.problems);
        assert!(report.notes.iter().any(|note| note.starts_with("2 orphans:")), "{:?}", report.notes);
        volume.lifecycle.close(&directory).unwrap();
        volume.lifecycle.close(&open).unwrap();
        volume.close().unwrap();
    }
}

/// An orphan whose triple indirect block leads to itself, and so to one block over and over: opening ends, and soon.
#[test]
fn orphan_that_maps_one_block_over_and_over_ends() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = scratch();
    let (path, numbers) =
        image(scratch.path(), "-O ^metadata_csum,^orphan_file,^extent,^64bit,^resize_inode");
    make_list(&path, &numbers[..1], 0);
    let block = 9000_u32;
    debugfs(&path, &format!("sif <{}> block[TIND] {block}\nsetb {block}\n", numbers[0]));
    let mut hostile = load(&path);
    hostile.write(u64::from(block) * 1024, &block.to_le_bytes().repeat(256));
    let started = std::time::Instant::now();
    let device = ImageDevice::new(hostile);
    let volume = Volume::open(device, VolumeOptions::default()).unwrap();
    assert!(volume.defects().iter().any(|defect| defect.contains("is damaged")), "{:?}", volume.defects());
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}
