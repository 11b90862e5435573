//! Crash tests: a workload on a recorded disk, and a check of every state that a crash can leave (ARCHITECTURE invariant 6).
//!
//! The oracle on a volume with a journal: the tree after recovery (names, inodes, links, sizes, content) is exactly the tree
//! after one of the operations, and not of one before the last that was synced. Workloads never overwrite data in place,
//! which no metadata journal makes atomic. [`IMAGES_MAX`] bounds the images of one test; every flush boundary gets at
//! least two (nothing and everything of the unflushed writes).
#![allow(dead_code, reason = "each test uses a part")]
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "tests"
)]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diorite_ext::{Access, FileKind, Inode, InodeNumber, NodeSpec, Owner, Volume, VolumeOptions};
use diorite_sim::crash::{CrashPoint, Fate, RecordingDevice, Tearing};
use diorite_sim::image::{ImageDevice, SparseImage};

use crate::common::{read_file, run, write_blocks};

/// About how many images one test rebuilds, replays and checks.
pub const IMAGES_MAX: usize = 110;

/// Inode number, kind, permissions, links, size and a hash of the content.
pub type Node = (u32, FileKind, u16, u32, u64, u64);

/// A tree: path to what is there.
pub type Tree = BTreeMap<String, Node>;

/// A directory for images, in memory where the system has such a place.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// An image made by mke2fs.
pub fn make_image(directory: &Path, arguments: &str, size: &str) -> SparseImage {
    let path = directory.join("image").to_string_lossy().into_owned();
    let mut all: Vec<&str> = arguments.split_whitespace().collect();
    all.extend(["-q", "-F", &path, size]);
    let (code, output) = run("mke2fs", &all);
    assert_eq!(code, 0, "mke2fs {all:?}: {output}");
    load(Path::new(&path))
}

static ZEROS: [u8; 65536] = [0; 65536];

pub fn load(path: &Path) -> SparseImage {
    let bytes = std::fs::read(path).unwrap();
    let mut image = SparseImage::new(bytes.len() as u64);
    for (index, chunk) in bytes.chunks(65536).enumerate() {
        if chunk != &ZEROS[..chunk.len()] {
            image.write(index as u64 * 65536, chunk);
        }
    }
    image
}

pub fn save(image: &SparseImage, path: &Path) {
    let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).open(path).unwrap();
    file.set_len(image.len()).unwrap();
    image.export(&mut file).unwrap();
}

/// A file to make.
pub fn file() -> NodeSpec {
    NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    }
}

/// A directory to make.
pub fn directory() -> NodeSpec {
    NodeSpec { kind: FileKind::Directory, permissions: 0o755, ..file() }
}

/// The inode at a path from the root.
pub fn at(volume: &Volume, path: &str) -> Arc<Inode> {
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    path.split('/').filter(|name| !name.is_empty()).fold(root, |directory, name| {
        volume.names.lookup(&directory, name.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"))
    })
}

/// Everything below the root.
pub fn tree_of(volume: &Volume) -> Tree {
    let mut tree = Tree::new();
    walk(volume, &at(volume, ""), "", &mut tree);
    tree
}

fn walk(volume: &Volume, directory: &Arc<Inode>, path: &str, tree: &mut Tree) {
    let mut names = Vec::new();
    volume
        .names
        .read_directory(directory, 0, &mut |entry| {
            names.push((entry.name.clone(), entry.inode));
            true
        })
        .unwrap();
    for (name, number) in names.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
        let path = format!("{path}/{}", String::from_utf8_lossy(&name));
        let inode = volume.inodes.get(number).unwrap_or_else(|error| panic!("{path}: {error}"));
        let attributes = inode.attributes();
        let mut hasher = DefaultHasher::new();
        match inode.kind() {
            FileKind::Regular => read_file(volume, &inode).hash(&mut hasher),
            FileKind::Directory => walk(volume, &inode, &path, tree),
            FileKind::Symlink => volume.names.read_link(&inode).unwrap().hash(&mut hasher),
            _ => {}
        }
        // The size of a directory says nothing that its entries do not.
        let size = if inode.kind() == FileKind::Directory { 0 } else { attributes.size };
        let node = (number.0, inode.kind(), attributes.permissions, attributes.links, size, hasher.finish());
        tree.insert(path, node);
    }
}

/// A workload that runs, and the trees that it went through.
pub struct Workload {
    pub volume: Arc<Volume>,
    pub recorder: Arc<RecordingDevice>,
    pub random: fastrand::Rng,
    states: Vec<Tree>,
    written: u64,
}

impl Workload {
    /// Start on an image.
    pub fn on(image: SparseImage, fua: bool, seed: u64) -> Self {
        Self::with_options(image, fua, seed, VolumeOptions::default())
    }

    /// Start on an image with a volume that commits before every handle, so that long operations are cut everywhere.
    pub fn committing_always(image: SparseImage, seed: u64) -> Self {
        let options = VolumeOptions { commit_interval: Duration::ZERO, ..VolumeOptions::default() };
        Self::with_options(image, true, seed, options)
    }

    fn with_options(image: SparseImage, fua: bool, seed: u64, options: VolumeOptions) -> Self {
        let recorder = RecordingDevice::new(&*ImageDevice::new(image), fua).unwrap();
        let volume = Volume::open(recorder.clone(), options).unwrap();
        let states = vec![tree_of(&volume)];
        Self { volume, recorder, random: fastrand::Rng::with_seed(seed), states, written: 0 }
    }

    /// One operation that is atomic.
    pub fn step<T>(&mut self, operation: impl FnOnce(&Volume) -> T) -> T {
        let result = operation(&self.volume);
        self.states.push(tree_of(&self.volume));
        result
    }

    /// Write whole blocks that the file does not have yet, and make it at least that long.
    pub fn write(&mut self, path: &str, block: u64, blocks: u64) -> diorite_ext::Result<()> {
        self.written += 1;
        let size = self.volume.block_size().bytes();
        let content = crate::common::pattern(self.written, (blocks * size) as usize);
        self.step(|volume| {
            let inode = at(volume, path);
            write_blocks(volume, &inode, block, &content, Some((block + blocks) * size))
        })
    }

    /// Sync one file or directory: its last change, and with a journal everything before that, is safe.
    pub fn fsync(&mut self, path: &str) {
        let inode = at(&self.volume, path);
        self.volume.sync_inode(&inode, diorite_ext::SyncKind::All).unwrap();
        let path = format!("/{}", path.trim_start_matches('/'));
        let last_change = (1..self.states.len())
            .rev()
            .find(|index| own_part(&self.states[*index], &path) != own_part(&self.states[index - 1], &path));
        self.recorder.mark(last_change.unwrap_or(0) as u64);
    }

    /// Sync everything.
    pub fn sync(&mut self) {
        self.volume.sync().unwrap();
        self.recorder.mark(self.states.len() as u64 - 1);
    }

    /// The tree now.
    pub fn tree(&self) -> &Tree {
        self.states.last().unwrap()
    }

    /// Crash everywhere, recover in two ways, and check.
    pub fn check_crashes(self, scratch: &Path, seed: u64) {
        let recording = self.recorder.recording();
        let points = recording.crash_points().count();
        let limit = (IMAGES_MAX / points).max(2);
        let mut images = 0;
        for point in recording.crash_points() {
            for (index, fates) in point.fates(limit, Tearing::Allowed, seed).iter().enumerate() {
                let story = || format!("{point:?} {fates:?}", point = describe(&point), fates = short(fates));
                let recovered = recover_here(&point.image(fates), &story);
                self.check_tree(&recovered.1, &point, &story);
                check_clean(&recovered.0, scratch, &story);
                if index == 0 || images % 4 == 0 {
                    let theirs = recover_with_e2fsck(&point.image(fates), scratch, &story);
                    self.check_tree(&theirs, &point, &story);
                }
                images += 1;
            }
        }
        println!("{points} crash points, {images} images, {} states", self.states.len());
    }

    fn check_tree(&self, tree: &Tree, point: &CrashPoint<'_>, story: &dyn Fn() -> String) {
        let synced = point.marks().iter().max().copied().unwrap_or(0) as usize;
        if self.states[synced..].contains(tree) {
            return;
        }
        let differences = |state: &Tree| {
            let mut lines: Vec<String> = Vec::new();
            for path in state.keys().chain(tree.keys()) {
                if state.get(path) != tree.get(path) {
                    lines.push(format!("{path}: expected {:?}, found {:?}", state.get(path), tree.get(path)));
                }
            }
            lines
        };
        let (number, nearest) = self
            .states
            .iter()
            .enumerate()
            .map(|(number, state)| (number, differences(state)))
            .min_by_key(|(_, lines)| lines.len())
            .unwrap();
        panic!(
            "{}: the tree is not one of the states {synced}.. of {}; nearest is {number}: {nearest:#?}",
            story(),
            self.states.len()
        );
    }
}

/// The part of a tree that belongs to one inode: the file itself, or a directory's names.
fn own_part(tree: &Tree, path: &str) -> (Option<Node>, Vec<(String, u32)>) {
    let below = format!("{path}/");
    let names = tree
        .range(below.clone()..)
        .take_while(|(path, _)| path.starts_with(&below))
        .filter(|(path, _)| !path[below.len()..].contains('/'))
        .map(|(path, node)| (path.clone(), node.0))
        .collect();
    (tree.get(path).copied(), names)
}

fn describe(point: &CrashPoint<'_>) -> String {
    format!("crash point {}, unflushed {:?}", point.number(), point.unflushed())
}

fn short(fates: &[Fate]) -> String {
    fates
        .iter()
        .map(|fate| match fate {
            Fate::Lost => "-".to_owned(),
            Fate::Whole => "+".to_owned(),
            Fate::Torn { sectors } => format!("[{sectors}]"),
        })
        .collect()
}

/// Open (which replays), look at everything, close.
fn recover_here(image: &SparseImage, story: &dyn Fn() -> String) -> (SparseImage, Tree) {
    let device = ImageDevice::new(image.clone());
    let read_only = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let volume =
        Volume::open(device.clone(), read_only).unwrap_or_else(|error| panic!("{}: {error}", story()));
    let overlaid = tree_of(&volume);
    drop(volume);
    assert!(device.image().same_content(image), "{}: a read-only volume was written", story());
    let volume = Volume::open(device.clone(), VolumeOptions::default())
        .unwrap_or_else(|error| panic!("{}: {error}", story()));
    let tree = tree_of(&volume);
    assert!(tree == overlaid, "{}: the overlay shows another tree", story());
    volume.close().unwrap();
    (device.image(), tree)
}

fn check_clean(image: &SparseImage, scratch: &Path, story: &dyn Fn() -> String) {
    let path: PathBuf = scratch.join("recovered");
    save(image, &path);
    let (code, output) = run("e2fsck", &["-fn", &path.to_string_lossy()]);
    if code != 0 {
        // Kept for inspection.
        let _ = std::fs::copy(&path, std::env::temp_dir().join("diorite-crash-failed.img"));
    }
    assert_eq!(code, 0, "{}: e2fsck: {output}", story());
}

/// Let e2fsck replay and repair; then nothing may be left to repair.
pub fn recover_with_e2fsck(image: &SparseImage, scratch: &Path, story: &dyn Fn() -> String) -> Tree {
    let path = scratch.join("theirs");
    save(image, &path);
    let text = path.to_string_lossy();
    let (code, output) = run("e2fsck", &["-fy", &text]);
    assert!(code <= 1, "{}: e2fsck -fy: {output}", story());
    let (code, output) = run("e2fsck", &["-fn", &text]);
    assert_eq!(code, 0, "{}: e2fsck after e2fsck: {output}", story());
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let volume = Volume::open(ImageDevice::new(load(&path)), options).unwrap();
    tree_of(&volume)
}
