//! Extended attributes: their blocks, encryption policies, and values in inodes.

use std::os::unix::fs::FileExt;

use diorite_ext_tools::check::ProblemKind;

use super::image::{Image, Spot, assert_judged_alike, our_check, run};
use crate::common::has_e2fsprogs;

/// A block of attributes without the feature, and an internal journal of several users, were not found.
#[test]
fn blocks_of_attributes_without_the_feature_and_users_of_a_journal_are_found() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]) else { return };
    let copy = image.copy();
    copy.debugfs("feature -ext_attr\n");
    assert_judged_alike(&copy, "^ext_attr", false);
    assert!(our_check(&copy.path()).has(ProblemKind::Xattr));
    let copy = image.copy();
    copy.put(Spot::Data("<8>", 0), 0x40, &2u32.to_be_bytes());
    assert_judged_alike(&copy, "users of the journal", false);
    assert!(our_check(&copy.path()).has(ProblemKind::Journal));
}

/// A file must have the encryption policy of its directory; that it had another was not found.
#[test]
fn encryption_policies_that_differ_from_the_directory_are_found() {
    if !has_e2fsprogs() {
        return;
    }
    let recipe = ["-t", "ext4", "-b", "1024", "-O", "encrypt,^metadata_csum"];
    let Some(image) = Image::new(&recipe) else { return };
    let child = "/encrypted/name-of-16-bytes";
    image.debugfs(&format!(
        "mkdir /encrypted\nmkdir {child}\nsif /encrypted flags 0x80800\nsif {child} flags 0x80800\n"
    ));
    // In the inode: magic, an entry of namespace 9 called `c`, and the value: version, modes, flags, key, and 16 bytes of its own.
    let area = |key: u8, own: u8| {
        let mut area = vec![0; 96];
        area[..4].copy_from_slice(&0xea02_0000_u32.to_le_bytes());
        area[4..8].copy_from_slice(&[1, 9, 64, 0]);
        area[12..16].copy_from_slice(&28u32.to_le_bytes());
        area[20] = b'c';
        area[68..72].copy_from_slice(&[1, 1, 4, 0]);
        area[72..80].fill(key);
        area[80..96].fill(own);
        area
    };
    image.put(Spot::Inode("/encrypted"), 160, &area(1, 10));
    image.put(Spot::Inode(child), 160, &area(1, 11));
    assert_judged_alike(&image, "one policy", true);
    let copy = image.copy();
    copy.put(Spot::Inode(child), 160, &area(2, 11));
    assert_judged_alike(&copy, "another key", false);
    assert!(our_check(&copy.path()).has(ProblemKind::Directory));
    // Version, bytes of the value, and whether e2fsck accepts it: it knows the lengths of versions 1 and 2 alone.
    for (version, bytes, is_clean) in [(1, 24, false), (2, 28, false), (3, 28, true)] {
        let copy = image.copy();
        let mut area = area(1, 10);
        area[12] = bytes;
        area[68] = version;
        copy.put(Spot::Inode("/encrypted"), 160, &area[..96]);
        copy.put(Spot::Inode(child), 160, &area[..96]);
        assert_judged_alike(&copy, &format!("a policy of version {version}, {bytes} bytes"), is_clean);
    }
    let copy = image.copy();
    copy.debugfs(&format!("sif {child} flags 0x80000\n"));
    copy.put(Spot::Inode(child), 160, &[0; 96]);
    assert_judged_alike(&copy, "no policy", false);
}

/// Values in inodes as Lustre made them have no count of users and are not charged to the owner: false alarms.
#[test]
fn values_in_inodes_as_lustre_made_them_are_no_damage() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"]) else {
        return;
    };
    let value = image.scratch.path().join("huge");
    std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&value)
        .unwrap()
        .write_all_at(&[b'v'; 5_000], 0)
        .unwrap();
    image.debugfs(&format!("ea_set -f {} /a/b/empty user.huge\n", value.display()));
    // debugfs takes one block of it, and charges the owner for none.
    run("e2fsck", &["-fy"], &image.path());
    assert_judged_alike(&image, "a value in an inode", true);
    let holder = (12..1000).find(|inode| image.ask(&format!("stat <{inode}>")).contains("Flags: 0x280000"));
    let holder = holder.expect("an inode that holds the value");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    let owner = image.offset(Spot::Inode("/a/b/empty"));
    let number = image.ask("stat /a/b/empty");
    let number = number.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap();
    let mut generation = [0; 4];
    file.read_exact_at(&mut generation, owner + 0x64).unwrap();
    let place: String = format!("<{holder}>");
    let place = image.offset(Spot::Inode(place.leak()));
    for (at, bytes) in
        [(0x08, [0; 4]), (0x0c, [0; 4]), (0x24, [0; 4]), (0x10, number.to_le_bytes()), (0x64, generation)]
    {
        file.write_all_at(&bytes, place + at).unwrap();
    }
    let mut sectors = [0; 4];
    file.read_exact_at(&mut sectors, owner + 0x1c).unwrap();
    let left = u32::from_le_bytes(sectors) - 2;
    file.write_all_at(&left.to_le_bytes(), owner + 0x1c).unwrap();
    assert_judged_alike(&image, "as Lustre made it", true);
}

/// Values in inodes that no attribute uses, and entries without the hash of their value, were not found.
#[test]
fn values_in_inodes_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"]) else {
        return;
    };
    let value = image.scratch.path().join("huge");
    let file = std::fs::OpenOptions::new().create_new(true).write(true).open(&value).unwrap();
    file.write_all_at(&[b'v'; 5_000], 0).unwrap();
    image.debugfs(&format!("ea_set -f {} /a/b/empty user.huge\n", value.display()));
    // debugfs takes one block of it, and charges the owner for none.
    run("e2fsck", &["-fy"], &image.path());
    assert_judged_alike(&image, "a value in an inode", true);
    // After the magic number of the attributes in the inode there is one entry: its value's inode, size and hash.
    let entry = 128 + 32 + 4;
    let owner = Spot::Inode("/a/b/empty");
    let copy = image.copy();
    copy.put(owner, entry + 12, &[0xaa]);
    assert_judged_alike(&copy, "a wrong hash", false);
    assert!(our_check(&copy.path()).has(ProblemKind::Xattr));
    let copy = image.copy();
    copy.put(owner, entry + 4, &[0; 12]);
    copy.debugfs("sif /a/b/empty blocks 0\n");
    assert_judged_alike(&copy, "a value that nothing uses", false);
    let problems = our_check(&copy.path()).problems;
    let what = "no extended attribute refers to the value inode";
    assert!(problems.iter().any(|problem| problem.what == what), "{problems:?}");
}

/// A block of attributes that a file has as its data: its owner was not named.
#[test]
fn owners_of_attribute_blocks_are_named() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]) else { return };
    let number = |path: &str| {
        image.ask(&format!("stat {path}")).split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    let block = (image.offset(Spot::Xattr("/a/large")) / 1024) as u32;
    // The file's only extent.
    image.put(Spot::Inode("/many/file-with-a-long-name-00007"), 0x28 + 12 + 8, &block.to_le_bytes());
    let mut owners = [number("/a/large"), number("/many/file-with-a-long-name-00007")];
    owners.sort_unstable();
    let problems = our_check(&image.path()).problems;
    let what = format!("1 blocks are used by inodes {}, {}", owners[0], owners[1]);
    assert!(problems.iter().any(|problem| problem.what == what), "{what}: {problems:?}");
}
