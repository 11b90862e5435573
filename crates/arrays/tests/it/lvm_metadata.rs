//! Physical volumes with metadata that LVM2's tools make only by chance: copies that differ, members of mirrors, crashes.
//! Offsets are those of `label.h` and `layout.h` of LVM2, `dm-raid.c` and `md-bitmap.h` of Linux.
#![allow(clippy::disallowed_methods, reason = "images of other tools")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite::front_end::open_target;
use diorite_block::BlockDevice;
use diorite_device::{AlignedBuf, OpenOptions};

const AREA: u64 = 4096;
const AREA_BYTES: u64 = 64 << 10;
/// First byte of the first extent.
const DATA: u64 = 1 << 20;
const EXTENT: u64 = 64 << 10;
const BYTES: u64 = 4 << 20;

fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

fn id(number: usize) -> String {
    number.to_string().repeat(32)
}

/// A physical volume with a copy of the metadata for each text, the first in the first area.
fn make(path: &Path, number: usize, texts: &[&str]) {
    let file = std::fs::File::create(path).expect("an image");
    file.set_len(BYTES).expect("a size");
    let put = |bytes: &mut [u8], at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let mut label = [0; 512];
    put(&mut label, 0, b"LABELONE");
    put(&mut label, 8, &1_u64.to_le_bytes());
    put(&mut label, 20, &32_u32.to_le_bytes());
    put(&mut label, 24, b"LVM2 001");
    put(&mut label, 32, id(number).as_bytes());
    put(&mut label, 64, &BYTES.to_le_bytes());
    put(&mut label, 72, &DATA.to_le_bytes());
    for (index, text) in texts.iter().enumerate() {
        let start = AREA + index as u64 * AREA_BYTES;
        let list = 104 + 16 * index;
        put(&mut label, list, &[start, AREA_BYTES].map(u64::to_le_bytes).concat());
        let mut header = [0; 512];
        put(&mut header, 4, b" LVM2 x[5A%r0N*>");
        put(&mut header, 20, &1_u32.to_le_bytes());
        let place = [start, AREA_BYTES, 512, text.len() as u64].map(u64::to_le_bytes).concat();
        put(&mut header, 24, &place);
        put(&mut header, 56, &crc(text.as_bytes()).to_le_bytes());
        let checksum = crc(&header[4..]);
        put(&mut header, 0, &checksum.to_le_bytes());
        file.write_all_at(&header, start).expect("a header");
        file.write_all_at(text.as_bytes(), start + 512).expect("a text");
    }
    let checksum = crc(&label[20..]);
    put(&mut label, 16, &checksum.to_le_bytes());
    file.write_all_at(&label, 512).expect("a label");
}

/// A group with `count` physical volumes and these logical ones.
fn group(version: u32, extent_bytes: u64, count: usize, volumes: &str) -> String {
    let physical = |number: usize| {
        let (id, first, extents) = (id(number), DATA / 512, (BYTES - DATA) / extent_bytes);
        format!("pv{number} {{\nid = \"{id}\"\npe_start = {first}\npe_count = {extents}\n}}\n")
    };
    let physical: String = (0..count).map(physical).collect();
    format!(
        "vg {{\nid = \"group\"\nseqno = {version}\nextent_size = {}\nphysical_volumes {{\n{physical}}}\nlogical_volumes {{\n{volumes}}}\n}}\n",
        extent_bytes / 512
    )
}

/// A volume of segments: extents, and what else is in each.
fn volume(name: &str, status: &str, segments: &[(u64, &str)]) -> String {
    let (mut start, mut texts) = (0, Vec::new());
    for (number, (extents, rest)) in (1..).zip(segments) {
        texts.push(format!(
            "segment{number} {{\nstart_extent = {start}\nextent_count = {extents}\n{rest}\n}}\n"
        ));
        start += extents;
    }
    let (count, segments) = (texts.len(), texts.concat());
    format!("{name} {{\nstatus = [\"READ\", \"WRITE\"{status}]\nsegment_count = {count}\n{segments}}}\n")
}

/// A segment on one physical volume.
fn linear(physical: usize, extent: u64) -> String {
    format!("type = \"striped\"\nstripe_count = 1\nstripes = [\"pv{physical}\", {extent}]")
}

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).expect("an image");
    file.write_all_at(bytes, offset).expect("written");
}

fn paths<const COUNT: usize>(directory: &tempfile::TempDir) -> [PathBuf; COUNT] {
    std::array::from_fn(|number| directory.path().join(format!("{number}.img")))
}

fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, String> {
    let names: Vec<_> = paths.iter().map(|path| path.to_str().expect("a name")).collect();
    let target = format!("lvm:{}?volume=lin", names.join(","));
    open_target(&target, options).map_err(|error| error.to_string())
}

fn first_byte_at(device: &dyn BlockDevice, offset: u64) -> u8 {
    let mut memory = AlignedBuf::zeroed(4096, 4096);
    device.read_bytes(offset, &mut memory).expect("read");
    memory[0]
}

/// Of two copies on one device, the first was used though the second was newer: writing the first had failed.
#[test]
fn the_newest_copy_of_the_metadata_is_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let [path] = paths(&directory);
    let text = |version, extent| {
        group(version, EXTENT, 1, &volume("lin", ", \"VISIBLE\"", &[(2, &linear(0, extent))]))
    };
    for texts in [[text(1, 0), text(2, 8)], [text(2, 8), text(1, 0)]] {
        make(&path, 0, &[&texts[0], &texts[1]]);
        write_at(&path, DATA, &[1; 4096]);
        write_at(&path, DATA + 8 * EXTENT, &[2; 4096]);
        let device = open(std::slice::from_ref(&path), &OpenOptions::read_write()).expect("a volume");
        assert_eq!(first_byte_at(&*device, 0), 2);
    }
}

/// A physical volume on a mirror of MD whose data begins where its members begin: one member was written alone, and differed from the other.
#[test]
fn a_member_of_a_mirror_is_no_physical_volume_to_write_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths: [PathBuf; 2] = paths(&directory);
    let text = group(1, EXTENT, 1, &volume("lin", ", \"VISIBLE\"", &[(2, &linear(0, 0))]));
    let place = BYTES - 8192;
    for (path, number) in paths.iter().zip(0_u32..) {
        make(path, 0, &[&text]);
        let mut superblock = vec![0; 4096];
        let mut put = |at: usize, value: &[u8]| superblock[at..at + value.len()].copy_from_slice(value);
        put(0, &[0xa92b_4efc_u32, 1].map(u32::to_le_bytes).concat());
        put(16, b"array of the tst");
        put(32, b"any:test");
        put(72, &1_u32.to_le_bytes());
        put(80, &(place / 512).to_le_bytes());
        put(92, &2_u32.to_le_bytes());
        put(136, &[place / 512, place / 512].map(u64::to_le_bytes).concat());
        put(160, &number.to_le_bytes());
        put(200, &[7, u64::MAX].map(u64::to_le_bytes).concat());
        put(220, &2_u32.to_le_bytes());
        put(256, &[0, 0, 1, 0]);
        let words = superblock
            .chunks(4)
            .map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
        let sum: u64 = words.sum();
        superblock[216..220].copy_from_slice(&((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
        write_at(path, place, &superblock);
    }
    let error = open(&paths[..1], &OpenOptions::read_write()).expect_err("a member");
    assert!(error.contains("one of 2 members of the MD array any:test"), "{error}");
    let device = open(&paths[..1], &OpenOptions::read_only()).expect("one is read");
    assert_eq!(device.geometry().capacity_bytes, 2 * EXTENT);
}

/// Of two copies of one physical volume the first was used, unasked.
#[test]
fn copies_of_a_physical_volume_are_not_used_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths: [PathBuf; 2] = paths(&directory);
    let text = group(1, EXTENT, 1, &volume("lin", ", \"VISIBLE\"", &[(2, &linear(0, 0))]));
    for path in &paths {
        make(path, 0, &[&text]);
    }
    for options in [OpenOptions::read_only(), OpenOptions::read_write()] {
        let error = open(&paths, &options).expect_err("two");
        assert!(error.contains("0.img") && error.contains("1.img are one physical volume"), "{error}");
    }
}

/// A group that was shared and is no more (`vgchange --lock-type none`) was not written to.
#[test]
fn a_group_with_no_kind_of_lock_is_not_shared() {
    let directory = tempfile::tempdir().expect("a directory");
    let [path] = paths(&directory);
    let text = group(1, EXTENT, 1, &volume("lin", ", \"VISIBLE\"", &[(2, &linear(0, 0))]));
    for (kind, is_shared) in [("none", false), ("dlm", true)] {
        make(&path, 0, &[&text.replacen("seqno", &format!("lock_type = \"{kind}\"\nseqno"), 1)]);
        let opened = open(std::slice::from_ref(&path), &OpenOptions::read_write());
        let refused = opened.err().is_some_and(|why| why.contains("is shared by hosts"));
        assert_eq!(refused, is_shared, "{kind}");
    }
}

/// A physical volume that was away while the group changed was read as if it had everything; LVM2 leaves it alone, too.
#[test]
fn a_physical_volume_that_was_missing_is_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths: [PathBuf; 2] = paths(&directory);
    let text = |volume: usize| {
        let volumes = self::volume("lin", ", \"VISIBLE\"", &[(2, &linear(volume, 0))]);
        group(1, EXTENT, 2, &volumes).replacen("pv1 {\n", "pv1 {\nflags = [\"MISSING\"]\n", 1)
    };
    for on in [0, 1] {
        (0..2).for_each(|number| make(&paths[number], number, &[&text(on)]));
        let opened = open(&paths, &OpenOptions::read_only());
        let refused = opened.err().is_some_and(|why| why.contains("pv1") && why.contains("--restoremissing"));
        assert_eq!(refused, on == 1);
    }
}

const RAID1: &str = "type = \"raid1\"\ndevice_count = 2\nregion_size = 4096\nraids = [\"lin_rmeta_0\", \"lin_rimage_0\", \"lin_rmeta_1\", \"lin_rimage_1\"]";

/// A mirror of two images with a bitmap of eight regions, of which these bits are set in the first.
fn mirror(paths: &[PathBuf; 2], bits: u8) {
    let mut volumes = volume("lin", ", \"VISIBLE\"", &[(8, RAID1)]);
    for number in 0..2 {
        volumes += &volume(&format!("lin_rmeta_{number}"), "", &[(1, &linear(number, 0))]);
        volumes += &volume(&format!("lin_rimage_{number}"), "", &[(8, &linear(number, 1))]);
    }
    let text = group(1, EXTENT, 2, &volumes);
    for (number, path) in paths.iter().enumerate() {
        make(path, number, &[&text]);
        let state = [&b"DmRd"[..], &[0; 12], &5_u64.to_le_bytes(), &[0; 8], &[0xff; 16]].concat();
        write_at(path, DATA, &state.iter().copied().chain([0; 8]).collect::<Vec<_>>());
        let mut bitmap = [0; 257];
        bitmap[..4].copy_from_slice(b"bitm");
        bitmap[40..48].copy_from_slice(&(8 * EXTENT / 512).to_le_bytes());
        bitmap[52..56].copy_from_slice(&(EXTENT as u32).to_le_bytes());
        bitmap[256] = if number == 0 { bits } else { 0 };
        write_at(path, DATA + 4096, &bitmap);
        write_at(path, DATA + EXTENT + 8 * 4096, &[number as u8 + 1; 4096]);
    }
}

/// A write in flight at a crash may be on one image only. Reads came from either image.
#[test]
fn after_a_crash_one_image_of_a_mirror_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths: [PathBuf; 2] = paths(&directory);
    for (bits, other_is_read) in [(0, true), (1, false), (0x80, false)] {
        mirror(&paths, bits);
        let device = open(&paths, &OpenOptions::read_only()).expect("a mirror");
        assert_eq!(first_byte_at(&*device, 8 * 4096), 1);
        // The first image can no longer be read.
        let file = std::fs::File::options().write(true).open(&paths[0]).expect("an image");
        file.set_len(DATA).expect("truncated");
        let mut memory = AlignedBuf::zeroed(4096, 4096);
        let read = device.read_bytes(8 * 4096, &mut memory);
        assert_eq!(read.is_ok(), other_is_read, "bits {bits:#x}: {read:?}");
    }
}
