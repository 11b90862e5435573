//! Superblocks with one field changed and their checksum right: the kernel's mount, e2fsck, an open and the check.
//!
//! A volume that the kernel does not mount must not be written, and the check must say why. A volume that the kernel mounts and e2fsck
//! finds sound must open and be clean. The check also finds each problem that only e2fsck finds.

use std::os::unix::fs::FileExt;
use std::path::Path;

use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext::{Volume, VolumeOptions};
use diorite_ext_format::checksum::crc32c;

use super::image::{our_check, run};
use crate::common::has_e2fsprogs;

const SIZE: u64 = 16 << 20;

/// A field of the superblock: its name, offset and bytes.
type Field = (&'static str, u64, usize);

const INODES_COUNT: Field = ("s_inodes_count", 0x00, 4);
const BLOCKS_COUNT: Field = ("s_blocks_count", 0x04, 4);
const RESERVED_BLOCKS: Field = ("s_r_blocks_count", 0x08, 4);
const FREE_BLOCKS: Field = ("s_free_blocks_count", 0x0c, 4);
const FIRST_DATA_BLOCK: Field = ("s_first_data_block", 0x14, 4);
const LOG_BLOCK_SIZE: Field = ("s_log_block_size", 0x18, 4);
const LOG_CLUSTER_SIZE: Field = ("s_log_cluster_size", 0x1c, 4);
const BLOCKS_PER_GROUP: Field = ("s_blocks_per_group", 0x20, 4);
const CLUSTERS_PER_GROUP: Field = ("s_clusters_per_group", 0x24, 4);
const INODES_PER_GROUP: Field = ("s_inodes_per_group", 0x28, 4);
const ERRORS: Field = ("s_errors", 0x3c, 2);
const CREATOR_OS: Field = ("s_creator_os", 0x48, 4);
const FIRST_INO: Field = ("s_first_ino", 0x54, 4);
const INODE_SIZE: Field = ("s_inode_size", 0x58, 2);
const FEATURE_COMPAT: Field = ("s_feature_compat", 0x5c, 4);
const FEATURE_INCOMPAT: Field = ("s_feature_incompat", 0x60, 4);
const FEATURE_RO_COMPAT: Field = ("s_feature_ro_compat", 0x64, 4);
const RESERVED_GDT_BLOCKS: Field = ("s_reserved_gdt_blocks", 0xce, 2);
const JOURNAL_INUM: Field = ("s_journal_inum", 0xe0, 4);
const JOURNAL_DEV: Field = ("s_journal_dev", 0xe4, 4);
const DEF_HASH_VERSION: Field = ("s_def_hash_version", 0xfc, 1);
const DESC_SIZE: Field = ("s_desc_size", 0xfe, 2);
const FIRST_META_BG: Field = ("s_first_meta_bg", 0x104, 4);
const BLOCKS_COUNT_HI: Field = ("s_blocks_count_hi", 0x150, 4);
const MIN_EXTRA_ISIZE: Field = ("s_min_extra_isize", 0x15c, 2);
const WANT_EXTRA_ISIZE: Field = ("s_want_extra_isize", 0x15e, 2);
const MMP_BLOCK: Field = ("s_mmp_block", 0x168, 4);
const LOG_GROUPS_PER_FLEX: Field = ("s_log_groups_per_flex", 0x174, 1);
const CHECKSUM_TYPE: Field = ("s_checksum_type", 0x175, 1);
const USR_QUOTA_INUM: Field = ("s_usr_quota_inum", 0x240, 4);
const OVERHEAD: Field = ("s_overhead_clusters", 0x248, 4);
const ENCODING: Field = ("s_encoding", 0x27c, 2);
const ORPHAN_FILE_INUM: Field = ("s_orphan_file_inum", 0x280, 4);

/// Fields of every volume, and values for them.
const COMMON: &[(Field, &[u32])] = &[
    (BLOCKS_COUNT, &[0, 1, 16385]),
    (FIRST_DATA_BLOCK, &[0, 1, 2, 16384]),
    (LOG_CLUSTER_SIZE, &[0, 1, 3, 20, 21]),
    (BLOCKS_PER_GROUP, &[0, 8184, 8200]),
    (CLUSTERS_PER_GROUP, &[0, 256, 8185, 16384]),
    (INODES_PER_GROUP, &[0, 7, 65536]),
];

/// The volume of mke2fs, whether the fields above are changed, and fields that matter only there.
#[allow(clippy::type_complexity, reason = "a table of a test")]
const TABLE: &[(&[&str], bool, &[(Field, &[u32])])] = &[
    (
        &["-t", "ext4", "-b", "1024"],
        true,
        &[
            (INODES_COUNT, &[0, 100]),
            (RESERVED_BLOCKS, &[8193]),
            (FREE_BLOCKS, &[0, u32::MAX]),
            (LOG_BLOCK_SIZE, &[2, 7, 40]),
            (ERRORS, &[0, 9]),
            (CREATOR_OS, &[1, 2, 99]),
            (FIRST_INO, &[0, 10, 5000]),
            (INODE_SIZE, &[0, 64, 192, 2048]),
            (FEATURE_INCOMPAT, &[0x0002_02c2]),
            (FEATURE_RO_COMPAT, &[0x0001_046b]),
            (RESERVED_GDT_BLOCKS, &[200, 256, 257]),
            (JOURNAL_INUM, &[0, 9, 100_000]),
            (JOURNAL_DEV, &[7]),
            (DEF_HASH_VERSION, &[3, 6, 200]),
            (DESC_SIZE, &[16, 48, 2048]),
            (FIRST_META_BG, &[100_000]),
            (BLOCKS_COUNT_HI, &[1]),
            (MIN_EXTRA_ISIZE, &[0, 200]),
            (WANT_EXTRA_ISIZE, &[0, 200]),
            (MMP_BLOCK, &[16384]),
            (LOG_GROUPS_PER_FLEX, &[0, 31, 32]),
            (CHECKSUM_TYPE, &[0, 2]),
            (OVERHEAD, &[1, u32::MAX]),
        ],
    ),
    (
        &["-t", "ext2", "-b", "1024"],
        true,
        &[
            (CREATOR_OS, &[1]),
            (JOURNAL_DEV, &[7]),
            (DESC_SIZE, &[1024]),
            (FEATURE_COMPAT, &[0]),
            (FEATURE_INCOMPAT, &[0x6, 0x2_0002]),
            (FEATURE_RO_COMPAT, &[0, 1, 2]),
        ],
    ),
    (
        &["-t", "ext3", "-b", "4096"],
        false,
        &[(DESC_SIZE, &[1024]), (FEATURE_INCOMPAT, &[0x2_0002]), (FEATURE_RO_COMPAT, &[0, 1, 2, 0x203])],
    ),
    (&["-t", "ext2", "-b", "1024", "-r", "0"], true, &[]),
    (&["-t", "ext4", "-b", "4096", "-O", "^64bit"], false, &[(FIRST_DATA_BLOCK, &[1]), (CREATOR_OS, &[1])]),
    (
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
        false,
        &[
            (FIRST_DATA_BLOCK, &[1]),
            (LOG_CLUSTER_SIZE, &[0, 3, 21]),
            (CLUSTERS_PER_GROUP, &[0, 256, 8200]),
            (BLOCKS_PER_GROUP, &[8192]),
        ],
    ),
    (&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"], false, &[(FIRST_META_BG, &[100_000])]),
    (&["-t", "ext4", "-b", "1024", "-O", "mmp"], false, &[(MMP_BLOCK, &[0, 1, 16384])]),
    (&["-t", "ext4", "-b", "1024", "-O", "quota"], false, &[(USR_QUOTA_INUM, &[5, 100_000])]),
    (&["-t", "ext4", "-b", "1024", "-O", "casefold"], false, &[(ENCODING, &[0, 2])]),
    (&["-t", "ext4", "-b", "1024", "-O", "orphan_file"], false, &[(ORPHAN_FILE_INUM, &[0, 2, 100_000])]),
];

/// Change a field of the image's first superblock, and set the checksum if it has one. `None` if the field has that value.
fn damage(image: &Path, (_, offset, bytes): Field, value: u32) -> Option<()> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut superblock = [0; 1024];
    file.read_exact_at(&mut superblock, 1024).unwrap();
    let at = offset as usize;
    let value = &value.to_le_bytes()[..bytes];
    if &superblock[at..at + bytes] == value {
        return None;
    }
    superblock[at..at + bytes].copy_from_slice(value);
    if superblock[0x65] & 4 != 0 {
        let checksum = crc32c(!0, &superblock[..1020]);
        superblock[1020..].copy_from_slice(&checksum.to_le_bytes());
    }
    file.write_all_at(&superblock, 1024).unwrap();
    Some(())
}

/// Whether the kernel mounts the image to write it.
fn kernel_mounts(image: &Path) -> bool {
    let at = image.with_file_name("mount");
    std::fs::create_dir_all(&at).unwrap();
    let at = at.to_str().unwrap().to_owned();
    let script = format!(
        "mount -o loop \"$0\" {at} && findmnt -n -o OPTIONS {at} | grep -qw rw; is_written=$?; umount {at} && exit $is_written"
    );
    run("unshare", &["-m", "--propagation", "private", "sh", "-c", &script], image).0 == Some(0)
}

/// Whether the image is opened to write it.
fn is_written_here(image: &Path) -> bool {
    let device = FileDevice::open(image, &OpenOptions::read_write().direct(DirectIo::Off)).unwrap();
    let Ok(volume) = Volume::open(device, VolumeOptions::default()) else { return false };
    let is_written = volume.read_only_reason().is_none();
    volume.close().unwrap();
    is_written
}

/// Volumes without bigalloc whose cluster fields contradict their block fields were clean, and were written.
#[test]
fn superblocks_that_the_kernel_does_not_mount_are_not_written_and_not_clean() {
    if !has_e2fsprogs() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let [sound, image] = ["sound", "image"].map(|name| scratch.path().join(name));
    let (mut failures, mut refused, mut taken) = (Vec::new(), 0, 0);
    for (recipe, has_common, fields) in TABLE {
        let _ = std::fs::remove_file(&sound);
        std::fs::OpenOptions::new().create_new(true).write(true).open(&sound).unwrap().set_len(SIZE).unwrap();
        let (code, output) = run("mke2fs", &[&["-q", "-F"], *recipe].concat(), &sound);
        if code != Some(0) {
            println!("SKIPPED: mke2fs does not make {recipe:?}: {output}");
            continue;
        }
        std::fs::copy(&sound, &image).unwrap();
        if !kernel_mounts(&image) {
            println!("SKIPPED: no kernel mount of {recipe:?} here");
            continue;
        }
        let common = if *has_common { COMMON } else { &[] };
        for ((field, value), at) in common
            .iter()
            .chain(*fields)
            .flat_map(|(field, values)| values.iter().map(|value| ((field.0, *value), *field)))
        {
            std::fs::copy(&sound, &image).unwrap();
            if damage(&image, at, value).is_none() {
                continue;
            }
            let (_, said) = run("e2fsck", &["-fn"], &image);
            let is_sound =
                !said.contains("corrupt") && !said.contains("Corrupt") && !said.contains("should have been");
            let report = our_check(&image);
            let is_written = is_written_here(&image);
            std::fs::copy(&sound, &image).unwrap();
            damage(&image, at, value);
            let is_mounted = kernel_mounts(&image);
            *if is_mounted { &mut taken } else { &mut refused } += 1;
            let name = format!("{recipe:?} {field} = {value}");
            if is_written && !is_mounted {
                failures.push(format!("{name}: written, but the kernel does not mount it"));
            }
            if report.is_clean() && !(is_mounted && is_sound) {
                failures.push(format!("{name}: clean, but mounted: {is_mounted}; e2fsck: {said}"));
            }
            let must_be_taken = is_mounted && is_sound && !said.contains("? no");
            if must_be_taken && !(is_written && report.is_clean()) {
                failures
                    .push(format!("{name}: refused: {:?}", report.problems.first().map(ToString::to_string)));
            }
        }
    }
    println!("{refused} superblocks that the kernel does not mount, {taken} that it does");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
