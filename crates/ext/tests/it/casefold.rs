//! Directories that ignore case: made by mke2fs and debugfs, read and changed by Diorite, checked by e2fsck, which folds names as the
//! kernel does. The running kernel need not support the feature.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Bench, entries_of, have, read_file, run};
use diorite_ext::{Error, FileKind, Inode, InodeNumber, NodeSpec, Owner, RenameMode, SetAttributes, Volume};
use diorite_ext_tools::check::CheckOptions;

const CASEFOLD: u32 = 0x4000_0000;

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, permissions: 0o755, umask: 0, owner: Owner::default(), device: (0, 0) }
}

fn set_case(volume: &Volume, inode: &Inode, ignored: bool) -> diorite_ext::Result<()> {
    let flags = inode.attributes().flags;
    let flags = if ignored { flags | CASEFOLD } else { flags & !CASEFOLD };
    volume.set_attributes(inode, &SetAttributes { flags: Some(flags), ..SetAttributes::default() })
}

/// A directory that ignores case, in the root.
fn folded_directory(volume: &Volume, name: &[u8]) -> Arc<Inode> {
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let directory = volume.names.create(&root, name, &spec(FileKind::Directory)).unwrap();
    set_case(volume, &directory, true).unwrap();
    directory
}

fn names_of(volume: &Volume, directory: &Inode) -> BTreeSet<String> {
    entries_of(volume, directory).into_iter().map(|(name, _)| String::from_utf8(name).unwrap()).collect()
}

/// A directory that debugfs marked and filled, and e2fsck indexed by the folded names.
#[test]
fn names_that_e2fsprogs_indexed_are_found_in_any_case() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.image("-t ext4 -b 1024 -O casefold", "16M");
    let path = image.to_string_lossy().into_owned();
    let content = bench.path("content");
    std::fs::write(&content, b"content").unwrap();
    let mut commands =
        vec!["mkdir d".to_owned(), "set_inode_field d flags 0x40080000".to_owned(), "cd d".to_owned()];
    for index in 0..120 {
        commands.push(format!("write {} A-Name-That-Has-Capitals-{index}", content.display()));
    }
    commands.push(format!("write {} Stra\u{df}e", content.display()));
    let script = bench.path("script");
    std::fs::write(&script, commands.join("\n")).unwrap();
    run("debugfs", &["-w", "-f", &script.to_string_lossy(), &path]);
    run("e2fsck", &["-fyD", &path]);
    let (device, volume) = bench.open(&image);
    assert_eq!(volume.read_only_reason(), None);
    bench.check(&device);
    let directory = volume.names.lookup(&volume.inodes.get(InodeNumber::ROOT).unwrap(), b"d").unwrap();
    for index in 0..120 {
        let find = |name: String| volume.names.lookup(&directory, name.as_bytes()).unwrap();
        let stored = find(format!("A-Name-That-Has-Capitals-{index}"));
        assert_eq!(stored.number(), find(format!("a-name-that-has-CAPITALS-{index}")).number());
    }
    let street = volume.names.lookup(&directory, b"STRASSE").unwrap();
    assert_eq!(read_file(&volume, &street), b"content");
    let listed = names_of(&volume, &directory);
    assert!(listed.len() == 121 && listed.contains("Stra\u{df}e"));
    // A cached name in one case is forgotten with the entry, whatever the case of the removed name.
    let held = volume.names.lookup(&directory, b"A-NAME-THAT-HAS-CAPITALS-7").unwrap();
    volume.names.unlink(&directory, b"a-NAME-that-has-capitals-7").unwrap();
    for name in [&b"A-NAME-THAT-HAS-CAPITALS-7"[..], b"a-NAME-that-has-capitals-7"] {
        assert!(matches!(volume.names.lookup(&directory, name), Err(Error::NotFound)));
    }
    drop(held);
    volume.names.create(&directory, b"A-name-that-has-CAPITALS-7", &spec(FileKind::Regular)).unwrap();
    volume.close().unwrap();
    bench.check(&device);
}

/// Letters of several scripts, some with marks in an order that is not the canonical one, some that fold to more letters.
fn name(n: u32, upper: bool) -> String {
    let stem = [
        "file",
        "stra\u{df}e",
        "\u{e9}t\u{e9}",
        "\u{3c3}\u{3af}\u{3c3}\u{3c5}\u{3c6}\u{3bf}\u{3c2}",
        "q\u{323}\u{307}",
        "\u{443}\u{43b}\u{438}\u{446}\u{430}",
    ];
    let stem = stem[n as usize % stem.len()];
    let stem = if upper { stem.to_uppercase() } else { stem.to_owned() };
    format!("{stem}-{n}")
}

#[test]
fn names_made_here_are_where_e2fsck_expects_them() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in [
        "-t ext4 -b 1024 -O casefold",
        "-t ext4 -b 1024 -O casefold,^metadata_csum,^64bit -E hash_seed=6f6f6f6f-1234-5678-9abc-def012345678",
        "-t ext4 -b 4096 -O casefold,inline_data,large_dir -E encoding=utf8",
        "-t ext4 -b 1024 -O casefold,^dir_index -E encoding=utf8,encoding_flags=strict",
    ] {
        let bench = Bench::new();
        let image = bench.image(arguments, "32M");
        let (device, volume) = bench.open(&image);
        let directory = folded_directory(&volume, b"d");
        for n in 0..1500 {
            volume
                .names
                .create(&directory, name(n, n % 2 == 0).as_bytes(), &spec(FileKind::Regular))
                .unwrap();
            let again =
                volume.names.create(&directory, name(n, n % 2 == 1).as_bytes(), &spec(FileKind::Regular));
            assert!(matches!(again, Err(Error::Exists)), "{arguments}: {}", name(n, true));
        }
        for n in (0..1500).step_by(3) {
            volume.names.unlink(&directory, name(n, n % 2 == 1).as_bytes()).unwrap();
        }
        volume.close().unwrap();
        bench.check(&device);
        device.save(&image);
        let (device, volume) = bench.open(&image);
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        let directory = volume.names.lookup(&root, b"d").unwrap();
        let kept = (0..1500).filter(|n| n % 3 != 0).map(|n| name(n, n % 2 == 0));
        assert_eq!(names_of(&volume, &directory), kept.collect(), "{arguments}");
        for n in 0..1500 {
            let found = volume.names.lookup(&directory, name(n, n % 2 == 1).as_bytes());
            assert_eq!(found.is_ok(), n % 3 != 0, "{arguments}: {}", name(n, true));
        }
        let report =
            diorite_ext_tools::check::check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{arguments}: {:?}", report.problems);
    }
}

#[test]
fn directories_hand_the_flag_on_and_take_it_only_when_empty() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.image("-t ext4 -b 1024 -O casefold", "16M");
    let (device, volume) = bench.open(&image);
    let directory = folded_directory(&volume, b"d");
    let below = volume.names.create(&directory, b"Below", &spec(FileKind::Directory)).unwrap();
    assert_ne!(below.attributes().flags & CASEFOLD, 0);
    let file = volume.names.create(&below, b"File", &spec(FileKind::Regular)).unwrap();
    assert_eq!(file.attributes().flags & CASEFOLD, 0);
    assert!(matches!(set_case(&volume, &below, false), Err(Error::NotEmpty)));
    assert!(matches!(set_case(&volume, &file, true), Err(Error::Unsupported(_))));
    // Both names are the same inode already: nothing to do, as for the kernel.
    volume.names.rename(&below, b"file", &below, b"FILE", RenameMode::Replace).unwrap();
    assert_eq!(names_of(&volume, &below), BTreeSet::from(["File".to_owned()]));
    volume.names.rename(&below, b"fILE", &directory, b"other", RenameMode::Replace).unwrap();
    volume.names.link(&file, &below, b"LINK").unwrap();
    assert!(matches!(volume.names.link(&file, &below, b"link"), Err(Error::Exists)));
    let third = volume.names.create(&below, b"Third", &spec(FileKind::Regular)).unwrap();
    volume.names.rename(&below, b"THIRD", &directory, b"OTHER", RenameMode::Replace).unwrap();
    assert_eq!(volume.names.lookup(&directory, b"Other").unwrap().number(), third.number());
    assert_eq!(names_of(&volume, &directory), BTreeSet::from(["Below".to_owned(), "other".to_owned()]));
    // Letters that are ignored do not make a name of the dots.
    for name in ["..\u{200b}", ".\u{200b}"] {
        assert!(matches!(volume.names.lookup(&below, name.as_bytes()), Err(Error::NotFound)));
        volume.names.create(&below, name.as_bytes(), &spec(FileKind::Regular)).unwrap();
        volume.names.unlink(&below, name.as_bytes()).unwrap();
    }
    volume.names.unlink(&below, b"link").unwrap();
    set_case(&volume, &below, false).unwrap();
    for name in [&b"case"[..], b"CASE"] {
        volume.names.create(&below, name, &spec(FileKind::Regular)).unwrap();
    }
    volume.close().unwrap();
    bench.check(&device);
}

#[test]
fn names_that_are_not_utf8_are_bytes_or_refused() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for (strict, extended) in [(false, "encoding=utf8"), (true, "encoding=utf8,encoding_flags=strict")] {
        let bench = Bench::new();
        let image = bench.image(&format!("-t ext4 -b 1024 -O casefold -E {extended}"), "16M");
        let (device, volume) = bench.open(&image);
        let directory = folded_directory(&volume, b"d");
        for name in [&b"Name-\xff"[..], b"name-\xff", b"\xed\xa0\x80"] {
            match volume.names.create(&directory, name, &spec(FileKind::Regular)) {
                Err(Error::InvalidArgument(why)) if strict => assert!(why.contains("UTF-8")),
                result => assert!(result.is_ok() && !strict, "{result:?}"),
            }
        }
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        volume.names.create(&root, b"plain-\xff", &spec(FileKind::Regular)).unwrap();
        volume.close().unwrap();
        bench.check(&device);
    }
}
