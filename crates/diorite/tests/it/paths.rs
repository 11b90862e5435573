//! The path API: links, errors with names, walks.

use crate::common;
use std::io::{Read, Seek, SeekFrom, Write};

use common::{assert_device_clean, memory_volume};
use diorite::{ErrorKind, FileKind, FilesystemOptions, RenameMode, SetTime, Timestamp, XattrMode};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

#[test]
fn a_tree_by_paths() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let device = memory_volume(32, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
        filesystem.create_dir_all("/a/b/c").expect("directories");
        filesystem.create_dir_all("/a/b/c").expect("again");
        let mut file = filesystem.create_file("/a/b/file").expect("create");
        file.write_all(b"hello, world").expect("write");
        file.seek(SeekFrom::Start(7)).expect("seek");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "world");
        assert!(file.seek(SeekFrom::Current(-100)).is_err());
        filesystem.symlink("b/file", "/a/link").expect("symlink");
        filesystem.symlink("/a", "/root-link").expect("symlink");
        filesystem.symlink("loop", "/loop").expect("symlink");
        assert_eq!(filesystem.metadata("/root-link/link").expect("through two links").size, 12);
        assert_eq!(filesystem.symlink_metadata("/a/link").expect("lstat").kind, FileKind::Symlink);
        assert_eq!(filesystem.read_link("/a/link").expect("target").to_str(), Some("b/file"));
        assert_eq!(filesystem.metadata("/loop").expect_err("loop").kind(), ErrorKind::FilesystemLoop);
        let missing = filesystem.open_file("/a/none").expect_err("missing");
        assert_eq!(missing.to_string(), "/a/none: no such file or directory");
        assert_eq!(
            filesystem.open_file("/a/b/file/x").expect_err("not a directory").kind(),
            ErrorKind::NotADirectory
        );
        assert_eq!(filesystem.create_file("/a/b").expect_err("a directory").kind(), ErrorKind::IsADirectory);
        assert_eq!(filesystem.metadata("/a/b/file/").expect_err("a slash").kind(), ErrorKind::NotADirectory);
        assert_eq!(filesystem.metadata("/a/b/../b/./file").expect("dots").links, 1);
        filesystem.hard_link("/a/b/file", "/hard").expect("link");
        assert_eq!(filesystem.metadata("/hard").expect("stat").links, 2);
        filesystem.rename("/hard", "/a/b/c/moved").expect("rename");
        let refused = filesystem.rename_with("/a/link", "/a/b/file", RenameMode::NoReplace);
        assert_eq!(refused.expect_err("there").kind(), ErrorKind::AlreadyExists);
        filesystem.set_permissions("/a/b/file", 0o4751).expect("mode");
        filesystem.set_owner("/a/b/file", Some(1000), Some(70_000)).expect("owner");
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
        filesystem.set_times("/a/b/file", None, Some(SetTime::To(time))).expect("times");
        filesystem.set_xattr("/a/b/file", b"user.color", b"red", XattrMode::Create).expect("xattr");
        drop(file);
        let paths: Vec<String> =
            filesystem.walk("/a").map(|entry| entry.expect("walk").path.display().to_string()).collect();
        assert_eq!(paths, ["/a", "/a/b", "/a/b/c", "/a/b/c/moved", "/a/b/file", "/a/link"]);
        filesystem.close().expect("close");
        assert_device_clean(&device);

        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open again");
        let attributes = filesystem.metadata("/a/b/file").expect("stat");
        assert_eq!((attributes.permissions, attributes.owner.gid), (0o751, 70_000));
        assert_eq!(attributes.modified.seconds, 1_000_000_000);
        assert_eq!(filesystem.xattr("/a/b/file", b"user.color").expect("xattr"), b"red");
        let open = filesystem.open_file("/a/b/file").expect("open");
        assert_eq!(filesystem.clone().close().expect_err("open files").kind(), ErrorKind::Busy);
        drop(open);
        filesystem.remove_dir_all("/a").expect("remove");
        let left: Vec<Vec<u8>> =
            filesystem.read_dir("/").expect("list").map(|entry| entry.expect("entry").name).collect();
        assert!(left.contains(&b"loop".to_vec()) && !left.contains(&b"a".to_vec()));
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// A link that leads nowhere is no directory: the call said that there was one.
#[test]
fn no_directory_is_made_in_place_of_a_link() {
    let filesystem = common::open_memory(4, &MkfsOptions::default(), &FilesystemOptions::new());
    filesystem.create_dir("/a").expect("directory");
    filesystem.symlink("a", "/there").expect("link");
    filesystem.symlink("nowhere", "/link").expect("link");
    filesystem.create_dir_all("/there").expect("a directory");
    filesystem.create_dir_all("/there/b/c").expect("directories");
    let error = filesystem.create_dir_all("/link").expect_err("no directory");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(
        filesystem.create_dir_all("/link/c").expect_err("no directory").kind(),
        ErrorKind::AlreadyExists
    );
    assert!(filesystem.exists("/a/b/c").expect("exists") && !filesystem.exists("/nowhere").expect("exists"));
}

/// A volume without a free inode but those of `directories`, which are there, and the file `/b`.
fn volume_without_inodes(directories: &[&str]) -> diorite::Filesystem {
    let options = MkfsOptions { inodes: Some(16), ..MkfsOptions::default() };
    let filesystem = common::open_memory(4, &options, &FilesystemOptions::new());
    for path in directories {
        filesystem.create_dir_all(path).expect("a directory");
    }
    filesystem.write("/b", "").expect("a file");
    let last = (0..1000).find_map(|nth| filesystem.write(format!("/z{nth}"), "").err()).expect("full");
    assert_eq!(last.kind(), ErrorKind::StorageFull);
    filesystem.sync().expect("sync");
    filesystem
}

/// Make a directory that gets the number of one that is removed.
fn make_instead(filesystem: &diorite::Filesystem, removed: &str, made: &str) {
    let number = filesystem.metadata(removed).expect("there").inode;
    filesystem.remove_dir(removed).expect("removed");
    filesystem.sync().expect("sync");
    filesystem.create_dir(made).expect("made");
    assert_eq!(filesystem.metadata(made).expect("there").inode, number, "no other is free");
}

/// A directory that other threads remove or move while a tree is walked is no damage, whether its number is used again or it is met again.
#[test]
fn a_tree_that_changes_is_walked() {
    let filesystem = volume_without_inodes(&["/a/moved", "/a/old", "/c"]);
    let mut walk = filesystem.walk("/");
    let mut next = || walk.next().map(|entry| entry.expect("no damage").path.display().to_string());
    while next().is_some_and(|path| path != "/b") {}
    filesystem.rename("/a/moved", "/c/moved").expect("moved");
    make_instead(&filesystem, "/a/old", "/c/new");
    let rest: Vec<String> = std::iter::from_fn(next).filter(|path| path.starts_with("/c")).collect();
    assert_eq!(rest, ["/c", "/c/moved", "/c/new"]);
}

/// The same while a tree is removed.
#[test]
fn a_tree_that_changes_is_removed() {
    let filesystem = volume_without_inodes(&["/tree/a", "/tree/c"]);
    let mut is_first = true;
    let mut change = |kind: FileKind| {
        if kind == FileKind::Directory && std::mem::take(&mut is_first) {
            let left = if filesystem.exists("/tree/a").expect("exists") { "/tree/a" } else { "/tree/c" };
            filesystem.sync().expect("sync");
            filesystem.create_dir(format!("{left}/new")).expect("the inode of the other");
        }
        true
    };
    filesystem.remove_dir_all_with("/tree", &mut change).expect("removed");
    assert!(!is_first && !filesystem.exists("/tree").expect("exists"));
}

/// Two threads that remove one tree: what the other one has removed is gone, and no error.
#[test]
fn a_tree_is_removed_by_two_at_once() {
    for victim in ["/tree/other", "/tree"] {
        let filesystem = common::open_memory(4, &MkfsOptions::default(), &FilesystemOptions::new());
        for directory in ["one", "two", "other"] {
            filesystem.create_dir_all(format!("/tree/{directory}/deep")).expect("directories");
            for nth in 0..10 {
                filesystem.write(format!("/tree/{directory}/{nth}"), "text").expect("a file");
            }
        }
        let mut is_first = true;
        let mut other = |_: FileKind| {
            if std::mem::take(&mut is_first) {
                filesystem.remove_dir_all(victim).expect("removed by the other");
            }
            true
        };
        filesystem.remove_dir_all_with("/tree", &mut other).expect("removed by both");
        assert!(!filesystem.exists("/tree").expect("exists"));
    }
}

/// Times and sizes that are still in the cache are what `stat` returns, and what a later opening finds.
/// Nothing is removed by what cannot be removed as a whole, nor by a name that is empty.
#[test]
fn a_tree_is_removed_by_its_own_name() {
    let filesystem = common::open_memory(4, &MkfsOptions::default(), &FilesystemOptions::new());
    filesystem.create_dir_all("/a/b").expect("directories");
    filesystem.write("/a/b/file", "text").expect("file");
    let refused = |path, kind| {
        let error = filesystem.remove_dir_all(path).expect_err(path);
        assert_eq!(error.kind(), kind, "{path}: {error}");
        assert!(filesystem.exists("/a/b/file").expect("exists"), "{path}");
    };
    refused("/", ErrorKind::Busy);
    refused("", ErrorKind::NotFound);
    refused("/a/b/file", ErrorKind::NotADirectory);
    filesystem.symlink("/a", "/link").expect("link");
    refused("/link", ErrorKind::NotADirectory);
    refused("/link/", ErrorKind::NotADirectory);
    refused("/a/.", ErrorKind::InvalidInput);
    refused("/a/b/..", ErrorKind::DirectoryNotEmpty);
    assert!(!filesystem.exists("").expect("exists"));
    filesystem.remove_dir_all("/a").expect("removed");
    assert!(!filesystem.exists("/a").expect("exists"));
}

#[test]
fn what_stat_tells_is_what_was_written() {
    let device = memory_volume(32, &MkfsOptions::default());
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    let file = filesystem.create_file("/file").expect("create");
    let old = Timestamp { seconds: 1, nanoseconds: 0 };
    filesystem.set_times("/file", None, Some(SetTime::To(old))).expect("times");
    assert_eq!(file.metadata().expect("stat").modified, old);
    file.write_all_at(&[1; 5000], 0).expect("write");
    let seen = file.metadata().expect("stat");
    assert!(seen.modified > old && seen.size == 5000 && seen.sectors >= 8);
    drop(file);
    filesystem.close().expect("close");
    let filesystem = FilesystemOptions::new().open_device(device).expect("open");
    let found = filesystem.metadata("/file").expect("stat");
    assert_eq!((found.modified.seconds, found.size), (seen.modified.seconds, 5000));
}
