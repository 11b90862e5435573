//! Buffered writes with too few frames of the cache or blocks of the volume (ARCHITECTURE invariant 9).

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{aligned_pattern, memory_volume, pattern};
use diorite::{DirectIo, ErrorKind, File, Filesystem, FilesystemOptions, Unaligned};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const PAGE: usize = 4096;
const PAGE_BYTES: u64 = PAGE as u64;

fn options(flavor: Flavor, block_size: u32) -> MkfsOptions {
    MkfsOptions { flavor, block_size: Some(block_size), reserved_percent: 0.0, ..MkfsOptions::default() }
}

fn volume(mib: u64, flavor: Flavor, block_size: u32, cache_bytes: usize) -> Filesystem {
    let device = memory_volume(mib, &options(flavor, block_size));
    FilesystemOptions::new().cache_bytes(cache_bytes).open_device(device).expect("open")
}

fn file(filesystem: &Filesystem, name: &str, direct: DirectIo) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(direct).unaligned(Unaligned::Bounce).open(name).expect("open")
}

/// A file that takes all blocks.
fn fill(filesystem: &Filesystem, block: usize) -> File {
    let filler = file(filesystem, "/filler", DirectIo::Required);
    let mut at = 0;
    for len in [1 << 20, 64 << 10, block] {
        let error = loop {
            match filler.write_at(&aligned_pattern(len, 7), at) {
                Ok(written) => at += written as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
    filesystem.sync().expect("sync");
    filler
}

/// A page whose blocks are known to be there, and are cut off: what is written there later needs space again.
#[test]
fn a_write_after_a_truncation_has_its_space_or_is_refused() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let filesystem = volume(12, flavor, 1024, 4 << 20);
        let buffered = file(&filesystem, "/file", DirectIo::Off);
        buffered.write_all_at(&pattern(PAGE, 1), 0).expect("write");
        buffered.sync_all().expect("sync");
        filesystem.drop_caches().expect("drop");
        buffered.read_exact_at(&mut vec![0; PAGE], 0).expect("read");
        buffered.set_len(1000).expect("cut");
        filesystem.sync().expect("sync");
        let _filler = fill(&filesystem, 1024);
        let refused = buffered.write_at(&pattern(1024, 5), 3 * 1024).expect_err("there is no space");
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "{flavor:?}: {refused}");
        buffered.sync_all().expect("nothing waits");
    }
}

/// More writers than the cache has frames for do not keep them from each other.
#[test]
fn many_writers_of_one_file_share_few_frames() {
    const ROUNDS: u64 = 20;
    for (threads, pages, cache_bytes) in [(24, 256, 4 << 20), (48, 16, 256 << 10), (48, 16, 3 << 20)] {
        let filesystem = volume(256, Flavor::Ext4, 4096, cache_bytes);
        let buffered = file(&filesystem, "/file", DirectIo::Off);
        let ended = Arc::new(AtomicU64::new(0));
        for thread in 0..threads {
            let (buffered, ended) = (buffered.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    let data = pattern(pages as usize * PAGE, round);
                    buffered.write_all_at(&data, thread * pages * PAGE_BYTES).expect("write");
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut last = (0, Instant::now());
        while last.0 < threads * ROUNDS {
            std::thread::sleep(Duration::from_millis(20));
            let now = ended.load(Ordering::Relaxed);
            last = if now == last.0 { last } else { (now, Instant::now()) };
            assert!(last.1.elapsed() < Duration::from_secs(60), "after {now} writes none ends");
        }
        let mut content = vec![0; pages as usize * PAGE];
        buffered.read_exact_at(&mut content, 0).expect("read");
        assert!(content == pattern(pages as usize * PAGE, ROUNDS - 1));
    }
}
