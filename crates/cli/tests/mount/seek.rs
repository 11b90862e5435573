//! Holes, data and blocks of files whose data is in a cache of the kernel.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{AtFlags, CWD, SeekFrom};
use rustix::io::Errno;

use super::{NO_DIRECT_MAPPING, Served};
use crate::common::pattern;

/// Data that is in the kernel's cache alone is no hole: `cp` would have left it out.
pub(crate) fn data_that_is_not_written_back_is_no_hole() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(served.path("sparse"))
        .expect("create");
    file.set_len(4 << 20).expect("size");
    file.write_all_at(&[1; 8192], 1 << 20).expect("write");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 8192));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(2 << 20)), Err(Errno::NXIO));
    drop(file);
    served.must_end_clean();
}

/// The same of what was stored through a mapping, where nothing else stays in the kernel's cache.
pub(crate) fn data_that_was_stored_through_a_mapping_is_no_hole() {
    for options in ["direct", "sync"] {
        if options == "direct" && !super::has_kernel(6, 6, NO_DIRECT_MAPPING) {
            continue;
        }
        let Some(served) = Served::new("ext4", "64M", options) else { return };
        let path = served.path("sparse");
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).expect("create");
        file.set_len(4 << 20).expect("size");
        super::exercise::store_mapped(&file, 1 << 20, || {
            assert_ne!(fs::metadata(&path).expect("stat").blocks(), 0, "{options}");
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20), "{options}");
        });
        drop(file);
        served.must_end_clean();
    }
}

/// The kernel keeps attributes, and does not count the blocks of what it caches: a file without any would be a hole to `tar -S`.
/// `stat -c %x` asks for the access time alone.
pub(crate) fn blocks_and_access_times_are_told_of_open_files() {
    use rustix::fs::{StatxFlags, statx};
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let blocks = |name: &str| fs::metadata(served.path(name)).expect("stat").blocks();
    let accessed = |name: &str| {
        let time =
            statx(CWD, served.path(name), AtFlags::empty(), StatxFlags::ATIME).expect("statx").stx_atime;
        (time.tv_sec, time.tv_nsec)
    };
    fs::write(served.path("empty"), "").expect("write");
    Served::wait_until(|| blocks("empty") == 0);
    for name in ["new", "empty"] {
        let mut file = OpenOptions::new().create(true).append(true).open(served.path(name)).expect("open");
        file.write_all(&pattern(300_000, 1)).expect("write");
        assert!(blocks(name) > 0, "{name}: a hole, before it is written back");
        file.sync_all().expect("sync");
        Served::wait_until(|| blocks(name) * 512 >= 300_000);
    }
    let before = accessed("new");
    assert_eq!(fs::read(served.path("new")).expect("read").len(), 300_000);
    assert!(accessed("new") > before, "the first read after a change");
    let first = accessed("new");
    fs::read(served.path("new")).expect("read");
    assert_eq!(accessed("new"), first, "and no other");
    std::os::unix::fs::symlink("new", served.path("link")).expect("symlink");
    let served = served.again("strictatime");
    let accessed = || fs::symlink_metadata(served.path("link")).map(|stat| (stat.atime(), stat.atime_nsec()));
    let before = accessed().expect("stat");
    fs::read_link(served.path("link")).expect("readlink");
    assert!(accessed().expect("stat") > before);
    served.must_end_clean();
}

/// A call that looks for data waits until the kernel has written back its cache by requests. These are served, however many calls wait.
pub(crate) fn many_look_for_data_at_once() {
    const PROGRAMS: usize = 80;
    let Some(served) = Served::new("ext4", "128M", "") else { return };
    let (at, together) = (&served.at(), &std::sync::Barrier::new(PROGRAMS));
    let look = |index: usize| {
        let file = OpenOptions::new().create_new(true).write(true).open(at.join(format!("file{index}")));
        let file = file.expect("create");
        for round in 0..3 {
            file.write_all_at(&vec![round; 1 << 20], 1 << 20).expect("write");
            together.wait();
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(1)), Ok(1 << 20));
        }
    };
    std::thread::scope(|scope| {
        for index in 0..PROGRAMS {
            scope.spawn(move || look(index));
        }
    });
    if !Served::is_over_io_uring() {
        // The daemon added threads for the waiting ones and kept them.
        Served::wait_until(|| {
            fs::read_dir(at).expect("list");
            served.threads() <= 40
        });
    }
    served.must_end_clean();
}
