//! Policies of the page cache, seen from outside through `Stats`: a scan does not evict pages in use, readahead follows the
//! reader, and writeback limits the number of dirty pages.

use crate::common;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Random, memory_volume};
use diorite::{BlockDevice, File, Filesystem, FilesystemOptions, Stats};
use diorite_block::sync::sleep;
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::disk::SimDisk;
use diorite_sim::{Simulation, WorldOptions};

const MIB: usize = 1 << 20;
const PAGE: u64 = 4096;

/// A volume with files of these lengths, `/0`, `/1`, ..., that a cache which knows nothing of them is opened on.
fn volume(lengths: &[usize], options: &FilesystemOptions) -> Filesystem {
    let options_of_mkfs = MkfsOptions::new(Flavor::Ext4);
    filled(memory_volume(128, &options_of_mkfs), lengths, options)
}

/// The same on a simulated SSD.
fn simulated_volume(lengths: &[usize], options: &FilesystemOptions) -> Filesystem {
    let disk = SimDisk::named("sim:ssd").expect("disk");
    let size = Some(128 << 20);
    mkfs(&*disk, &MkfsOptions { flavor: Flavor::Ext4, size_bytes: size, ..MkfsOptions::default() })
        .expect("mkfs");
    filled(disk, lengths, options)
}

fn filled(device: Arc<dyn BlockDevice>, lengths: &[usize], options: &FilesystemOptions) -> Filesystem {
    let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
    for (number, len) in lengths.iter().enumerate() {
        let file = filesystem.create_file(format!("/{number}")).expect("create");
        let chunk = vec![number as u8 + 1; MIB];
        for at in (0..*len).step_by(MIB) {
            file.write_at(&chunk[..MIB.min(len - at)], at as u64).expect("write");
        }
    }
    filesystem.close().expect("close");
    options.open_device(device).expect("open")
}

/// Run a test in virtual time, where what background threads do does not depend on the machine.
fn in_simulation(test: impl FnOnce() + Send + 'static) {
    Simulation::run_one(WorldOptions::default(), test).expect("no deadlock");
}

fn open(filesystem: &Filesystem, number: usize) -> File {
    filesystem.open_file(format!("/{number}")).expect("open")
}

/// The changes of the counters in between.
fn counted(filesystem: &Filesystem, work: impl FnOnce()) -> Stats {
    let before = filesystem.stats();
    work();
    filesystem.stats().since(&before)
}

fn read_whole(file: &File, step: usize) {
    let mut memory = vec![0; step];
    let mut at = 0;
    while at < file.size() {
        at += file.read_at(&mut memory, at).expect("read") as u64;
    }
}

/// Time that a program spends on each piece that it has read.
const THINK: Duration = Duration::from_micros(100);

/// One page of the file, somewhere.
fn read_page(file: &File, random: &mut Random) {
    let page = random.below(file.size() / PAGE);
    file.read_at(&mut [0; PAGE as usize], page * PAGE).expect("read");
}

/// A scan of sixteen times the cache, in between the uses of a set of a quarter of it.
#[test]
fn a_scan_does_not_flush_what_is_used() {
    in_simulation(scan_in_between_uses);
}

fn scan_in_between_uses() {
    let filesystem = simulated_volume(&[MIB, 64 * MIB], &FilesystemOptions::new().cache_bytes(4 * MIB));
    let (used, scanned) = (open(&filesystem, 0), open(&filesystem, 1));
    for _ in 0..3 {
        read_whole(&used, 4096);
    }
    read_whole(&scanned, 64 << 10);
    let again = counted(&filesystem, || read_whole(&used, 4096));
    let pages = used.size() / PAGE;
    assert!(again.cache_hits >= pages * 3 / 4, "{} of {pages} pages survived the scan", again.cache_hits);
}

#[test]
fn read_ahead_follows_a_sequential_reader_and_leaves_a_random_one_alone() {
    in_simulation(read_in_order_and_at_random);
}

fn read_in_order_and_at_random() {
    let filesystem = simulated_volume(&[32 * MIB, 32 * MIB], &FilesystemOptions::new().cache_bytes(16 * MIB));
    let pages = 32 * MIB as u64 / PAGE;
    let (file, before, mut memory) = (open(&filesystem, 0), filesystem.stats(), [0; 16 << 10]);
    for at in (0..file.size()).step_by(memory.len()) {
        assert_eq!(file.read_at(&mut memory, at).expect("read"), memory.len());
        sleep(THINK);
    }
    let in_order = filesystem.stats().since(&before);
    assert!(in_order.readahead_pages > pages / 2, "{} of {pages} read ahead", in_order.readahead_pages);
    let device = in_order.device;
    assert!(device.read_bytes <= 32 * MIB as u64 + 65536, "nothing is read twice: {}", device.read_bytes);
    assert!(device.reads <= 32 * MIB as u64 / (16 << 10) / 8, "{} reads", device.reads);

    let file = open(&filesystem, 1);
    let mut random = Random(11);
    read_page(&file, &mut random);
    let picks = counted(&filesystem, || (0..500).for_each(|_| read_page(&file, &mut random)));
    // Two picks in a row may be neighbours.
    assert!(picks.readahead_pages <= 64, "{} read ahead for random reads", picks.readahead_pages);
    assert!(picks.device.read_bytes <= 500 * PAGE + 64 * PAGE, "{} bytes", picks.device.read_bytes);
}

/// A long read somewhere is not what read-ahead is for, but its own later parts are read while the first one is copied. And nothing is
/// read that it does not ask for.
#[test]
fn a_long_read_runs_ahead_of_itself_and_no_further() {
    in_simulation(read_long);
}

fn read_long() {
    let filesystem = simulated_volume(&[64 * MIB], &FilesystemOptions::new().cache_bytes(64 * MIB));
    let file = open(&filesystem, 0);
    let mut memory = vec![0; 8 * MIB];
    let long = counted(&filesystem, || {
        assert_eq!(file.read_at(&mut memory, 20 * MIB as u64).expect("read"), memory.len());
    });
    assert!(memory.iter().all(|byte| *byte == 1));
    let pages = memory.len() as u64 / PAGE;
    assert!(long.readahead_pages > pages / 4, "{} of {pages} read ahead", long.readahead_pages);
    // And the blocks of the mapping.
    assert!(long.device.read_bytes <= memory.len() as u64 + 65536, "{} bytes", long.device.read_bytes);
}

/// ARCHITECTURE invariant 8: the segments of the caller's memory split no bio.
#[test]
fn a_vectored_read_is_one_read() {
    let filesystem = volume(&[MIB, MIB], &FilesystemOptions::new().cache_bytes(16 * MIB));
    let file = open(&filesystem, 1);
    file.read_at(&mut [0; 1], 900 << 10).expect("read, for the mapping");
    let (mut first, mut second, mut third) = ([0; 5000], [0; 0], vec![0; 60_000]);
    let vectored = counted(&filesystem, || {
        let segments = &mut [&mut first[..], &mut second, &mut third].map(IoSliceMut::new);
        assert_eq!(file.read_vectored_at(segments, 512 << 10).expect("read"), 65_000);
    });
    assert!(first.iter().chain(&third).all(|byte| *byte == 2));
    assert_eq!((vectored.device.reads, vectored.readahead_pages), (1, 0));
}

/// Two readers of one file, each sequential, and each with a window of its own.
#[test]
fn read_ahead_is_each_readers_own() {
    in_simulation(read_by_two_readers);
}

fn read_by_two_readers() {
    let filesystem = simulated_volume(&[32 * MIB], &FilesystemOptions::new().cache_bytes(16 * MIB));
    let handles = [open(&filesystem, 0), open(&filesystem, 0)];
    let mut memory = vec![0; 16 << 10];
    let half = 16 * MIB as u64;
    let before = filesystem.stats();
    // The second one's first read is somewhere, and its second one goes on there.
    for at in (0..half - memory.len() as u64).step_by(memory.len()) {
        for (file, from) in handles.iter().zip([0, half]) {
            file.read_at(&mut memory, from + at).expect("read");
        }
        sleep(THINK);
    }
    let both = filesystem.stats().since(&before);
    let pages = 2 * half / PAGE;
    assert!(both.readahead_pages > pages / 2, "{} of {pages} read ahead", both.readahead_pages);
    assert!(both.device.read_bytes <= 2 * half + 6 * MIB as u64, "{} bytes", both.device.read_bytes);
}

/// However fast a program writes, no more than half of the cache is dirty, and what one call adds.
#[test]
fn writers_are_held_at_half_of_the_cache() {
    let cache = 8 * MIB as u64;
    let filesystem = volume(&[], &FilesystemOptions::new().cache_bytes(cache as usize));
    let file = filesystem.create_file("/written").expect("create");
    let chunk = vec![7; 256 << 10];
    let before = filesystem.stats();
    for at in (0..64 * MIB as u64).step_by(chunk.len()) {
        file.write_at(&chunk, at).expect("write");
        let written_back = filesystem.stats().since(&before).writeback_pages * PAGE;
        let dirty = (at + chunk.len() as u64).saturating_sub(written_back);
        assert!(dirty <= cache / 2 + 2 * chunk.len() as u64, "{dirty} bytes are dirty");
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// No sync: a third of the cache is more than the background allows, and a few pages are written when they are old.
#[test]
fn write_back_runs_in_the_background_by_amount_and_by_age() {
    let never = Duration::from_secs(3600);
    let pages = |filesystem: &Filesystem| filesystem.stats().writeback_pages;
    let filesystem = volume(&[], &FilesystemOptions::new().cache_bytes(8 * MIB).dirty_age(never));
    let before = pages(&filesystem);
    filesystem.create_file("/much").expect("create").write_at(&vec![1; 3 * MIB], 0).expect("write");
    let much = 3 * MIB as u64 / PAGE;
    wait_until("the background writes what is too much", || pages(&filesystem) - before >= much / 3);
    drop(filesystem);

    let age = Duration::from_millis(300);
    let filesystem = volume(&[], &FilesystemOptions::new().cache_bytes(8 * MIB).dirty_age(age));
    let (before, start) = (pages(&filesystem), Instant::now());
    filesystem.create_file("/old").expect("create").write_at(&[1; 3 * PAGE as usize], 0).expect("write");
    wait_until("the background writes what is old", || pages(&filesystem) - before == 3);
    assert!(start.elapsed() >= age, "and not before");
}
