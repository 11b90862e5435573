//! Members of MD arrays with superblocks as in `md_p.h` of Linux: accepted arrays, rejected arrays, and the superblocks of a mirror after
//! a crash. `cargo xtask guests arrays` has the kernel's own arrays.
#![allow(clippy::disallowed_methods, reason = "images of other tools")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite::front_end::array_read_only_reason;
use diorite::front_end::open_target;
use diorite_arrays::{array_of, mirror_of};
use diorite_block::{BioFlags, BlockDevice};
use diorite_device::{AlignedBuf, OpenOptions};

const BYTES: u64 = 4 << 20;
const DATA: u64 = 1 << 20;
const PLACE: u64 = 4096;

/// A superblock of version 1.2.
#[derive(Clone, Copy)]
struct Member {
    level: i32,
    role: u16,
    members: u32,
    events: u64,
    in_sync_to: u64,
    features: u32,
    data_bytes: u64,
    layout: u32,
    /// Numbers of the members that it counts as failed.
    failed: &'static [u16],
    is_write_mostly: bool,
}

const MIRROR: Member = Member {
    level: 1,
    role: 0,
    members: 2,
    events: 7,
    in_sync_to: u64::MAX,
    features: 0,
    data_bytes: BYTES - DATA,
    layout: 0,
    failed: &[],
    is_write_mostly: false,
};

impl Member {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &0xa92b_4efc_u32.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        put(8, &self.features.to_le_bytes());
        put(16, b"array of the tst");
        put(32, b"any:test");
        put(72, &self.level.to_le_bytes());
        put(76, &self.layout.to_le_bytes());
        put(80, &(self.data_bytes / 512).to_le_bytes());
        put(88, &128_u32.to_le_bytes());
        put(92, &self.members.to_le_bytes());
        put(128, &(DATA / 512).to_le_bytes());
        put(136, &(self.data_bytes / 512).to_le_bytes());
        put(144, &(PLACE / 512).to_le_bytes());
        put(160, &u32::from(self.role).to_le_bytes());
        put(184, &[u8::from(self.is_write_mostly)]);
        put(200, &self.events.to_le_bytes());
        put(208, &self.in_sync_to.to_le_bytes());
        put(220, &4_u32.to_le_bytes());
        for number in 0..4_u16 {
            let role = match number {
                number if u32::from(number) >= self.members => 0xffff,
                number if self.failed.contains(&number) => 0xfffe,
                number => number,
            };
            put(256 + 2 * usize::from(number), &role.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    fn make(self, path: &Path) {
        let file = std::fs::File::create(path).expect("an image");
        file.set_len(DATA + self.data_bytes).expect("a size");
        file.write_all_at(&self.bytes(), PLACE).expect("a superblock");
    }
}

/// Write the checksum of a superblock of version 1.
fn seal(bytes: &mut [u8]) {
    bytes[216..220].fill(0);
    let words = bytes[..264]
        .chunks(4)
        .map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
    let sum: u64 = words.sum();
    let checksum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
}

/// A member with a superblock of version 0.90.
fn make_old(path: &Path, level: i32, role: u32, members: u32) {
    let mut words = [0_u32; 1024];
    let mut put = |at: usize, values: &[u32]| words[at..at + values.len()].copy_from_slice(values);
    put(0, &[0xa92b_4efc, 0, 90, 0, 0, 0x1234]);
    put(7, &[level.cast_unsigned(), (BYTES >> 10) as u32 - 64, members, members, 3]);
    put(13, &[0x5678, 0x9abc, 0xdef0]);
    // Clean, and events.
    put(33, &[1]);
    put(39, &[7, 0]);
    put(65, &[64 << 10]);
    for disk in 0..members {
        put(128 + 32 * disk as usize, &[disk, 0, 0, disk, 0b0110]);
    }
    put(992, &[role, 0, 0, role, 0b0110]);
    let sum: u64 = words.iter().map(|word| u64::from(*word)).sum();
    words[38] = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    let file = std::fs::File::create(path).expect("an image");
    file.set_len(BYTES + 4096).expect("a size");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all_at(&bytes, BYTES - (64 << 10)).expect("a superblock");
}

/// Superblocks of version 0.90: arrays without a mirror are used as others, mirrors are read.
#[test]
fn arrays_of_version_0_90_are_opened() {
    const CHUNK: usize = 64 << 10;
    let directory = tempfile::tempdir().expect("a directory");
    let make = |level| {
        let paths: Vec<PathBuf> =
            (0..2).map(|role| directory.path().join(format!("{level}-{role}.img"))).collect();
        paths.iter().zip(0..).for_each(|(path, role)| make_old(path, level, role, 2));
        paths
    };
    let len = BYTES - CHUNK as u64;
    let data = pattern(4 * CHUNK, 1);
    let at = |path: &Path, offset: usize| {
        let mut bytes = vec![0; CHUNK];
        std::fs::File::open(path).expect("an image").read_exact_at(&mut bytes, offset as u64).expect("data");
        bytes
    };

    let striped = make(0);
    let device = open(&[striped[1].clone(), striped[0].clone()]);
    assert_eq!(device.geometry().capacity_bytes, 2 * len);
    device.write_bytes(0, &data, BioFlags::SYNC).expect("written");
    for (chunk, expected) in data.chunks(CHUNK).enumerate() {
        assert!(at(&striped[chunk % 2], chunk / 2 * CHUNK) == expected, "chunk {chunk}");
    }
    drop(device);

    let linear = make(-1);
    let device = open(&linear);
    device.write_bytes(len - CHUNK as u64, &data[..2 * CHUNK], BioFlags::SYNC).expect("written");
    assert!(
        at(&linear[0], len as usize - CHUNK) == data[..CHUNK] && at(&linear[1], 0) == data[CHUNK..2 * CHUNK]
    );
    drop(device);

    let mirror = make(1);
    assert!(refused(&mirror).contains("version 0.90"), "{}", refused(&mirror));
    assert!(array_read_only_reason(&spec(&mirror)).is_some_and(|why| why.contains("version 0.90")));
    assert_eq!(array_read_only_reason(&spec(&linear)), None);
    let device = open_target(&spec(&mirror), &OpenOptions::read_only()).expect("read");
    assert_eq!(device.geometry().capacity_bytes, len);
    let member =
        open_target(mirror[0].to_str().expect("a name"), &OpenOptions::read_only()).expect("a device");
    assert!(array_of(&*member).expect("a member").contains("MD array md3 (RAID-1)"));
    assert!(mirror_of(&*member).is_some(), "it looks whole, and is one of two");
    drop((device, member));

    std::fs::File::options()
        .write(true)
        .open(&mirror[1])
        .expect("an image")
        .write_all_at(b"x", len + 4 * 8)
        .expect("damage");
    assert!(refused(&mirror).contains("checksum"));
}

fn images(directory: &Path, members: &[Member]) -> Vec<PathBuf> {
    let image = |(index, member): (usize, &Member)| {
        let path = directory.join(format!("{index}.img"));
        Member { role: index as u16, members: members.len() as u32, ..*member }.make(&path);
        path
    };
    members.iter().enumerate().map(image).collect()
}

fn spec(images: &[PathBuf]) -> String {
    let names: Vec<_> = images.iter().map(|image| image.to_str().expect("a name")).collect();
    format!("md:{}", names.join(","))
}

fn open(images: &[PathBuf]) -> Arc<dyn BlockDevice> {
    open_target(&spec(images), &OpenOptions::read_write()).expect("an array")
}

fn refused(images: &[PathBuf]) -> String {
    open_target(&spec(images), &OpenOptions::read_write()).expect_err("no array").to_string()
}

fn pattern(len: usize, salt: u64) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(len, 4096);
    for (index, bytes) in memory.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&(index as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    memory
}

fn in_sync_to(image: &Path) -> (u64, u64) {
    let mut bytes = [0; 16];
    let file = std::fs::File::open(image).expect("an image");
    file.read_exact_at(&mut bytes, PLACE + 200).expect("a superblock");
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    (long(0), long(8))
}

/// Opening for reading changes nothing; a write marks first, and a clean end takes the mark away.
#[test]
fn a_mirror_says_when_its_members_may_differ() {
    let directory = tempfile::tempdir().expect("a directory");
    let images = images(directory.path(), &[MIRROR, MIRROR]);
    let reversed: Vec<_> = images.iter().rev().cloned().collect();
    let data = pattern(256 << 10, 1);

    let device = open(&reversed);
    assert_eq!(device.geometry().capacity_bytes, BYTES - DATA);
    assert_eq!(in_sync_to(&images[0]), (7, u64::MAX));
    device.write_bytes(64 << 10, &data, BioFlags::SYNC).expect("written");
    assert!(images.iter().all(|image| in_sync_to(image) == (8, 0)));
    drop(device);
    assert!(images.iter().all(|image| in_sync_to(image) == (9, u64::MAX)));
    for image in &images {
        let mut bytes = vec![0; data.len()];
        let file = std::fs::File::open(image).expect("an image");
        file.read_exact_at(&mut bytes, DATA + (64 << 10)).expect("data");
        assert!(bytes == data[..]);
    }

    // A crash between the superblocks of two members leaves both members, and the first is read.
    let ahead = Member { in_sync_to: 0, events: 10, ..MIRROR };
    ahead.make(&directory.path().join("ahead"));
    let both = [directory.path().join("ahead"), images[1].clone()];
    assert_eq!(open(&both).geometry().capacity_bytes, BYTES - DATA);

    // A crash: nothing is taken away, and the next run does not say that they are the same.
    let device = open(&images);
    device.write_bytes(0, &data, BioFlags::SYNC).expect("written");
    let file = std::fs::File::options().write(true).open(&images[1]).expect("an image");
    let marked: Vec<_> = images.iter().map(|image| std::fs::read(image).expect("an image")).collect();
    drop(device);
    for (image, bytes) in images.iter().zip(&marked) {
        std::fs::write(image, bytes).expect("as after the crash");
    }
    file.write_all_at(&[0xee; 4096], DATA).expect("what did not arrive");
    let device = open(&images);
    let mut back = AlignedBuf::zeroed(data.len(), 4096);
    for _ in 0..8 {
        device.read_bytes(0, &mut back).expect("read");
        assert!(back[..] == data[..], "a read came from the member that is not the first");
    }
    device.write_bytes(1 << 20, &data, BioFlags::SYNC).expect("written");
    drop(device);
    assert!(images.iter().all(|image| in_sync_to(image).1 == 0));
}

/// A member that failed kept its superblock, one event older than the others, and its old data was read.
#[test]
fn a_member_that_the_newest_superblock_calls_failed_is_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let survivor = Member { events: 8, failed: &[0], ..MIRROR };
    let paths = images(directory.path(), &[MIRROR, survivor]);
    write_data(&paths[0], &[1; 4096]);
    write_data(&paths[1], &[2; 4096]);
    assert!(refused(&paths).contains("number 0 (from 0 on) is missing"), "{}", refused(&paths));
    let device = open_target(&spec(&paths), &OpenOptions::read_only()).expect("read");
    for _ in 0..4 {
        assert_eq!(first_byte(&*device), 2);
    }
}

/// Two superblocks that both say that nothing is to be copied, one of them newer: the newer member is read, and a write marks both first.
#[test]
fn of_members_in_sync_the_newest_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = images(directory.path(), &[MIRROR, Member { events: 8, ..MIRROR }]);
    write_data(&paths[0], &[1; 4096]);
    write_data(&paths[1], &[2; 4096]);
    let device = open(&paths);
    for _ in 0..4 {
        assert_eq!(first_byte(&*device), 2);
    }
    device.write_bytes(8192, &pattern(4096, 3), BioFlags::SYNC).expect("written");
    assert!(paths.iter().all(|path| in_sync_to(path) == (9, 0)));
    drop(device);
    assert!(paths.iter().all(|path| in_sync_to(path) == (9, 0)), "the kernel copies what differed before");
}

/// After a crash between two superblocks of which one was marked, a write left the mark away from the other.
#[test]
fn a_mark_that_one_member_lacks_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let marked = Member { in_sync_to: 0, ..MIRROR };
    let paths = images(directory.path(), &[marked, Member { events: 8, ..MIRROR }]);
    let device = open(&paths);
    device.write_bytes(8192, &pattern(4096, 3), BioFlags::SYNC).expect("written");
    assert!(paths.iter().all(|path| in_sync_to(path) == (9, 0)));
}

/// After a crash the kernel copies the first member that is not write-mostly to the others. Another one was read before that.
#[test]
fn of_members_that_may_differ_the_one_is_read_that_the_kernel_copies() {
    let directory = tempfile::tempdir().expect("a directory");
    let marked = Member { in_sync_to: 0, ..MIRROR };
    let paths = images(directory.path(), &[Member { is_write_mostly: true, ..marked }, marked]);
    write_data(&paths[0], &[1; 4096]);
    write_data(&paths[1], &[2; 4096]);
    assert_eq!(first_byte(&*open(&paths)), 2);
}

/// The kernel had copied a half of the mirror when it was stopped. A write into that half left the mark as it was, and a crash then left members that
/// differ where nothing was to be copied any more.
#[test]
fn a_mark_that_leaves_a_part_out_is_extended_before_a_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let half = Member { in_sync_to: (BYTES - DATA) / 512 / 2, ..MIRROR };
    let paths = images(directory.path(), &[half, half]);
    let device = open(&paths);
    assert!(paths.iter().all(|path| in_sync_to(path) == (7, half.in_sync_to)), "nothing is written yet");
    device.write_bytes(0, &pattern(4096, 3), BioFlags::SYNC).expect("written");
    assert!(paths.iter().all(|path| in_sync_to(path).1 == 0));
    drop(device);
    assert!(paths.iter().all(|path| in_sync_to(path).1 == 0), "the other half is still to be copied");
}

/// Each member ran without the other: which data is right, only the user knows.
#[test]
fn members_that_were_used_apart_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for events in [7, 8, 20] {
        let first = Member { failed: &[1], ..MIRROR };
        let paths = images(directory.path(), &[first, Member { events, failed: &[0], ..MIRROR }]);
        for options in [OpenOptions::read_only(), OpenOptions::read_write()] {
            let error = open_target(&spec(&paths), &options).expect_err("apart").to_string();
            assert!(error.contains("were used without each other"), "{error}");
        }
        open_target(&spec(&paths[..1]), &OpenOptions::read_only()).expect("one alone is read");
    }
    // Of three, the first counted on the third, which went on without it: it is old, and not one of two halves.
    let first = Member { failed: &[1], ..MIRROR };
    let second = Member { events: 9, failed: &[0], ..MIRROR };
    let paths = images(directory.path(), &[first, second, Member { events: 9, failed: &[0], ..MIRROR }]);
    let device = open_target(&spec(&paths), &OpenOptions::read_only()).expect("two are up to date");
    drop(device);
    assert!(refused(&paths).contains("number 0 (from 0 on) is missing"));
}

fn write_data(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).expect("an image");
    file.write_all_at(bytes, DATA).expect("written");
}

fn first_byte(device: &dyn BlockDevice) -> u8 {
    let mut memory = AlignedBuf::zeroed(4096, 4096);
    device.read_bytes(0, &mut memory).expect("read");
    memory[0]
}

#[test]
fn what_is_no_whole_array_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = images(directory.path(), &[MIRROR, MIRROR]);
    assert!(
        refused(&paths[..1])
            .contains("1 of 2 members are present and up to date; number 1 (from 0 on) is missing")
    );
    assert!(
        open_target(&spec(&paths[1..]), &OpenOptions::read_only()).is_ok(),
        "one member is enough to read"
    );
    assert!(refused(&[paths[0].clone(), paths[0].clone()]).contains("0.img"));

    let stale = Member { events: 5, ..MIRROR };
    let paths = images(directory.path(), &[MIRROR, stale]);
    assert!(refused(&paths).contains("up to date"));
    let striped = Member { level: 0, ..MIRROR };
    let paths = images(directory.path(), &[striped, Member { events: 5, ..striped }]);
    assert!(refused(&paths).contains("up to date"));
    let parity = Member { level: 5, ..MIRROR };
    assert!(refused(&images(directory.path(), &[parity, parity])).contains("level is 5"));
    let reshaped = Member { features: 4, ..MIRROR };
    assert!(refused(&images(directory.path(), &[reshaped, MIRROR])).contains("unsupported features"));
    let bitmap = Member { features: 1, ..MIRROR };
    assert!(refused(&images(directory.path(), &[bitmap, bitmap])).contains("bitmap"));

    let paths = images(directory.path(), &[MIRROR, MIRROR]);
    std::fs::File::options()
        .write(true)
        .open(&paths[1])
        .expect("an image")
        .write_all_at(b"x", PLACE + 80)
        .expect("damage");
    assert!(refused(&paths).contains("checksum"));
    let member =
        open_target(paths[0].to_str().expect("a name"), &OpenOptions::read_only()).expect("a device");
    assert!(array_of(&*member).expect("a member").contains("RAID-1"));
    // Its data does not begin where it begins, so it cannot be taken for the whole.
    assert_eq!(mirror_of(&*member), None);
}

/// A hostile superblock said that the data begins where it is itself: a write replaced it.
#[test]
fn data_that_overlaps_the_superblock_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = images(directory.path(), &[MIRROR, MIRROR]);
    for (start, is_refused) in [(0_u64, true), (4096, true), (7680, true), (8192, false)] {
        for (path, role) in paths.iter().zip(0..) {
            let mut bytes = Member { role, ..MIRROR }.bytes();
            bytes[128..136].copy_from_slice(&(start / 512).to_le_bytes());
            seal(&mut bytes);
            let file = std::fs::File::options().write(true).open(path).expect("an image");
            file.write_all_at(&bytes, PLACE).expect("a superblock");
        }
        let opened = open_target(&spec(&paths), &OpenOptions::read_write());
        let refused = opened.err().is_some_and(|why| why.to_string().contains("overlaps its superblock"));
        assert_eq!(refused, is_refused, "data from byte {start} on");
    }
}

/// A part of a member was opened for writing, and the members differed afterwards.
#[test]
fn no_part_of_a_member_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = images(directory.path(), &[MIRROR, MIRROR]);
    let old = directory.path().join("old.img");
    make_old(&old, 1, 0, 2);
    // A partition table in the array, at the start of the member.
    let mut boot = [0; 512];
    boot[446 + 4] = 0x83;
    boot[446 + 8..446 + 16].copy_from_slice(&[1, 0, 0, 0, 16, 0, 0, 0]);
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    std::fs::File::options()
        .write(true)
        .open(&old)
        .expect("an image")
        .write_all_at(&boot, 0)
        .expect("written");
    for (path, part) in [(&paths[0], "offset=1M"), (&old, "offset=0"), (&old, "partition=1")] {
        let spec = format!("{}?{part}", path.display());
        let error = open_target(&spec, &OpenOptions::read_write()).expect_err(&spec).to_string();
        assert!(error.contains("cannot open a part for writing: it is one of 2 members"), "{error}");
        open_target(&spec, &OpenOptions::read_only()).expect(&spec);
    }
    // A table before the superblock is the disk's own, and the superblock what is left of an earlier array.
    let disk = std::fs::File::options().write(true).open(&paths[1]).expect("an image");
    disk.write_all_at(&boot, 0).expect("written");
    open_target(&format!("{}?partition=1", paths[1].display()), &OpenOptions::read_write())
        .expect("a partition");
}

/// Members of three sizes: behind the smallest, turns go on among the others, in one of two layouts.
#[test]
fn unequal_members_are_striped_in_parts() {
    const CHUNK: u64 = 64 << 10;
    let directory = tempfile::tempdir().expect("a directory");
    for layout in [1, 2] {
        let sized =
            |chunks: u64| Member { level: 0, features: 4096, layout, data_bytes: chunks * CHUNK, ..MIRROR };
        let sizes = [11, 4, 7];
        let paths = images(directory.path(), &sizes.map(sized));
        // Chunk by chunk, as the kernel's map does it.
        let mut places = Vec::new();
        for (from, to) in [(0, 4), (4, 7), (7, 11)] {
            let members: Vec<_> = (0..3).filter(|member| sizes[*member] >= to).collect();
            let first = places.len();
            for chunk in 0..(to - from) * members.len() as u64 {
                let counted = if layout == 1 { first as u64 + chunk } else { chunk };
                let member = members[(counted % members.len() as u64) as usize];
                places.push((member, from + chunk / members.len() as u64));
            }
        }
        let device = open(&paths);
        let len = places.len() as u64 * CHUNK;
        assert_eq!(device.geometry().capacity_bytes, len);
        let data = pattern(len as usize, u64::from(layout));
        device.write_bytes(0, &data, BioFlags::SYNC).expect("written");
        drop(device);
        for ((member, at), expected) in places.into_iter().zip(data.chunks(CHUNK as usize)) {
            let mut bytes = vec![0; CHUNK as usize];
            let file = std::fs::File::open(&paths[member]).expect("an image");
            file.read_exact_at(&mut bytes, DATA + at * CHUNK).expect("data");
            assert!(bytes == expected, "layout {layout}, chunk {at} of member {member}");
        }
    }
    let unknown = Member { level: 0, ..MIRROR };
    let longer = Member { data_bytes: 2 * unknown.data_bytes, ..unknown };
    assert!(refused(&images(directory.path(), &[unknown, longer, longer])).contains("--update=layout-"));
}
