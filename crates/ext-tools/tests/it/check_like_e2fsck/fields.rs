//! Fields of inodes that contradict their kind, or the features of the volume.

use super::image::{Image, Spot, assert_judged_alike, our_check, run};
use crate::common::has_e2fsprogs;

/// Commands of debugfs; e2fsck is asked whether what they change is damage.
const PLAIN: &[&str] = &[
    "feature -flex_bg",
    "feature -large_file",
    "feature -large_file\nsif /a/large size 0x90000000",
    "sif /a/large size 0x90000000",
    "sif /pipe size 5",
    "sif /pipe blocks 8",
    "sif /pipe flags 0x80000",
    "sif /pipe flags 0x10",
    "sif /pipe flags 0x10000000",
    "sif /device size 5",
    "sif /device blocks 8",
    "sif /device flags 0x80000",
    "sif /a/large flags 0x82000",
    "sif /a/b flags 0x82000",
    "sif /a/fast blocks 2",
    "sif /a/fast flags 0x20",
];

const INLINE: &[&str] = &[
    "sif /middle size 70",
    "sif /middle size 0",
    "sif /middle blocks 2",
    "sif /a/small size 3",
    "sif /a/small size 2000",
    "sif /a/small blocks 2",
    "sif /a/small flags 0x10080000",
    "sif /a/b blocks 2",
];

/// For each of the inodes 3, 4 and 8, for `INODE`.
const ROLES: &[&str] = &[
    "sif INODE links_count 1",
    "sif INODE blocks 2",
    "sif INODE block[0] 5",
    "sif INODE block[1] 5",
    "sif INODE mode 0100644",
    "sif INODE mode 040755",
    "sif INODE size 5",
];

/// For each of the reserved inodes 5, 6, 9 and 10.
const RESERVED: &[&str] = &[
    "sif INODE mode 0100644",
    "sif INODE mode 040755",
    "sif INODE mode 010644",
    "sif INODE links_count 1",
    "sif INODE blocks 2",
    "sif INODE block[0] 5",
    "sif INODE block[0] 5\nsif INODE mode 0100644",
];

/// Where e2fsck and the check do not agree.
fn differences(image: &Image, commands: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut failures = Vec::new();
    for commands in commands {
        let copy = image.copy();
        copy.debugfs(&format!("{commands}\n"));
        let (code, output) = run("e2fsck", &["-fn"], &copy.path());
        let report = our_check(&copy.path());
        if (code == Some(0)) != report.is_clean() {
            let ours: Vec<String> = report.problems.iter().take(4).map(ToString::to_string).collect();
            failures.push(format!("{commands:?}: e2fsck {code:?}, ours {ours:?}\n{output}"));
        }
    }
    failures
}

/// Sizes and blocks of special files and of content in inodes were not looked at, nor some flags.
#[test]
fn fields_that_do_not_go_together_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let target = "l".repeat(80);
    let recipes = [
        ("^metadata_csum", "mknod pipe p\nmknod device c 1 3\n".to_owned(), PLAIN),
        ("^metadata_csum,inline_data", format!("symlink /middle {target}\n"), INLINE),
    ];
    for (features, prepare, commands) in recipes {
        let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", features]) else { continue };
        image.debugfs(&prepare);
        let commands = [String::new()].into_iter().chain(commands.iter().map(ToString::to_string));
        let failures = differences(&image, commands);
        assert!(failures.is_empty(), "{features}: {}", failures.join("\n"));
    }
}

/// Reserved inodes with a mode, and what is left of quota files and journals, were clean.
#[test]
fn reserved_inodes_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let each = |inodes: &'static [u32], commands: &'static [&str]| {
        let command =
            |inode: u32| commands.iter().map(move |command| command.replace("INODE", &format!("<{inode}>")));
        inodes.iter().copied().flat_map(command)
    };
    for features in ["^metadata_csum", "^metadata_csum,quota", "^metadata_csum,^has_journal"] {
        let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", features]) else { continue };
        let failures = differences(&image, each(&[3, 4, 8], ROLES));
        assert!(failures.is_empty(), "{features}: {}", failures.join("\n"));
        if features == "^metadata_csum" {
            let failures = differences(&image, each(&[5, 6, 9, 10], RESERVED));
            assert!(failures.is_empty(), "{}", failures.join("\n"));
        }
    }
}

/// The sectors of a resize inode were not compared with its blocks on volumes with clusters.
#[test]
fn sectors_of_a_resize_inode_with_clusters_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) =
        Image::new(&["-t", "ext4", "-b", "1024", "-O", "bigalloc,^metadata_csum", "-C", "16384"])
    else {
        return;
    };
    let commands = ["", "sif <7> blocks 0", "sif <7> blocks 64", "sif <7> blocks 1026"].map(str::to_owned);
    let failures = differences(&image, commands);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A translator of the Hurd is a block of its inode, and the fields of the Hurd are not those of Linux.
#[test]
fn inodes_of_the_hurd_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) = Image::new(&["-t", "ext2", "-b", "1024", "-o", "hurd"]) else { return };
    let free = image.ask("ffb").split_whitespace().last().unwrap().parse::<u64>().unwrap();
    let sectors = image.ask("stat /a/small");
    let sectors: u64 =
        sectors.split("Blockcount:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    image.debugfs(&format!("sif /a/small translator {free}\nsif /a/small blocks {}\n", sectors + 2));
    run("e2fsck", &["-fy"], &image.path());
    assert_judged_alike(&image, "a translator", true);
    let commands = [
        format!("sif /a/small blocks {sectors}"),
        "sif /a/small translator 0".to_owned(),
        "sif /a/small translator 999999".to_owned(),
        "sif /a/small frag 1".to_owned(),
        "sif /a/b translator 5".to_owned(),
    ];
    let failures = differences(&image, commands);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A short target in a block was clean: the kernel reads it, and e2fsck removes it.
#[test]
fn short_targets_in_blocks_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    for recipe in [["-t", "ext2", "-b", "1024"], ["-t", "ext4", "-b", "1024"]] {
        let Some(image) = Image::new(&recipe) else { continue };
        let copy = image.copy();
        copy.put(Spot::Data("/a/slow", 0), 40, &[0]);
        copy.debugfs("sif /a/slow size 40");
        assert_judged_alike(&copy, &format!("{recipe:?}"), false);
    }
}
