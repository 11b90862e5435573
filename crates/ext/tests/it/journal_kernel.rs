//! Dirty journals across implementations: Diorite recovers the kernel's journals as the kernel does, and the
//! kernel recovers Diorite's journals (ARCHITECTURE invariant 6). Needs root and loop devices; skipped (and counted) without.
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use common::{have, run, write_blocks};
use crash::{Tree, at, directory, file, load, make_image, save, scratch, tree_of};
use diorite_ext::{Access, FileKind, RenameMode, Volume, VolumeOptions};
use diorite_sim::image::{ImageDevice, SparseImage};

fn shell(directory: &Path, script: &str) -> bool {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap();
    if !output.status.success() {
        eprintln!("{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// Mounts an image until dropped.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// `None`, said on stdout, where that is not possible.
    fn new(directory: &'a Path, image: &str, options: &str) -> Option<Self> {
        let mounted = shell(directory, &format!("mkdir -p mnt; mount -o loop,{options} {image} mnt"));
        if !mounted {
            println!("SKIPPED: cannot mount {image} with {options} here");
        }
        mounted.then(|| Self(directory))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        shell(self.0, "umount mnt");
    }
}

/// The tree as the kernel shows it.
fn kernel_tree(root: &Path) -> Tree {
    fn walk(directory: &Path, path: &str, tree: &mut Tree) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{path}/{}", entry.file_name().to_string_lossy());
            let metadata = entry.metadata().unwrap();
            let kind = FileKind::from_mode(metadata.mode() as u16).unwrap();
            let mut hasher = DefaultHasher::new();
            match kind {
                FileKind::Regular => std::fs::read(entry.path()).unwrap().hash(&mut hasher),
                FileKind::Directory => walk(&entry.path(), &path, tree),
                _ => {}
            }
            let size = if kind == FileKind::Directory { 0 } else { metadata.size() };
            let permissions = metadata.mode() as u16 & 0o7777;
            let links = metadata.nlink() as u32;
            tree.insert(path, (metadata.ino() as u32, kind, permissions, links, size, hasher.finish()));
        }
    }
    let mut tree = Tree::new();
    walk(root, "", &mut tree);
    tree
}

/// Kernel work: committed to the log, not checkpointed, with unlinked files that are still open, then a copy.
const WORK: &str = r"
import os
def sync(name):
    f = os.open(name, os.O_WRONLY | os.O_CREAT); os.write(f, b'synced'); os.fsync(f); os.close(f)
os.sync()
held = []
for round in range(5):
    os.mkdir(f'mnt/d{round}')
    for i in range(120):
        open(f'mnt/d{round}/file{i}', 'w').write(str(i) * (i * 30))
    sync(f'mnt/mark{round}')
    if round % 2:
        for i in range(120):
            os.unlink(f'mnt/d{round - 1}/file{i}')
        os.rmdir(f'mnt/d{round - 1}')
        held.append(open(f'mnt/d{round}/file100'))
        os.unlink(f'mnt/d{round}/file100')
        os.truncate(f'mnt/d{round}/file99', 17)
        sync(f'mnt/removed{round}')
for i in range(50):
    open(f'mnt/unsynced{i}', 'w').write('y' * 5000)
os.system('cp --sparse=always image dirty')
";

fn differences(ours: &Tree, theirs: &Tree) -> Vec<String> {
    let paths = ours.keys().chain(theirs.keys());
    let mut lines: Vec<_> = paths
        .filter(|path| ours.get(*path) != theirs.get(*path))
        .map(|path| format!("{path}: here {:?}, kernel {:?}", ours.get(path), theirs.get(path)))
        .collect();
    lines.dedup();
    lines
}

fn kernel_left(name: &str, mkfs: &str, options: &str) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let directory = scratch.path();
    assert!(shell(directory, &format!("truncate -s 48M image; mke2fs -q -F {mkfs} image")));
    std::fs::write(directory.join("work.py"), WORK).unwrap();
    {
        let Some(_mount) = Mount::new(directory, "image", options) else { return };
        assert!(shell(directory, "python3 work.py"));
    }
    let dirty = load(&directory.join("dirty"));

    let device = ImageDevice::new(dirty.clone());
    let read_only = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let overlaid = tree_of(&Volume::open(device.clone(), read_only).unwrap());
    assert!(device.image().same_content(&dirty), "{name}: a read-only volume was written");
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    let ours = tree_of(&volume);
    volume.close().unwrap();
    save(&device.image(), &directory.join("ours"));
    let (code, output) = run("e2fsck", &["-fn", &directory.join("ours").to_string_lossy()]);
    assert_eq!(code, 0, "{name}: {output}");

    let Some(mount) = Mount::new(directory, "dirty", "rw") else { return };
    let theirs = kernel_tree(&directory.join("mnt"));
    drop(mount);
    assert!(theirs.len() > 200);
    assert_eq!(differences(&ours, &theirs), Vec::<String>::new(), "{name}");
    assert_eq!(differences(&overlaid, &theirs), Vec::<String>::new(), "{name}, overlay");
}

#[test]
fn journals_of_the_kernel_are_recovered_as_it_does() {
    kernel_left("ext4", "-t ext4 -J size=4", "commit=600");
    kernel_left("ext3, 1 KiB blocks", "-t ext3 -b 1024 -J size=4", "commit=600");
    kernel_left("ext4, data=journal", "-t ext4 -J size=8", "commit=600,data=journal");
    kernel_left("ext4, orphan list", "-t ext4 -O ^orphan_file,^metadata_csum", "commit=600");
}

/// The kernel, e2fsck and this program recover one image of a volume that was not closed.
fn left_here(mkfs: &str) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let image = make_image(scratch.path(), mkfs, "24M");
    let device = ImageDevice::new(image);
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    for round in 0..4u64 {
        let name = format!("d{round}");
        let parent = volume.names.create(&at(&volume, ""), name.as_bytes(), &directory()).unwrap();
        for number in 0..60u64 {
            let inode = volume.names.create(&parent, format!("f{number}").as_bytes(), &file()).unwrap();
            let blocks = number % 7;
            let block = volume.block_size().bytes();
            let content = common::pattern(number, (blocks * block) as usize);
            if blocks > 0 {
                write_blocks(&volume, &inode, number % 3, &content, Some((number % 3 + blocks) * block))
                    .unwrap();
            }
        }
        volume.sync().unwrap();
        for number in 0..60u64 {
            let name = format!("f{number}").into_bytes();
            if number % 3 == 0 {
                volume.names.unlink(&parent, &name).unwrap();
            } else if number % 3 == 1 {
                let new = format!("g{number}").into_bytes();
                volume.names.rename(&parent, &name, &at(&volume, ""), &new, RenameMode::Replace).unwrap();
            }
        }
        volume.sync_inode(&parent, diorite_ext::SyncKind::All).unwrap();
    }
    let tree = tree_of(&volume);
    let left: SparseImage = device.image();
    save(&left, &scratch.path().join("left"));
    let Some(mount) = Mount::new(scratch.path(), "left", "rw") else { return };
    let theirs = kernel_tree(&scratch.path().join("mnt"));
    drop(mount);
    assert_eq!(differences(&tree, &theirs), Vec::<String>::new(), "{mkfs}");
    let (code, output) = run("e2fsck", &["-fn", &scratch.path().join("left").to_string_lossy()]);
    assert_eq!(code, 0, "{mkfs}: {output}");
}

#[test]
fn the_kernel_recovers_what_was_left_here() {
    left_here("-t ext4 -J size=4");
    left_here("-t ext4 -b 1024 -J size=1");
    left_here("-t ext3 -J size=4");
    left_here("-t ext4 -O ^64bit,^metadata_csum -J size=4");
    left_here("-t ext4 -O fast_commit -J size=8");
}

#[test]
fn external_journals_are_refused_by_name() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let directory = scratch.path();
    let made = shell(
        directory,
        "truncate -s 16M journal; mke2fs -q -F -O journal_dev -b 4096 journal
         truncate -s 24M image; device=$(losetup -f --show journal)
         mke2fs -q -F -t ext4 -b 4096 -J device=$device image || { losetup -d $device; exit 1; }
         losetup -d $device",
    );
    if !made {
        println!("SKIPPED: cannot make an external journal here");
        return;
    }
    let device = ImageDevice::new(load(&directory.join("image")));
    let volume = Volume::open(device, VolumeOptions::default()).unwrap();
    let reason = volume.read_only_reason().unwrap();
    let (_, said) = common::run("dumpe2fs", &["-h", &directory.join("journal").to_string_lossy()]);
    let uuid = said.lines().find_map(|line| line.strip_prefix("Filesystem UUID:")).unwrap().trim();
    assert!(reason.contains("journal is on another device") && reason.contains(uuid), "{reason}");
    let journal = Volume::open(ImageDevice::new(load(&directory.join("journal"))), VolumeOptions::default());
    let reason = journal.unwrap_err().to_string();
    assert!(reason.contains("it is a journal") && reason.contains(uuid), "{reason}");
}
