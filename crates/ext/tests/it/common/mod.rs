//! Images for tests: made by mke2fs, checked by e2fsck and debugfs, and a device in memory.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "shared by the tests of this crate")]
#![allow(clippy::unwrap_used, clippy::unused_self, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

mod kernel;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use diorite_block::{Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoErrorKind, IoQueue, Op};
use diorite_ext::{
    FileBlock, Inode, InodeNumber, MappingKind, Reservation, Result, SetTime, Volume, VolumeOptions,
    WriteCommit,
};
pub(crate) use kernel::{have, run, unmount};

/// A device in memory that checks every bio against a strict geometry.
#[derive(Debug)]
pub struct MemoryDevice {
    pub bytes: RwLock<Vec<u8>>,
    geometry: Geometry,
    counters: IoCounters,
    pub fail_writes: AtomicBool,
}

impl MemoryDevice {
    pub fn new(bytes: Vec<u8>) -> Arc<Self> {
        let geometry = Geometry {
            capacity_bytes: bytes.len() as u64 / 512 * 512,
            logical_block_size: 512,
            physical_block_size: 4096,
            memory_alignment: 512,
            max_transfer_bytes: 1 << 20,
            max_segments: 128,
            atomic_write_bytes: 0,
            volatile_cache: true,
            fua: false,
            discard: false,
            rotational: false,
            read_only: false,
        };
        let fail_writes = AtomicBool::new(false);
        Arc::new(Self { bytes: RwLock::new(bytes), geometry, counters: IoCounters::default(), fail_writes })
    }

    pub fn save(&self, path: &Path) {
        std::fs::write(path, &*self.bytes.read().unwrap()).unwrap();
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn counters(&self) -> &IoCounters {
        &self.counters
    }
    fn name(&self) -> String {
        "memory".to_owned()
    }
    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        for bio in bios {
            let error = |bio: &Bio<'_>, kind| (self as &dyn BlockDevice).error(bio, kind);
            self.geometry.check(bio).map_err(|kind| error(bio, kind))?;
            assert!(bio.len() <= u64::from(self.geometry.max_transfer_bytes), "a bio that is too large");
            assert!(bio.segment_count() <= usize::from(self.geometry.max_segments), "too many segments");
            self.counters.count(bio.op, bio.len());
            if bio.op.is_write() && self.fail_writes.load(Ordering::Relaxed) {
                return Err(error(bio, IoErrorKind::Gone));
            }
            let mut at = bio.sector.to_bytes() as usize;
            match (&mut bio.memory, bio.op) {
                (BioMemory::Read(segments), _) => {
                    let bytes = self.bytes.read().unwrap();
                    for segment in segments {
                        let len = segment.len();
                        segment.copy_from_slice(&bytes[at..at + len]);
                        at += len;
                    }
                }
                (BioMemory::Write(segments), _) => {
                    let mut bytes = self.bytes.write().unwrap();
                    for segment in segments {
                        bytes[at..at + segment.len()].copy_from_slice(segment);
                        at += segment.len();
                    }
                }
                (BioMemory::None(len), Op::WriteZeroes) => {
                    self.bytes.write().unwrap()[at..at + *len as usize].fill(0);
                }
                (BioMemory::None(_), _) => {}
            }
        }
        Ok(())
    }
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

/// The output of a shell script that must succeed; it runs in `directory`.
pub fn shell(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An image that the kernel has mounted, until it is dropped.
pub struct Mount {
    pub at: PathBuf,
}

impl Mount {
    /// Mount, or say that it is not possible here.
    pub fn new(bench: &Bench, image: &Path, options: &str) -> Option<Self> {
        let at = bench.path("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let (image, place) = (image.to_string_lossy(), at.to_string_lossy());
        let options = format!("loop{options}");
        let is_for_reading = options.contains(",ro");
        // SetClock to write, the kernel does not fall back to reading.
        let how = if is_for_reading { "-r" } else { "-w" };
        for _ in 0..3 {
            let (code, output) = run("mount", &[how, "-o", &options, &image, &place]);
            if code != 0 {
                println!("SKIPPED: cannot mount here: {output}");
                return None;
            }
            let mount = Self { at: at.clone() };
            if is_for_reading || rustix::fs::access(&at, rustix::fs::Access::WRITE_OK).is_ok() {
                return Some(mount);
            }
            // A loop device that was read-only stays read-only for its next user.
            let device = run("findmnt", &["-no", "SOURCE", &place]).1;
            drop(mount);
            run("blockdev", &["--setrw", device.trim()]);
        }
        panic!("{image} cannot be mounted for writing");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// A directory for one test's images.
pub struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// An image of `size` made by mke2fs with these arguments.
    pub fn image(&self, arguments: &str, size: &str) -> PathBuf {
        let path = self.path("image");
        let mut all: Vec<&str> = arguments.split_whitespace().collect();
        let text = path.to_string_lossy().into_owned();
        all.extend(["-q", "-F", &text, size]);
        let (code, output) = run("mke2fs", &all);
        assert_eq!(code, 0, "mke2fs {all:?}: {output}");
        path
    }

    pub fn open(&self, image: &Path) -> (Arc<MemoryDevice>, Arc<Volume>) {
        let device = MemoryDevice::new(std::fs::read(image).unwrap());
        let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
        (device, volume)
    }

    /// e2fsck must find nothing on the device's content, nor must our own check.
    pub fn check(&self, device: &MemoryDevice) {
        let report = diorite_ext_tools::check::check(
            device,
            &diorite_ext_tools::check::CheckOptions::default(),
            &mut |_| {},
        )
        .unwrap();
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        assert!(problems.is_empty(), "check: {}", problems.join("\n"));
        let path = self.path("checked");
        device.save(&path);
        let (code, output) = run("e2fsck", &["-fn", &path.to_string_lossy()]);
        assert_eq!(code, 0, "e2fsck: {output}");
    }

    /// As [`Bench::check`], for a volume that is in use: e2fsck may replay the journal, and counts nothing against the
    /// state of the volume.
    pub fn check_running(&self, device: &MemoryDevice) {
        let path = self.path("checked");
        device.save(&path);
        let (code, output) = run("e2fsck", &["-fy", &path.to_string_lossy()]);
        assert!(code <= 1 && !output.contains("FIXED"), "e2fsck: {output}");
        // Counts are settled at the end; nodes that are half full after a split are no damage.
        let lines: Vec<_> = output.lines().collect();
        let is_question = |line: &str| line.contains("? yes");
        let is_harmless = |line: &str| {
            line.starts_with("Free ") || line.contains("Optimize") || line.contains("orphan_present")
        };
        let damage = (0..lines.len()).filter(|&index| {
            let before = index.checked_sub(1).map_or("", |before| lines[before]);
            is_question(lines[index]) && !is_harmless(lines[index]) && !is_harmless(before)
        });
        assert_eq!(damage.count(), 0, "{output}");
    }

    pub fn debugfs(&self, device: &MemoryDevice, command: &str) -> String {
        let path = self.path("checked");
        device.save(&path);
        run("debugfs", &["-R", command, &path.to_string_lossy()]).1
    }
}

/// The inode of a path, by debugfs.
pub fn inode_of(image: &Path, path: &str) -> InodeNumber {
    let (_, output) = run("debugfs", &["-R", &format!("stat {path}"), &image.to_string_lossy()]);
    let number = output.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    InodeNumber(number.unwrap_or_else(|| panic!("no inode in {output}")).parse().unwrap())
}

/// The names in a directory, but the dots, and what they name.
pub fn entries_of(volume: &Volume, directory: &Inode) -> Vec<(Vec<u8>, InodeNumber)> {
    let mut entries = Vec::new();
    let mut take = |entry: &diorite_ext::DirectoryEntry| {
        entries.push((entry.name.clone(), entry.inode));
        true
    };
    volume.names.read_directory(directory, 0, &mut take).unwrap();
    entries.retain(|(name, _)| name != b"." && name != b"..");
    entries
}

/// A file's content, read straight at its mapped blocks.
pub fn read_file(volume: &Volume, inode: &Inode) -> Vec<u8> {
    let size = inode.attributes().size;
    let block_size = volume.block_size();
    let mut content = vec![0; (block_size.blocks_for(size) * block_size.bytes()) as usize];
    let end = block_size.blocks_for(size);
    let mut at = 0;
    while at < end {
        let mapping = volume.files.map(inode, FileBlock(at), end - at).unwrap();
        assert_eq!(mapping.start, FileBlock(at));
        assert!(mapping.blocks > 0 && mapping.blocks <= end - at);
        match mapping.kind {
            MappingKind::Mapped(block) => {
                let bytes = read_blocks(volume, block.0, mapping.blocks);
                let start = (at * block_size.bytes()) as usize;
                content[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            MappingKind::Hole | MappingKind::Unwritten(_) => {}
            MappingKind::Inline => {
                let inline = volume.files.read_inline(inode).unwrap();
                content[..inline.len()].copy_from_slice(&inline);
            }
        }
        at += mapping.blocks;
    }
    content.truncate(size as usize);
    content
}

pub fn read_blocks(volume: &Volume, block: u64, blocks: u64) -> Vec<u8> {
    let size = volume.block_size().bytes();
    let mut aligned = Aligned::zeroed((blocks * size) as usize);
    volume.device().read_bytes(block * size, aligned.bytes()).unwrap();
    aligned.bytes().to_vec()
}

/// Memory that the strict geometry takes.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Self { memory, start, len }
    }
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Write whole blocks the way the library does: reserve, write data, commit.
pub fn write_blocks(
    volume: &Volume,
    inode: &Inode,
    at: u64,
    content: &[u8],
    size: Option<u64>,
) -> Result<()> {
    let block_size = volume.block_size().bytes();
    let blocks = content.len() as u64 / block_size;
    let reservation = volume.files.reserve(inode, FileBlock(at), blocks)?;
    let part = |start: u64, blocks: u64| {
        let from = ((start - at) * block_size) as usize;
        &content[from..from + (blocks * block_size) as usize]
    };
    for run in reservation.runs() {
        put(volume, run.block.0, part(run.start.0, run.blocks));
    }
    let mut converted = Vec::new();
    let mut next = at;
    while next < at + blocks {
        let mapping = volume.files.map(inode, FileBlock(next), at + blocks - next)?;
        match mapping.kind {
            MappingKind::Mapped(block) => put(volume, block.0, part(next, mapping.blocks)),
            MappingKind::Unwritten(block) => {
                put(volume, block.0, part(next, mapping.blocks));
                converted.push((mapping.start, mapping.blocks));
            }
            MappingKind::Hole | MappingKind::Inline => {}
        }
        next += mapping.blocks;
    }
    commit(volume, inode, reservation, converted, size)
}

fn commit(
    volume: &Volume,
    inode: &Inode,
    reservation: Reservation,
    converted: Vec<(FileBlock, u64)>,
    size: Option<u64>,
) -> Result<()> {
    let mut commit = WriteCommit {
        reservations: vec![reservation],
        converted,
        size_at_least: size,
        modified: Some(SetTime::Now),
    };
    volume.files.commit_write(inode, &mut commit).map(drop)
}

fn put(volume: &Volume, block: u64, content: &[u8]) {
    let mut aligned = Aligned::zeroed(content.len());
    aligned.bytes().copy_from_slice(content);
    let offset = block * volume.block_size().bytes();
    volume.device().write_bytes(offset, aligned.bytes(), diorite_block::BioFlags::SYNC).unwrap();
}

/// Bytes that depend on their place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
