//! A pool of one process: pages against a model, replacement, writeback and its errors.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{BlockDevice, DirectIo, File, Filesystem, FilesystemOptions, HostFile};
use diorite_pool::{BufferPool, Error, FileId, PageId};
use diorite_sim::image::ImageDevice;
use tempfile::TempDir;

const PAGE: usize = 4096;

fn host_file(directory: &TempDir, name: &str, direct: DirectIo) -> File {
    let options = HostFile::options().read(true).write(true).create(true).direct(direct);
    options.open(directory.path().join(name)).expect("a file")
}

fn pool(pages: usize) -> BufferPool {
    BufferPool::options().page_bytes(PAGE).pages(pages).create().expect("a pool")
}

fn word(page: &[u8]) -> u64 {
    let words = page.as_chunks::<8>().0;
    assert!(words.iter().all(|word| word == &words[0]), "a page is of one write");
    u64::from_le_bytes(words[0])
}

fn set_word(page: &mut [u8], value: u64) {
    page.as_chunks_mut::<8>().0.fill(value.to_le_bytes());
}

/// Write numbered pages through a pool.
fn fill(pool: &BufferPool, file: FileId, pages: u64) {
    for number in 0..pages {
        set_word(&mut pool.create_page(file.page(number)).expect("a frame"), number + 1);
    }
    pool.flush(file).expect("flushed");
}

/// Random fetches, changes and flushes of two files, in pools smaller than them, on the host and in an image, direct and cached.
#[test]
fn pages_are_what_was_written() {
    for (seed, direct) in [(1, DirectIo::Preferred), (2, DirectIo::Off), (3, DirectIo::Preferred)] {
        println!("seed {seed}");
        let directory = TempDir::new().unwrap();
        let image = directory.path().join("disk.img");
        let filesystem = Filesystem::create(&image, 32 << 20, &MkfsOptions::new(Flavor::Ext4)).unwrap();
        let options = || filesystem.open_options().read(true).write(true).create(true).direct(direct);
        let pool = pool(40);
        let files = [
            pool.open_file("host", host_file(&directory, "host", direct)).unwrap(),
            pool.open_file("image", options().open("/image").unwrap()).unwrap(),
        ];
        let mut model: HashMap<PageId, u64> = HashMap::new();
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 1..2000_u64 {
            let page = files[random.usize(..2)].page(random.u64(..120));
            match random.u32(..100) {
                0 => pool.flush(page.file).unwrap(),
                1..10 => {
                    set_word(&mut pool.create_page(page).unwrap(), round);
                    model.insert(page, round);
                }
                10..50 => {
                    let mut guard = pool.fetch_exclusive(page).unwrap();
                    assert_eq!(
                        word(&guard),
                        model.get(&page).copied().unwrap_or(0),
                        "{page:?} in round {round}"
                    );
                    if random.bool() {
                        set_word(&mut guard, round);
                        model.insert(page, round);
                    }
                }
                50..55 => pool.prefetch((0..10).map(|step| page.file.page(page.number() + step))).unwrap(),
                55..70 => {
                    let seen = pool.peek(page, |peek| Some(u64::from_le_bytes(peek.bytes(8)?)));
                    assert!(seen.is_none_or(|seen| seen == model.get(&page).copied().unwrap_or(0)));
                }
                _ => {
                    let guard = pool.fetch(page).unwrap();
                    assert_eq!(
                        word(&guard),
                        model.get(&page).copied().unwrap_or(0),
                        "{page:?} in round {round}"
                    );
                }
            }
        }
        let stats = pool.stats();
        assert!(stats.evictions > 250 && stats.written_pages > 100, "{stats:?}");
        pool.close().unwrap();
        // On the disk as well, without the pool.
        let mut bytes = vec![0; PAGE];
        let again = options().direct(DirectIo::Off).open("/image").unwrap();
        let host = host_file(&directory, "host", DirectIo::Off);
        for (page, value) in model {
            let file = if page.file == files[0] { &host } else { &again };
            file.read_exact_at(&mut bytes, page.number() * PAGE as u64).unwrap();
            assert_eq!(word(&bytes), value, "{page:?}");
        }
        drop(again);
        filesystem.close().unwrap();
    }
}

/// Four threads add to the same pages, in a pool that has not half of them: no addition is lost.
#[test]
fn threads_lose_no_change() {
    let directory = TempDir::new().unwrap();
    let pool = Arc::new(pool(24));
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    let (threads, rounds, pages) = (4, 2000, 60);
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let pool = &pool;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..rounds {
                    let page = file.page(random.u64(..pages));
                    if random.u32(..4) == 0 {
                        word(&pool.fetch(page).unwrap());
                    }
                    let mut guard = pool.fetch_exclusive(page).unwrap();
                    let value = word(&guard);
                    set_word(&mut guard, value + 1);
                }
            });
        }
    });
    let sum: u64 = (0..pages).map(|number| word(&pool.fetch(file.page(number)).unwrap())).sum();
    assert_eq!(sum, threads * rounds);
}

/// A scan of many pages, each looked at several times in a row, leaves the pages that are used again and again.
#[test]
fn a_scan_does_not_evict_what_is_used() {
    let directory = TempDir::new().unwrap();
    let pool = pool(200);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    fill(&pool, file, 3000);
    let hot = 0..100;
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..3000 {
        pool.fetch(file.page(random.u64(hot.clone()))).unwrap();
        pool.fetch(file.page(random.u64(100..300))).unwrap();
    }
    let misses_of = |work: &mut dyn FnMut()| {
        let before = pool.stats().misses;
        work();
        pool.stats().misses - before
    };
    misses_of(&mut || {
        for number in 300..2300 {
            for _ in 0..5 {
                pool.fetch(file.page(number)).unwrap();
            }
        }
    });
    let misses = misses_of(&mut || {
        for number in hot.clone() {
            pool.fetch(file.page(number)).unwrap();
        }
    });
    assert!(misses <= 10, "{misses} of 100 hot pages were gone after a scan of 2,000 pages");
}

/// A pinned page stays; when all frames are pinned, another page is an error with the reason and not a wait for ever.
#[test]
fn pinned_pages_stay() {
    let directory = TempDir::new().unwrap();
    let pool = pool(8);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    fill(&pool, file, 30);
    let pins: Vec<_> = (0..8).map(|number| pool.pin(file.page(number)).unwrap()).collect();
    assert!(matches!(pool.fetch(file.page(20)), Err(Error::NoFrames { frames: 8, held: 8, .. })));
    for (number, pin) in (1..).zip(&pins) {
        assert_eq!(word(&pin.read()), number);
        set_word(&mut pin.write().unwrap(), number + 100);
    }
    let before = pool.stats().misses;
    assert_eq!(word(&pool.fetch(file.page(3)).unwrap()), 104);
    assert_eq!(pool.stats().misses, before);
    drop(pins);
    assert_eq!(word(&pool.fetch(file.page(20)).unwrap()), 21);
}

/// A page that the log does not have yet is not written, neither by flush nor for its frame.
#[test]
fn a_page_waits_for_its_log() {
    let directory = TempDir::new().unwrap();
    let pool = pool(8);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    let mut guard = pool.create_page(file.page(0)).unwrap();
    set_word(&mut guard, 5);
    guard.set_lsn(10);
    drop(guard);
    set_word(&mut pool.create_page(file.page(1)).unwrap(), 6);
    assert!(matches!(pool.flush(file), Err(Error::LogNotDurable { lsn: 10 })));
    assert_eq!(pool.stats().written_pages, 1);
    for number in 2..40 {
        pool.fetch(file.page(number)).unwrap();
    }
    assert_eq!(pool.stats().written_pages, 1, "written for its frame before the log");
    assert_eq!(word(&pool.fetch(file.page(0)).unwrap()), 5);
    pool.set_durable_lsn(10);
    pool.flush(file).unwrap();
    assert_eq!(pool.stats().written_pages, 2);
}

/// The least number was reported: a flush for each page was needed until all were written.
#[test]
fn pages_wait_for_the_greatest_number_of_theirs() {
    let directory = TempDir::new().unwrap();
    let pool = pool(16);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    for (number, lsn) in [(0, 20), (1, 40), (2, 10), (3, 30)] {
        let mut guard = pool.create_page(file.page(number)).unwrap();
        set_word(&mut guard, 5);
        guard.set_lsn(lsn);
    }
    pool.set_durable_lsn(15);
    let Err(Error::LogNotDurable { lsn }) = pool.flush(file) else { panic!("three pages wait") };
    assert_eq!((lsn, pool.stats().written_pages), (40, 1));
    pool.set_durable_lsn(lsn);
    pool.flush(file).unwrap();
    assert_eq!(pool.stats().written_pages, 4);
}

/// A number that is set without a new change of a page that is dirty holds for it: the page was written before its log.
#[test]
fn a_number_without_a_change_holds_for_a_dirty_page() {
    let directory = TempDir::new().unwrap();
    let pool = pool(16);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    set_word(&mut pool.create_page(file.page(0)).unwrap(), 5);
    pool.fetch_exclusive(file.page(0)).unwrap().set_lsn(100);
    pool.set_durable_lsn(50);
    assert!(matches!(pool.flush(file), Err(Error::LogNotDurable { lsn: 100 })));
    pool.set_durable_lsn(100);
    pool.flush(file).unwrap();
}

/// For the frame of a page the thread that reads ahead wrote others back, by which the file grew: it waited for the end of the file, which its own
/// read in flight had.
#[test]
fn reading_ahead_does_not_wait_for_itself() {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&image, 16 << 20, &MkfsOptions::default()).unwrap();
    filesystem.create_file("/f").unwrap().write_all_at(&[1; 100], 0).unwrap();
    filesystem.close().unwrap();
    let filesystem = Filesystem::open(&image).unwrap();
    let direct = filesystem.open_options().read(true).write(true).direct(DirectIo::Required);
    let pool = BufferPool::options().pages(16).background_writer(false).create().unwrap();
    let file = pool.open_file("f", direct.open("/f").unwrap()).unwrap();
    // One clean page, three dirty ones, and no other frame.
    let pins: Vec<_> = (1000..1012).map(|number| pool.pin(file.page(number)).unwrap()).collect();
    for number in 100..103 {
        set_word(&mut pool.create_page(file.page(number)).unwrap(), 1);
    }
    drop(pool.fetch(file.page(1)).unwrap());
    pool.prefetch([0, 2].map(|number| file.page(number))).unwrap();
    let give_up = Instant::now() + Duration::from_secs(5);
    while pool.stats().prefetched < 2 {
        if Instant::now() > give_up {
            // Dropping it would wait for the thread.
            std::mem::forget((pins, filesystem));
            std::mem::forget(pool);
            panic!("the thread waits");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(pool.fetch(file.page(0)).unwrap()[..100] == [1; 100]);
    drop(pins);
    pool.close().unwrap();
}

/// An optimistic read that races with a writer never returns a mix.
#[test]
fn a_peek_is_whole_or_nothing() {
    let directory = TempDir::new().unwrap();
    let pool = pool(8);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    fill(&pool, file, 1);
    std::thread::scope(|scope| {
        let pool = &pool;
        let writer = scope.spawn(move || {
            for value in 1..20_000 {
                set_word(&mut pool.fetch_exclusive(file.page(0)).unwrap(), value);
            }
        });
        let (mut whole, mut bytes) = (0_u64, vec![0; PAGE]);
        while !writer.is_finished() || whole == 0 {
            if pool.peek(file.page(0), |peek| peek.copy(0, &mut bytes)).is_some() {
                word(&bytes);
                whole += 1;
            }
        }
    });
    assert_eq!(pool.peek(file.page(0), |peek| peek.bytes::<8>(PAGE - 4)), None, "beyond the page");
    assert_eq!(pool.peek(file.page(1), |peek| peek.bytes::<8>(0)), None, "not here");
}

/// Prefetched pages are hits, and a page that cannot be read is left to who asks.
#[test]
fn prefetched_pages_are_there() {
    let directory = TempDir::new().unwrap();
    let file = host_file(&directory, "f", DirectIo::Preferred);
    let small = pool(16);
    let id = small.open_file("f", file.clone()).unwrap();
    fill(&small, id, 200);
    drop(small);
    // In the larger one more pages are owned at a time than the queue takes.
    for pages in [128, 1024] {
        let pool = pool(pages);
        let id = pool.open_file("f", file.clone()).unwrap();
        pool.prefetch((0..100).map(|number| id.page(number))).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while pool.stats().prefetched < 100 {
            assert!(Instant::now() < end, "{pages}: {} of 100", pool.stats().prefetched);
            std::thread::yield_now();
        }
        for number in 0..100 {
            assert_eq!(word(&pool.fetch(id.page(number)).unwrap()), number + 1);
        }
        assert_eq!(pool.stats().misses, 0);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for (bytes, pages) in [(0, 100), (2048, 100), (5000, 100), (1 << 17, 100), (4096, 7)] {
        let refused = BufferPool::options().page_bytes(bytes).pages(pages).create();
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{bytes} {pages}");
    }
    let directory = TempDir::new().unwrap();
    let pool = pool(8);
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    let again = pool.open_file("f", host_file(&directory, "g", DirectIo::Preferred));
    assert!(matches!(again, Err(Error::InvalidArgument(_))));
    assert!(matches!(
        pool.open_file("", host_file(&directory, "h", DirectIo::Off)),
        Err(Error::InvalidArgument(_))
    ));
    let other = BufferPool::options().create().unwrap();
    assert!(matches!(other.fetch(file.page(0)), Err(Error::NotOpen(0))));
    let fd = pool.as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(BufferPool::attach(fd), Err(Error::InvalidArgument(_))), "it is not shared");
    let no_pool = std::fs::OpenOptions::new().read(true).open("/dev/null").unwrap();
    assert!(matches!(BufferPool::attach(no_pool.into()), Err(Error::Os { .. })));
}

/// The last few dirty pages are written for their frames as well, however often they were used.
#[test]
fn a_few_dirty_pages_do_not_block_the_pool() {
    let directory = TempDir::new().unwrap();
    let pool = BufferPool::options().pages(64).background_writer(false).create().unwrap();
    let file = pool.open_file("f", host_file(&directory, "f", DirectIo::Preferred)).unwrap();
    for number in 0..3 {
        set_word(&mut pool.create_page(file.page(number)).unwrap(), 1);
    }
    let pins: Vec<_> = (100..161).map(|number| pool.pin(file.page(number)).unwrap()).collect();
    assert_eq!(word(&pool.fetch(file.page(50)).unwrap()), 0);
    drop(pins);
    pool.check_invariants().unwrap();
}

/// A page in the queue of the write-back holds its whole block of the filesystem. A run of pages in the same block, which is written by a
/// call, waited for it for ever.
#[test]
fn pages_that_share_a_block_are_written() {
    let options = MkfsOptions { block_size: Some(65536), flavor: Flavor::Ext4, ..MkfsOptions::default() };
    let device = ImageDevice::zeroed(256 << 20);
    diorite::mkfs::mkfs(&*device, &options).unwrap();
    let filesystem = FilesystemOptions::new().open_device(device as Arc<dyn BlockDevice>).unwrap();
    let file = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
    let file = file.open("/pages").unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let pool = pool(64);
        let id = pool.open_file("f", file).unwrap();
        for pages in
            [&[0, 2, 3, 4, 5][..], &[0, 1, 2, 3, 4, 5, 7], &[1, 3, 5, 7, 9, 17, 18, 19, 20, 21, 22, 24]]
        {
            for &number in pages {
                set_word(&mut pool.create_page(id.page(number)).unwrap(), number + 1);
            }
            pool.flush(id).unwrap();
        }
        let words: Vec<_> =
            [0, 5, 9, 22, 24].map(|number| word(&pool.fetch(id.page(number)).unwrap())).into();
        pool.close().unwrap();
        sender.send(words).unwrap();
    });
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).expect("a flush ends"), [1, 6, 10, 23, 25]);
}
