//! Blocks of files, as `stat` shows them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::Served;
use crate::common::{Mounted, pattern};

/// Blocks of preallocated files: after each write, and after a sync.
fn preallocated(at: &Path) -> Vec<(String, u64, u64)> {
    let keep = FallocateFlags::KEEP_SIZE;
    let cases = [
        ("whole", 0, (0, 64 << 10), FallocateFlags::empty(), (0, 16 << 10)),
        ("after the end", 0, (0, 256 << 10), keep, (0, 100 << 10)),
        ("sparse", 1 << 20, (256 << 10, 256 << 10), keep, (320 << 10, 64 << 10)),
        ("sparse, in part", 1 << 20, (256 << 10, 256 << 10), keep, (448 << 10, 128 << 10)),
    ];
    let rows = cases.into_iter().map(|(name, size, (start, len), flags, (offset, written))| {
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(at.join(name));
        let file = file.expect("create");
        file.set_len(size).expect("size");
        fallocate(&file, flags, start, len).expect("fallocate");
        file.write_all_at(&pattern(written, 1), offset).expect("write");
        let at_once = file.metadata().expect("stat").blocks();
        file.sync_all().expect("sync");
        Served::wait_until(|| file.metadata().expect("stat").blocks() >= len / 512);
        drop(file);
        (name.to_owned(), at_once, fs::metadata(at.join(name)).expect("stat").blocks())
    });
    rows.collect()
}

/// Data in preallocated blocks was counted twice (xfstests generic/568).
pub(crate) fn blocks_of_preallocated_files_are_those_of_the_kernels_ext4() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    served.bench().image("kernel.img", "ext4", "64M");
    let Some(kernel) = Mounted::new(&served.bench().path("kernel.img"), "rw") else { return };
    let (theirs, ours) = (preallocated(kernel.at.path()), preallocated(&served.at()));
    for (theirs, ours) in theirs.into_iter().zip(ours) {
        let (name, at_once, synced) = &ours;
        assert_eq!(*synced, theirs.2, "{name}");
        // The kernel counts the blocks of its cache for its own filesystems only.
        assert!(*at_once <= theirs.1, "{name}: {at_once} blocks, {} on the kernel's ext4", theirs.1);
    }
    drop(kernel);
    served.must_end_clean();
}
