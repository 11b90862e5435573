//! Random operations of several threads on several files of one volume against vectors of bytes; the volume is closed, checked by
//! `e2fsck -fn` and opened again in between (ARCHITECTURE invariants 2, 5, 6).

use crate::common;
use std::sync::Mutex;

use common::{Random, aligned_pattern, assert_device_clean, garbage_volume, open_memory};
use diorite::{AlignedBuf, DirectIo, ErrorKind, File, Filesystem, FilesystemOptions, Unaligned};
use diorite_ext::layout::Incompat;
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const FILES: usize = 3;
const SPAN: u64 = 700_000;

/// A file's bytes. The lock makes one operation and its counterpart one step; operations of different files, and
/// the background, run beside it.
type Models = [Mutex<Vec<u8>>; FILES];

fn open(filesystem: &Filesystem, number: usize, kind: u64) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    let options = match kind {
        0 => options,
        1 => options.direct(DirectIo::Preferred),
        _ => options.direct(DirectIo::Required).unaligned(Unaligned::Bounce),
    };
    options.open(format!("/file{number}")).expect("open")
}

/// Take blocks out of a file or put a hole in; what is not allowed is refused and changes nothing.
fn shift(file: &File, model: &mut Vec<u8>, filesystem: &Filesystem, random: &mut Random) {
    let (block, size) = (filesystem.statfs().block_size, model.len() as u64);
    let has_extents = filesystem.volume().features().has_incompat(Incompat::EXTENTS);
    let odd = u64::from(random.below(8) == 0);
    let (offset, len) = (random.below(SPAN) / block * block + odd, (1 + random.below(9)) * block);
    let takes_out = random.below(2) == 0;
    let inside = if takes_out { offset + len < size } else { offset < size };
    let expected = match (odd == 0 && inside, has_extents) {
        (false, _) => Err(ErrorKind::InvalidInput),
        (true, false) => Err(ErrorKind::Unsupported),
        (true, true) => Ok(()),
    };
    let result = if takes_out { file.collapse_range(offset, len) } else { file.insert_range(offset, len) };
    assert_eq!(result.map_err(|error| error.kind()), expected, "{offset} {len} of {size}");
    let (start, end) = (offset as usize, (offset + len) as usize);
    match (expected, takes_out) {
        (Err(_), _) => {}
        (Ok(()), true) => drop(model.drain(start..end)),
        (Ok(()), false) => drop(model.splice(start..start, std::iter::repeat_n(0, len as usize))),
    }
}

fn step(filesystem: &Filesystem, models: &Models, random: &mut Random) {
    let number = random.below(FILES as u64) as usize;
    let mut model = models[number].lock().expect("lock");
    let file = open(filesystem, number, random.below(3));
    let offset = if random.below(3) == 0 { model.len() as u64 } else { random.below(SPAN) };
    let len = [700, 9000, 120_000][random.below(3) as usize];
    let len = random.below(len) as usize + 1;
    let (offset, len) =
        if random.below(2) == 0 { (offset / 512 * 512, len.next_multiple_of(512)) } else { (offset, len) };
    match random.below(24) {
        0..=7 => {
            let data = aligned_pattern(len, random.next());
            file.write_all_at(&data, offset).expect("write");
            let end = offset as usize + len;
            let grown = model.len().max(end);
            model.resize(grown, 0);
            model[offset as usize..end].copy_from_slice(&data);
        }
        8..=13 => check(&file, &model, offset, len),
        14 => {
            file.set_len(offset).expect("set_len");
            model.resize(offset as usize, 0);
        }
        15 | 16 => {
            file.punch_hole(offset, len as u64).expect("punch");
            let (start, end) = ((offset as usize).min(model.len()), (offset as usize + len).min(model.len()));
            model[start..end].fill(0);
        }
        17 => {
            file.allocate(offset, len as u64).expect("allocate");
            let grown = model.len().max(offset as usize + len);
            model.resize(grown, 0);
        }
        19 => match file.allocate_keep_size(offset, len as u64) {
            Err(error) if error.kind() == diorite::ErrorKind::Unsupported => {
                assert!(!filesystem.volume().features().has_incompat(Incompat::EXTENTS), "{error}");
            }
            result => result.expect("allocate"),
        },
        18 => file.sync_data().expect("sync"),
        20 => {
            file.zero_range(offset, len as u64).expect("zero");
            let (start, end) = ((offset as usize).min(model.len()), (offset as usize + len).min(model.len()));
            model[start..end].fill(0);
        }
        21 | 22 => shift(&file, &mut model, filesystem, random),
        _ => file.drop_cached(offset, len as u64).expect("drop"),
    }
    assert_eq!(file.size(), model.len() as u64);
}

fn check(file: &File, model: &[u8], offset: u64, len: usize) {
    let mut memory = AlignedBuf::zeroed(len, 4096);
    let got = file.read_at(&mut memory, offset).expect("read");
    let from = (offset as usize).min(model.len());
    let expected = &model[from..(from + len).min(model.len())];
    assert_eq!(got, expected.len());
    let wrong = (0..got).find(|at| memory[*at] != expected[*at]);
    assert_eq!(wrong.map(|at| from + at), None, "{:?}: first wrong byte", file.path());
    let mut shown = Vec::new();
    let seen = file.view(offset, len, &mut |bytes| shown.extend_from_slice(bytes)).expect("view");
    assert!(seen == got && shown == expected, "{:?}: a view of {len} bytes at {offset}", file.path());
}

fn run(seed: u64, flavor: Flavor, block_size: u32) {
    println!("seed {seed}, {flavor:?} with blocks of {block_size}");
    let options = MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() };
    let device = garbage_volume(24, &options);
    let models: Models = Default::default();
    for round in 0..3 {
        let filesystem = FilesystemOptions::new()
            .cache_bytes(512 << 10)
            .dirty_age(std::time::Duration::from_millis(10))
            .open_device(device.clone())
            .expect("open");
        for (number, model) in models.iter().enumerate() {
            let model = model.lock().expect("lock");
            check(&open(&filesystem, number, round), &model, 0, model.len().next_multiple_of(512));
        }
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (filesystem, models) = (&filesystem, &models);
                scope.spawn(move || {
                    let mut random = Random((seed * 100 + round * 10 + thread + 1).wrapping_mul(0x9e37_79b9));
                    for _ in 0..120 {
                        step(filesystem, models, &mut random);
                    }
                });
            }
        });
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

#[test]
fn ext2_with_small_blocks() {
    (1..4).for_each(|seed| run(seed, Flavor::Ext2, 1024));
}

#[test]
fn ext2_with_large_blocks() {
    (1..4).for_each(|seed| run(seed, Flavor::Ext2, 4096));
}

#[test]
fn ext4() {
    (1..4).for_each(|seed| run(seed, Flavor::Ext4, 4096));
}

#[test]
fn ext4_with_small_blocks() {
    (1..3).for_each(|seed| run(seed, Flavor::Ext4, 1024));
}

/// A removed file that is open goes on as before; its blocks come back when it is closed, and its dirty pages go nowhere.
#[test]
fn an_open_file_outlives_its_name() {
    let filesystem = open_memory(32, &MkfsOptions::default(), &FilesystemOptions::new());
    let free = filesystem.statfs().blocks_free;
    let file = filesystem.create_file("/gone").expect("create");
    let data = aligned_pattern(300_000, 1);
    file.write_all_at(&data, 0).expect("write");
    filesystem.remove_file("/gone").expect("remove");
    assert!(!filesystem.exists("/gone").expect("look"));
    file.sync_all().expect("sync");
    file.write_all_at(&data, 150_000).expect("write");
    let mut memory = vec![0; 300_000];
    file.read_exact_at(&mut memory, 150_000).expect("read");
    assert!(memory == data[..]);
    drop(file);
    // Another file, removed with dirty pages while it is not in use.
    drop(filesystem.create_file("/dirty").expect("create").write_all_at(&data, 0));
    filesystem.remove_file("/dirty").expect("remove");
    filesystem.sync().expect("sync");
    assert_eq!(filesystem.statfs().blocks_free, free);
    let device = filesystem.device().clone();
    filesystem.close().expect("close");
    assert_device_clean(&device);
}
