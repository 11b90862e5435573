//! Linux's tests of direct I/O (xfstests, named by number), reimplemented in process: each makes the checks of the original,
//! with this library's calls. "Class" is the number of the kind of bug in the list that this project was started with; the tests of the
//! classes themselves are in `direct_bugs.rs`.
//!
//! | test | class | here |
//! | --- | --- | --- |
//! | generic/036 | 12 | `io_flags.rs`: `class_12_the_flag_is_switched_in_mid_flight` |
//! | 091, 112, 263, 521, 617, 760 | 5, 9 | `fsx.rs` |
//! | 095, 113, 198, 207, 210, 240, 252, 323, 538, 551, 586, 627 | 1, 2, 5, 6 | `queued.rs` |
//! | 114 | 5 | `queued.rs`; `direct_bugs.rs`: `class_5_writers_of_parts_of_one_new_block` |
//! | 130, 135, 210, 214, 219, 226, 406, 412, 678, 704 | 7, 9 | `calls.rs` |
//! | 133, 209, 239, 299, 300, 366, 391, 427, 446, 451, 465, 615 | 1, 3, 15, 17 | `races.rs` |
//! | 208, 250, 362, 364, 450, 609, 708 | 2, 6, 11, 14, 9, 14, 11 | `direct_bugs.rs`, the tests of these classes |
//! | 247 | 3 | `mapped_views.rs`: `stores_beside_direct_writes_of_one_page` |
//! | 418 | 3 | `coherence.rs`; with all kinds of calls: `history` of `diorite-torture` |
//! | 355 | - | set-user-ID is cleared by a front end: `crates/mount`; the library's caller acts as the superuser |
//! | 647, 729 | 10 | `direct_bugs.rs`: `class_10_...`; `mapped_views.rs`: `a_view_is_the_source_of_a_write_to_itself` |
//! | 703, 737 | 13 | `direct_bugs.rs`: `class_13_...`; with power cuts: `crash` of `diorite-torture` |
//! | 757 | - | checksums of data, which ext4 has not |
//! | 761 | - | memory that changes during a write: a borrow that safe Rust refuses |
//! | 765 to 778, ext4/061, 062 | - | `crates/torture/tests/atomic.rs` |
//! | ext4/301 to 304 | 15 | `races.rs`: moved ranges beside direct I/O |
//! | LTP `dma_thread_diotest` | 8 | `calls.rs`: `class_8_...` |
//! | reflink tests | - | ext4 has no shared extents |

mod calls;
mod fsx;
mod queued;
mod races;

use std::sync::Arc;

use crate::common::{assert_device_clean, garbage_volume};
use diorite::{AlignedBuf, BlockDevice, DirectIo, File, Filesystem, FilesystemOptions, Unaligned};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const PAGE: usize = 4096;

/// A volume on a device full of garbage, and what is checked when a test has ended.
struct Volume {
    device: Arc<dyn BlockDevice>,
    filesystem: Filesystem,
}

impl Volume {
    fn new(flavor: Flavor, block_size: u32) -> Self {
        let options = MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() };
        Self::on(garbage_volume(32, &options))
    }

    fn on(device: Arc<dyn BlockDevice>) -> Self {
        let options = FilesystemOptions::new().cache_bytes(4 << 20);
        let filesystem = options.open_device(Arc::clone(&device)).expect("open");
        Self { device, filesystem }
    }

    /// Blocks of 1 KiB without extents, of 4 KiB with, and larger than a page.
    fn all() -> [Self; 3] {
        [Self::new(Flavor::Ext2, 1024), Self::new(Flavor::Ext4, 4096), Self::new(Flavor::Ext4, 65536)]
    }

    fn open(&self, direct: DirectIo) -> File {
        let options = self.filesystem.open_options().read(true).write(true).create(true);
        options.direct(direct).unaligned(Unaligned::Bounce).open("/file").expect("open")
    }

    fn direct(&self) -> File {
        self.open(DirectIo::Required)
    }

    fn buffered(&self) -> File {
        self.open(DirectIo::Off)
    }

    fn close(self) {
        self.filesystem.close().expect("close");
        assert_device_clean(&self.device);
    }

    /// Close it, and open it again.
    fn reopen(self) -> Self {
        self.filesystem.close().expect("close");
        Self::on(self.device)
    }
}

fn memory(value: u8, len: usize) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(len, PAGE);
    memory.fill(value);
    memory
}

/// All of a file, by direct reads.
fn content(file: &File) -> Vec<u8> {
    let size = file.size() as usize;
    let mut bytes = AlignedBuf::zeroed(size.next_multiple_of(PAGE), PAGE);
    let got = file.read_at(&mut bytes, 0).expect("read");
    assert_eq!(got, size);
    bytes[..size].to_vec()
}

#[track_caller]
fn assert_all(bytes: &[u8], value: u8, what: &str) {
    if let Some(at) = bytes.iter().position(|byte| *byte != value) {
        panic!("{what}: byte {at} is {:#x} in place of {value:#x}", bytes[at]);
    }
}
