//! Random stacks of layers, beside a model that applies each layer to a directory of the host as the specification of layers says.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use diorite_copy::{Follow, Source};
use tar::EntryType;

use crate::common::{Entry, differences, layered};

const STACKS: u64 = 200;

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn one_of<'a>(&mut self, choice: &[&'a str]) -> &'a str {
        choice[self.below(choice.len())]
    }
}

/// Names that are only directories, and links to them: `d`, `e`, `f`; `l` and `m`. Others are of any kind.
fn random_layer(random: &mut Random, number: u64) -> Vec<Entry> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for _ in 0..2 + random.below(9) {
        let directory = random.one_of(&["", "d/", "e/", "d/f/", "l/", "m/", "d/f/e/", "x/"]).to_owned();
        // An entry below a link of this layer would follow it.
        if entries
            .get(directory.trim_end_matches('/'))
            .is_some_and(|above| above.kind != EntryType::Directory)
        {
            continue;
        }
        let name = format!("{directory}{}", random.one_of(&["x", "y", "z"]));
        let text = format!("{number} {}", random.below(1000));
        let entry = match random.below(14) {
            0..5 => Entry::file(&name, &text),
            5 => Entry::link(&name, &text),
            6 => Entry { mode: 0o600, ..Entry::new(EntryType::Fifo, &name, "", b"") },
            7 => Entry::directory(&name, 0o700 + random.below(64) as u32),
            8 => Entry::directory(directory.trim_end_matches('/'), 0o700 + random.below(64) as u32),
            9 if directory.is_empty() => {
                Entry::link(random.one_of(&["l", "m"]), random.one_of(&["d", "e", "d/f"]))
            }
            9 => Entry::file(&format!("{directory}.wh..wh..opq"), ""),
            10 => Entry::file(&format!("{directory}.wh.{}", random.one_of(&["d", "e", "f", "l", "m"])), ""),
            _ => Entry::file(&format!("{directory}.wh.{}", random.one_of(&["x", "y", "z"])), ""),
        };
        let is_above =
            |path: &String| path.strip_prefix(&entry.name).is_some_and(|rest| rest.starts_with('/'));
        let hides_own = entry.kind != EntryType::Directory && entries.keys().any(is_above);
        if !entry.name.is_empty() && !hides_own && !entries.contains_key(&entry.name) {
            entries.insert(entry.name.clone(), Entry { time: 1_000_000_000 + number, ..entry });
        }
    }
    // Links to files of this layer, after them.
    let originals: Vec<String> = entries
        .values()
        .filter(|entry| {
            entry.kind == EntryType::Regular && !entry.name.contains(".wh.") && !entry.name.contains('/')
        })
        .map(|entry| entry.name.clone())
        .collect();
    let mut entries: Vec<Entry> = entries.into_values().collect();
    for index in (1..entries.len()).rev() {
        entries.swap(index, random.below(index + 1));
    }
    if let Some(original) = originals.first().filter(|_| random.below(3) == 0)
        && entries.iter().all(|entry| entry.name != "h")
    {
        entries.push(Entry { time: 1_000_000_000 + number, ..Entry::hard_link("h", original) });
    }
    entries
}

/// The model: layers applied to a directory.
struct Model {
    top: PathBuf,
    /// Attributes of directories by inode number, set at the end.
    directories: HashMap<u64, (u32, u64)>,
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn remove(path: &Path) {
    if is_directory(path) {
        std::fs::remove_dir_all(path).expect("it may be removed");
    } else if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).expect("it may be removed");
    }
}

/// All directories above a name, from the top down.
fn parents(name: &str) -> Vec<PathBuf> {
    let above = Path::new(name).ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
    let mut parents: Vec<_> = above.map(Path::to_owned).collect();
    parents.reverse();
    parents
}

impl Model {
    fn apply(&mut self, layer: &[Entry]) {
        let own: BTreeSet<PathBuf> = layer.iter().map(|entry| PathBuf::from(&entry.name)).collect();
        let is_mark = |entry: &&Entry| entry.name.contains(".wh.");
        let mut marks: Vec<&Entry> = layer.iter().filter(is_mark).collect();
        marks.sort_by_key(|entry| parents(&entry.name).len());
        for mark in marks {
            self.hide(mark, &own);
        }
        // Files reached through a link of a lower layer come last.
        let mut entries: Vec<&Entry> = layer.iter().collect();
        entries.sort_by_key(|entry| (entry.kind == EntryType::Link, entry.name.clone()));
        let (through, direct): (Vec<&Entry>, Vec<&Entry>) =
            entries.into_iter().partition(|entry| self.goes_through_link(&entry.name, &own));
        for entry in direct.into_iter().chain(through) {
            self.put(entry, &own);
        }
    }

    /// Whether a parent that this layer does not name is a link.
    fn goes_through_link(&self, name: &str, own: &BTreeSet<PathBuf>) -> bool {
        parents(name).iter().any(|path| !own.contains(path) && self.top.join(path).is_symlink())
    }

    fn hide(&self, mark: &Entry, own: &BTreeSet<PathBuf>) {
        let mut at = self.top.clone();
        for parent in parents(&mark.name) {
            at.push(parent.file_name().expect("a name"));
            if at.is_symlink() && own.contains(&parent) || !at.is_dir() {
                return;
            }
        }
        let name = Path::new(&mark.name).file_name().and_then(OsStr::to_str).expect("a name");
        if name == ".wh..wh..opq" {
            for entry in std::fs::read_dir(&at).expect("a directory") {
                remove(&entry.expect("an entry").path());
            }
        } else {
            remove(&at.join(name.trim_start_matches(".wh.")));
        }
    }

    /// The directory of an entry. Missing ones are made, and links of lower layers are followed.
    fn directory(&mut self, name: &str, own: &BTreeSet<PathBuf>, time: u64) -> PathBuf {
        let mut at = self.top.clone();
        for parent in parents(name) {
            let next = at.join(parent.file_name().expect("a name"));
            at = self.enter(next, own.contains(&parent), time);
        }
        at
    }

    fn enter(&mut self, next: PathBuf, is_own: bool, time: u64) -> PathBuf {
        if next.is_symlink() && !is_own {
            let target = std::fs::read_link(&next).expect("a link");
            let mut at = next.parent().expect("a parent").to_owned();
            for part in &target {
                at = self.enter(at.join(part), false, time);
            }
            return at;
        }
        if !is_directory(&next) {
            remove(&next);
            self.make_directory(&next, 0o755, time);
        }
        next
    }

    fn make_directory(&mut self, path: &Path, mode: u32, time: u64) {
        if !is_directory(path) {
            std::fs::create_dir(path).expect("its parent is there");
        }
        self.directories.insert(path.metadata().expect("it is there").ino(), (mode, time));
    }

    fn put(&mut self, entry: &Entry, own: &BTreeSet<PathBuf>) {
        let directory = self.directory(&entry.name, own, entry.time);
        let path = directory.join(Path::new(&entry.name).file_name().expect("a name"));
        if entry.name.contains(".wh.") {
            return;
        }
        if entry.kind == EntryType::Directory {
            if !is_directory(&path) {
                remove(&path);
            }
            return self.make_directory(&path, entry.mode, entry.time);
        }
        remove(&path);
        match entry.kind {
            EntryType::Symlink => symlink(&entry.link, &path).expect("a link"),
            EntryType::Fifo => make_pipe(&path),
            EntryType::Link => {
                return std::fs::hard_link(self.top.join(&entry.link), &path).expect("a link");
            }
            _ => {
                let file = std::fs::File::create(&path).expect("a file");
                file.write_all_at(&entry.data, 0).expect("space");
                file.set_permissions(PermissionsExt::from_mode(entry.mode)).expect("may");
            }
        }
        set_time(&path, entry.time);
    }

    /// Set the attributes of directories.
    fn finish(&self, directory: &Path) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if is_directory(&path) {
                self.finish(&path);
                let (mode, time) = self.directories[&path.metadata().expect("it is there").ino()];
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("may");
                set_time(&path, time);
            }
        }
    }
}

fn make_pipe(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
}

fn set_time(path: &Path, time: u64) {
    let time = rustix::fs::Timespec { tv_sec: time as i64, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .expect("a time");
}

/// Names of a file, per file: hard links.
fn groups(top: &Path, identity: &dyn Fn(&Path) -> Option<(u64, u64)>) -> BTreeSet<Vec<PathBuf>> {
    let mut files: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let at = top.join(&path);
        if is_directory(&at) {
            let entries = std::fs::read_dir(&at).expect("a directory");
            waiting.extend(entries.map(|entry| path.join(entry.expect("an entry").file_name())));
        } else if let Some(identity) = identity(&path) {
            files.entry(identity).or_default().push(path);
        }
    }
    files
        .into_values()
        .map(|mut names| {
            names.sort();
            names
        })
        .collect()
}

#[test]
fn random_layers_are_applied_by_the_book() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: directories that layers imply belong to root");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for seed in 1..=STACKS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let layers: Vec<Vec<Entry>> =
            (0..2 + random.below(4) as u64).map(|number| random_layer(&mut random, number)).collect();
        let top = directory.path().join(format!("model-{seed}"));
        std::fs::create_dir(&top).expect("a directory");
        let mut model = Model { top: top.clone(), directories: HashMap::new() };
        for layer in &layers {
            model.apply(layer);
        }
        model.finish(&top);
        let tree = layered(directory.path(), &layers).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let shown = || {
            let names = |layer: &Vec<Entry>| {
                layer
                    .iter()
                    .map(|entry| format!("{:?} {} {}", entry.kind, entry.name, entry.link))
                    .collect::<Vec<_>>()
            };
            layers.iter().map(names).collect::<Vec<_>>()
        };
        let found = differences(&top, &tree);
        assert!(found.is_empty(), "seed {seed}: {found:#?}\n{:#?}", shown());
        let on_host = groups(&top, &|path| {
            let found = top.join(path).symlink_metadata().ok()?;
            Some((found.dev(), found.ino()))
        });
        let in_tree = groups(&top, &|path| {
            tree.meta(&Path::new("/").join(path), Follow::No).ok().map(|meta| meta.identity)
        });
        assert_eq!(on_host, in_tree, "seed {seed}: hard links of {:#?}", shown());
        std::fs::remove_dir_all(&top).expect("it is there");
    }
}
