//! ARCHITECTURE invariant 1 seen from outside: the addresses that the kernel gets are those of the caller's memory.
//!
//! [`transfers`] is an ordinary test that writes and reads directly. The other tests run it again as a process of its own, where
//! it prints the addresses of its buffers. They compare these with the addresses that the kernel got: with threads, the arguments of the
//! system calls (strace); with `io_uring`, the submission entries in the memory that process and kernel share.

use crate::common;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Image, assert_clean, pattern};
use diorite::{AlignedBuf, DirectIo, FilesystemOptions, RegisteredBuffers};
use diorite_ext_tools::mkfs::MkfsOptions;

/// Set for the process that is looked at: the image to use.
const ROLE: &str = "DIORITE_OUTSIDE_IMAGE";
/// Bytes of one transfer; whatever else the process moves is smaller than half of it.
const BYTES: usize = 256 << 10;
const TRANSFERS: usize = 4;

/// Write new blocks and write them over, from plain memory and from registered memory; read back into other memory.
#[test]
fn transfers() {
    let seen = std::env::var(ROLE).ok();
    let own = seen.is_none().then(|| Image::new(16, &MkfsOptions::default()));
    let path = seen.clone().map_or_else(|| own.as_ref().expect("our own").path.clone(), Into::into);
    let filesystem = FilesystemOptions::new().open(&path).expect("open");
    let open = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
    let file = open.open("/file").expect("create");
    let tell = |what: &str, memory: &[u8]| {
        if seen.is_some() {
            println!("outside: {what} {} {}", memory.as_ptr().addr(), memory.len());
        }
    };
    let pool = RegisteredBuffers::new(BYTES, TRANSFERS as u32).expect("memory");
    let before = filesystem.stats();
    for round in 0..TRANSFERS {
        let offset = (round * BYTES) as u64;
        let mut registered = pool.take();
        registered.copy_from_slice(&pattern(BYTES, round as u64));
        tell("write", &registered);
        file.write_all_at(&registered, offset).expect("write");
        let mut plain = AlignedBuf::zeroed(BYTES, 4096);
        plain.copy_from_slice(&pattern(BYTES, 100 + round as u64));
        tell("write", &plain);
        file.write_all_at(&plain, offset).expect("write over");
        let mut back = AlignedBuf::zeroed(BYTES, 4096);
        tell("read", &back);
        file.read_exact_at(&mut back, offset).expect("read");
        assert!(*back == *plain);
    }
    assert_eq!(filesystem.stats().since(&before).bytes_copied, 0);
    file.sync_all().expect("sync");
    if seen.is_some() {
        println!("outside: ready");
        // The requests to the kernel can be inspected until the other end closes.
        std::io::stdin().read_to_end(&mut Vec::new()).expect("wait");
    }
    drop((file, own));
    filesystem.close().expect("close");
}

/// Bytes of transfers in one direction, by address.
type Given = BTreeMap<(bool, usize), usize>;

/// The traced process and the memory that it reported: direction, address and length.
struct Seen {
    child: Child,
    reported: Vec<(bool, usize, usize)>,
    output: BufReader<std::process::ChildStdout>,
}

impl Seen {
    fn start(mut command: Command, image: &Image) -> std::io::Result<Self> {
        command.env(ROLE, &image.path);
        command.args(["--exact", "outside::transfers", "--nocapture", "--test-threads=1"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut reported = Vec::new();
        let mut line = String::new();
        while output.read_line(&mut line)? > 0 {
            // The name of the test may stand before it on the same line.
            let words: Vec<&str> = line
                .split_once("outside: ")
                .map(|(_, rest)| rest.split_whitespace().collect())
                .unwrap_or_default();
            match words[..] {
                ["ready"] => break,
                [what, address, len] => {
                    reported.push((
                        what == "write",
                        address.parse().expect("address"),
                        len.parse().expect("length"),
                    ));
                }
                _ => {}
            }
            line.clear();
        }
        Ok(Self { child, reported, output })
    }

    /// Let it end; whether it did so well.
    fn end(mut self) -> (bool, Vec<(bool, usize, usize)>) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("output");
        (self.child.wait().expect("end").success(), self.reported)
    }
}

/// Every transfer went to the kernel with the caller's addresses, whole, and nothing as large with others.
fn judge(reported: &[(bool, usize, usize)], given: &Given) {
    assert_eq!(reported.len(), 3 * TRANSFERS);
    for &(is_write, address, len) in reported {
        let (mut at, end) = (address, address + len);
        while at < end {
            let step = given.get(&(is_write, at));
            at += step.unwrap_or_else(|| panic!("no transfer of {at:#x} (write: {is_write}) in {given:x?}"));
        }
        assert_eq!(at, end, "a transfer reaches beyond the caller's memory");
    }
    for (&(is_write, address), &len) in given {
        let inside =
            reported.iter().any(|&(_, start, bytes)| start <= address && address + len <= start + bytes);
        assert!(
            inside || len < BYTES / 2,
            "{len} bytes at {address:#x} (write: {is_write}) are not the caller's"
        );
    }
}

/// This program under strace, which writes the calls that move data to `trace`.
fn traced(trace: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "0", "-e", "trace=pread64,pwrite64,preadv,pwritev,preadv2,pwritev2"]);
    command.args(["-e", "raw=pread64,pwrite64", "-o"]).arg(trace);
    command.arg(std::env::current_exe().expect("this program"));
    command
}

/// The arguments of the calls of a trace.
fn calls(trace: &Path) -> Given {
    let text = std::fs::read_to_string(trace).expect("trace");
    let mut given = Given::new();
    for line in text.lines() {
        // 123 pwrite64(0x3, 0x7f0000000000, 0x40000, 0x1000) = 0x40000
        let is_write = line.contains("pwrite64(");
        let Some((_, rest)) = line.split_once("pwrite64(").or_else(|| line.split_once("pread64(")) else {
            continue;
        };
        let numbers: Vec<usize> = rest
            .split([',', ')'])
            .map_while(|word| usize::from_str_radix(word.trim().strip_prefix("0x")?, 16).ok())
            .collect();
        if let [_, address, len, _] = numbers[..] {
            given.insert((is_write, address), len);
        }
    }
    given
}

#[test]
fn system_calls_of_the_thread_back_end_have_the_callers_addresses() {
    let image = Image::new(16, &MkfsOptions::default());
    let trace = image.directory.path().join("trace");
    let mut command = traced(&trace);
    command.env("DIORITE_IO_BACKEND", "threads");
    let seen = match Seen::start(command, &image) {
        Ok(seen) if !seen.reported.is_empty() => seen,
        Ok(_) => return println!("SKIPPED: strace may not trace here"),
        Err(error) => return println!("SKIPPED: strace: {error}"),
    };
    let (succeeded, reported) = seen.end();
    assert!(succeeded, "the traced program failed");
    judge(&reported, &calls(&trace));
    assert_clean(&image.path);
}

/// A single long write is made by a call, what else there is by the ring.
#[test]
fn submission_entries_have_the_callers_addresses() {
    let image = Image::new(16, &MkfsOptions::default());
    let trace = image.directory.path().join("trace");
    let mut command = traced(&trace);
    command.env_remove("DIORITE_IO_BACKEND");
    let seen = match Seen::start(command, &image) {
        Ok(seen) if !seen.reported.is_empty() => seen,
        Ok(_) => return println!("SKIPPED: strace may not trace here"),
        Err(error) => return println!("SKIPPED: strace: {error}"),
    };
    let entries = child_of(seen.child.id()).and_then(submission_entries);
    let (succeeded, reported) = seen.end();
    assert!(succeeded, "the program failed");
    let entries = match entries {
        Ok(entries) if !entries.is_empty() => entries,
        Ok(_) => return println!("SKIPPED: io_uring is refused here"),
        Err(error) => return println!("SKIPPED: the memory of a ring cannot be read here: {error}"),
    };
    let mut given = calls(&trace);
    for entry in entries.chunks_exact(64) {
        let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
        let (address, len) = (number(16) as usize, number(24) as u32 as usize);
        // IORING_OP_READ_FIXED and IORING_OP_READ; IORING_OP_WRITE_FIXED and IORING_OP_WRITE
        match entry[0] {
            4 | 22 => given.insert((false, address), len),
            5 | 23 => given.insert((true, address), len),
            _ => None,
        };
    }
    assert!(given.keys().any(|(is_write, _)| !is_write), "the ring has read");
    judge(&reported, &given);
    assert_clean(&image.path);
}

/// The process that another has started.
fn child_of(process: u32) -> std::io::Result<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
    child.ok_or_else(|| std::io::Error::other("strace has no child"))
}

/// The submission entries of all rings of a process, as bytes. Entries stay when they are done, until the ring is full.
fn submission_entries(process: u32) -> std::io::Result<Vec<u8>> {
    /// `IORING_OFF_SQES`
    const ENTRIES_AT: u64 = 0x1000_0000;
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    #[expect(clippy::disallowed_methods, reason = "the memory of a process, not data")]
    let memory = std::fs::File::open(format!("/proc/{process}/mem"))?;
    let mut bytes = Vec::new();
    for line in maps.lines().filter(|line| line.ends_with("[io_uring]")) {
        let mut fields = line.split_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let numbers = range.and_then(|(start, end)| {
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some((hex(start)?, hex(end)?, hex(fields.nth(1)?)?))
        });
        if let Some((start, end, ENTRIES_AT)) = numbers {
            let at = bytes.len();
            bytes.resize(at + (end - start) as usize, 0);
            memory.read_exact_at(&mut bytes[at..], start)?;
        }
    }
    Ok(bytes)
}
