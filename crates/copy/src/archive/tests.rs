//! Archives that `tar -x` accepts or must reject, extracted onto the host and into images.

use std::os::unix::fs::MetadataExt;

use super::data::CHUNK_BYTES;
use super::*;
use crate::{HostTree, Unwatched};

fn archive(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, name, link, data) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_mtime(1_000_000_000);
        header.set_size(data.len() as u64);
        // Set by hand, since the builder would refuse what hostile archives contain.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
        header.set_gid(u64::from(rustix::process::getegid().as_raw()));
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

fn unpack(
    stream: &[u8],
    name: &str,
    sink: &dyn Sink,
    to: &Path,
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    unpack_members(stream, name, sink, to, (&mut Members::default(), UnpackOptions::default()), watch)
}

fn unpack_here(bytes: &[u8], to: &Path) -> Result<Summary, Error> {
    unpack(bytes, "test.tar", &HostTree::new(), to, &Unwatched)
}

#[test]
fn archive_is_unpacked_with_links_and_times() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = archive(&[
        (EntryType::Directory, "./", "", b""),
        (EntryType::Directory, "sub/", "", b""),
        (EntryType::Regular, "sub/file", "", b"content"),
        (EntryType::Link, "again", "sub/file", b""),
        (EntryType::Symlink, "link", "sub/file", b""),
        (EntryType::Regular, "deep/without/parents", "", b"x"),
    ]);
    let summary = unpack_here(&bytes, directory.path()).unwrap();
    assert_eq!((summary.files, summary.directories, summary.others, summary.bytes), (2, 3, 2, 8));
    assert_eq!(std::fs::read_to_string(directory.path().join("again")).unwrap(), "content");
    let modified = directory.path().join("sub").metadata().unwrap().modified().unwrap();
    assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_000_000_000);
}

/// Directories that the archive does not name would be accessible to their owner only.
#[test]
fn parents_without_an_entry_are_open_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = archive(&[
        (EntryType::Regular, "without/parents/file", "", b"x"),
        (EntryType::Regular, "late/file", "", b"x"),
        (EntryType::Directory, "late/", "", b""),
    ]);
    unpack_here(&bytes, directory.path()).unwrap();
    for name in ["without", "without/parents", "late"] {
        let metadata = directory.path().join(name).metadata().unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o755, 1_000_000_000), "{name}");
    }
}

#[test]
fn archive_cannot_write_outside_of_the_destination() {
    for entries in [
        &[(EntryType::Regular, "../evil", "", &b"x"[..])][..],
        &[(EntryType::Link, "again", "../../etc/passwd", b"")],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("to");
        std::fs::create_dir(&to).unwrap();
        let error = unpack_here(&archive(entries), &to).unwrap_err();
        assert!(error.to_string().contains("points outside the destination"), "{error}");
        assert!(!directory.path().join("evil").exists());
    }
}

/// A failed or interrupted archive left a part of a file in place of the old one.
#[test]
#[expect(clippy::disallowed_methods, reason = "the file that is kept")]
fn an_entry_that_cannot_be_completed_leaves_the_old_file() {
    struct Stop;
    impl Watch for Stop {
        fn begin(&self, _: &Path, _: u64) {}
        fn advance(&self, _: u64) {
            STOP.set(true);
        }
        fn is_cancelled(&self) -> bool {
            STOP.get()
        }
    }
    thread_local!(static STOP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    let directory = tempfile::tempdir().unwrap();
    let mut options = diorite::mkfs::MkfsOptions::new(diorite::mkfs::Flavor::Ext4);
    options.features = "^has_journal".to_owned();
    let image = directory.path().join("disk.img");
    let filesystem = diorite::Filesystem::create(image, 16 << 20, &options).unwrap();
    filesystem.create_dir("/to").unwrap();
    let image = crate::ImageTree::new(filesystem.clone(), "disk.img", None);
    let host = directory.path().join("host");
    std::fs::create_dir(&host).unwrap();
    let large = archive(&[(EntryType::Regular, "file", "", &vec![1; 3 * CHUNK_BYTES])]);
    let too_large = archive(&[(EntryType::Regular, "file", "", &vec![1; 20 << 20])]);
    let cut = &large[..2 * CHUNK_BYTES];
    for old in [None, Some(b"old".to_vec())] {
        if let Some(old) = &old {
            std::fs::write(host.join("file"), old).unwrap();
            filesystem.write("/to/file", old).unwrap();
        }
        for (tree, to) in [(&image as &dyn Sink, Path::new("/to")), (&HostTree::new(), &host)] {
            STOP.set(false);
            let stopped = unpack(&large, "t.tar", tree, to, &Stop);
            assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
            unpack(cut, "t.tar", tree, to, &Unwatched).unwrap_err();
        }
        unpack(&too_large, "t.tar", &image, Path::new("/to"), &Unwatched).unwrap_err();
        assert_eq!(filesystem.read("/to/file").ok(), old);
        assert_eq!(std::fs::read(host.join("file")).ok(), old);
        let names = || std::fs::read_dir(&host).unwrap().count();
        assert_eq!(
            (names(), crate::Source::names(&image, Path::new("/to")).unwrap().names.len()),
            (usize::from(old.is_some()), usize::from(old.is_some()))
        );
    }
}

/// An entry through a link of the archive was rejected, though `tar -x` takes it.
#[test]
fn links_lead_no_further_than_the_destination() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let bytes = archive(&[
        (EntryType::Directory, "usr/lib/", "", b""),
        (EntryType::Symlink, "lib", "usr/lib", b""),
        (EntryType::Symlink, "usr/up", "../../../lib/deep", b""),
        (EntryType::Symlink, "root", "/usr", b""),
        (EntryType::Symlink, "out", "/tmp/diorite", b""),
        (EntryType::Regular, "lib/a", "", b"a"),
        (EntryType::Regular, "usr/up/b", "", b"b"),
        (EntryType::Regular, "root/lib/c", "", b"c"),
        (EntryType::Regular, "out/d", "", b"d"),
        (EntryType::Link, "root/lib/e", "lib/a", b""),
    ]);
    unpack_here(&bytes, &to).unwrap();
    for (name, content) in
        [("lib/a", "a"), ("lib/deep/b", "b"), ("lib/c", "c"), ("../tmp/diorite/d", "d"), ("lib/e", "a")]
    {
        let path = to.join("usr").join(name);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "{}", path.display());
    }
    let bytes = archive(&[
        (EntryType::Symlink, "a", "b", b""),
        (EntryType::Symlink, "b", "a", b""),
        (EntryType::Regular, "a/file", "", b"x"),
    ]);
    let error = unpack_here(&bytes, &to).unwrap_err().to_string();
    assert!(error.contains("too many symbolic links"), "{error}");
}

/// The message said that the archive has both a directory and a link, and a link out of the destination must not be followed.
#[test]
fn links_of_the_destination_stand_for_directories_if_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = archive(&[
        (EntryType::Directory, "lib/", "", b""),
        (EntryType::Regular, "lib/a", "", b"a"),
        (EntryType::Directory, "out/", "", b""),
        (EntryType::Regular, "out/b", "", b"b"),
        (EntryType::Regular, "last", "", b"c"),
    ]);
    std::fs::create_dir(directory.path().join("outside")).unwrap();
    for (directory_links, failed) in [(DirectoryLinks::Refuse, 4), (DirectoryLinks::Follow, 2)] {
        let to = directory.path().join(format!("{failed}"));
        std::fs::create_dir_all(to.join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("usr/lib", to.join("lib")).unwrap();
        std::os::unix::fs::symlink("../outside", to.join("out")).unwrap();
        let options = UnpackOptions { on_failure: OnFailure::GoOn, directory_links };
        let wanted = (&mut Members::default(), options);
        let tree = HostTree::new();
        let summary = unpack_members(bytes.as_slice(), "t.tar", &tree, &to, wanted, &Unwatched).unwrap();
        assert_eq!(summary.failed, failed);
        assert_eq!(to.join("usr/lib/a").exists(), directory_links == DirectoryLinks::Follow);
        assert!(to.join("last").exists() && to.join("lib").is_symlink());
        assert!(!directory.path().join("outside/b").exists());
    }
}

/// The second of two entries whose names differ by case replaced the first. A later entry of the same name still does.
#[test]
fn entries_that_are_one_in_the_destination_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = diorite::mkfs::MkfsOptions::new(diorite::mkfs::Flavor::Ext4);
    options.features = "casefold".to_owned();
    let image = directory.path().join("disk.img");
    let filesystem = diorite::Filesystem::create(image, 32 << 20, &options).unwrap();
    filesystem.create_dir("/to").unwrap();
    let tree = crate::ImageTree::new(filesystem, "disk.img", None);
    tree.add_flags(Path::new("/to"), InodeFlags::CASEFOLD).unwrap();
    let unpack_into = |entries: &[(EntryType, &str, &str, &[u8])]| {
        unpack(&archive(entries), "t.tar", &tree, Path::new("/to"), &Unwatched)
    };
    let file = |name| (EntryType::Regular, name, "", &b"x"[..]);
    let directory = |name| (EntryType::Directory, name, "", &b""[..]);
    let link = |name| (EntryType::Symlink, name, "target", &b""[..]);
    for entries in [
        [file("README"), file("readme")],
        [directory("Sub/"), directory("sub/")],
        [directory("Deep/"), file("deep/file")],
        [link("link"), file("LINK")],
        [file("cafe\u{301}"), file("caf\u{e9}")],
        [file("one"), (EntryType::Link, "ONE", "one", b"")],
    ] {
        let error = unpack_into(&entries).unwrap_err();
        assert!(matches!(error, Error::NameClash { .. }), "{error}");
    }
    unpack_into(&[
        file("twice"),
        (EntryType::Link, "name", "twice", b""),
        file("name"),
        file("twice"),
        directory("again/"),
        file("again/file"),
        directory("again/"),
    ])
    .unwrap();
}
