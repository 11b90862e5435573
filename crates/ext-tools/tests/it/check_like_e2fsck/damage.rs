//! Damage made by debugfs and by hand, and the class of problem that the check reports.

use diorite_ext_tools::check::ProblemKind;

use super::image::{Image, Spot, our_check, run};
use crate::common::has_e2fsprogs;

/// Damage by debugfs command, and a class of problem that must be reported.
const DAMAGE: &[(&str, ProblemKind)] = &[
    ("clri /a/b/empty", ProblemKind::Directory),
    ("clri /a/b", ProblemKind::Directory),
    ("clri <2>", ProblemKind::Connectivity),
    ("set_inode_field /a/small links_count 7", ProblemKind::LinkCount),
    ("set_inode_field /a/small mode 0", ProblemKind::Inode),
    ("set_inode_field /a/small dtime 1600000000", ProblemKind::Inode),
    ("set_inode_field /a/large blocks 2", ProblemKind::Inode),
    ("set_inode_field /a/large size 1", ProblemKind::Inode),
    ("set_inode_field /a/large file_acl 7", ProblemKind::SharedBlock),
    ("set_inode_field /many size 1024000", ProblemKind::Inode),
    ("set_inode_field /a/fast size 3", ProblemKind::Inode),
    ("set_inode_field /a/fast size 6", ProblemKind::Inode),
    ("unlink /a/large", ProblemKind::Connectivity),
    ("unlink /a/b", ProblemKind::Connectivity),
    ("link /a /a/b/c/loop", ProblemKind::Directory),
    ("link /a/small /a/b/third", ProblemKind::LinkCount),
    ("freei /a/small", ProblemKind::InodeBitmap),
    ("seti <2000>", ProblemKind::InodeBitmap),
    ("setb 3000 4", ProblemKind::BlockBitmap),
    ("freeb 40", ProblemKind::BlockBitmap),
    ("set_bg 0 free_blocks_count 17", ProblemKind::Count),
    ("set_bg 0 free_inodes_count 17", ProblemKind::Count),
    ("set_bg 0 used_dirs_count 1", ProblemKind::Count),
    ("set_bg 0 inode_table 999999", ProblemKind::GroupDescriptor),
    ("set_bg 0 block_bitmap 3", ProblemKind::GroupDescriptor),
];

#[test]
fn damage_that_e2fsck_finds_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let mut failures = Vec::new();
    let recipes: [&[&str]; 3] =
        [&["-t", "ext2", "-b", "1024"], &["-t", "ext3", "-b", "1024"], &["-t", "ext4", "-b", "1024"]];
    for recipe in recipes {
        let Some(image) = Image::new(recipe) else { continue };
        for (command, kind) in DAMAGE {
            let copy = image.copy();
            copy.debugfs(command);
            let (code, output) = run("e2fsck", &["-fn"], &copy.path());
            let report = our_check(&copy.path());
            if (code == Some(0)) != report.is_clean() {
                let ours: Vec<String> = report.problems.iter().take(4).map(ToString::to_string).collect();
                failures.push(format!("{recipe:?} {command}: e2fsck {code:?}, ours {ours:?}\n{output}"));
            } else if code != Some(0) && !report.has(*kind) {
                let ours: Vec<String> = report.problems.iter().take(6).map(ToString::to_string).collect();
                failures.push(format!("{recipe:?} {command}: no {kind:?} in {ours:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A change, its place, and the class of problem that must be reported, on a volume without checksums.
const BY_HAND: &[(&str, Spot, u64, &[u8], ProblemKind)] = &[
    ("magic of an extent block", Spot::ExtentNode("/a/sparse"), 0, &[0], ProblemKind::Mapping),
    ("more extents than fit", Spot::ExtentNode("/a/sparse"), 2, &[255], ProblemKind::Mapping),
    ("order of extents", Spot::ExtentNode("/a/sparse"), 36, &[0, 0], ProblemKind::Mapping),
    (
        "an extent past the end of the volume",
        Spot::ExtentNode("/a/sparse"),
        12 + 8,
        &[255; 3],
        ProblemKind::Mapping,
    ),
    (
        "an extent in the inode table",
        Spot::ExtentNode("/a/sparse"),
        12 + 8,
        &[90, 0, 0, 0],
        ProblemKind::SharedBlock,
    ),
    ("an extent of no blocks", Spot::ExtentNode("/a/sparse"), 12 + 4, &[0, 0], ProblemKind::Mapping),
    ("magic of the extents in an inode", Spot::Inode("/a/sparse"), 0x28, &[0], ProblemKind::Mapping),
    ("depth of the extents in an inode", Spot::Inode("/a/sparse"), 0x2e, &[3], ProblemKind::Mapping),
    ("extents in a link", Spot::Inode("/a/fast"), 0x22, &[8], ProblemKind::Mapping),
    ("the inode of '.'", Spot::Data("/a/b", 0), 0, &[99], ProblemKind::Directory),
    ("the inode of '..'", Spot::Data("/a/b", 0), 12, &[2, 0], ProblemKind::Connectivity),
    ("the name of '..'", Spot::Data("/a/b", 0), 12 + 8, b"xx", ProblemKind::Directory),
    ("the length of an entry", Spot::Data("/a/b", 0), 4, &[0, 0], ProblemKind::Directory),
    ("an entry past the end of the block", Spot::Data("/a/b", 0), 12 + 5, &[8], ProblemKind::Directory),
    ("the length of a name", Spot::Data("/a/b", 0), 24 + 6, &[250], ProblemKind::Directory),
    ("the kind of an entry", Spot::Data("/a/b", 0), 24 + 7, &[5], ProblemKind::Directory),
    ("a slash in a name", Spot::Data("/a/b", 0), 24 + 8, b"/", ProblemKind::Directory),
    ("an inode that is not there", Spot::Data("/a/b", 0), 24 + 2, &[255], ProblemKind::Directory),
    ("a reserved inode", Spot::Data("/a/b", 0), 24, &[7, 0, 0, 0], ProblemKind::Directory),
    // Not enough after it for another entry.
    ("the length of the last entry", Spot::Data("/a/b/c", 0), 12 + 4, &[0xec, 3], ProblemKind::Directory),
    ("the hash of an index", Spot::Data("/many", 0), 28, &[9], ProblemKind::Directory),
    ("the length of the index's head", Spot::Data("/many", 0), 29, &[4], ProblemKind::Directory),
    ("flags of an index", Spot::Data("/many", 0), 31, &[1], ProblemKind::Directory),
    ("the levels of an index", Spot::Data("/many", 0), 30, &[3], ProblemKind::Directory),
    ("the capacity of an index", Spot::Data("/many", 0), 32, &[7], ProblemKind::Directory),
    ("more index entries than fit", Spot::Data("/many", 0), 34, &[255], ProblemKind::Directory),
    ("a leaf past the end of the directory", Spot::Data("/many", 0), 36, &[200], ProblemKind::Directory),
    ("a leaf that is in the index twice", Spot::Data("/many", 0), 44, &[1], ProblemKind::Directory),
    ("the order of hashes", Spot::Data("/many", 0), 40, &[0xff; 4], ProblemKind::Directory),
    ("magic of attributes", Spot::Xattr("/a/large"), 0, &[1], ProblemKind::Xattr),
    ("references to attributes", Spot::Xattr("/a/large"), 4, &[9], ProblemKind::Xattr),
    ("blocks of attributes", Spot::Xattr("/a/large"), 8, &[2], ProblemKind::Xattr),
    ("the place of a value", Spot::Xattr("/a/large"), 32 + 2, &[255, 255], ProblemKind::Xattr),
    ("the blocks of the journal", Spot::Inode("<8>"), 0x28 + 12 + 8, &[3, 0, 0, 0], ProblemKind::SharedBlock),
    ("the mode of the journal", Spot::Inode("<8>"), 1, &[0x41], ProblemKind::Journal),
    (
        "the blocks of the resize inode",
        Spot::Inode("<7>"),
        0x28 + 13 * 4,
        &[9, 0, 0, 0],
        ProblemKind::SharedBlock,
    ),
    // The first block after the descriptors is an indirect block of the resize inode.
    ("one block more of the resize inode", Spot::Block(3), 512, &[9], ProblemKind::Resize),
    ("a block of the resize inode that is nowhere", Spot::Block(3), 515, &[9], ProblemKind::Resize),
    ("an unwritten extent of a directory", Spot::Inode("/a/b"), 0x28 + 17, &[0x80], ProblemKind::Mapping),
    ("what follows the name '.'", Spot::Data("/a/b", 0), 9, b"x", ProblemKind::Directory),
    ("what follows the name '..'", Spot::Data("/a/b", 0), 12 + 10, b"x", ProblemKind::Directory),
    ("the unsigned form of a hash", Spot::Data("/many", 0), 28, &[4], ProblemKind::Directory),
    ("SipHash of plain names", Spot::Data("/many", 0), 28, &[6], ProblemKind::Directory),
    ("the namespace of an attribute", Spot::Xattr("/a/large"), 33, &[0], ProblemKind::Xattr),
    ("the length of a target", Spot::Data("/a/slow", 0), 5, &[0], ProblemKind::Inode),
];

/// As [`BY_HAND`], on a volume with content in inodes.
const INLINE_BY_HAND: &[(&str, Spot, u64, &[u8], ProblemKind)] = &[
    ("magic of the attributes", Spot::Inode("/a/small"), 128 + 35, &[0], ProblemKind::Inode),
    ("the attribute of a file", Spot::Inode("/a/small"), 128 + 36 + 1, &[1], ProblemKind::Inode),
    ("the attribute of a directory", Spot::Inode("/a/b"), 128 + 36 + 1, &[1], ProblemKind::Inode),
    ("the size of a directory", Spot::Inode("/a/b"), 4, &[64], ProblemKind::Inode),
];

/// Every structure, damaged by hand: e2fsck and the check agree on whether it is, and with checksums on that too.
#[test]
fn structures_damaged_by_hand_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let mut failures = Vec::new();
    let recipes: [(&[&str], _, _); 3] = [
        (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], BY_HAND, false),
        (&["-t", "ext4", "-b", "1024"], BY_HAND, true),
        (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,inline_data"], INLINE_BY_HAND, false),
    ];
    for (recipe, damage, has_checksums) in recipes {
        let Some(image) = Image::new(recipe) else { continue };
        for (what, spot, at, bytes, kind) in damage {
            let copy = image.copy();
            copy.put(*spot, *at, bytes);
            let (code, output) = run("e2fsck", &["-fn"], &copy.path());
            let report = our_check(&copy.path());
            let ours: Vec<String> = report.problems.iter().take(4).map(ToString::to_string).collect();
            if (code == Some(0)) != report.is_clean() {
                failures.push(format!("{recipe:?} {what}: e2fsck {code:?}, ours {ours:?}\n{output}"));
            } else if code == Some(0) {
                failures.push(format!("{recipe:?} {what}: is no damage"));
            } else if !has_checksums && !report.has(*kind) {
                failures.push(format!("{recipe:?} {what}: no {kind:?} in {ours:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// With clusters, groups that share a bitmap or a part of a table were clean. e2fsck takes the backups of such descriptors.
#[test]
fn structures_of_groups_that_overlap_are_found_with_clusters() {
    if !has_e2fsprogs() {
        return;
    }
    let recipe = ["-t", "ext4", "-b", "1024", "-O", "bigalloc,^metadata_csum"];
    let Some(image) = Image::new(&recipe) else { return };
    let said = image.ask("stats");
    let place = |what: &str| -> u64 {
        let rest = said.split(what).nth(1).unwrap().trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (bitmap, table) = (place("block bitmap at"), place("inode table at"));
    for command in [
        format!("set_bg 0 inode_bitmap {bitmap}"),
        format!("set_bg 1 block_bitmap {bitmap}"),
        format!("set_bg 1 inode_table {}", table + 20),
        "set_bg 1 inode_bitmap 2".to_owned(),
    ] {
        let copy = image.copy();
        copy.debugfs(&command);
        let (_, output) = run("e2fsck", &["-fn"], &copy.path());
        assert!(output.contains("Corrupt group descriptor"), "{command}: {output}");
        let report = our_check(&copy.path());
        assert!(report.has(ProblemKind::GroupDescriptor), "{command}: {:?}", report.problems);
    }
}

/// A cluster of a file is one cluster of the volume; parts of it in two were clean.
#[test]
fn clusters_of_files_in_two_clusters_are_found() {
    if !has_e2fsprogs() {
        return;
    }
    let recipe = ["-t", "ext4", "-b", "1024", "-O", "bigalloc,^metadata_csum"];
    let Some(image) = Image::new(&recipe) else { return };
    let first: u32 = image.ask("bmap /a/large 0").trim().parse().unwrap();
    // Blocks 0 to 7 in the first cluster, 8 to 15 in the second one.
    let extent = |at: u32, count: u16, block: u32| {
        [&at.to_le_bytes()[..], &count.to_le_bytes(), &[0, 0], &block.to_le_bytes()].concat()
    };
    let root =
        [&[0x0a, 0xf3, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0][..], &extent(0, 8, first), &extent(8, 8, first + 24)];
    image.put(Spot::Inode("/a/large"), 0x28, &root.concat());
    image.put(Spot::Inode("/a/large"), 4, &(16_u32 << 10).to_le_bytes());
    let (_, output) = run("e2fsck", &["-fn"], &image.path());
    assert!(output.contains("violates cluster allocation rules"), "{output}");
    let report = our_check(&image.path());
    assert!(report.has(ProblemKind::Mapping), "{:?}", report.problems);
}
