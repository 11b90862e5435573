//! The replay of the kernel's fast commits has the same result as the kernel's own replay.
//!
//! The image is copied while it is mounted, after a sync of files that are only in fast commits. Needs root, loop devices and
//! python3; skipped (and counted) where they are missing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{Bench, MemoryDevice, Mount, entries_of, have, read_file, run, shell};
use diorite_block::Sector;
use diorite_ext::{Access, FileKind, Inode, InodeNumber, Volume, VolumeOptions};
use diorite_sim::crash::{Fate, RecordingDevice, Tearing};
use diorite_sim::image::{ImageDevice, SparseImage};

const HELPERS: &str = r"
import os
def w(name, data, mode='w'):
    with open(name, mode) as f:
        f.write(data); f.flush(); os.fsync(f.fileno())
# Of this filesystem alone: a sync of all would put what the other tests have in fast commits into full ones.
def sync(): assert os.system('sync -f .') == 0
";

/// The content of a full commit.
const BASE: &str = r"
os.mkdir('d')
for i in range(40): open(f'd/old{i}', 'w').write('o' * (i * 700))
open('base', 'w').write('b' * 20000); open('cut', 'w').write('c' * 50000); open('gone', 'w').write('g' * 60000)
open('sparse', 'w').write('s')
for i in range(6): os.mkdir(f'd/empty{i}')
os.mkdir('d/kept'); open('d/kept/file', 'w').write('k' * 5000)
";

/// Small changes, each synced, none of which needs a full commit.
const WORK: &str = r"
sync(); w('base', 'B' * 9000, 'a')
os.unlink('gone'); w('base', 'x', 'a')
for i in range(0, 40, 4): os.unlink(f'd/old{i}')
for i in range(1, 40, 4): os.rename(f'd/old{i}', f'd/renamed{i}')
for i in range(2, 40, 4): os.link(f'd/old{i}', f'linked{i}')
w('base', 'y', 'a')
for i in range(30): w(f'd/new-file-with-a-long-name-that-fills-the-directory-{i}', 'n' * (i * 900))
with open('sparse', 'r+') as f:
    for i in range(12):
        f.seek(i * 3 * 8192); f.write('S' * 4096); f.flush(); os.fsync(f.fileno())
with open('cut', 'r+') as f: f.truncate(10001); f.flush(); os.fsync(f.fileno())
os.rename('d/old3', 'd/old7'); w('base', 'z', 'a')
os.posix_fallocate(os.open('base', os.O_RDWR), 40000, 30000); w('base', 'end', 'a')
";

type Tree = BTreeMap<String, (FileKind, u32, u64, u64, Vec<u8>)>;

fn kernel_tree(directory: &Path, path: &str, tree: &mut Tree) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{path}/{}", String::from_utf8_lossy(entry.file_name().as_bytes()));
        let seen = entry.metadata().unwrap();
        let kind = FileKind::from_mode(seen.mode() as u16).unwrap();
        let content =
            if kind == FileKind::Regular { std::fs::read(entry.path()).unwrap() } else { Vec::new() };
        let size = if kind == FileKind::Regular { seen.size() } else { 0 };
        tree.insert(path.clone(), (kind, seen.mode() & 0o7777, seen.nlink(), size, content));
        if kind == FileKind::Directory {
            kernel_tree(&entry.path(), &path, tree);
        }
    }
}

fn our_tree(volume: &Volume, directory: &Inode, path: &str, tree: &mut Tree) {
    for (name, number) in entries_of(volume, directory) {
        let path = format!("{path}/{}", String::from_utf8_lossy(&name));
        let inode = volume.inodes.get(number).unwrap_or_else(|error| panic!("{path}: {error}"));
        let seen = inode.attributes();
        let is_file = inode.kind() == FileKind::Regular;
        let content = if is_file { read_file(volume, &inode) } else { Vec::new() };
        let size = if is_file { seen.size } else { 0 };
        let node = (inode.kind(), u32::from(seen.permissions), u64::from(seen.links), size, content);
        tree.insert(path.clone(), node);
        if inode.kind() == FileKind::Directory {
            our_tree(volume, &inode, &path, tree);
        }
    }
}

fn tree_of(volume: &Volume) -> Tree {
    let mut tree = Tree::new();
    our_tree(volume, &volume.inodes.get(InodeNumber::ROOT).unwrap(), "", &mut tree);
    tree
}

fn assert_same(ours: &Tree, theirs: &Tree, what: &str) {
    for path in ours.keys().chain(theirs.keys()) {
        let brief =
            |tree: &Tree| tree.get(path).map(|(kind, mode, links, size, _)| (*kind, *mode, *links, *size));
        assert_eq!(brief(ours), brief(theirs), "{what}: {path}: here and by the kernel");
        assert!(ours[path].4 == theirs[path].4, "{what}: the content of {path}");
    }
}

/// As [`WORK`], with what the kernel writes down but does not replay whole: directories made and removed, a file made
/// without a name, owners, removed files that are open.
const MORE_WORK: &str = r"
sync(); w('base', '0', 'a'); os.mkdir('made'); w('base', '1', 'a')
w('made/file', 'f' * 9000); os.mkdir('made/below'); os.mkdir('made/gone'); w('base', '2', 'a')
w('made/below/deep', 'd' * 3000); os.rmdir('made/gone'); os.rmdir('d/empty1'); os.rmdir('d/empty2'); w('base', '3', 'a')
for i in range(60): open(f'made/below/a-name-that-makes-the-directory-grow-beyond-a-block-{i}', 'w').close()
os.mkdir('d/empty1'); w('base', '4', 'a')
os.chown('base', 1234, 5678); os.chown('made/file', 77, 77); w('base', '5', 'a')
nameless = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(nameless, b'n' * 7000); os.fsync(nameless)
os.link(f'/proc/self/fd/{nameless}', 'named', src_dir_fd=nameless, follow_symlinks=True); w('base', '6', 'a')
removed = open('d/kept/file', 'a'); os.unlink('d/kept/file'); w('base', '7', 'a'); removed.write('more'); removed.flush()
with open('sparse', 'r+') as f:
    for i in range(40): f.seek(i * 5000 % 70000); f.write('P' * 900)
    f.flush(); os.fsync(f.fileno()); f.truncate(30000); f.flush(); os.fsync(f.fileno())
    f.seek(50000); f.write('Q' * 2500); f.flush(); os.fsync(f.fileno())
os.mkdir('last'); os.fsync(nameless); w('base', '8', 'a')
";

/// The image while it is mounted and `work` is done, and what could be seen of it then.
fn copy_of_live(bench: &Bench, image: &Path, work: &str) -> Option<(std::path::PathBuf, Tree)> {
    let copy = bench.path("copy");
    let script = bench.path("work.py");
    let copying = format!("os.system('cp --sparse=always {} {}')", image.display(), copy.display());
    std::fs::write(&script, format!("{HELPERS}{work}\n{copying}")).unwrap();
    let mount = Mount::new(bench, image, ",commit=600")?;
    shell(&mount.at, &format!("python3 {}", script.display()));
    let mut tree = Tree::new();
    kernel_tree(&mount.at, "", &mut tree);
    Some((copy, tree))
}

/// The dirty image, and what the kernel makes of it.
fn dirty_image(bench: &Bench, arguments: &str) -> Option<(std::path::PathBuf, Tree)> {
    let (copy, _) = copy_of_live(bench, &bench.image(arguments, "32M"), &format!("{BASE}{WORK}"))?;
    let again = bench.path("again");
    std::fs::copy(&copy, &again).unwrap();
    let mount = Mount::new(bench, &again, "")?;
    let mut tree = Tree::new();
    kernel_tree(&mount.at, "", &mut tree);
    Some((copy, tree))
}

fn replays_as_the_kernel(arguments: &str) {
    if !have(&["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let bench = Bench::new();
    let Some((copy, theirs)) = dirty_image(&bench, arguments) else { return };
    let before = std::fs::read(&copy).unwrap();
    let device = MemoryDevice::new(before.clone());
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options).unwrap();
    assert_same(&tree_of(&volume), &theirs, arguments);
    assert!(*device.bytes.read().unwrap() == before, "{arguments}: reading wrote");
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    assert_same(&tree_of(&volume), &theirs, arguments);
    volume.close().unwrap();
    bench.check(&device);
    let saved = bench.path("replayed");
    device.save(&saved);
    let Some(mount) = Mount::new(&bench, &saved, "") else { return };
    let mut again = Tree::new();
    kernel_tree(&mount.at, "", &mut again);
    drop(mount);
    assert_same(&again, &theirs, arguments);
    let (code, output) = run("e2fsck", &["-fn", &saved.to_string_lossy()]);
    assert_eq!(code, 0, "{output}");
}

#[test]
fn fast_commits_replay_as_the_kernel_does() {
    replays_as_the_kernel("-t ext4 -b 4096 -O fast_commit");
}

#[test]
fn fast_commits_replay_as_the_kernel_does_with_small_blocks() {
    replays_as_the_kernel("-t ext4 -b 1024 -O fast_commit,^metadata_csum,^64bit");
    replays_as_the_kernel("-t ext4 -b 2048 -O fast_commit,orphan_file,metadata_csum_seed");
}

/// Also where the kernel's own replay leaves counts that e2fsck must repair: what was synced is there, and nothing is left to repair.
fn replays_what_was_synced(arguments: &str) {
    if !have(&["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.image(arguments, "32M");
    let work = format!("{BASE}{WORK}{MORE_WORK}");
    let Some((copy, synced)) = copy_of_live(&bench, &image, &work) else { return };
    check_replayed(&bench, &copy, &synced, arguments);
}

fn check_replayed(bench: &Bench, copy: &Path, synced: &Tree, arguments: &str) {
    let device = MemoryDevice::new(std::fs::read(copy).unwrap());
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    assert_same(&tree_of(&Volume::open(device.clone(), options).unwrap()), synced, arguments);
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    assert_same(&tree_of(&volume), synced, arguments);
    volume.close().unwrap();
    bench.check(&device);
}

#[test]
fn directories_owners_and_nameless_files_replay_to_what_was_synced() {
    replays_what_was_synced("-t ext4 -b 4096 -O fast_commit");
    replays_what_was_synced("-t ext4 -b 1024 -O fast_commit,^metadata_csum,^64bit");
}

#[test]
fn fast_commits_replay_with_quota_settled() {
    if !have(&["mke2fs", "e2fsck", "tune2fs", "python3"]) {
        return;
    }
    // The kernel here may not know quota: it works on the volume as on one without, and nothing is in a full commit then.
    let bench = Bench::new();
    let image = bench.image("-t ext4 -b 1024 -O fast_commit,^metadata_csum", "32M");
    let Some(mount) = Mount::new(&bench, &image, "") else { return };
    let script = bench.path("base.py");
    std::fs::write(&script, format!("{HELPERS}{BASE}")).unwrap();
    shell(&mount.at, &format!("python3 {}", script.display()));
    drop(mount);
    let (code, output) = run("tune2fs", &["-O", "quota", &image.to_string_lossy()]);
    assert_eq!(code, 0, "{output}");
    set_quota_feature(&image, false);
    let Some((copy, synced)) = copy_of_live(&bench, &image, MORE_WORK) else { return };
    set_quota_feature(&copy, true);
    check_replayed(&bench, &copy, &synced, "quota");
}

/// In the superblocks of a volume without checksums, those in its log too.
fn set_quota_feature(image: &Path, on: bool) {
    let mut bytes = std::fs::read(image).unwrap();
    for block in bytes.chunks_exact_mut(1024).filter(|block| block[0x38..0x3a] == [0x53, 0xef]) {
        block[0x65] = block[0x65] & !1 | u8::from(on);
    }
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn fast_commits_replay_in_clusters() {
    replays_what_was_synced("-t ext4 -b 4096 -O fast_commit,bigalloc -C 16384");
    replays_what_was_synced("-t ext4 -b 1024 -O fast_commit,bigalloc -C 8192");
}

/// ARCHITECTURE invariant 6: power is lost at any moment of the replay itself, and the next one gives the same. At most 60 images.
#[test]
fn replay_that_is_cut_off_anywhere_is_done_again() {
    if !have(&["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let bench = Bench::new();
    for arguments in ["-t ext4 -b 1024 -O fast_commit", "-t ext4 -b 4096 -O fast_commit,^metadata_csum"] {
        let image = bench.image(arguments, "32M");
        let work = format!("{BASE}{WORK}{MORE_WORK}");
        let Some((copy, synced)) = copy_of_live(&bench, &image, &work) else { return };
        let mut image = SparseImage::new(std::fs::metadata(&copy).unwrap().len());
        image.write(0, &std::fs::read(&copy).unwrap());
        let recorder = RecordingDevice::new(&*ImageDevice::new(image), true).unwrap();
        Volume::open(recorder.clone(), VolumeOptions::default()).unwrap().close().unwrap();
        let recording = recorder.recording();
        let limit = (60 / recording.crash_points().count()).max(4);
        for point in recording.crash_points() {
            for fates in point.fates(limit, Tearing::Allowed, 7) {
                // Both sectors of a superblock are written or none, as the kernel too must hope.
                let is_of_superblock =
                    |(first, count): &(Sector, u32)| first.0 < 4 && first.0 + u64::from(*count) > 2;
                let mut written = point.unflushed().into_iter().zip(&fates);
                if written.any(|(range, fate)| is_of_superblock(&range) && matches!(fate, Fate::Torn { .. }))
                {
                    continue;
                }
                let device = ImageDevice::new(point.image(&fates));
                let what = format!("{arguments}: crash point {}, {fates:?}", point.number());
                let volume = Volume::open(device.clone(), VolumeOptions::default());
                let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same(&tree_of(&volume), &synced, &what);
                volume.close().unwrap();
                let saved = bench.path("recovered");
                let mut file = std::fs::File::create(&saved).unwrap();
                file.set_len(device.image().len()).unwrap();
                device.image().export(&mut file).unwrap();
                let (code, output) = run("e2fsck", &["-fn", &saved.to_string_lossy()]);
                assert_eq!(code, 0, "{what}: {output}");
            }
        }
    }
}

/// Records that cannot be end in an error, or count for nothing; never in a panic.
#[test]
fn damaged_fast_commits_are_refused_or_ignored() {
    if !have(&["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let bench = Bench::new();
    let Some((copy, theirs)) = dirty_image(&bench, "-t ext4 -b 1024 -O fast_commit -J size=4") else {
        return;
    };
    let bytes = std::fs::read(&copy).unwrap();
    // Heads are where a block begins with kind 9 and length 8.
    let is_head = |at: &usize| bytes[*at..*at + 8] == [9, 0, 8, 0, 0, 0, 0, 0];
    let area = (0..bytes.len()).step_by(1024).find(is_head).expect("the kernel left fast commits");
    let read_only = || VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let mut without = bytes.clone();
    without[area] = 0;
    let volume = Volume::open(MemoryDevice::new(without), read_only()).unwrap();
    assert!(tree_of(&volume) != theirs, "the fast commits change something");
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..30 {
        let mut damaged = bytes.clone();
        for _ in 0..random.usize(1..4) {
            damaged[area + random.usize(..4096)] ^= 1 << random.u8(..8);
        }
        if let Ok(volume) = Volume::open(MemoryDevice::new(damaged), read_only()) {
            tree_of(&volume);
        }
    }
}

/// A fast commit that is damaged, with intact ones after it, was taken for the end of them: what later syncs had promised was dropped
/// without a word, and the next write lost it for good.
#[test]
fn damage_before_intact_fast_commits_is_reported() {
    if !have(&["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let bench = Bench::new();
    let arguments = "-t ext4 -b 1024 -O fast_commit -J size=4";
    let Some((copy, theirs)) = dirty_image(&bench, arguments) else { return };
    let intact = std::fs::read(&copy).unwrap();
    // The first head, and the blocks after it that begin with a record.
    let is_head = |at: &usize| intact[*at..*at + 8] == [9, 0, 8, 0, 0, 0, 0, 0];
    let area = (0..intact.len()).step_by(1024).find(is_head).expect("the kernel left fast commits");
    let has_record = |at: &usize| (1..=9).contains(&intact[*at]) && intact[*at + 1] == 0;
    let blocks = (area..intact.len()).step_by(1024).take_while(has_record).count();
    assert!(blocks > 8, "{blocks} blocks of fast commits");
    for damaged in [0, 1, blocks / 2, blocks - 2] {
        let mut bytes = intact.clone();
        bytes[area + damaged * 1024 + 13] ^= 0x40;
        let device = MemoryDevice::new(bytes.clone());
        let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
        assert!(volume.read_only_reason().is_some(), "block {damaged} of {blocks}");
        assert!(
            volume.defects().iter().any(|defect| defect.contains("fast commit")),
            "{:?}",
            volume.defects()
        );
        assert!(tree_of(&volume) != theirs, "block {damaged} of {blocks}");
        drop(volume);
        assert!(*device.bytes.read().unwrap() == bytes, "nothing is written");
    }
    // The end of what was written is no damage.
    let mut bytes = intact.clone();
    bytes[area + (blocks - 1) * 1024 + 13] ^= 0x40;
    let volume = Volume::open(MemoryDevice::new(bytes), VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
}

/// A fast commit with a right checksum whose change cannot be made (it maps blocks that the volume does not have) made the whole
/// volume unopenable: what the log alone gives is shown, and nothing is written.
#[test]
fn fast_commit_that_cannot_be_made_leaves_the_volume_readable() {
    const TAIL: u8 = 8;
    if !have(&["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let bench = Bench::new();
    let Some((copy, theirs)) = dirty_image(&bench, "-t ext4 -b 1024 -O fast_commit -J size=4") else {
        return;
    };
    let mut bytes = std::fs::read(&copy).unwrap();
    let is_head = |at: &usize| bytes[*at..*at + 8] == [9, 0, 8, 0, 0, 0, 0, 0];
    let area = (0..bytes.len()).step_by(1024).find(is_head).expect("the kernel left fast commits");
    // The records from the head to its tail: kind, length, value. The first is put after a mapping outside of the volume.
    let transaction = bytes[area + 8..area + 12].to_vec();
    let far_extent = [[12, 0, 0, 0], [0; 4], [1, 0, 0xff, 0x7f], [0xff; 4]].concat();
    let mut commit = [&[9, 0, 8, 0, 0, 0, 0, 0][..], &transaction, &[1, 0, 16, 0], &far_extent].concat();
    commit.extend([TAIL, 0, 0, 0]);
    let padding = 1024 - commit.len() - 8;
    let at = commit.len() - 2;
    commit[at..].copy_from_slice(&(padding as u16 + 8).to_le_bytes());
    commit.extend(&transaction);
    commit.extend((!crc32c::crc32c_append(!0, &commit)).to_le_bytes());
    commit.resize(1024, 0);
    bytes[area..area + 1024].copy_from_slice(&commit);
    // So that nothing that follows counts.
    bytes[area + 1024..area + 2048].fill(0);
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let device = MemoryDevice::new(bytes.clone());
        let volume =
            Volume::open(device.clone(), VolumeOptions { access, ..VolumeOptions::default() }).unwrap();
        assert!(volume.read_only_reason().is_some(), "{access:?}");
        assert!(!volume.defects().is_empty(), "{access:?}");
        let shown = tree_of(&volume);
        assert!(shown.contains_key("/base") && shown != theirs, "{access:?}: what the log alone gives");
        drop(volume);
        assert!(*device.bytes.read().unwrap() == bytes, "{access:?}: nothing is written");
    }
}
