//! Calls for mounts and other front ends: files without names, masks, access times, privileges.

use crate::common;
use std::sync::Arc;

use common::{assert_device_clean, memory_volume};
use diorite::front_end::ContentTimes;
use diorite::{
    FileKind, Filesystem, FilesystemOptions, NodeSpec, Owner, RenameMode, SetAttributes, SetTime, Timestamp,
    XattrMode,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

fn spec(permissions: u16, umask: u16) -> NodeSpec {
    NodeSpec { kind: FileKind::Regular, permissions, umask, owner: Owner::default(), device: (0, 0) }
}

fn flavors() -> [MkfsOptions; 3] {
    [Flavor::Ext2, Flavor::Ext3, Flavor::Ext4].map(|flavor| MkfsOptions { flavor, ..MkfsOptions::default() })
}

/// `O_TMPFILE`: the file goes with its last use, or stays under the name that it was given; twice linked it has two names.
#[test]
fn a_file_without_a_name_goes_or_is_given_one() {
    for options in flavors() {
        let device = memory_volume(16, &options);
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let root = filesystem.root().expect("root");
        let free = filesystem.statfs().inodes_free;
        let gone = root.create_nameless(&spec(0o600, 0)).expect("create");
        let file = gone.open_options().read(true).write(true).open().expect("open");
        file.write_all_at(b"passing", 0).expect("write");
        assert_eq!((gone.attributes().expect("stat").links, filesystem.statfs().inodes_free), (0, free - 1));
        drop((gone, file));
        assert_eq!(filesystem.statfs().inodes_free, free);

        let kept = root.create_nameless(&spec(0o666, 0o027)).expect("create");
        let file = kept.open_options().read(true).write(true).open().expect("open");
        file.write_all_at(b"lasting", 0).expect("write");
        root.link(&kept, b"kept").expect("link");
        root.link(&kept, b"again").expect("link");
        drop((kept, file));
        let attributes = filesystem.metadata("/kept").expect("stat");
        assert_eq!((attributes.links, attributes.permissions), (2, 0o640));
        filesystem.remove_file("/kept").expect("remove");
        // A file that lost its last name is not given another.
        let removed = filesystem.resolve("/again").expect("resolve");
        filesystem.remove_file("/again").expect("remove");
        assert!(root.link(&removed, b"back").is_err_and(|error| error.is_not_found()));
        drop((removed, root));
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// Recovery frees a file without a name after a crash.
#[test]
fn a_file_without_a_name_does_not_outlive_a_crash() {
    for flavor in [Flavor::Ext3, Flavor::Ext4] {
        let options = MkfsOptions { flavor, ..MkfsOptions::default() };
        let device = memory_volume(16, &options);
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let free = filesystem.statfs().inodes_free;
        let node = filesystem.root().expect("root").create_nameless(&spec(0o600, 0)).expect("create");
        filesystem.sync().expect("sync");
        let copy = memory_volume(16, &options);
        let mut memory = diorite::AlignedBuf::zeroed(16 << 20, 4096);
        device.read_bytes(0, &mut memory).expect("read");
        copy.write_bytes(0, &memory, diorite_block::BioFlags::NONE).expect("write");
        drop(node);
        let replayed = FilesystemOptions::new().open_device(Arc::clone(&copy)).expect("replay");
        assert_eq!(replayed.statfs().inodes_free, free);
        replayed.close().expect("close");
        assert_device_clean(&copy);
    }
}

/// The mask counts where the directory has no default access control list, and there only.
#[test]
fn a_mask_or_the_default_list_of_the_directory_decides_never_both() {
    let filesystem =
        FilesystemOptions::new().open_device(memory_volume(16, &MkfsOptions::default())).expect("open");
    let root = filesystem.root().expect("root");
    assert_eq!(
        root.create(b"masked", &spec(0o666, 0o022)).expect("create").attributes().unwrap().permissions,
        0o644
    );
    let directory = NodeSpec { kind: FileKind::Directory, ..spec(0o755, 0) };
    let listed = root.create(b"listed", &directory).expect("create");
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions) in [(1u16, 7u16), (4, 6), (0x20, 4)] {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(u32::MAX.to_le_bytes());
    }
    listed.set_xattr(b"system.posix_acl_default", &list, XattrMode::Set).expect("set");
    let made = listed.create(b"file", &spec(0o666, 0o077)).expect("create");
    assert_eq!(made.attributes().expect("stat").permissions, 0o664);
}

/// An access time changes nothing else; the times of content are the caller's where it says so, and the change time on request.
#[test]
fn times_are_set_one_by_one() {
    let options = FilesystemOptions::new().content_times(ContentTimes::ByCaller);
    let filesystem: Filesystem =
        options.open_device(memory_volume(16, &MkfsOptions::default())).expect("open");
    let file = filesystem.create_file("/file").expect("create");
    let node = filesystem.resolve("/file").expect("resolve");
    let at = |seconds| Timestamp { seconds, nanoseconds: 7 };
    let set = SetAttributes {
        accessed: Some(SetTime::To(at(100))),
        modified: Some(SetTime::To(at(200))),
        changed: Some(SetTime::To(at(300))),
        ..SetAttributes::default()
    };
    node.set_attributes(&set).expect("set");
    file.write_all_at(&[1; 10_000], 0).expect("write");
    file.sync_all().expect("sync");
    let times = || {
        let attributes = node.attributes().expect("stat");
        (attributes.accessed, attributes.modified, attributes.changed)
    };
    assert_eq!(times(), (at(100), at(200), at(300)));
    node.note_access().expect("access");
    let (accessed, modified, changed) = times();
    assert!(accessed.seconds > 1000 && (modified, changed) == (at(200), at(300)));
}

/// A change of content takes set-user-ID, set-group-ID of an executable file, and capabilities.
#[test]
fn privileges_are_cleared() {
    let filesystem =
        FilesystemOptions::new().open_device(memory_volume(16, &MkfsOptions::default())).expect("open");
    let root = filesystem.root().expect("root");
    for (before, after) in [(0o6755, 0o755), (0o6744, 0o2744), (0o644, 0o644)] {
        let name = format!("{before:o}");
        let node = root.create(name.as_bytes(), &spec(before, 0)).expect("create");
        node.set_xattr(b"security.capability", b"\x01\x00\x00\x02", XattrMode::Set).expect("set");
        assert_eq!(node.clear_privileges().expect("clear"), before != after);
        assert_eq!(node.attributes().expect("stat").permissions, after);
        assert!(node.xattr_names().expect("names").is_empty());
    }
}

/// A whiteout takes the old name, also where the new one is replaced.
#[test]
fn a_rename_leaves_a_whiteout() {
    for options in flavors() {
        let device = memory_volume(16, &options);
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let root = filesystem.root().expect("root");
        for (from, to) in [("/a", "/b"), ("/c", "/b")] {
            filesystem.write(from, from).expect("write");
            let owner = Owner { uid: 7, gid: 8 };
            filesystem.rename_with(from, to, RenameMode::Whiteout(owner)).expect("rename");
            assert_eq!(filesystem.read_to_string(to).expect("read"), from);
            let whiteout = root.lookup(&from.as_bytes()[1..]).expect("lookup").attributes().expect("stat");
            assert_eq!(
                (whiteout.kind, whiteout.device, whiteout.links, whiteout.permissions),
                (FileKind::CharacterDevice, (0, 0), 1, 0)
            );
            assert_eq!(whiteout.owner, owner);
        }
        drop(root);
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// A front end clears privileges before it writes; an append-only file has none, and takes what is appended.
#[test]
fn an_append_only_file_has_no_privileges_to_clear() {
    for options in flavors() {
        let device = memory_volume(16, &options);
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let node = filesystem.root().expect("root").create(b"log", &spec(0o600, 0)).expect("create");
        node.set_attributes(&SetAttributes { flags: Some(0x20), ..SetAttributes::default() })
            .expect("chattr +a");
        node.clear_capabilities().expect("no capabilities");
        assert!(!node.clear_privileges().expect("no privileges"));
        drop(node);
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// Size, owner and times are one change: where a part of it cannot be, nothing changes; and the time given with a size is the file's.
#[test]
fn attributes_and_size_change_together_or_not_at_all() {
    for options in flavors() {
        let device = memory_volume(16, &options);
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let root = filesystem.root().expect("root");
        let node = root.create(b"file", &spec(0o6755, 0)).expect("create");
        let file = node.open_options().read(true).write(true).open().expect("open");
        file.write_all_at(&vec![7; 50_000], 0).expect("write");
        let before = node.attributes().expect("stat");
        let at = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        let cut = SetAttributes {
            size: Some(5000),
            clear_privileges: true,
            uid: Some(5),
            modified: Some(SetTime::To(at)),
            ..SetAttributes::default()
        };
        // No volume here has projects.
        assert!(node.set_attributes(&SetAttributes { project: Some(9), ..cut }).is_err());
        let too_large = SetAttributes { size: Some(u64::MAX), ..cut };
        assert!(node.set_attributes(&too_large).is_err());
        assert_eq!(node.attributes().expect("stat"), before);
        node.set_attributes(&cut).expect("set");
        let expected = (5000, 0o755, 5, at);
        let of = |attributes: diorite::Attributes| {
            (attributes.size, attributes.permissions, attributes.owner.uid, attributes.modified)
        };
        assert_eq!(of(node.attributes().expect("stat")), expected);
        let mut read = [0; 6000];
        assert_eq!(file.read_at(&mut read, 0).expect("read"), 5000);
        drop((file, node, root));
        filesystem.close().expect("close");
        let again = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        assert_eq!(of(again.metadata("/file").expect("stat")), expected);
        again.close().expect("close");
        assert_device_clean(&device);
    }
}

/// `lazytime`: an access time is shown at once and written with a sync or at the end; until then no transaction is made for it.
#[test]
fn lazy_access_times_are_written_by_a_sync_or_at_the_end() {
    for options in flavors() {
        let device = memory_volume(16, &options);
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        let root = filesystem.root().expect("root");
        let nodes = [b"a", b"b", b"c"].map(|name| root.create(name, &spec(0o600, 0)).expect("create"));
        let old = SetAttributes {
            accessed: Some(SetTime::To(Timestamp { seconds: 77, nanoseconds: 0 })),
            ..SetAttributes::default()
        };
        for node in &nodes {
            node.set_attributes(&old).expect("set");
        }
        filesystem.sync().expect("sync");
        let written = device.counters().snapshot().writes;
        for node in &nodes {
            node.note_access_lazily().expect("access");
        }
        let accessed =
            |filesystem: &Filesystem, path: &str| filesystem.metadata(path).expect("stat").accessed;
        let shown = ["/a", "/b", "/c"].map(|path| accessed(&filesystem, path));
        assert!(shown.iter().all(|time| time.seconds > 1000));
        nodes[0].open_options().read(true).open().expect("open").sync_data().expect("sync");
        assert_eq!(device.counters().snapshot().writes, written, "nothing is written for a time alone");
        nodes[0].sync().expect("sync");
        assert!(device.counters().snapshot().writes > written);
        // A file that is gone takes its time along.
        filesystem.remove_file("/b").expect("remove");
        drop((nodes, root));
        filesystem.close().expect("close");
        let again = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        assert_eq!((accessed(&again, "/a"), accessed(&again, "/c")), (shown[0], shown[2]));
        again.close().expect("close");
        assert_device_clean(&device);
    }
}
