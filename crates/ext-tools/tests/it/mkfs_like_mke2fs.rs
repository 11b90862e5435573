//! Volumes made by mkfs are clean for e2fsck, and have the geometry that mke2fs chooses for the same arguments.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use diorite_block::{BioFlags, BlockDevice};
use diorite_ext::{Owner, Timestamp, VolumeInfo};
use diorite_ext_tools::check::{CheckOptions, check};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, QuotaKind, mkfs};
use diorite_sim::image::ImageDevice;

use crate::common::{has_e2fsprogs, open, set_len};

const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";
/// A second `-E` replaces the first.
const QUOTATYPE: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed=01234567-89ab-4def-8123-456789abcdef,\
    quotatype=grpquota:prjquota,root_owner=3:70000";
const LITTLE_GROWTH: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed=01234567-89ab-4def-8123-456789abcdef,resize=135168";
const UUID_BYTES: [u8; 16] =
    [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

fn fsck(path: &Path) -> Result<(), String> {
    let run = Command::new("e2fsck").args(["-fn"]).arg(path).output().unwrap();
    if run.status.code() == Some(0) {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr)))
}

fn header(path: &Path) -> String {
    let run = Command::new("dumpe2fs").arg("-h").arg(path).output().unwrap();
    assert!(run.status.success(), "dumpe2fs: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout)
        .lines()
        .filter(|line| {
            !line.starts_with("Lifetime writes")
                && !line.starts_with("Checksum:")
                && !line.starts_with("Journal checksum:")
                // Made by whom, when and where.
                && !line.contains("mmp_update_")
                && !line.contains("_name: ")
                && !line.starts_with("MMP block number:")
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// `VolumeInfo` says what dumpe2fs says.
fn info_says(path: &Path, header: &str) -> Result<(), String> {
    let info = VolumeInfo::read(&*open(path)).map_err(|error| error.to_string())?;
    let label = String::from_utf8_lossy(info.label()).into_owned();
    let facts = [
        ("Filesystem volume name", if label.is_empty() { "<none>".to_owned() } else { label }),
        ("Filesystem features", info.features().to_string()),
        ("Filesystem revision #", "1 (dynamic)".to_owned()),
        ("Inode count", info.inodes_count().to_string()),
        ("Block count", info.blocks_count().to_string()),
        ("Reserved block count", info.reserved_blocks_count().to_string()),
        ("Overhead clusters", info.overhead_clusters().to_string()),
        ("Free blocks", info.free_blocks_count().to_string()),
        ("Free inodes", info.free_inodes_count().to_string()),
        ("First block", info.layout.first_data_block.to_string()),
        ("Block size", info.block_size().bytes().to_string()),
        ("Blocks per group", info.layout.blocks_per_group.to_string()),
        ("Inodes per group", info.layout.inodes_per_group.to_string()),
        ("Inode blocks per group", info.layout.inode_table_blocks().to_string()),
        ("First inode", info.first_inode().to_string()),
        ("Inode size", info.inode_size().to_string()),
    ];
    for (name, value) in facts {
        let line = header.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if line.map(str::trim) != Some(&value) {
            return Err(format!("{name}: dumpe2fs says {line:?}, VolumeInfo {value:?}"));
        }
    }
    Ok(())
}

fn mke2fs(path: &Path, flavor: Flavor, arguments: &[&str]) -> Result<(), String> {
    let name = match flavor {
        Flavor::Ext2 => "ext2",
        Flavor::Ext3 => "ext3",
        Flavor::Ext4 => "ext4",
    };
    let extended = format!("lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={UUID}");
    let run = Command::new("mke2fs")
        .env("E2FSPROGS_FAKE_TIME", TIME.seconds.to_string())
        .args(["-q", "-F", "-F", "-t", name, "-U", UUID, "-E", &extended])
        .args(arguments)
        .arg(path)
        .output()
        .unwrap();
    if run.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&run.stderr).into_owned()) }
}

/// Make a volume both ways and compare. Both may refuse; only one refusing is a failure.
fn compare(bytes: u64, options: &MkfsOptions, arguments: &[&str]) -> Result<(), String> {
    let scratch = tempfile::tempdir().unwrap();
    let (ours, theirs) = (scratch.path().join("ours"), scratch.path().join("theirs"));
    for path in [&ours, &theirs] {
        set_len(path, bytes);
    }
    let options =
        MkfsOptions { uuid: Some(UUID_BYTES), hash_seed: Some(UUID_BYTES), time: TIME, ..options.clone() };
    let made = mkfs(&*open(&ours), &options).map(|_| ());
    let reference = mke2fs(&theirs, options.flavor, arguments);
    match (made, reference) {
        (Err(_), Err(_)) => Ok(()),
        (Err(error), Ok(())) => Err(format!("refused: {error}")),
        (Ok(()), Err(error)) => Err(format!("mke2fs refused: {error}")),
        (Ok(()), Ok(())) => {
            fsck(&ours)?;
            info_says(&ours, &header(&ours))?;
            let (ours, theirs) = (header(&ours), header(&theirs));
            if ours == theirs {
                return Ok(());
            }
            let differing: Vec<_> = ours
                .lines()
                .zip(theirs.lines())
                .filter(|(a, b)| a != b)
                .map(|(a, b)| format!("ours {a:?} theirs {b:?}"))
                .collect();
            Err(differing.join("\n"))
        }
    }
}

fn run_matrix(flavor: Flavor, cases: &[(u64, &[&str], MkfsOptions)]) {
    if !has_e2fsprogs() {
        return;
    }
    let mut failures = Vec::new();
    for (bytes, arguments, options) in cases {
        let options = MkfsOptions { flavor, ..options.clone() };
        if let Err(what) = compare(*bytes, &options, arguments) {
            failures.push(format!("{flavor:?} {bytes} bytes {arguments:?}: {what}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<(u64, &'static [&'static str], MkfsOptions)> {
    const KIB: u64 = 1024;
    const MIB: u64 = 1 << 20;
    let plain = MkfsOptions::default;
    let block = |bytes| MkfsOptions { block_size: Some(bytes), ..plain() };
    let inode = |bytes| MkfsOptions { inode_size: Some(bytes), ..plain() };
    let features = |text: &str| MkfsOptions { features: text.to_owned(), ..plain() };
    let mut cases: Vec<(u64, &'static [&'static str], MkfsOptions)> = Vec::new();
    for size in [
        64 * KIB,
        100 * KIB,
        360 * KIB,
        1440 * KIB,
        2 * MIB + 512,
        3 * MIB,
        8 * MIB + 7 * KIB,
        33 * MIB,
        100 * MIB,
        511 * MIB,
        512 * MIB,
        3000 * MIB,
    ] {
        cases.push((size, &[], plain()));
    }
    for size in [4 * MIB, 129 * MIB] {
        cases.push((size, &["-b", "1024"], block(1024)));
        cases.push((size, &["-b", "2048"], block(2048)));
        cases.push((size, &["-b", "4096"], block(4096)));
        cases.push((size, &["-I", "128"], inode(128)));
        cases.push((size, &["-I", "512"], inode(512)));
        cases.push((
            size,
            &["-I", "1024", "-b", "1024"],
            MkfsOptions { block_size: Some(1024), ..inode(1024) },
        ));
        cases.push((size, &["-N", "5000"], MkfsOptions { inodes: Some(5000), ..plain() }));
        cases.push((size, &["-i", "65536"], MkfsOptions { bytes_per_inode: Some(65536), ..plain() }));
        cases.push((size, &["-m", "1"], MkfsOptions { reserved_percent: 1.0, ..plain() }));
        cases.push((size, &["-L", "a label"], MkfsOptions { label: b"a label".to_vec(), ..plain() }));
        cases.push((size, &["-O", "^resize_inode"], features("^resize_inode")));
        cases.push((size, &["-O", "^resize_inode,^sparse_super"], features("^resize_inode,^sparse_super")));
        cases.push((size, &["-O", "^resize_inode,meta_bg"], features("^resize_inode,meta_bg")));
        cases.push((size, &["-O", "sparse_super2"], features("sparse_super2")));
        cases.push((size, &["-O", "extent,flex_bg,^filetype"], features("extent,flex_bg,^filetype")));
        cases.push((
            size,
            &["-O", "^metadata_csum,^64bit,uninit_bg"],
            features("^metadata_csum,^64bit,uninit_bg"),
        ));
        let many = "extent,metadata_csum,metadata_csum_seed,64bit,large_dir,ea_inode,verity,stable_inodes";
        cases.push((
            size,
            &["-O", "extent,metadata_csum,metadata_csum_seed,64bit,large_dir,ea_inode,verity,stable_inodes"],
            features(many),
        ));
        cases.push((size, &["-b", "8192"], block(8192)));
        cases.push((size, &["-b", "65536"], block(65536)));
        cases.push((size, &["-O", "has_journal,orphan_file"], features("has_journal,orphan_file")));
        cases.push((size, &["-O", "mmp"], features("mmp")));
        cases.push((size, &["-O", "quota"], features("quota")));
        cases.push((
            size,
            &["-O", "has_journal,quota,project,orphan_file"],
            features("has_journal,quota,project,orphan_file"),
        ));
        cases.push((
            size,
            &["-O", "quota", "-E", QUOTATYPE],
            MkfsOptions {
                quota_kinds: Some(vec![QuotaKind::Group, QuotaKind::Project]),
                root_owner: Owner { uid: 3, gid: 70000 },
                ..features("quota")
            },
        ));
        cases.push((
            size,
            &["-O", "flex_bg", "-G", "4"],
            MkfsOptions { flex_groups: Some(4), ..features("flex_bg") },
        ));
        cases.push((
            size,
            &["-b", "4096", "-O", "has_journal", "-J", "size=20"],
            MkfsOptions { block_size: Some(4096), journal_blocks: Some(5120), ..features("has_journal") },
        ));
    }
    let more: [(&[&str], MkfsOptions); 4] = [
        (&["-O", "has_journal,fast_commit"], features("has_journal,fast_commit")),
        (&["-O", "casefold"], features("casefold")),
        (&["-O", "encrypt,stable_inodes,extent,verity"], features("encrypt,stable_inodes,extent,verity")),
        (
            &["-b", "4096", "-O", "has_journal,fast_commit", "-J", "size=20,fast_commit_size=1024"],
            MkfsOptions {
                block_size: Some(4096),
                journal_blocks: Some(5120),
                fast_commit_blocks: Some(256),
                ..features("has_journal,fast_commit")
            },
        ),
    ];
    cases.extend(more.map(|(arguments, options)| (129 * MIB, arguments, options)));
    // The file with the space for growth has 4 GiB, mapped or not.
    let small_files = MkfsOptions { block_size: Some(4096), ..features("^large_file,resize_inode") };
    cases.push((129 * MIB, &["-b", "4096", "-O", "^large_file,resize_inode"], small_files));
    // More than there is, and no more descriptors than there are.
    let little_growth = MkfsOptions { resize_blocks: Some(135_168), ..plain() };
    cases.push((33 * MIB, &["-E", LITTLE_GROWTH], little_growth));
    cases
}

#[test]
fn ext2_is_clean_and_has_the_geometry_of_mke2fs() {
    run_matrix(Flavor::Ext2, &cases());
}

#[test]
fn ext3_is_clean_and_has_the_geometry_of_mke2fs() {
    run_matrix(Flavor::Ext3, &cases());
}

#[test]
fn clusters_have_the_geometry_of_mke2fs() {
    const MIB: u64 = 1 << 20;
    let clusters = |block, cluster, features: &str| MkfsOptions {
        block_size: block,
        cluster_size: cluster,
        features: format!("bigalloc{features}"),
        ..MkfsOptions::default()
    };
    let mut cases: Vec<(u64, &'static [&'static str], MkfsOptions)> = Vec::new();
    for size in [9 * MIB, 64 * MIB + 13 * 1024, 600 * MIB, 2500 * MIB] {
        cases.push((size, &["-O", "bigalloc"], clusters(None, None, "")));
        let small = clusters(Some(1024), Some(2048), "");
        cases.push((size, &["-O", "bigalloc", "-b", "1024", "-C", "2048"], small));
        let medium = clusters(Some(1024), Some(16384), "");
        cases.push((size, &["-O", "bigalloc", "-b", "1024", "-C", "16384"], medium));
        let large = clusters(Some(4096), Some(65536), ",orphan_file");
        cases.push((size, &["-O", "bigalloc,orphan_file", "-b", "4096", "-C", "65536"], large));
        let huge = clusters(Some(4096), Some(1 << 20), ",^resize_inode");
        cases.push((size, &["-O", "bigalloc,^resize_inode", "-b", "4096", "-C", "1048576"], huge));
        let plain = clusters(Some(2048), None, ",^flex_bg,^has_journal");
        cases.push((size, &["-O", "bigalloc,^flex_bg,^has_journal", "-b", "2048"], plain));
    }
    let without = MkfsOptions { cluster_size: Some(65536), ..MkfsOptions::default() };
    cases.push((64 * MIB, &["-C", "65536"], without));
    run_matrix(Flavor::Ext4, &cases);
}

#[test]
fn ext4_is_clean_and_has_the_geometry_of_mke2fs() {
    run_matrix(Flavor::Ext4, &cases());
}

/// Invariant 1 of mkfs.
#[test]
fn the_same_seed_and_time_give_the_same_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let make = |name: &str, seed| {
        let path = scratch.path().join(name);
        std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(40 << 20)
            .unwrap();
        let options = MkfsOptions { flavor: Flavor::Ext4, ..MkfsOptions::default() }.reproducible(seed, TIME);
        mkfs(&*open(&path), &options).unwrap();
        let mut bytes = vec![0; 40 << 20];
        let device = open(&path);
        device.read_bytes(0, &mut bytes).unwrap();
        bytes
    };
    let first = make("first", 7);
    assert!(first == make("second", 7), "the same seed gave other bytes");
    assert!(first != make("third", 8), "another seed gave the same bytes");
}

/// Invariant 3 of mkfs: 16 TiB on a device that keeps what was written and nothing else.
#[test]
fn a_volume_of_16_tib_costs_what_is_on_it() {
    let memory = ImageDevice::zeroed(1 << 44);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let features = "sparse_super2".to_owned();
    let options =
        MkfsOptions { flavor: Flavor::Ext4, features, ..MkfsOptions::default() }.reproducible(1, TIME);
    let report = mkfs(&*device, &options).unwrap();
    assert_eq!(report.layout.blocks_count, 1 << 32);
    assert!(report.written_bytes < 256 << 20, "{} bytes written", report.written_bytes);
    // The device keeps chunks of 64 KiB: the 8192 flex groups have one block of bitmap each.
    assert!(memory.image().memory_bytes() < 1 << 30, "{} bytes kept", memory.image().memory_bytes());
    let info = VolumeInfo::read(&*device).unwrap();
    assert_eq!((info.blocks_count(), info.inodes_count()), (1 << 32, 1 << 28));
}

/// The kernel mounts what was made, fills it and leaves it sound; resize2fs uses the space for growth.
#[test]
fn the_kernel_uses_what_was_made() {
    if !has_e2fsprogs() {
        return;
    }
    for (flavor, features) in [
        (Flavor::Ext2, ""),
        (Flavor::Ext3, ""),
        (Flavor::Ext4, ""),
        (Flavor::Ext4, "metadata_csum_seed,orphan_file,large_dir,ea_inode,inline_data"),
        (Flavor::Ext4, "^resize_inode,meta_bg,^flex_bg"),
        (Flavor::Ext4, "bigalloc,^resize_inode"),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("image");
        std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        let options = MkfsOptions { flavor, features: features.to_owned(), ..MkfsOptions::default() };
        mkfs(&*open(&path), &options).unwrap();
        let script = "mkdir mnt; mount -o loop image mnt; trap 'umount mnt' EXIT
            test -d mnt/lost+found; mkdir mnt/d; for i in $(seq 600); do echo $i > mnt/d/a-rather-long-name-of-a-file-$i; done
            dd if=/dev/zero of=mnt/large bs=64k count=300 status=none; rm mnt/d/*7; sync";
        let done = Command::new("sh").args(["-ec", script]).current_dir(&scratch).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if !done.status.success() && said.contains("mount") {
            println!("SKIPPED: cannot mount {flavor:?} with {features:?} here: {said}");
            continue;
        }
        assert!(done.status.success(), "{flavor:?} {features:?}: {said}");
        fsck(&path).unwrap();
        let report = check(&*open(&path), &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{flavor:?} {features:?}: {:?}", report.problems);
        assert_eq!(report.files, 541);
        if features.contains("bigalloc") {
            // resize2fs 1.47.0 miscounts what it adds to a volume with clusters.
            continue;
        }
        set_len(&path, 100 << 20);
        let grown = Command::new("resize2fs").arg("-f").arg(&path).output().unwrap();
        assert!(grown.status.success(), "resize2fs: {}", String::from_utf8_lossy(&grown.stderr));
        fsck(&path).unwrap();
        let report = check(&*open(&path), &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "grown {flavor:?} {features:?}: {:?}", report.problems);
    }
}

/// `-E discard` was accepted and did nothing.
#[test]
fn what_was_on_the_device_is_discarded_if_that_is_asked_for() {
    const BYTES: u64 = 64 << 20;
    let full = |discards: bool| {
        let mut geometry = ImageDevice::geometry_for(BYTES);
        geometry.discard = discards;
        let device = ImageDevice::zeroed_with(geometry);
        for at in (0..BYTES).step_by(1 << 20) {
            (&*device as &dyn BlockDevice).write_bytes(at, &vec![0xee; 1 << 20], BioFlags::NONE).unwrap();
        }
        device
    };
    for (asked, discards) in [(true, true), (false, true), (true, false)] {
        let device = full(discards);
        let options = MkfsOptions { discard: asked, ..MkfsOptions::new(Flavor::Ext4) };
        let report = mkfs(&*device, &options).unwrap();
        let is_discarded = asked && discards;
        assert_eq!(report.discarded_bytes > BYTES - (256 << 10), is_discarded, "{}", report.discarded_bytes);
        assert_eq!(
            device.image().memory_bytes() < BYTES / 4,
            is_discarded,
            "{}",
            device.image().memory_bytes()
        );
        let found = check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(found.is_clean(), "{:?}", found.problems);
    }
}

/// A scan for arrays found the old one, because its superblock at the end of the device stayed.
#[test]
fn superblocks_of_arrays_at_the_end_are_gone() {
    const MD_MAGIC: u32 = 0xa92b_4efc;
    let magic = MD_MAGIC.to_le_bytes();
    // The last 12 KiB of the third one are too few for a group.
    for (bytes, size_bytes, discard) in [
        (64 << 20, None, false),
        (64 << 20, None, true),
        ((256 << 20) + (12 << 10), None, false),
        (64 << 20, Some(48 << 20), false),
    ] {
        let memory = ImageDevice::zeroed(bytes);
        let device: Arc<dyn BlockDevice> = memory.clone();
        let end = size_bytes.unwrap_or(bytes);
        let places = [(end - (64 << 10)) / (64 << 10) * (64 << 10), (end - (8 << 10)) / 4096 * 4096];
        for place in places {
            device.write_bytes(place, &[&magic[..], &[0; 508]].concat(), BioFlags::NONE).unwrap();
        }
        if end < bytes {
            device.write_bytes(end, &[7; 512], BioFlags::NONE).unwrap();
        }
        let options = MkfsOptions { size_bytes, discard, ..MkfsOptions::new(Flavor::Ext4) };
        mkfs(&*device, &options).unwrap();
        for place in places {
            let mut found = [0; 512];
            device.read_bytes(place, &mut found).unwrap();
            assert!(found[..4] != magic, "{bytes} {size_bytes:?}: the superblock at {place} stayed");
        }
        if end < bytes {
            let mut found = [0; 512];
            device.read_bytes(end, &mut found).unwrap();
            assert!(found == [7; 512], "what follows the volume is not the volume's");
        }
    }
}
