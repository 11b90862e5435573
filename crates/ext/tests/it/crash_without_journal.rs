//! ARCHITECTURE invariant 6 without a journal: after a power cut at any moment `e2fsck -fy` repairs the volume, and every file
//! reads back as it was when it was last synced, unless it was changed since.
//!
//! The device records writes and flushes. A crash keeps all writes before a flush and any part of the later writes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::sync::{Arc, Mutex};

use common::{Bench, MemoryDevice, have, inode_of, pattern, read_file, run, write_blocks};
use diorite_block::{Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op};
use diorite_ext::{FileBlock, Inode, SyncKind, Volume, VolumeOptions};

#[derive(Debug)]
enum Event {
    Write(usize, Vec<u8>),
    Flush,
}

#[derive(Debug)]
struct Recorder {
    inner: Arc<MemoryDevice>,
    events: Mutex<Vec<Event>>,
}

impl BlockDevice for Recorder {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn counters(&self) -> &IoCounters {
        self.inner.counters()
    }
    fn name(&self) -> String {
        "recorder".to_owned()
    }
    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        for bio in bios {
            let mut events = self.events.lock().unwrap();
            if bio.op == Op::Flush {
                events.push(Event::Flush);
            }
            if let BioMemory::Write(segments) = &bio.memory {
                let mut at = bio.sector.to_bytes() as usize;
                for segment in segments {
                    events.push(Event::Write(at, segment.to_vec()));
                    at += segment.len();
                }
            }
            drop(events);
            self.inner.execute(std::slice::from_mut(bio))?;
        }
        Ok(())
    }
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

/// From when until when a file must read back as `content`, in numbers of events.
struct Promise {
    file: usize,
    content: Vec<u8>,
    from: usize,
    until: usize,
}

const FILES: usize = 5;

struct World {
    recorder: Arc<Recorder>,
    volume: Arc<Volume>,
    inodes: Vec<Arc<Inode>>,
    contents: Vec<Vec<u8>>,
    promises: Vec<Promise>,
}

impl World {
    fn now(&self) -> usize {
        self.recorder.events.lock().unwrap().len()
    }

    /// The file is about to change: what was promised ends here.
    fn end_promise(&mut self, file: usize) {
        let now = self.now();
        for promise in self.promises.iter_mut().filter(|promise| promise.file == file) {
            promise.until = promise.until.min(now);
        }
    }

    fn step(&mut self, random: u64) {
        let file = (random >> 8) as usize % FILES;
        let block = self.volume.block_size().bytes() as usize;
        match random % 7 {
            0..=2 => {
                self.end_promise(file);
                let at = (random >> 20) as usize % 60;
                let blocks = 1 + (random >> 30) as usize % 300;
                let content = pattern(random, blocks * block);
                let old = &mut self.contents[file];
                old.resize(old.len().max((at + blocks) * block), 0);
                old[at * block..(at + blocks) * block].copy_from_slice(&content);
                let size = Some(((at + blocks) * block) as u64);
                write_blocks(&self.volume, &self.inodes[file], at as u64, &content, size).unwrap();
            }
            3 => {
                self.end_promise(file);
                let blocks = (random >> 20) as usize % 40;
                self.contents[file].resize(blocks * block, 0);
                self.volume.files.truncate(&self.inodes[file], (blocks * block) as u64).unwrap();
            }
            4 => {
                self.end_promise(file);
                let at = (random >> 20) as usize % 60;
                let content = &mut self.contents[file];
                let end = content.len().min((at + 20) * block);
                if at * block < end {
                    content[at * block..end].fill(0);
                }
                self.volume.files.punch(&self.inodes[file], FileBlock(at as u64), 20).unwrap();
            }
            5 => {
                self.volume.sync_inode(&self.inodes[file], SyncKind::Data).unwrap();
                self.promise(file);
            }
            _ => {
                self.volume.sync().unwrap();
                (0..FILES).for_each(|file| self.promise(file));
            }
        }
    }

    fn promise(&mut self, file: usize) {
        let (content, from) = (self.contents[file].clone(), self.now());
        self.promises.push(Promise { file, content, from, until: usize::MAX });
    }
}

fn crash_everywhere(arguments: &str, seed: u64) {
    let bench = Bench::new();
    let source = bench.path("source");
    std::fs::create_dir(&source).unwrap();
    (0..FILES).for_each(|file| std::fs::write(source.join(format!("f{file}")), b"").unwrap());
    // So small that freed blocks are soon needed again.
    let image = bench.image(&format!("{arguments} -d {}", source.display()), "3M");
    let start = std::fs::read(&image).unwrap();
    let numbers: Vec<_> = (0..FILES).map(|file| inode_of(&image, &format!("f{file}"))).collect();
    let recorder = Arc::new(Recorder { inner: MemoryDevice::new(start.clone()), events: Mutex::default() });
    let volume = Volume::open(recorder.clone(), VolumeOptions::default()).unwrap();
    let inodes = numbers.iter().map(|number| volume.inodes.get(*number).unwrap()).collect();
    let contents = vec![Vec::new(); FILES];
    let mut world = World { recorder, volume, inodes, contents, promises: Vec::new() };
    let mut random = seed;
    for _ in 0..70 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        world.step(random >> 12);
    }
    let events = std::mem::take(&mut *world.recorder.events.lock().unwrap());
    let mut durable = start;
    let mut begin = 0;
    let mut points = 0;
    for (index, event) in events.iter().enumerate() {
        if !matches!(event, Event::Flush) {
            continue;
        }
        // Everything before the last flush, and some of what came between that and this one.
        for choice in [0, 0x5555_5555_5555_5555, random, u64::MAX] {
            let mut image = durable.clone();
            for (place, event) in events[begin..index].iter().enumerate() {
                if let Event::Write(at, bytes) = event
                    && choice.rotate_right(place as u32 % 64) & 1 == 1
                {
                    image[*at..*at + bytes.len()].copy_from_slice(bytes);
                }
            }
            check(&bench, &image, &numbers, &world.promises, begin, index);
            points += 1;
        }
        for event in &events[begin..index] {
            if let Event::Write(at, bytes) = event {
                durable[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
        }
        begin = index + 1;
    }
    assert!(points > 40, "only {points} crashes");
}

/// Promises that were made before the crash's flush and not ended before the crash must hold.
fn check(
    bench: &Bench,
    image: &[u8],
    numbers: &[diorite_ext::InodeNumber],
    promises: &[Promise],
    flushed: usize,
    crash: usize,
) {
    let path = bench.path("crashed");
    std::fs::write(&path, image).unwrap();
    let (code, output) = run("e2fsck", &["-fy", &path.to_string_lossy()]);
    assert!(code <= 1, "e2fsck: {output}");
    // Freed blocks were not given out again while something on the disk still pointed to them (ARCHITECTURE invariant 5).
    assert!(!output.contains("ultiply-claimed"), "{output}");
    let volume = Volume::open(
        MemoryDevice::new(std::fs::read(&path).unwrap()),
        VolumeOptions { access: diorite_ext::Access::ReadOnly, ..VolumeOptions::default() },
    )
    .unwrap();
    for promise in promises.iter().filter(|promise| promise.from <= flushed && promise.until >= crash) {
        let inode = volume.inodes.get(numbers[promise.file]).unwrap();
        let content = read_file(&volume, &inode);
        let bad = || content.iter().zip(&promise.content).position(|(a, b)| a != b);
        let (len, wanted) = (content.len(), promise.content.len());
        assert!(
            content == promise.content,
            "file {} after a crash before event {crash}: {len} bytes of {wanted}, first difference {:?}\n{output}",
            promise.file,
            bad()
        );
    }
}

#[test]
fn synced_files_survive_every_crash_without_a_journal() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    for seed in 1..3 {
        crash_everywhere("-t ext2 -b 1024 -m 0", seed);
    }
    crash_everywhere("-t ext4 -O ^has_journal -b 1024 -m 0", 9);
}
