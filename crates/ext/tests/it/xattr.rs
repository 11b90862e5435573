//! Extended attributes: made by the kernel and read by Diorite, made by Diorite and read by the kernel and e2fsck.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use crate::names_support;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext::{Access, Error, FileKind, Inode, Owner, SetAttributes, Volume, XattrMode};
use diorite_ext_tools::check::{CheckOptions, check};
use rustix::fs::XattrFlags;

use names_support::{Image, at, have, root, run, spec};

fn names(volume: &Volume, inode: &Inode) -> Vec<String> {
    let mut names: Vec<_> =
        volume.xattrs.names(inode).unwrap().into_iter().map(|n| String::from_utf8(n).unwrap()).collect();
    names.sort();
    names
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn named_acl() -> Vec<u8> {
    let none = u32::MAX;
    acl(&[(1, 6, none), (2, 7, 1000), (4, 4, none), (16, 7, none), (32, 0, none)])
}

#[test]
fn attributes_are_a_map_in_inode_and_block() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -I 128 -b 1024", "-t ext2 -I 256", "-t ext4 -O ^has_journal -I 256 -b 1024"] {
        let image = Image::new(arguments, "16M");
        let volume = image.open();
        let mut random = fastrand::Rng::with_seed(7);
        let mut models = Vec::new();
        for n in 0..6 {
            let name = format!("file{n}").into_bytes();
            let inode = volume.names.create(&root(&volume), &name, &spec(FileKind::Regular)).unwrap();
            models.push((inode, BTreeMap::<Vec<u8>, Vec<u8>>::new()));
        }
        for _ in 0..3_000 {
            let (inode, model) = &mut models[random.usize(..6)];
            let prefix = ["user.", "trusted.", "security."][random.usize(..3)];
            let name = format!("{prefix}{}", "n".repeat(random.usize(1..12))).into_bytes();
            if random.u32(..3) == 0 {
                match volume.remove_xattr(inode, &name) {
                    Ok(()) => assert!(model.remove(&name).is_some()),
                    Err(Error::NoAttribute) => assert!(!model.contains_key(&name)),
                    Err(error) => panic!("{error}"),
                }
            } else {
                let value: Vec<u8> = (0..random.usize(..150)).map(|_| random.u8(..)).collect();
                let mode = [XattrMode::Set, XattrMode::Create, XattrMode::Replace][random.usize(..3)];
                match volume.set_xattr(inode, &name, &value, mode) {
                    Ok(()) => {
                        assert!(mode != XattrMode::Create || !model.contains_key(&name));
                        assert!(mode != XattrMode::Replace || model.contains_key(&name));
                        model.insert(name, value);
                    }
                    Err(Error::Exists) => assert!(mode == XattrMode::Create && model.contains_key(&name)),
                    Err(Error::NoAttribute) => {
                        assert!(mode == XattrMode::Replace && !model.contains_key(&name));
                    }
                    Err(Error::AttributeTooLarge) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let compare = |volume: &Volume, inode: &Inode, model: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let mut names = volume.xattrs.names(inode).unwrap();
            names.sort();
            assert!(names.iter().eq(model.keys()), "{arguments}");
            for (name, value) in model {
                assert_eq!(&volume.xattrs.get(inode, name).unwrap(), value);
            }
        };
        for (inode, model) in &models {
            compare(&volume, inode, model);
        }
        volume.close().unwrap();
        drop(volume);
        image.check();
        let volume = image.open();
        for (n, (_, model)) in models.iter().enumerate() {
            compare(&volume, &at(&volume, &format!("file{n}")).unwrap(), model);
        }
        for n in 0..6 {
            volume.names.unlink(&root(&volume), format!("file{n}").as_bytes()).unwrap();
        }
        drop(models);
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

#[test]
fn limits_and_refusals() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024", "8M");
    let volume = image.open();
    let top = root(&volume);
    let file = volume.names.create(&top, b"file", &spec(FileKind::Regular)).unwrap();
    let set = |name: &[u8], value: &[u8]| volume.set_xattr(&file, name, value, XattrMode::Set);
    assert!(matches!(set(b"user.large", &[1; 1000]), Err(Error::AttributeTooLarge)));
    assert!(matches!(set(b"user.larger", &vec![1; 70_000]), Err(Error::AttributeTooLarge)));
    assert!(matches!(set(b"other.name", b"x"), Err(Error::Unsupported(_))));
    assert!(matches!(set(b"system.data", b"x"), Err(Error::Unsupported(_))));
    assert!(matches!(set(b"user.", b"x"), Err(Error::InvalidArgument(_))));
    assert!(matches!(set(&[b'u'; 256], b"x"), Err(Error::NameTooLong)));
    assert!(matches!(set(b"system.posix_acl_access", b"junk"), Err(Error::InvalidArgument(_))));
    assert!(matches!(set(b"system.posix_acl_default", &named_acl()), Err(Error::InvalidArgument(_))));
    assert!(matches!(volume.xattrs.get(&file, b"user.none"), Err(Error::NoAttribute)));
    set(b"user.empty", b"").unwrap();
    assert_eq!(volume.xattrs.get(&file, b"user.empty").unwrap(), b"");
    let link = volume.names.symlink(&top, b"link", b"target", Owner { uid: 0, gid: 0 }).unwrap();
    let on_link = |name| volume.set_xattr(&link, name, b"x", XattrMode::Set);
    assert!(matches!(on_link(b"user.x"), Err(Error::NotPermitted(_))));
    on_link(b"trusted.x").unwrap();
    // A block for attributes does not make a short link a long one.
    on_link(b"trusted.long").unwrap();
    volume.set_xattr(&link, b"trusted.longer", &[b'v'; 500], XattrMode::Set).unwrap();
    assert_eq!(volume.names.read_link(&link).unwrap(), b"target");
    volume.close().unwrap();
    drop(volume);
    image.check();
}

#[test]
fn access_control_lists_set_the_permissions() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new("-t ext4 -O ^has_journal", "16M");
    let volume = image.open();
    let file = volume.names.create(&root(&volume), b"file", &spec(FileKind::Regular)).unwrap();
    let directory = volume.names.create(&root(&volume), b"dir", &spec(FileKind::Directory)).unwrap();
    let access = b"system.posix_acl_access";
    volume.set_xattr(&file, access, &named_acl(), XattrMode::Set).unwrap();
    assert_eq!(file.attributes().permissions, 0o670);
    assert_eq!(volume.xattrs.get(&file, access).unwrap(), named_acl());
    volume.set_xattr(&directory, b"system.posix_acl_default", &named_acl(), XattrMode::Set).unwrap();
    let none = u32::MAX;
    let minimal = acl(&[(1, 7, none), (4, 5, none), (32, 1, none)]);
    let second = volume.names.create(&root(&volume), b"second", &spec(FileKind::Regular)).unwrap();
    volume.set_xattr(&second, access, &minimal, XattrMode::Set).unwrap();
    assert_eq!(second.attributes().permissions, 0o751);
    assert!(matches!(volume.xattrs.get(&second, access), Err(Error::NoAttribute)));
    volume.close().unwrap();
    drop(volume);
    image.check();
    if let Some(mounted) = image.mount() {
        let (code, text) = run("getfacl", &["-n", "-p", mounted.at.join("file").to_str().unwrap()]);
        if code == 0 {
            assert!(text.contains("user:1000:rwx") && text.contains("mask::rwx"), "{text}");
        } else {
            println!("SKIPPED: getfacl is not installed");
        }
    }
}

/// `chmod 640` left the mask of an access control list at `rw`: a named user could still write, also for a kernel that mounted the image.
#[test]
fn chmod_changes_the_mask_of_an_access_control_list() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let none = u32::MAX;
    let access = b"system.posix_acl_access";
    // The second list is long enough for an inode of its own.
    let many: Vec<_> = (0..600).map(|n| (2, 6, 1000 + n)).collect();
    let with_mask = |mask| {
        let mut list = vec![(1, 6, none)];
        list.extend(&many);
        list.extend([(4, 6, none), (16, mask, none), (32, if mask == 6 { 6 } else { 0 }, none)]);
        acl(&list)
    };
    for arguments in ["-t ext2 -I 128", "-t ext4", "-t ext4 -O ea_inode -b 1024"] {
        let image = Image::new(arguments, "16M");
        let volume = image.open();
        let chmod = |inode: &Inode, permissions| {
            let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
            volume.set_attributes(inode, &changes).unwrap();
            assert_eq!(inode.attributes().permissions, permissions);
        };
        let create =
            |name: &[u8]| volume.names.create(&root(&volume), name, &spec(FileKind::Regular)).unwrap();
        let file = create(b"file");
        volume.set_xattr(&file, access, &named_acl(), XattrMode::Set).unwrap();
        chmod(&file, 0o640);
        let cut = acl(&[(1, 6, none), (2, 7, 1000), (4, 4, none), (16, 4, none), (32, 0, none)]);
        assert_eq!(volume.xattrs.get(&file, access).unwrap(), cut, "{arguments}");
        // And back: the entry of the owning group is not touched where there is a mask.
        chmod(&file, 0o4775);
        let wide = acl(&[(1, 7, none), (2, 7, 1000), (4, 4, none), (16, 7, none), (32, 5, none)]);
        assert_eq!(volume.xattrs.get(&file, access).unwrap(), wide, "{arguments}");
        chmod(&file, 0o640);
        if arguments.contains("ea_inode") {
            let long = create(b"long");
            volume.set_xattr(&long, access, &with_mask(6), XattrMode::Set).unwrap();
            chmod(&long, 0o640);
            assert_eq!(volume.xattrs.get(&long, access).unwrap(), with_mask(4));
        }
        volume.close().unwrap();
        drop((file, volume));
        image.check();
        if let Some(mounted) = image.mount() {
            let mut buffer = [0; 200];
            let path = mounted.at.join("file");
            let len = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut buffer[..]).unwrap();
            assert_eq!(buffer[..len], cut, "{arguments}: as the kernel reads it");
        }
    }
}

#[test]
fn attributes_of_the_kernel_and_of_debugfs_are_read_and_changed() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in
        ["-t ext2 -I 128 -b 1024", "-t ext4 -O ^has_journal", "-t ext4 -O ^has_journal,ea_inode -b 1024"]
    {
        let image = Image::new(arguments, "16M");
        let value = image.path().with_file_name("value");
        std::fs::write(&value, vec![b'v'; 700]).unwrap();
        let large = image.path().with_file_name("large");
        let content: Vec<u8> = (0..9000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&large, &content).unwrap();
        image.debugfs(&format!("write {} file", value.display()));
        image.debugfs("ea_set file user.small hello");
        image.debugfs("ea_set file trusted.other there");
        image.debugfs(&format!("ea_set -f {} file user.medium", value.display()));
        let has_inodes = arguments.contains("ea_inode");
        if has_inodes {
            image.debugfs(&format!("ea_set -f {} file user.large", large.display()));
            // debugfs forgets to count the block, and takes one block of the value.
            run("e2fsck", &["-fy", image.path().to_str().unwrap()]);
        }
        image.check();
        let volume = image.open_with(Access::ReadOnly);
        let file = at(&volume, "file").unwrap();
        assert_eq!(volume.xattrs.get(&file, b"user.small").unwrap(), b"hello");
        assert_eq!(volume.xattrs.get(&file, b"user.medium").unwrap(), vec![b'v'; 700]);
        if has_inodes {
            assert!(volume.xattrs.get(&file, b"user.large").unwrap() == content[..1024]);
        }
        volume.close().unwrap();
        drop(volume);
        let volume = image.open();
        let file = at(&volume, "file").unwrap();
        volume.set_xattr(&file, b"user.medium", b"now small", XattrMode::Replace).unwrap();
        if has_inodes {
            let larger = content.repeat(3);
            volume.set_xattr(&file, b"user.mine", &larger, XattrMode::Set).unwrap();
            assert!(volume.xattrs.get(&file, b"user.mine").unwrap() == larger);
            volume.remove_xattr(&file, b"user.large").unwrap();
        } else {
            volume.remove_xattr(&file, b"trusted.other").unwrap();
        }
        volume.close().unwrap();
        drop(volume);
        image.check();
        let volume = image.open();
        let file = at(&volume, "file").unwrap();
        let want: &[&str] = if has_inodes {
            &["trusted.other", "user.medium", "user.mine", "user.small"]
        } else {
            &["user.medium", "user.small"]
        };
        assert_eq!(names(&volume, &file), want);
        drop(file);
        volume.names.unlink(&root(&volume), b"file").unwrap();
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

/// The kernel lets files with the same attributes share a block: a change of one leaves the other as it was.
#[test]
fn shared_block_is_copied_before_it_is_changed() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new("-t ext2 -I 128 -b 1024", "8M");
    let Some(mounted) = image.mount() else { return };
    for n in 0..3 {
        let path = mounted.at.join(format!("f{n}"));
        std::fs::write(&path, b"x").unwrap();
        rustix::fs::setxattr(&path, "user.same", b"value", XattrFlags::empty()).unwrap();
    }
    drop(mounted);
    let volume = image.open();
    let file = |n: u32| at(&volume, &format!("f{n}")).unwrap();
    volume.set_xattr(&file(0), b"user.same", b"other", XattrMode::Set).unwrap();
    assert_eq!(volume.xattrs.get(&file(1), b"user.same").unwrap(), b"value");
    volume.names.unlink(&root(&volume), b"f1").unwrap();
    volume.remove_xattr(&file(2), b"user.same").unwrap();
    volume.close().unwrap();
    drop(volume);
    image.check();
}

/// Diorite reads attributes that the kernel stored, and the kernel reads those of Diorite.
#[test]
fn kernel_and_we_read_each_others_attributes() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for (arguments, largest) in [
        ("-t ext2 -I 128 -b 4096", 3000),
        ("-t ext4 -O ^has_journal -b 4096", 3000),
        ("-t ext4 -O ^has_journal,ea_inode -b 4096", 50_000),
        ("-t ext4 -O ^has_journal,ea_inode -b 1024", 20_000),
    ] {
        let image = Image::new(arguments, "16M");
        let Some(mounted) = image.mount() else { return };
        let value = |n: usize| -> Vec<u8> { (0..n).map(|at| (at % 253) as u8 ^ n as u8).collect() };
        let sizes = [0, 1, 30, 200, largest];
        let path = mounted.at.join("theirs");
        std::fs::write(&path, b"x").unwrap();
        for size in sizes {
            let name = format!("user.size{size}");
            rustix::fs::setxattr(&path, &name, &value(size), XattrFlags::empty()).unwrap();
        }
        let list = named_acl();
        rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
        drop(mounted);
        let volume = image.open();
        let theirs = at(&volume, "theirs").unwrap();
        let ours = volume.names.create(&root(&volume), b"ours", &spec(FileKind::Regular)).unwrap();
        for size in sizes {
            let name = format!("user.size{size}").into_bytes();
            assert!(volume.xattrs.get(&theirs, &name).unwrap() == value(size), "{arguments}: {size}");
            volume.set_xattr(&ours, &name, &value(size), XattrMode::Create).unwrap();
        }
        assert_eq!(volume.xattrs.get(&theirs, b"system.posix_acl_access").unwrap(), list);
        volume.set_xattr(&ours, b"system.posix_acl_access", &list, XattrMode::Set).unwrap();
        volume
            .set_xattr(&theirs, format!("user.size{largest}").as_bytes(), b"little", XattrMode::Set)
            .unwrap();
        volume.close().unwrap();
        drop((theirs, ours, volume));
        image.check();
        let mounted = image.mount().unwrap();
        for size in sizes {
            let mut buffer = vec![0; 65_536];
            let name = format!("user.size{size}");
            let len = rustix::fs::getxattr(mounted.at.join("ours"), &name, &mut buffer[..]).unwrap();
            assert!(buffer[..len] == value(size), "{arguments}: the kernel reads {size} otherwise");
        }
        let mut buffer = [0; 200];
        let len = rustix::fs::getxattr(mounted.at.join("ours"), "system.posix_acl_access", &mut buffer[..])
            .unwrap();
        assert_eq!(buffer[..len], list);
        drop(mounted);
        image.check();
    }
}

#[test]
fn new_inodes_inherit_the_default_list_of_their_directory() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -I 128", "-t ext4"] {
        let image = Image::new(arguments, "16M");
        let volume = image.open();
        let (access, default) = (b"system.posix_acl_access", b"system.posix_acl_default");
        let top = volume.names.create(&root(&volume), b"top", &spec(FileKind::Directory)).unwrap();
        volume.set_xattr(&top, default, &named_acl(), XattrMode::Set).unwrap();
        let file = volume.names.create(&top, b"file", &spec(FileKind::Regular)).unwrap();
        let inner = volume.names.create(&top, b"inner", &spec(FileKind::Directory)).unwrap();
        let link = volume.names.symlink(&top, b"link", b"target", Owner { uid: 0, gid: 0 }).unwrap();
        // Made with 0644: the mask is cut to what the group gets.
        let none = u32::MAX;
        let cut = acl(&[(1, 6, none), (2, 7, 1000), (4, 4, none), (16, 4, none), (32, 0, none)]);
        assert_eq!(volume.xattrs.get(&file, access).unwrap(), cut);
        assert_eq!(file.attributes().permissions, 0o640);
        assert!(matches!(volume.xattrs.get(&file, default), Err(Error::NoAttribute)));
        assert_eq!(volume.xattrs.get(&inner, default).unwrap(), named_acl());
        assert_eq!(inner.attributes().permissions, 0o650);
        assert!(volume.xattrs.names(&link).unwrap().is_empty());
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

/// The kernel sets the feature `ext_attr` with the first attribute. Without it a volume that had none got blocks of attributes that
/// e2fsck takes for damage; so did one of revision 0, which has no features at all, and files of 2 GiB with them.
#[test]
fn the_first_attribute_sets_the_feature() {
    if !have(&["mke2fs", "e2fsck", "dumpe2fs"]) {
        return;
    }
    for arguments in ["-t ext4 -O ^ext_attr", "-t ext2 -O ^ext_attr -I 128 -b 1024", "-t ext2 -r 0"] {
        for bytes in [10, 700] {
            let image = Image::new(arguments, "16M");
            let volume = image.open();
            let file = volume.names.create(&root(&volume), b"file", &spec(FileKind::Regular)).unwrap();
            volume.set_xattr(&file, b"user.a", &vec![1; bytes], XattrMode::Set).unwrap();
            volume.close().unwrap();
            image.check();
            let (_, text) = run("dumpe2fs", &["-h", image.path().to_str().unwrap()]);
            assert!(text.contains("ext_attr"), "{arguments}: {text}");
        }
    }
    let image = Image::new("-t ext2 -r 0", "16M");
    let volume = image.open();
    let file = volume.names.create(&root(&volume), b"file", &spec(FileKind::Regular)).unwrap();
    volume.files.truncate(&file, 3 << 30).unwrap();
    volume.close().unwrap();
    image.check();
}

/// The hash of a value in an inode is where others have an access time. In inodes of 128 bytes half of all hashes were stored as the
/// latest time that fits there, and e2fsck took the value away.
#[test]
fn values_in_small_inodes_have_their_hash() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext4 -I 128 -O ea_inode -b 1024", "-t ext4 -I 256 -O ea_inode -b 1024"] {
        let image = Image::new(arguments, "16M");
        let volume = image.open();
        for number in 0..12_u8 {
            let name = format!("file{number}");
            let file =
                volume.names.create(&root(&volume), name.as_bytes(), &spec(FileKind::Regular)).unwrap();
            volume.set_xattr(&file, b"user.large", &[number; 3000], XattrMode::Set).unwrap();
        }
        volume.close().unwrap();
        drop(volume);
        image.check();
        let volume = image.open();
        for number in 0..12_u8 {
            let file = at(&volume, &format!("file{number}")).unwrap();
            assert_eq!(volume.xattrs.get(&file, b"user.large").unwrap(), [number; 3000]);
        }
        volume.close().unwrap();
    }
}

/// Where the attributes in an inode begin in the image, as for inodes of 256 bytes with `extra_isize` 32.
fn area_of(image: &Image, path: &str) -> u64 {
    // "Inode 12 is part of block group 0\n\tlocated at block 35, offset 0x0b00"
    let text = image.debugfs(&format!("imap {path}"));
    let (_, place) = text.split_once("at block ").unwrap();
    let (block, offset) = place.split_once(", offset 0x").unwrap();
    let offset = offset.split_whitespace().next().unwrap();
    block.parse::<u64>().unwrap() * 1024 + u64::from_str_radix(offset, 16).unwrap() + 160
}

/// An attribute area of 96 bytes: entries by namespace and name, of which each has the value at `offset`, of 28 bytes.
fn area(entries: [(u8, &[u8]); 3], offset: u16) -> Vec<u8> {
    let mut area = 0xea02_0000_u32.to_le_bytes().to_vec();
    for (index, name) in entries {
        area.extend([name.len() as u8, index]);
        area.extend(offset.to_le_bytes());
        area.extend(0_u32.to_le_bytes());
        area.extend(28_u32.to_le_bytes());
        area.extend([0; 4]);
        area.extend(name);
        area.resize(area.len().next_multiple_of(4), 0);
    }
    area.resize(68, 0);
    area.resize(96, b'v');
    area
}

/// Attributes that share a value need more space than there is when they are written anew: they are damaged, as for e2fsck.
#[test]
fn attributes_that_share_a_value_are_damaged() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let image = Image::new("-t ext4 -b 1024 -O inline_data,^has_journal,^metadata_csum", "8M");
    let source = image.path().with_file_name("source");
    for (name, len) in [("plain", 5000), ("inline", 7)] {
        std::fs::write(&source, vec![b'c'; len]).unwrap();
        image.debugfs(&format!("write {} {name}", source.display()));
    }
    image.check();
    let bytes = std::fs::File::options().write(true).open(image.path()).unwrap();
    for (name, first) in [("plain", (1, &b"a"[..])), ("inline", (7, b"data"))] {
        let shared = area([first, (1, b"b"), (1, b"c")], 64);
        bytes.write_all_at(&shared, area_of(&image, name)).unwrap();
    }
    let (code, text) = run("e2fsck", &["-fn", image.path().to_str().unwrap()]);
    assert!(code != 0 && text.contains("attribute"), "{text}");
    let device = FileDevice::open(image.path(), &OpenOptions::read_only().direct(DirectIo::Off)).unwrap();
    let report = check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap();
    let reported = report.problems.iter().filter(|problem| problem.to_string().contains("values overlap"));
    assert!(reported.count() >= 2, "{:?}", report.problems);
    drop(device);

    let volume = image.open();
    let file = at(&volume, "plain").unwrap();
    assert!(matches!(volume.remove_xattr(&file, b"user.c"), Err(Error::Corrupt(_))));
    assert!(matches!(volume.set_xattr(&file, b"user.d", b"", XattrMode::Set), Err(Error::Corrupt(_))));
    let file = at(&volume, "inline").unwrap();
    assert!(matches!(volume.files.make_not_inline(&file), Err(Error::Corrupt(_))));
    volume.close().unwrap();
}

/// The offset of an empty value, or of one in an inode of its own, means nothing.
#[test]
fn offset_of_an_empty_value_is_not_used() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    for value_inode in [0_u32, 12] {
        let image = Image::new("-t ext4 -b 1024 -O inline_data,ea_inode,^has_journal,^metadata_csum", "8M");
        let source = image.path().with_file_name("source");
        std::fs::write(&source, b"content").unwrap();
        image.debugfs(&format!("write {} file", source.display()));
        let start = area_of(&image, "file");
        let bytes = std::fs::File::options().read(true).write(true).open(image.path()).unwrap();
        let mut entry = [0; 24];
        bytes.read_exact_at(&mut entry, start).unwrap();
        assert_eq!(entry[4..6], [4, 7], "system.data");
        entry[6..8].fill(0xff);
        entry[8..12].copy_from_slice(&value_inode.to_le_bytes());
        bytes.write_all_at(&entry, start).unwrap();
        let volume = image.open();
        let file = at(&volume, "file").unwrap();
        volume.files.truncate(&file, 4).unwrap();
        assert_eq!(volume.files.read_inline(&file).unwrap(), b"cont");
    }
}
