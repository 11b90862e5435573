//! Random operations on paths, here and on a directory of the host: each gives the same result or the same error number,
//! and the trees are equal at the end. The paths include trailing slashes, `.`, `..`, links of all kinds and dangling links.

use crate::common;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use common::{Random, assert_device_clean, memory_volume};
use diorite::{Error, FileKind, Filesystem, FilesystemOptions, NodeSpec, Owner, RenameMode};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Both trees stand so deep that no `..` leads out of them.
const DEPTH: usize = 24;
const STEPS: usize = 4000;

/// One operation on paths.
#[derive(Clone, Debug)]
enum Step {
    MakeDirectory(String),
    Create(String),
    CreateNew(String),
    MakeFifo(String),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String, RenameMode),
    Link(String, String),
    Symlink(String, String),
    ReadLink(String),
    Stat(String),
    StatLink(String),
    Read(String),
}

/// A path of a few short names, with everything that POSIX has a rule for.
fn random_path(random: &mut Random) -> String {
    let count = [1, 1, 1, 2, 2, 3][random.below(6) as usize];
    let mut path = String::new();
    for index in 0..count {
        if index > 0 {
            path.push('/');
        }
        match random.below(24) {
            0 => path.push('.'),
            1 => path.push_str(".."),
            other => path.push(char::from(b'a' + (other % 6) as u8)),
        }
    }
    match random.below(12) {
        0 => path.push('/'),
        1 => path.push_str("//"),
        2 => path.push_str("/."),
        3 => path.push_str("/.."),
        _ => {}
    }
    path
}

fn random_step(random: &mut Random) -> Step {
    let path = random_path(random);
    match random.below(20) {
        0..=2 => Step::MakeDirectory(path),
        3 => Step::Create(path),
        4 | 5 => Step::CreateNew(path),
        6 => Step::MakeFifo(path),
        7 | 8 => Step::Unlink(path),
        9 => Step::RemoveDirectory(path),
        10..=13 => {
            let mode = match random.below(6) {
                0 => RenameMode::NoReplace,
                1 => RenameMode::Exchange,
                _ => RenameMode::Replace,
            };
            Step::Rename(path, random_path(random), mode)
        }
        14 => Step::Link(path, random_path(random)),
        15 | 16 => Step::Symlink(random_path(random), path),
        17 => Step::ReadLink(path),
        18 => {
            if random.below(2) == 0 {
                Step::Stat(path)
            } else {
                Step::StatLink(path)
            }
        }
        _ => Step::Read(path),
    }
}

/// The result of an operation, or the number of its error.
type Outcome = Result<String, i32>;

fn outcome_of<T>(result: Result<T, Errno>) -> Outcome {
    result.map(|_| String::new()).map_err(Errno::raw_os_error)
}

fn kind_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "link",
        FileType::Fifo => "fifo",
        _ => "other",
    }
}

fn on_host(root: &OwnedFd, step: &Step) -> Outcome {
    let mode = Mode::from_raw_mode(0o755);
    let stat = |path: &String, flags| {
        let stat = rustix::fs::statat(root, path, flags).map_err(Errno::raw_os_error)?;
        Ok(kind_of(FileType::from_raw_mode(stat.st_mode)).to_owned())
    };
    let open = |path: &String, flags| {
        rustix::fs::openat(root, path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, mode)
    };
    match step {
        Step::MakeDirectory(path) => outcome_of(rustix::fs::mkdirat(root, path, mode)),
        Step::Create(path) => outcome_of(open(path, OFlags::CREATE | OFlags::WRONLY)),
        Step::CreateNew(path) => outcome_of(open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)),
        Step::MakeFifo(path) => outcome_of(rustix::fs::mknodat(root, path, FileType::Fifo, mode, 0)),
        Step::Unlink(path) => outcome_of(rustix::fs::unlinkat(root, path, AtFlags::empty())),
        Step::RemoveDirectory(path) => outcome_of(rustix::fs::unlinkat(root, path, AtFlags::REMOVEDIR)),
        Step::Rename(from, to, mode) => {
            let flags = match mode {
                RenameMode::Replace => RenameFlags::empty(),
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
                RenameMode::Whiteout(_) => RenameFlags::WHITEOUT,
            };
            outcome_of(rustix::fs::renameat_with(root, from, root, to, flags))
        }
        Step::Link(from, to) => outcome_of(rustix::fs::linkat(root, from, root, to, AtFlags::empty())),
        Step::Symlink(target, link) => outcome_of(rustix::fs::symlinkat(target, root, link)),
        Step::ReadLink(path) => rustix::fs::readlinkat(root, path, Vec::new())
            .map(|target| target.to_string_lossy().into_owned())
            .map_err(Errno::raw_os_error),
        Step::Stat(path) => stat(path, AtFlags::empty()),
        Step::StatLink(path) => stat(path, AtFlags::SYMLINK_NOFOLLOW),
        Step::Read(path) => {
            let file = open(path, OFlags::RDONLY).map_err(Errno::raw_os_error)?;
            outcome_of(rustix::io::read(&file, &mut [0_u8; 1]))
        }
    }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::Fifo => "fifo",
        _ => "other",
    }
}

fn in_volume(filesystem: &Filesystem, root: &str, step: &Step) -> Outcome {
    let full = |path: &String| format!("{root}/{path}");
    let outcome_of =
        |result: Result<(), Error>| result.map(|()| String::new()).map_err(|error| error.errno());
    let open = |path: &String, new| {
        let options = filesystem.open_options().write(true).create(true).create_new(new);
        options.open(full(path)).map(drop)
    };
    match step {
        Step::MakeDirectory(path) => outcome_of(filesystem.create_dir(full(path))),
        Step::Create(path) => outcome_of(open(path, false)),
        Step::CreateNew(path) => outcome_of(open(path, true)),
        Step::MakeFifo(path) => {
            let spec = NodeSpec {
                kind: FileKind::Fifo,
                permissions: 0o755,
                umask: 0,
                owner: Owner::default(),
                device: (0, 0),
            };
            outcome_of(filesystem.create_node(full(path), &spec).map(drop))
        }
        Step::Unlink(path) => outcome_of(filesystem.remove_file(full(path))),
        Step::RemoveDirectory(path) => outcome_of(filesystem.remove_dir(full(path))),
        Step::Rename(from, to, mode) => outcome_of(filesystem.rename_with(full(from), full(to), *mode)),
        Step::Link(from, to) => outcome_of(filesystem.hard_link(full(from), full(to))),
        Step::Symlink(target, link) => outcome_of(filesystem.symlink(target, full(link))),
        Step::ReadLink(path) => filesystem
            .read_link(full(path))
            .map(|target| target.to_string_lossy().into_owned())
            .map_err(|error| error.errno()),
        Step::Stat(path) => filesystem
            .metadata(full(path))
            .map(|attributes| kind_name(attributes.kind).to_owned())
            .map_err(|error| error.errno()),
        Step::StatLink(path) => filesystem
            .symlink_metadata(full(path))
            .map(|attributes| kind_name(attributes.kind).to_owned())
            .map_err(|error| error.errno()),
        Step::Read(path) => {
            let file = filesystem.open_file(full(path)).map_err(|error| error.errno())?;
            outcome_of(file.read_at(&mut [0], 0).map(drop))
        }
    }
}

/// The host opens fifos and directories for reading or writing, and this library files alone: not compared.
fn opens_something_else(step: &Step, host: &Outcome, ours: &Outcome) -> bool {
    let reads = matches!(step, Step::Read(_) | Step::Create(_));
    let is_node = ours == &Err(95) && matches!(host, Ok(_) | Err(6 | 11));
    reads && is_node
}

/// Every name beneath a directory of the host: kind, links, and where a link points.
fn host_tree(at: &Path, name: &str, tree: &mut BTreeMap<String, (String, u64)>) {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    for entry in std::fs::read_dir(at).expect("list") {
        let entry = entry.expect("entry");
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().expect("stat");
        let kind = metadata.file_type();
        let (text, links) = if kind.is_dir() {
            host_tree(&entry.path(), &name, tree);
            ("directory".to_owned(), 0)
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).expect("target");
            (format!("to {}", target.display()), metadata.nlink())
        } else {
            (if kind.is_fifo() { "fifo" } else { "file" }.to_owned(), metadata.nlink())
        };
        tree.insert(name, (text, links));
    }
}

fn volume_tree(filesystem: &Filesystem, root: &str) -> BTreeMap<String, (String, u64)> {
    let mut tree = BTreeMap::new();
    for entry in filesystem.walk(root).skip(1) {
        let entry = entry.expect("walk");
        let attributes = entry.metadata().expect("metadata");
        let (text, links) = match entry.kind {
            FileKind::Directory => ("directory".to_owned(), 0),
            FileKind::Symlink => {
                let target = filesystem.read_link(&entry.path).expect("target");
                (format!("to {}", target.display()), u64::from(attributes.links))
            }
            kind => (kind_name(kind).to_owned(), u64::from(attributes.links)),
        };
        let name = entry.path.to_string_lossy()[root.len()..].to_owned();
        tree.insert(name, (text, links));
    }
    tree
}

/// Not every filesystem that a host may have for temporary files lets two names change places.
fn host_exchanges_names(directory: &Path) -> bool {
    let names = [directory.join("one"), directory.join("two")];
    for name in &names {
        std::fs::create_dir(name).expect("a directory");
    }
    let cwd = rustix::fs::CWD;
    let exchanged = rustix::fs::renameat_with(cwd, &names[0], cwd, &names[1], RenameFlags::EXCHANGE);
    if let Err(error) = exchanged {
        println!("SKIPPED: the filesystem of {} cannot exchange names: {error}", directory.display());
    }
    exchanged.is_ok()
}

fn compare(flavor: Flavor, seed: u64) {
    let directory = tempfile::Builder::new().prefix("diorite-").tempdir().expect("directory");
    if !host_exchanges_names(directory.path()) {
        return;
    }
    let root = "/w".repeat(DEPTH);
    let host_root = directory.path().join(&root[1..]);
    std::fs::create_dir_all(&host_root).expect("host directories");
    let host =
        rustix::fs::open(&host_root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .expect("host root");
    let device = memory_volume(16, &MkfsOptions { flavor, ..MkfsOptions::default() });
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    filesystem.create_dir_all(&root).expect("directories");
    let mut random = Random(seed);
    let (mut done, mut different) = (0, Vec::new());
    for index in 0..STEPS {
        let step = random_step(&mut random);
        let (theirs, ours) = (on_host(&host, &step), in_volume(&filesystem, &root, &step));
        if opens_something_else(&step, &theirs, &ours) {
            continue;
        }
        if ours != theirs {
            let text = format!("step {index}: {step:?}: here {ours:?}, on the host {theirs:?}");
            different.push(text);
            // From here on the trees differ.
            if ours.is_ok() != theirs.is_ok() {
                break;
            }
        }
        done += usize::from(ours.is_ok());
    }
    assert!(different.is_empty(), "seed {seed}:\n{}", different.join("\n"));
    let mut theirs = BTreeMap::new();
    host_tree(&host_root, "", &mut theirs);
    assert_eq!(volume_tree(&filesystem, &root), theirs, "seed {seed}");
    assert!(done > STEPS / 10, "seed {seed}: only {done} operations did something");
    filesystem.close().expect("close");
    assert_device_clean(&device);
}

#[test]
fn ext2_names_follow_the_rules_of_the_kernel() {
    (1..=4).for_each(|seed| compare(Flavor::Ext2, seed));
}

#[test]
fn ext4_names_follow_the_rules_of_the_kernel() {
    (5..=8).for_each(|seed| compare(Flavor::Ext4, seed));
}
