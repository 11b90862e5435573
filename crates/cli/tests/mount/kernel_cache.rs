//! The kernel's copies of file data: cached pages, and addresses of blocks.

use std::fs;
use std::process::Command;

use super::Served;
use crate::common::{pattern, text, tool};

/// Readers fill the kernel's cache with a file while a program writes it by asynchronous direct I/O, or through a loop device with direct I/O.
/// Prints how many buffered reads after a completed write saw old content.
const WRITE_BESIDE_READERS: &str = include_str!("write_beside_readers.py");

fn write_beside_readers(way: &str) {
    let Some(served) = Served::new("ext4", "64M", "allow_other,default_permissions") else { return };
    fs::write(served.path("file"), pattern(640 << 10, 1)).expect("write");
    let output = Command::new("python3")
        .args(["-c", WRITE_BESIDE_READERS])
        .arg(served.path("file"))
        .arg(way)
        .output()
        .expect("python3 starts");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    if said.starts_with("SKIPPED") {
        eprint!("{said}");
    } else {
        assert_eq!(said.split_whitespace().last(), Some("0"), "{said}");
    }
    served.must_end_clean();
}

/// Pages that were read during such a write stayed in the cache.
pub(crate) fn a_read_sees_an_asynchronous_direct_write() {
    write_beside_readers("aio");
}

/// The same with many writes in flight.
pub(crate) fn a_read_sees_many_asynchronous_direct_writes() {
    write_beside_readers("deep");
}

pub(crate) fn a_read_sees_what_a_loop_device_has_written() {
    write_beside_readers("loop");
}

/// The kernel asked the daemon for addresses of blocks, and wrote pages there later: to blocks of other files.
#[test]
fn a_swap_file_is_refused() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let file = served.path("swap");
    fs::write(&file, vec![0; 16 << 20]).expect("write");
    tool("chmod", ["600".as_ref(), file.as_os_str()]);
    tool("sync", ["-f".as_ref(), file.as_os_str()]);
    if let Some(made) = tool("mkswap", [&file]) {
        assert!(made.status.success(), "{}", text(&made.stderr));
        let on = tool("swapon", [&file]).expect("it comes with mkswap");
        if on.status.success() {
            tool("swapoff", [&file]);
        }
        assert!(!on.status.success(), "the kernel swaps to the file");
    }
    // `FIBMAP` returns no address for any block.
    let ask = "open(F, '<', $ARGV[0]) or die; my $block = pack('I', 0); ioctl(F, 1, $block); print unpack('I', $block)";
    let asked = Command::new("perl").args(["-e", ask]).arg(&file).output().expect("perl starts");
    assert_eq!(text(&asked.stdout), "0", "{}", text(&asked.stderr));
    served.must_end_clean();
}

/// A preallocated file had more blocks for seconds after each write (generic/568).
#[test]
fn a_write_into_preallocated_blocks_adds_none() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let file = fs::File::options().create_new(true).read(true).write(true).open(served.path("file"));
    let file = file.expect("create");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4097).expect("fallocate");
    let blocks = || fs::metadata(served.path("file")).expect("stat").blocks();
    let before = blocks();
    file.write_all_at(b"ab", 4095).expect("write");
    let seen = [blocks(), {
        file.sync_all().expect("sync");
        blocks()
    }];
    file.write_all_at(b"cd", 4095).expect("write");
    drop(file);
    assert_eq!((seen, blocks()), ([before; 2], before));
    served.must_end_clean();
}
