//! Volumes that were cut at their end are clean for e2fsck, keep their content, and no used block is cut off.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use std::path::Path;
use std::process::Command;

use diorite_block::BlockDevice;
use diorite_ext_format::Superblock;
use diorite_ext_tools::check::{CheckOptions, check};
use diorite_ext_tools::mkfs::{Arrangement, Flavor, MkfsOptions, QuotaKind, mkfs};
use diorite_ext_tools::resize::{ResizeError, Shrinkable};

use crate::common::{has_e2fsprogs, open, set_len};

const MIB: u64 = 1 << 20;

fn run(program: &str, arguments: &[&str], path: &Path) -> String {
    let run = Command::new(program).args(arguments).arg(path).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{program} {arguments:?}: {said}");
    said
}

fn minimum_blocks(device: &dyn BlockDevice) -> Result<u64, ResizeError> {
    Ok(Shrinkable::read(device)?.minimum_blocks())
}

fn shrink(device: &dyn BlockDevice, blocks: u64) -> Result<Superblock, ResizeError> {
    Shrinkable::read(device)?.shrink(blocks)
}

/// e2fsck and Diorite's check find nothing, and the blocks are counted as after the cut.
fn must_be_clean(path: &Path, what: &str) {
    let fsck = Command::new("e2fsck").args(["-fn"]).arg(path).output().unwrap();
    assert_eq!(fsck.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&fsck.stdout));
    let report = check(&*open(path), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problem_count, 0, "{what}: {:?}", report.problems);
    // The backup of the superblock is of the same size.
    assert!(report.notes.is_empty(), "{what}: {:?}", report.notes);
}

/// Cut the volume in the file `path` to `blocks`, and the file with it.
fn cut(path: &Path, blocks: u64, what: &str) {
    let device = open(path);
    let free = Shrinkable::read(&*device).unwrap().free_after(blocks);
    let superblock = shrink(&*device, blocks).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(superblock.blocks_count() >= blocks, "{what}");
    assert_eq!(superblock.free_blocks_count(), free, "{what}");
    drop(device);
    set_len(path, superblock.blocks_count() * superblock.block_size().bytes());
    must_be_clean(path, what);
}

/// Cut the volume to a size between, to its minimum, and try to cut more.
fn cut_everywhere(path: &Path, seed: u64, what: &str) -> u64 {
    let least = minimum_blocks(&*open(path)).unwrap();
    let most = Shrinkable::read(&*open(path)).unwrap().blocks();
    let too_few = shrink(&*open(path), least.saturating_sub(16 * 16));
    assert!(matches!(too_few, Err(ResizeError::InUse { .. })), "{what}: {too_few:?}");
    must_be_clean(path, what);
    assert!(matches!(shrink(&*open(path), most + 16), Err(ResizeError::TooLarge { .. })), "{what}");
    let mut random = fastrand::Rng::with_seed(seed);
    for blocks in [random.u64(least..=most), least] {
        cut(path, blocks, &format!("{what}, {blocks} of {most} blocks, at least {least}"));
    }
    assert_eq!(minimum_blocks(&*open(path)).unwrap(), least, "{what}: the second time");
    least
}

/// Flavour, block size, size in MiB, features, groups of a flex group.
const VOLUMES: &[(Flavor, u32, u64, &str, Option<u32>)] = &[
    (Flavor::Ext2, 1024, 100, "", None),
    (Flavor::Ext2, 1024, 300, "^resize_inode", None),
    (Flavor::Ext2, 1024, 300, "^resize_inode,^sparse_super", None),
    (Flavor::Ext2, 4096, 700, "", None),
    (Flavor::Ext2, 2048, 300, "sparse_super2", None),
    (Flavor::Ext3, 1024, 600, "", None),
    (Flavor::Ext3, 1024, 300, "meta_bg,^resize_inode", None),
    (Flavor::Ext4, 1024, 100, "", None),
    (Flavor::Ext4, 1024, 300, "^64bit,uninit_bg,^metadata_csum", None),
    (Flavor::Ext4, 1024, 700, "", Some(4)),
    (Flavor::Ext4, 1024, 300, "^resize_inode", None),
    (Flavor::Ext4, 1024, 300, "meta_bg,^resize_inode", Some(8)),
    (Flavor::Ext4, 1024, 100, "sparse_super2", Some(1)),
    (Flavor::Ext4, 1024, 300, "sparse_super2,^resize_inode", None),
    (Flavor::Ext4, 4096, 700, "^flex_bg", None),
    (Flavor::Ext4, 4096, 700, "quota,project,mmp,orphan_file,metadata_csum_seed", None),
    (Flavor::Ext4, 1024, 600, "bigalloc", None),
    (Flavor::Ext4, 4096, 9000, "bigalloc,^resize_inode", Some(2)),
    (Flavor::Ext4, 4096, 700, "inline_data,encrypt,casefold,fast_commit,ea_inode,large_dir", None),
];

#[test]
fn new_volumes_are_cut_to_every_size() {
    if !has_e2fsprogs() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    for (index, &(flavor, block_size, size, features, flex_groups)) in VOLUMES.iter().enumerate() {
        for arrangement in [Arrangement::Whole, Arrangement::CutLater { kept_groups: 1 + index as u32 % 3 }] {
            let what = format!("{flavor:?} {block_size} {features} {flex_groups:?} {arrangement:?}");
            let path = scratch.path().join(format!("{index}"));
            let options = MkfsOptions {
                flavor,
                block_size: Some(block_size),
                features: features.to_owned(),
                flex_groups,
                arrangement,
                quota_kinds: features.contains("quota").then(|| QuotaKind::ALL.to_vec()),
                ..MkfsOptions::default()
            };
            let _ = std::fs::remove_file(&path);
            set_len(&path, size * MIB);
            let made = mkfs(&*open(&path), &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            let least = cut_everywhere(&path, index as u64, &what);
            // Apart from the journal there is almost nothing.
            if arrangement != Arrangement::Whole {
                let journal = u64::from(made.journal_blocks);
                let layout = made.layout;
                let own = u64::from(layout.overhead_in(diorite_ext::GroupNumber(0)))
                    + 4 * u64::from(layout.inode_table_blocks());
                let groups = (least - layout.first_data_block).div_ceil(u64::from(layout.blocks_per_group));
                assert!(least <= journal + groups * own + 2000, "{what}: {least} of {}", layout.blocks_count);
            }
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Volumes of another program, with content: the kept blocks are the same.
#[test]
fn filled_volumes_keep_their_content() {
    if !has_e2fsprogs() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let content = scratch.path().join("content");
    for directory in 0..20 {
        let directory = content.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..30_usize {
            let bytes: Vec<u8> = (0..file * 700).map(|at| (at * 7 + file) as u8).collect();
            std::fs::write(directory.join(format!("f{file}")), bytes).unwrap();
        }
    }
    let from = content.to_str().unwrap();
    for (index, arguments) in [
        vec!["-t", "ext2", "-b", "1024"],
        vec!["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        vec!["-t", "ext4", "-b", "4096", "-O", "^has_journal,^resize_inode"],
        vec!["-t", "ext4", "-b", "1024", "-O", "^has_journal,bigalloc", "-C", "4096"],
        vec!["-t", "ext4", "-b", "1024", "-G", "4", "-J", "size=4"],
    ]
    .into_iter()
    .enumerate()
    {
        let path = scratch.path().join(format!("{index}"));
        set_len(&path, 300 * MIB);
        run("mke2fs", &[&["-q", "-F", "-d", from][..], &arguments].concat(), &path);
        let what = format!("{arguments:?}");
        cut_everywhere(&path, index as u64, &what);
        let out = scratch.path().join(format!("out{index}"));
        std::fs::create_dir(&out).unwrap();
        run("debugfs", &["-R", &format!("rdump / {}", out.display())], &path);
        std::fs::remove_dir(out.join("lost+found")).unwrap();
        let same = Command::new("diff").args(["-r"]).arg(&content).arg(&out).output().unwrap();
        assert!(same.status.success(), "{what}: {}", String::from_utf8_lossy(&same.stdout));
    }
}

#[test]
fn unclean_volumes_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a");
    set_len(&path, 64 * MIB);
    mkfs(&*open(&path), &MkfsOptions::new(Flavor::Ext4)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // `s_state`; without a checksum of the superblock nothing else would notice.
    bytes[1024 + 0x3a] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let error = minimum_blocks(&*open(&path)).unwrap_err();
    assert!(matches!(error, ResizeError::Volume(_)), "{error}: the checksum is wrong");
    mkfs(&*open(&path), &MkfsOptions::new(Flavor::Ext2)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1024 + 0x3a] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let error = minimum_blocks(&*open(&path)).unwrap_err();
    assert!(matches!(error, ResizeError::NotClean), "{error}");
}
