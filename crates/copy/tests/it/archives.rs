//! Archives as trees in memory, compared with the result of `tar -x` for each form of archive, and with a directory.

use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use diorite::FileKind;
use diorite_copy::{
    Archive, FileTree, Follow, HostTree, MemoryTree, Recording, Role, Sink, Source, Unwatched,
};
use tar::EntryType;
use tempfile::TempDir;

use crate::common::{Entry, archive, content, differences, paths, record, record_file};

/// A tree of the host with files of every size, holes, links and attributes.
fn tree(directory: &TempDir) -> PathBuf {
    let top = directory.path().join("tree");
    std::fs::create_dir_all(top.join("sub/deep/empty")).expect("directories");
    for (name, len) in [("sub/a", 0), ("sub/b", 1), ("sub/deep/c", 70_000), ("large", 3 << 20)] {
        let bytes: Vec<u8> = (0..len).map(|at: u32| (at / 7 + len) as u8 | 1).collect();
        std::fs::write(top.join(name), bytes).expect("space");
    }
    let sparse = std::fs::File::create(top.join("sub/sparse")).expect("a file");
    sparse.write_all_at(b"head", 0).expect("space");
    sparse.write_all_at(&[7; 5000], 9 << 20).expect("space");
    sparse.set_len(20 << 20).expect("a size");
    std::fs::write(top.join("zeros"), vec![0; 2 << 20]).expect("space");
    std::fs::hard_link(top.join("large"), top.join("sub/deep/again")).expect("a link");
    symlink("../sub/deep", top.join("sub/link")).expect("a link");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        top.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .expect("a pipe");
    // Not every filesystem has them.
    let _ = rustix::fs::setxattr(top.join("sub/b"), "user.a", b"value", rustix::fs::XattrFlags::empty());
    top
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::inherit()).output().expect("the program is there");
    assert!(output.status.success(), "{command:?}");
    output.stdout
}

fn packed(top: &Path) -> Vec<u8> {
    run(Command::new("tar").args(["--xattrs", "--format=posix", "--sparse", "-c", "-C"]).arg(top).arg("."))
}

fn has_zstd() -> bool {
    let found = Command::new("zstd").arg("--version").stdout(Stdio::null()).status();
    found.map_err(|error| eprintln!("SKIPPED: zstd: {error}")).is_ok()
}

/// Compress with a program.
fn compressed(program: &[&str], bytes: &[u8], directory: &Path) -> Vec<u8> {
    let path = directory.join("to-compress");
    std::fs::write(&path, bytes).expect("space");
    let input = std::fs::File::open(&path).expect("it is there");
    run(Command::new(program[0]).args(&program[1..]).stdin(input))
}

#[test]
fn every_form_of_an_archive_gives_the_tree() {
    if !has_zstd() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let top = tree(&directory);
    let bytes = packed(&top);
    let gzip = compressed(&["gzip", "-c"], &bytes, directory.path());
    let zstd = compressed(&["zstd", "-c", "--check"], &bytes, directory.path());
    // Compressed streams can have parts, and zstd frames that are skipped.
    let half = bytes.len() / 2;
    let halves = |program: &[&str]| {
        [
            compressed(program, &bytes[..half], directory.path()),
            compressed(program, &bytes[half..], directory.path()),
        ]
    };
    let [first, second] = halves(&["zstd", "-c"]);
    let skipped =
        [&b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..], &first, b"\x5f\x2a\x4d\x18\0\0\0\0", &second].concat();
    let forms = [
        bytes.clone(),
        gzip,
        zstd,
        halves(&["gzip", "-c"]).concat(),
        skipped,
        halves(&["zstd", "-c"]).concat(),
    ];
    let mut digests = Vec::new();
    for (number, form) in forms.iter().enumerate() {
        let tree = record(directory.path(), form, Role::Whole).expect("a tree");
        assert_eq!(differences(&top, &tree), Vec::<String>::new(), "form {number}");
        let links = tree.meta(Path::new("/sub/deep/again"), Follow::No).expect("it is there").links;
        assert_eq!(links, 2);
        digests.push(tree.digest(&Unwatched).expect("a digest"));
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// A pipe is kept in a temporary file, which has no name.
#[test]
fn a_pipe_gives_the_tree() {
    let directory = tempfile::tempdir().expect("a directory");
    let top = tree(&directory);
    let bytes = packed(&top);
    let pipe = directory.path().join("pipe.tar");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    let temporary = tempfile::tempdir().expect("a directory");
    let tree = std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&pipe, &bytes).expect("a reader"));
        record_file(&pipe, temporary.path(), Role::Whole).expect("a tree")
    });
    assert!(std::fs::read_dir(temporary.path()).expect("it is there").next().is_none());
    assert_eq!(differences(&top, &tree), Vec::<String>::new());
}

/// Zeros became holes, and a guest that wrote to them in a full image ran out of space.
#[test]
fn only_holes_of_the_source_are_holes() {
    let directory = tempfile::tempdir().expect("a directory");
    let entry = Entry { data: vec![0; 5 << 20], ..Entry::file("zeros", "") };
    // The old form of GNU tar: a map of one block of zeros, and a hole.
    let mut sparse = tar::Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_path("sparse").expect("a short name");
    sparse.set_size(512);
    let gnu = sparse.as_gnu_mut().expect("it is of GNU tar");
    gnu.set_real_size(8 << 20);
    gnu.sparse[0].offset.copy_from_slice(b"00010000000\0");
    gnu.sparse[0].numbytes.copy_from_slice(b"00000001000\0");
    sparse.set_mode(0o644);
    sparse.set_uid(0);
    sparse.set_gid(0);
    sparse.set_mtime(0);
    sparse.set_cksum();
    let bytes = [sparse.as_bytes().as_slice(), &[0; 512], &archive(&[entry])].concat();
    let tree = record(directory.path(), &bytes, Role::Whole).expect("a tree");
    let ranges = |name: &str| {
        let meta = tree.meta(Path::new(name), Follow::No).expect("it is there");
        let file = tree.open(Path::new(name), &meta).expect("it opens");
        let first = file.next_data(0).expect("data");
        (first, file.next_data(first.expect("a range").1).expect("a hole"))
    };
    assert_eq!(ranges("/zeros"), (Some((0, 5 << 20)), None));
    assert_eq!(ranges("/sparse"), (Some((2 << 20, (2 << 20) + 512)), None));
}

/// A tree of a directory and one of its archive have one digest. Each change changes it; a read does not.
#[test]
fn digest_is_that_of_the_content() {
    let directory = tempfile::tempdir().expect("a directory");
    let top = tree(&directory);
    let of_directory = || {
        let tree = MemoryTree::of_directory(Rc::new(HostTree::new()), &top, Role::Whole, &Unwatched);
        tree.expect("a tree").digest(&Unwatched).expect("a digest")
    };
    let first = of_directory();
    assert_eq!(first, of_directory());
    let mut seen = vec![first];
    let mut changed = |what: &str| {
        let digest = of_directory();
        assert!(!seen.contains(&digest), "{what}");
        seen.push(digest);
    };
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    let file = std::fs::File::options().write(true).open(top.join("sub/deep/c")).expect("it is there");
    file.set_modified(time).expect("a time");
    changed("time");
    file.write_all_at(b"X", 69_999).expect("space");
    file.set_modified(time).expect("a time");
    changed("data");
    std::fs::rename(top.join("sub/a"), top.join("sub/a2")).expect("a name");
    changed("name");
    std::fs::remove_file(top.join("sub/deep/again")).expect("it is there");
    std::fs::copy(top.join("large"), top.join("sub/deep/again")).expect("a copy");
    changed("a copy in place of a hard link");
    std::fs::set_permissions(top.join("sub"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("may");
    changed("mode");
}

#[test]
fn newest_time_is_that_of_the_newest_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str, time| Entry { time, ..Entry::file(name, "x") };
    let bytes = archive(&[at("a", 5), at("b/c", 1_700_000_000), at("d", 7)]);
    let mut tree = record(directory.path(), &bytes, Role::Whole).expect("a tree");
    assert_eq!(tree.newest().map(|time| time.seconds), Some(1_700_000_000));
    tree.complete_root();
    assert_eq!(tree.meta(tree.top(), Follow::No).expect("the root").modified.seconds, 1_700_000_000);
    assert_eq!(MemoryTree::new("empty", Role::Whole).newest(), None);
}

/// Names of a single archive may begin with `.wh.`, and its hard links need their originals.
#[test]
fn a_single_archive_has_no_whiteouts() {
    let directory = tempfile::tempdir().expect("a directory");
    let entries = [Entry::file("a", "a"), Entry::file(".wh.a", ""), Entry::file(".wh..wh..opq", "")];
    let tree = record(directory.path(), &archive(&entries), Role::Whole).expect("a tree");
    assert_eq!(paths(&tree), ["/.wh..wh..opq", "/.wh.a", "/a"]);
    let error = record(directory.path(), &archive(&[Entry::hard_link("b", "a")]), Role::Whole).unwrap_err();
    assert!(error.to_string().contains("does not precede it"), "{error}");
}

#[test]
fn damaged_archives_are_errors() {
    if !has_zstd() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let entry =
        Entry { data: (0..200_000u32).map(|at| ((at * 7919) >> 5) as u8).collect(), ..Entry::file("f", "") };
    let bytes = archive(&[entry]);
    let gzip = compressed(&["gzip", "-c"], &bytes, directory.path());
    let zstd = compressed(&["zstd", "-c", "--check"], &bytes, directory.path());
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 0x10;
        bytes
    };
    let deep = "d/".repeat(40);
    let deep: Vec<Entry> = vec![Entry::file(&format!("{deep}f"), "x")];
    record(directory.path(), &archive(&deep), Role::Whole).expect("as deep as a name allows");
    for (bytes, part) in [
        (bytes[..100_000].to_vec(), "ends in the middle of `f`"),
        (gzip[..gzip.len() / 2].to_vec(), "ends in the middle of `f`"),
        (zstd[..zstd.len() / 2].to_vec(), ""),
        (gzip[..8].to_vec(), "gzip data ends too early"),
        (zstd[..3].to_vec(), "not a tar archive"),
        (zstd[..5].to_vec(), "zstd data"),
        (flipped(&gzip, gzip.len() / 2), "damaged"),
        (flipped(&zstd, zstd.len() / 2), "damaged"),
        (compressed(&["gzip", "-c"], b"no archive", directory.path()), "not a tar archive"),
        (compressed(&["gzip", "-c"], &gzip, directory.path()), "it is compressed"),
    ] {
        let error = record(directory.path(), &bytes, Role::Whole).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("recorded.tar"), "{part}: {error}");
    }
}

/// A name of a million levels took minutes.
#[test]
fn names_are_nested_no_deeper_than_a_copy_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    let name = "d/".repeat(500_000);
    let long = Entry::new(EntryType::GNULongName, "././@LongLink", "", name.as_bytes());
    let error = record(directory.path(), &archive(&[long, Entry::file("x", "")]), Role::Whole)
        .unwrap_err()
        .to_string();
    assert!(error.contains("nested too deep"), "{}", &error[error.len() - 200..]);
}

/// An archive that is cut after its tree was made is an error, and not zeros.
#[test]
fn data_that_is_gone_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.tar");
    std::fs::write(&path, archive(&[Entry::file("f", &"x".repeat(5000))])).expect("space");
    let archive = Archive::open(&path, &Unwatched).expect("it opens");
    let recording = Recording { role: Role::Whole, temporary: directory.path(), watch: &Unwatched };
    let tree = archive.record(recording).expect("a tree");
    assert_eq!(content(&tree, "/f").expect("data").len(), 5000);
    std::fs::File::options().write(true).open(&path).expect("it is there").set_len(3000).expect("cut");
    let error = content(&tree, "/f").unwrap_err().to_string();
    assert!(error.contains("a.tar") && error.contains("its end is missing"), "{error}");
    assert!(tree.digest(&Unwatched).is_err());
}

/// Calls of a sink, against a directory of the host.
#[test]
fn a_tree_is_changed_like_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let tree = record(directory.path(), &archive(&[Entry::file("d/f", "x")]), Role::Whole).expect("a tree");
    let at = |path: &'static str| Path::new(path);
    tree.make_link(at("/l"), b"d").expect("a link");
    tree.make_hard_link(at("/d/f"), at("/l/g")).expect("a link");
    assert_eq!(tree.existing(at("/d/g"), Follow::No).expect("a look").expect("a file").links, 2);
    assert_eq!(tree.link_target(at("/l")).expect("a link"), b"d");
    assert!(tree.make_directory(at("/d")).is_err() && tree.make_directory(at("/no/d")).is_err());
    assert!(tree.remove_directory(at("/d")).is_err() && tree.remove(at("/d")).is_err());
    assert!(tree.make_hard_link(at("/d"), at("/e")).is_err());
    tree.rename(at("/d/f"), at("/d/g")).expect("a name");
    tree.remove(at("/d/g")).expect("it is there");
    tree.remove_directory(at("/d")).expect("it is empty");
    assert_eq!(tree.existing(at("/l"), Follow::Yes).expect("a look"), None);
    assert_eq!(
        tree.existing(at("/l"), Follow::No).expect("a look").map(|meta| meta.kind),
        Some(FileKind::Symlink)
    );
    tree.make_link(at("/loop"), b"/loop").expect("a link");
    assert!(tree.existing(at("/loop/x"), Follow::No).is_err());
}

/// Damage at any place of any form of an archive is an error or another tree, never a panic.
#[test]
fn damage_anywhere_is_survived() {
    if !has_zstd() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let data = (0..20_000u32).flat_map(|at| (at / 3 * 7919).to_le_bytes()).collect();
    let entries = [
        Entry::directory("d", 0o755),
        Entry { data, ..Entry::file("d/f", "") },
        Entry::new(EntryType::XHeader, "x", "", b"21 GNU.sparse.major=1\n22 SCHILY.xattr.user.a=b\n"),
        Entry::file("g", "1\n0\n1\n"),
        Entry::hard_link("h", "d/f"),
        Entry::link("l", "d"),
        Entry::file("l/.wh.f", ""),
    ];
    let bytes = archive(&entries);
    let forms = [
        bytes.clone(),
        compressed(&["gzip", "-c"], &bytes, directory.path()),
        compressed(&["zstd", "-c"], &bytes, directory.path()),
        compressed(&["zstd", "-c", "-19", "--no-check"], &bytes, directory.path()),
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    let cases = std::env::var("DIORITE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(400);
    for case in 0..cases {
        let mut damaged = forms[case % forms.len()].clone();
        for _ in 0..=below(4) {
            // Headers are at the start.
            let limit = if below(2) == 0 { damaged.len().min(600) } else { damaged.len() };
            let at = below(limit);
            match below(3) {
                0 => damaged[at] ^= 1 << below(8),
                1 => damaged[at] = below(256) as u8,
                _ => damaged.truncate(at.max(1)),
            }
        }
        let Ok(layer) = record(directory.path(), &damaged, Role::Layer) else { continue };
        let mut tree = MemoryTree::new("tree", Role::Whole);
        if tree.apply(layer).is_ok() {
            let _ = tree.digest(&Unwatched);
        }
    }
}
