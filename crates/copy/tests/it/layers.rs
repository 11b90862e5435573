//! Layers over each other: whiteouts, kinds that replace each other, parents that are links, hard links to lower layers, and owners.

use std::path::Path;

use diorite::FileKind;
use diorite_copy::{Follow, MemoryTree, Role, Source, Table};
use tar::EntryType;

use crate::common::{Entry, archive, content, layered, paths, record};

fn tree(layers: &[Vec<Entry>]) -> MemoryTree {
    let directory = tempfile::tempdir().expect("a directory");
    layered(directory.path(), layers).expect("a tree")
}

fn failure(layers: &[Vec<Entry>]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    layered(directory.path(), layers).expect_err("hostile").to_string()
}

fn base() -> Vec<Entry> {
    vec![
        Entry::directory("etc", 0o750),
        Entry::file("etc/passwd", "root"),
        Entry::file("etc/hosts", "localhost"),
        Entry::directory("usr", 0o755),
        Entry::directory("usr/lib", 0o755),
        Entry::file("usr/lib/a.so", "a"),
        Entry::link("lib", "usr/lib"),
        Entry::link("abs", "/usr/lib"),
        Entry::link("up", "../../../usr"),
    ]
}

/// A mark hides files of lower layers, never of its own, wherever it is in the archive.
#[test]
fn whiteouts_hide_lower_layers_only() {
    let mark = || Entry::file("etc/.wh.passwd", "");
    let opaque = || Entry::file("etc/.wh..wh..opq", "");
    let own = || Entry::file("etc/passwd", "own");
    for upper in [vec![mark(), own()], vec![own(), mark()], vec![mark(), mark(), own()]] {
        let tree = tree(&[base(), upper]);
        assert_eq!(content(&tree, "/etc/passwd").expect("it is there"), b"own");
        assert_eq!(content(&tree, "/etc/hosts").expect("it is there"), b"localhost");
        // A directory that the layer only implies keeps its attributes.
        assert_eq!(tree.meta(Path::new("/etc"), Follow::No).expect("it is there").permissions, 0o750);
    }
    for upper in [vec![opaque(), own()], vec![own(), opaque()]] {
        let tree = tree(&[base(), upper]);
        assert_eq!(tree.names(Path::new("/etc")).expect("a directory").names, [b"passwd"]);
    }
    let whole = Entry::file(".wh.etc", "");
    let tree = tree(&[base(), vec![Entry::file("etc/new", "x"), whole]]);
    assert_eq!(tree.names(Path::new("/etc")).expect("a directory").names, [b"new"]);
    assert_eq!(tree.meta(Path::new("/etc"), Follow::No).expect("it is there").permissions, 0o755);
    // Marks of the lowest layer, and files beside marks, are not in the tree.
    let marks = ["/.wh.x", "/a/.wh..wh..opq", "/.wh..wh.plnk"].map(|name| Entry::file(&name[1..], ""));
    assert_eq!(paths(&self::tree(&[marks.to_vec()])), ["/a"]);
    // Only a regular file is a mark.
    let directory = vec![Entry::directory(".wh.etc", 0o755)];
    assert!(paths(&self::tree(&[base(), directory])).contains(&"/.wh.etc".to_owned()));
}

#[test]
fn kinds_replace_each_other() {
    let tree = tree(&[
        base(),
        vec![
            Entry::file("usr", "a file over a directory"),
            Entry::directory("lib", 0o711),
            Entry::link("etc", "usr"),
            Entry::directory("abs", 0o700),
            Entry::file("abs/x", "x"),
        ],
        vec![Entry::directory("usr", 0o555)],
    ]);
    assert_eq!(paths(&tree), ["/abs", "/abs/x", "/etc", "/lib", "/up", "/usr"]);
    let meta = |path: &str| tree.meta(Path::new(path), Follow::No).expect("it is there");
    assert_eq!((meta("/usr").kind, meta("/usr").permissions), (FileKind::Directory, 0o555));
    assert_eq!((meta("/lib").kind, meta("/etc").kind), (FileKind::Directory, FileKind::Symlink));
}

/// Parents that are links of lower layers are followed inside the root.
#[test]
fn parents_may_be_links_of_lower_layers() {
    let upper = vec![
        Entry::file("lib/b.so", "b"),
        Entry::file("abs/c.so", "c"),
        Entry::file("up/share/d", "d"),
        Entry::file("lib/.wh.a.so", ""),
    ];
    let tree = tree(&[base(), upper]);
    assert_eq!(tree.names(Path::new("/usr/lib")).expect("a directory").names, [b"b.so", b"c.so"]);
    assert_eq!(content(&tree, "/usr/share/d").expect("it is there"), b"d");
    // A mark of this layer in the real directory hides nothing that comes through the link.
    let upper = vec![Entry::file("lib/b.so", "b"), Entry::file("usr/lib/.wh.b.so", "")];
    let tree = self::tree(&[base(), upper.clone(), upper]);
    assert_eq!(content(&tree, "/usr/lib/b.so").expect("it is there"), b"b");
    // A hidden link is no way any more.
    let upper = vec![Entry::file("lib/own", "x"), Entry::file(".wh.lib", "")];
    let tree = self::tree(&[base(), upper]);
    assert_eq!(tree.meta(Path::new("/lib"), Follow::No).expect("it is there").kind, FileKind::Directory);
    assert_eq!(tree.names(Path::new("/usr/lib")).expect("a directory").names, [b"a.so"]);
    // A link to a missing directory.
    let lower = vec![Entry::link("l", "new/../new/deep")];
    let tree = self::tree(&[lower, vec![Entry::file("l/f", "x")]]);
    assert_eq!(content(&tree, "/new/deep/f").expect("it is there"), b"x");
}

#[test]
fn hard_links_may_lead_to_lower_layers() {
    let upper = vec![
        Entry::hard_link("passwd", "etc/passwd"),
        Entry::hard_link("again", "passwd"),
        Entry::hard_link("so", "lib/a.so"),
        Entry::file(".wh.etc", ""),
    ];
    let tree = tree(&[base(), upper]);
    let meta = |path: &str| tree.meta(Path::new(path), Follow::No).expect("it is there");
    assert_eq!(content(&tree, "/passwd").expect("it is there"), b"root");
    assert_eq!((meta("/passwd").identity, meta("/passwd").links), (meta("/again").identity, 2));
    assert_eq!((meta("/so").identity, meta("/so").links), (meta("/usr/lib/a.so").identity, 2));
    // A name that is hidden is no link any more.
    let hidden = vec![Entry::file(".wh.again", "")];
    let layers = [base(), vec![Entry::hard_link("again", "etc/passwd")], hidden];
    let tree = self::tree(&layers);
    assert_eq!(tree.meta(Path::new("/etc/passwd"), Follow::No).expect("it is there").links, 1);
    let said = failure(&[base(), vec![Entry::hard_link("x", "missing")]]);
    assert!(said.contains("`x`") && said.contains("`missing` is in no lower layer"), "{said}");
    let said = failure(&[base(), vec![Entry::hard_link("x", "etc")]]);
    assert!(said.contains("`x`"), "{said}");
}

#[test]
fn hostile_layers_are_errors() {
    for name in [".wh.", ".wh...", ".wh..", "etc/.wh..", "etc/.wh..."] {
        let said = failure(&[base(), vec![Entry::file(name, "")]]);
        assert!(said.contains("whiteout"), "{name}: {said}");
    }
    let said = failure(&[base(), vec![Entry::file("../out", "")]]);
    assert!(said.contains("points outside the destination"), "{said}");
    let around = vec![Entry::link("a", "b"), Entry::link("b", "a")];
    let said = failure(&[around, vec![Entry::file("a/f", "x")]]);
    assert!(said.contains("`a`") && said.contains("symbolic link"), "{said}");
    let said = failure(&[vec![Entry::file("f", "x"), Entry::link("l", "f")], vec![Entry::file("l/x", "x")]]);
    assert!(said.contains("does not point to a directory"), "{said}");
}

fn meta_of(tree: &MemoryTree, path: &str) -> (u16, u32, u32) {
    let meta = tree.meta(Path::new(path), Follow::No).expect("it is there");
    (meta.permissions, meta.uid, meta.gid)
}

fn recorded() -> MemoryTree {
    let directory = tempfile::tempdir().expect("a directory");
    record(directory.path(), &archive(&base()), Role::Whole).expect("a tree")
}

#[test]
fn owners_are_set_for_all() {
    let mut tree = recorded();
    let group = meta_of(&tree, "/etc").2;
    tree.set_owner(Some(7), None);
    assert_eq!(meta_of(&tree, "/etc/hosts"), (0o644, 7, group));
    tree.set_owner(Some(8), Some(9));
    for path in ["/", "/etc", "/etc/hosts", "/lib"] {
        assert_eq!((meta_of(&tree, path).1, meta_of(&tree, path).2), (8, 9), "{path}");
    }
}

#[test]
fn a_table_sets_owners_and_makes_nodes() {
    let mut tree = recorded();
    tree.set_owner(Some(1), Some(1));
    let text = "# name type mode uid gid major minor start inc count\n\
        \n\
        /etc/passwd f 640 0 42 - - - - -\n\
        /usr r - 0 0 - - - - -\n\
        /dev d 755 0 0\n\
        /dev/console\tc\t622\t0\t5\t5\t1\t-\t-\t-\n\
        /dev/hda b 640 0 6 3 0 0 0 -\n\
        /dev/hda b 640 0 6 3 1 1 1 3\n\
        /dev/uio b 640 0 0 252 0 1 2 2\n\
        run/deep/pipe p 600 7 7 - - - - -\n\
        /etc d -1 - 0\n\
        /etc/none F 600 0 0\n";
    tree.obey(&Table::parse("t", text.as_bytes()).expect("a table")).expect("all are there");
    assert_eq!(meta_of(&tree, "/etc/passwd"), (0o640, 0, 42));
    assert_eq!(meta_of(&tree, "/etc/hosts"), (0o644, 1, 1));
    assert_eq!(meta_of(&tree, "/usr/lib/a.so"), (0o644, 0, 0));
    assert_eq!(meta_of(&tree, "/etc"), (0o750, 1, 0));
    assert_eq!(meta_of(&tree, "/run"), (0o755, 0, 0));
    assert_eq!(meta_of(&tree, "/run/deep/pipe"), (0o600, 7, 7));
    let device = |path: &str| {
        let meta = tree.meta(Path::new(path), Follow::No).expect(path);
        (meta.kind, meta.device)
    };
    assert_eq!(device("/dev/console"), (FileKind::CharacterDevice, (5, 1)));
    assert_eq!(device("/dev/hda"), (FileKind::BlockDevice, (3, 0)));
    for (path, minor) in [("/dev/hda1", 1), ("/dev/hda2", 2), ("/dev/hda3", 3)] {
        assert_eq!(device(path), (FileKind::BlockDevice, (3, minor)), "{path}");
    }
    assert_eq!((device("/dev/uio1").1, device("/dev/uio2").1), ((252, 0), (252, 2)));
    let names = tree.names(Path::new("/dev")).expect("a directory").names.len();
    assert_eq!(names, 7);
}

#[test]
fn what_is_wrong_with_a_table_names_the_line() {
    for (line, part) in [
        ("/x", "no type"),
        ("/x q 644 0 0", "type `q` is unknown"),
        ("/x f 9 0 0", "not octal"),
        ("/x f 10000 0 0", "not octal"),
        ("/x f 644 root 0", "`root` is not a number"),
        ("/x f 644 0 4294967295", "outside of"),
        ("/x c 644 0 0", "needs a major and a minor"),
        ("/x c 644 0 0 4096 0", "outside of"),
        ("/x c 644 0 0 1 1048575 0 1 2", "last minor number"),
        ("/x c 644 0 0 1 1 0 1 99999999", "outside of"),
        ("/../x d 644 0 0", "`..`"),
        ("/x d 1 2 3 4 5 6 7 8 9 10", "more than ten"),
        ("/missing f 644 0 0", "/missing is not in the content"),
        ("/missing r 644 0 0", "/missing is not in the content"),
        ("/etc f 644 0 0", "not a regular file"),
        ("/etc/hosts d 755 0 0", "not a directory"),
        ("/etc/hosts c 644 0 0 1 1", "exists already"),
        ("/etc/hosts/x p 644 0 0", "not a directory"),
    ] {
        let text = format!("# comment\n/etc d 755 0 0\n{line}\n");
        let mut tree = recorded();
        let error = Table::parse("file", text.as_bytes()).and_then(|table| tree.obey(&table));
        let said = error.expect_err(line).to_string();
        assert!(said.starts_with("file:3: ") && said.contains(part), "{line}: {said}");
    }
}

/// The tree gets the attributes of the archive. It keeps the flags for the copy.
#[test]
fn nodes_and_flags_of_an_archive_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut records = Vec::new();
    for (key, value) in [("SCHILY.xattr.user.a", "b"), ("SCHILY.fflags", "nodump,schg")] {
        let rest = format!(" {key}={value}\n");
        records.extend(format!("{}{rest}", rest.len() + 2).into_bytes());
    }
    let entries = [
        Entry::new(EntryType::XHeader, "x", "", &records),
        Entry::file("f", "x"),
        Entry::new(EntryType::Char, "null", "", b""),
    ];
    let tree = record(directory.path(), &archive(&entries), Role::Whole).expect("a tree");
    let path = Path::new("/f");
    assert_eq!(tree.attributes(path).expect("it is there"), [(b"user.a".to_vec(), b"b".to_vec())]);
    assert_eq!(tree.flags(path).expect("it is there").bits(), 0x50);
    let null = tree.meta(Path::new("/null"), Follow::No).expect("it is there");
    assert_eq!((null.kind, null.device), (FileKind::CharacterDevice, (1, 3)));
}
