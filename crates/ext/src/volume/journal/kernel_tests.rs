//! Journals that the kernel left: replay here, byte for byte against `e2fsck -E journal_only`.
//!
//! Each image is copied while the kernel has it mounted, after an fsync that committed to the log and before anything was
//! checkpointed. Needs root, loop devices and e2fsprogs; skipped (and counted) where they are missing.
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_sim::image::{ImageDevice, SparseImage};

use super::fast_replay::FastCommitArea;
use super::locate::locate;
use crate::layout::Superblock;
use crate::{Access, BlockSize, FsBlock};
use diorite_journal::log::{Content, LogVolume, read_superblock, recover};

/// Run a shell script in a directory; `None` with the reason on stderr if it fails.
fn shell(directory: &Path, script: &str) -> Option<String> {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output().ok()?;
    if !output.status.success() {
        eprintln!("{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn load(path: &Path) -> SparseImage {
    let bytes = std::fs::read(path).unwrap();
    let mut image = SparseImage::new(bytes.len() as u64);
    for (index, chunk) in bytes.chunks(65536).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            image.write(index as u64 * 65536, chunk);
        }
    }
    image
}

/// Work that logs, revokes, and leaves commits that are not checkpointed.
const WORK: &str = r"
    mkdir mnt; mount -o loop,$OPTIONS image mnt
    python3 - <<'PYTHON'
import os
def sync(name):
    f = os.open(name, os.O_WRONLY | os.O_CREAT); os.write(f, b'synced'); os.fsync(f); os.close(f)
os.sync()
for round in range(6):
    os.mkdir(f'mnt/d{round}')
    for i in range(150):
        open(f'mnt/d{round}/file{i}', 'w').write('x' * (i * 40))
    sync(f'mnt/mark{round}')
    if round % 2:
        for i in range(150):
            os.unlink(f'mnt/d{round - 1}/file{i}')
        os.rmdir(f'mnt/d{round - 1}')
        sync(f'mnt/removed{round}')
for i in range(50):
    open(f'mnt/unsynced{i}', 'w').write('y' * 5000)
PYTHON
    cp --sparse=always image copy
    umount mnt
";

fn check(name: &str, mkfs: &str, options: &str) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let make = format!("truncate -s 48M image; mke2fs -q -F {mkfs} image; OPTIONS={options}; {WORK}");
    if shell(directory, &make).is_none() {
        let _ = shell(directory, "umount mnt");
        println!("SKIPPED: {name}: cannot make and mount an image here");
        return;
    }
    let show = shell(directory, "dumpe2fs -h copy 2>/dev/null").unwrap();
    let field = |name: &str| {
        let line = show.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let block_size = BlockSize::new(field("Block size:").parse().unwrap()).unwrap();
    let volume_blocks = field("Block count:").parse().unwrap();
    let journal_blocks = field("Total journal blocks:").parse::<u64>().unwrap();
    assert!(show.contains("needs_recovery"), "{name}: the copy is dirty");

    let ours = ImageDevice::new(load(&directory.join("copy")));
    let device: Arc<dyn BlockDevice> = ours.clone();
    let mut raw = vec![0; 1024];
    ours.image().read(1024, &mut raw);
    let superblock = Superblock::parse(&raw).unwrap();
    let map = locate(&*device, &superblock, superblock.journal_inode().unwrap()).unwrap();
    assert_eq!(map.blocks(), journal_blocks, "{name}");
    let recover = |access| {
        let superblock = read_superblock(&*device, &map, block_size).unwrap();
        let volume = LogVolume { device: &device, map: &map, block_size, blocks: volume_blocks };
        let mut fast = FastCommitArea::default();
        recover::<crate::Error>(&volume, superblock, access, Content::Counts, &mut fast).unwrap()
    };
    let (overlay, recovered) = (recover(Access::ReadOnly), recover(Access::ReadWrite));
    assert!(
        recovered.blocks > 20 && overlay.blocks == recovered.blocks,
        "{name}: {} blocks",
        recovered.blocks
    );
    shell(directory, "cp copy theirs; e2fsck -E journal_only -y theirs || test $? -le 1").unwrap();
    let theirs = load(&directory.join("theirs"));

    let ours = ours.image();
    let size = block_size.bytes();
    let (mut a, mut b, mut c) = (vec![0; size as usize], vec![0; size as usize], vec![0; size as usize]);
    let overlay = overlay.overlay.unwrap();
    for block in (0..volume_blocks).filter(|block| !map.contains(FsBlock(*block))) {
        ours.read(block * size, &mut a);
        theirs.read(block * size, &mut b);
        (&*overlay as &dyn BlockDevice).read_bytes(block * size, &mut c).unwrap();
        assert!(a == c, "{name}: block {block} through the overlay");
        // The superblock: replay leaves flags and times to the volume.
        let skip =
            if block * size <= 1024 && (block + 1) * size > 1024 { 2048.min(size as usize) } else { 0 };
        assert!(a[skip..] == b[skip..], "{name}: block {block} ({recovered:?})");
    }
}

#[test]
fn ext4_journals_replay_as_e2fsck_does() {
    check("ext4", "-t ext4 -J size=4", "commit=600");
    check("ext4, 1 KiB blocks", "-t ext4 -b 1024 -J size=4", "commit=600");
    check("ext4 without checksums", "-t ext4 -O ^metadata_csum,^64bit -J size=4", "commit=600");
}

#[test]
fn other_journals_replay_as_e2fsck_does() {
    check("ext3", "-t ext3 -J size=4", "commit=600");
    check("ext4, data=journal", "-t ext4 -J size=8", "commit=600,data=journal");
    check("ext4, first checksums", "-t ext4 -O ^metadata_csum -J size=4", "commit=600,journal_checksum");
}
