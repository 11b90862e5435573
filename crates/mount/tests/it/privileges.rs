//! Privileges that a file loses when its content changes.

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{
    Attributes, ErrorKind, FileKind, Filesystem, InodeNumber, IoFlags, NodeSpec, Owner, SetAttributes,
    XattrMode,
};
use diorite_mount::operations::{Caller, OpenFlags, Operations, Settings, Source};
use tempfile::TempDir;

const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0 };
const IMMUTABLE: u32 = 0x10;
const CAPABILITY: &[u8] = b"security.capability";

/// A volume with a program that has capabilities.
fn program() -> (TempDir, Operations, Attributes) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = place.path().join("a.img");
    let filesystem = Filesystem::create(&image, 16 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
    let operations = Operations::new(filesystem, Settings::default());
    let new = NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o4755,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    let made = operations.create(InodeNumber::ROOT, b"program", &new).expect("create").attributes;
    operations.set_xattr(made.inode, CAPABILITY, &[1; 20], XattrMode::Set, false).expect("setcap");
    (place, operations, made)
}

fn has_capabilities(operations: &Operations, inode: InodeNumber) -> bool {
    match operations.xattr(inode, CAPABILITY) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NoAttribute => false,
        Err(error) => panic!("{error}"),
    }
}

/// The first write of a handle could not clear them, and the second one, which changed the content, left them.
#[test]
fn capabilities_are_gone_after_a_write_also_where_an_earlier_one_could_not_clear_them() {
    let (_place, operations, made) = program();
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let handle = operations.files().open(made.inode, flags, &ROOT).expect("open").handle;
    let source = Source::Caller { clear_privileges: false, flags: IoFlags::NONE, takes_part: false };
    operations.set_flags(made.inode, Some(made.flags | IMMUTABLE), None, &ROOT).expect("chattr +i");
    operations
        .files()
        .write(handle, b"content", 0, source)
        .expect_err("capabilities of an immutable file stay");
    assert!(has_capabilities(&operations, made.inode));
    operations.set_flags(made.inode, Some(made.flags), None, &ROOT).expect("chattr -i");
    operations.files().write(handle, b"content", 0, source).expect("write");
    assert!(!has_capabilities(&operations, made.inode), "another content has them");
    operations.files().close(handle);
}

/// Each way to another content, by the superuser, who keeps set-user-ID alone.
#[test]
fn no_caller_keeps_capabilities() {
    for way in ["truncate", "open", "copy", "allocate"] {
        let (_place, operations, made) = program();
        let flags = OpenFlags { write: true, truncate: way == "open", ..OpenFlags::default() };
        let handle = operations.files().open(made.inode, flags, &ROOT).expect("open").handle;
        match way {
            "truncate" => {
                let emptied = SetAttributes { size: Some(0), ..SetAttributes::default() };
                let _ = operations.set_attributes(made.inode, &emptied).expect("truncate");
            }
            "copy" => {
                let _ = operations.files().copy_range((handle, 0), (handle, 8), 4, &ROOT).expect("copy");
            }
            "allocate" => {
                let what = diorite_mount::operations::Allocation::Allocate { keep_size: false };
                let _ =
                    operations.files().allocate(handle, (0, 4096), what, &ROOT, &|| false).expect("allocate");
            }
            _ => {}
        }
        assert!(!has_capabilities(&operations, made.inode), "{way}");
        let permissions = operations.attributes(made.inode).expect("stat").permissions;
        assert_eq!(permissions, 0o4755, "{way}");
        operations.files().close(handle);
    }
}

/// A kernel's cache writes later than the program, and takes capabilities when that writes: those that were given meanwhile, as by `cp -a` over a file,
/// were gone.
#[test]
fn capabilities_that_a_file_was_given_stay_when_a_cache_writes_what_was_written_before() {
    let (_place, operations, made) = program();
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let handle = operations.files().open(made.inode, flags, &ROOT).expect("open").handle;
    let written = operations.files().write(handle, b"content", 0, Source::Cache).expect("write");
    assert!(written.is_first && has_capabilities(&operations, made.inode));
    operations.files().close(handle);
}

/// The first write by a handle took them, and no later one did.
#[test]
fn capabilities_that_a_file_was_given_between_two_writes_are_gone_after_the_second() {
    let (_place, operations, made) = program();
    let source = Source::Caller { clear_privileges: false, flags: IoFlags::NONE, takes_part: false };
    for is_new in [false, true] {
        let flags = OpenFlags { write: true, is_new, ..OpenFlags::default() };
        let handle = operations.files().open(made.inode, flags, &ROOT).expect("open").handle;
        operations.files().write(handle, b"content", 0, source).expect("write");
        operations.set_xattr(made.inode, CAPABILITY, &[1; 20], XattrMode::Set, false).expect("setcap");
        operations.files().write(handle, b"another", 0, source).expect("write");
        assert!(!has_capabilities(&operations, made.inode), "another content has them");
        operations.files().close(handle);
    }
}

/// Of nodes that are not regular files they stayed.
#[test]
fn a_change_of_owner_clears_set_ids_of_all_but_directories() {
    let (_place, operations, _) = program();
    let nodes =
        [(FileKind::Fifo, 0o0755), (FileKind::CharacterDevice, 0o0755), (FileKind::Directory, 0o6755)];
    for (kind, left) in nodes {
        let name = format!("{kind:?}").into_bytes();
        let new = NodeSpec { kind, permissions: 0o6755, umask: 0, owner: Owner::default(), device: (1, 3) };
        let made = operations.create(InodeNumber::ROOT, &name, &new).expect("create").attributes;
        let chown = SetAttributes { uid: Some(1000), clear_privileges: true, ..SetAttributes::default() };
        let now = operations.set_attributes(made.inode, &chown).expect("chown");
        assert_eq!(now.permissions, left, "{kind:?}");
    }
}

/// As on Linux: there was an error where there is no list.
#[test]
fn a_list_that_is_not_there_can_be_removed() {
    let (_place, operations, made) = program();
    for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
        operations.remove_xattr(InodeNumber::ROOT, name).expect("remove");
        for empty in [&b""[..], &[2, 0, 0, 0]] {
            operations
                .set_xattr(InodeNumber::ROOT, name, empty, XattrMode::Set, false)
                .expect("an empty list");
        }
    }
    operations.remove_xattr(made.inode, b"user.none").expect_err("another attribute that is not there");
}
