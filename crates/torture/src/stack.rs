//! The whole stack in a simulated world: queues, streams, buffered and synchronous I/O, views, names and syncs of several threads on one
//! volume, under every scheduler, in shuffled order. Nothing stops, nothing waits for long, each byte is that of the model.
//!
//! A case is a number; it decides the disk, the scheduler, the volume and the calls of each thread.

use std::sync::Arc;
use std::time::Duration;

use diorite::check::{CheckOptions, check};
use diorite::mkfs::mkfs;
use diorite::{
    AlignedBuf, DirectIo, DirectQueue, DirectReader, Filesystem, FilesystemOptions, SchedulerKind,
};
use diorite_block::{BlockDevice, IoOwner, IoPriority, TaskId, sync};
use diorite_sim::SimDisk;

use crate::access::{Outcome, in_threads, simulate, tell};
use crate::formats::Format;
use crate::model;
use crate::random::{Random, stamp_byte, stamp_bytes};

const SCHEDULERS: [&str; 6] =
    ["none", "deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"];
const FORMATS: [&str; 6] =
    ["ext2-1k", "ext3-4k", "ext4-1k", "ext4-4k", "ext4-4k-bigalloc", "ext4-4k-nojournal"];
/// Size of the volume: all files of all threads find space.
const VOLUME_BYTES: u64 = 64 << 20;
/// The file that the stream reads.
const STREAM_BYTES: u64 = 2 << 20;
/// Blocks of the file that the queue writes.
const QUEUE_BLOCKS: u64 = 256;
const BLOCK: usize = 4096;
/// No call may take longer: a disk of 2009 does some hundred transfers a second, and a sync may have to write a cache of some MiB.
const LONGEST: Duration = Duration::from_secs(20);

/// The objects of a thread.
#[derive(Clone)]
struct Actor {
    filesystem: Filesystem,
    format: Format,
    random: Random,
    number: u64,
    calls: u64,
}

/// Make a call, which must not take too long.
fn timed<T>(what: &str, call: impl FnOnce() -> T) -> Outcome<T> {
    let begin = sync::now();
    let done = call();
    let took = sync::now().saturating_sub(begin);
    if took > LONGEST { Err(format!("{what} took {took:?}")) } else { Ok(done) }
}

impl Actor {
    /// Every way in, against a vector of bytes.
    fn model(mut self) -> Outcome {
        let path = format!("/model-{}", self.number);
        let random = self.random.fork();
        model::run_beside_others(
            &self.filesystem,
            &self.format,
            path,
            random,
            self.number << 40,
            self.calls as usize,
        )
    }

    /// Reads a file again and again in windows of 128 KiB.
    fn stream(mut self) -> Outcome {
        let options = self.filesystem.open_options().read(true);
        let direct = tell(options.clone().direct(DirectIo::Required).open("/stream"), "open")?;
        let cached = tell(options.open("/stream"), "open")?;
        for _ in 0..=self.calls / 40 {
            let mut offset = 0;
            let mut compare = |window: &[u8]| {
                let is_right = window.iter().zip(offset..).all(|(byte, at)| *byte == stamp_byte(1, at));
                offset += window.len() as u64;
                if is_right { Ok(()) } else { Err(format!("the stream is wrong before {offset}")) }
            };
            if self.random.one_in(2) {
                let mut reader = tell(DirectReader::new(direct.clone(), 0, 128 << 10, 4), "stream")?;
                while let Some(window) = tell(timed("a window", || reader.next_chunk())?, "stream")? {
                    compare(window)?;
                }
            } else {
                let mut window = vec![0; 128 << 10];
                for at in (0..STREAM_BYTES).step_by(window.len()) {
                    tell(timed("a window", || cached.read_at(&mut window, at))?, "read")?;
                    compare(&window)?;
                }
                tell(cached.drop_cached(0, u64::MAX), "drop")?;
            }
            sync::sleep(Duration::from_micros(self.random.below(3000)));
        }
        Ok(())
    }

    /// Keeps up to `depth` writes in flight, and calls the volume in between, for metadata that it must read or write.
    fn queue(mut self, depth: u32) -> Outcome {
        let path = format!("/queue-{}", self.number);
        let options = self.filesystem.open_options().read(true).write(true).create(true);
        let file = tell(options.direct(DirectIo::Required).open(&path), "open")?;
        let mut model = vec![0u64; QUEUE_BLOCKS as usize];
        let mut queue: DirectQueue<AlignedBuf> = DirectQueue::new(depth);
        let (mut done, mut stamp) = (Vec::new(), self.number << 40);
        for _ in 0..self.calls {
            while queue.in_flight() < depth {
                let block = self.random.below(QUEUE_BLOCKS);
                let mut memory = AlignedBuf::zeroed(BLOCK, 4096);
                stamp += 1;
                stamp_bytes(stamp, block * BLOCK as u64, &mut memory);
                let submit =
                    || queue.write(&file, block * BLOCK as u64, memory, BLOCK, block).map_err(Box::new);
                timed("submit", submit)?.map_err(|refused| format!("submit: {refused}"))?;
                model[block as usize] = stamp;
                if self.random.one_in(8) {
                    let what = self.random.below(3);
                    tell(timed("names", || self.names(what))?, "names")?;
                }
            }
            if self.random.one_in(8) {
                tell(queue.issue(), "issue")?;
                sync::sleep(Duration::from_millis(self.random.below(50)));
            }
            let wait_for = self.random.within(1..u64::from(depth) + 1) as u32;
            tell(timed("reap", || queue.reap(wait_for, &mut done))?, "reap")?;
            for finished in done.drain(..) {
                tell(finished.result, "queued write")?;
            }
        }
        if self.random.one_in(2) {
            // Remaining requests are waited for.
            drop(queue);
        } else {
            while queue.in_flight() > 0 {
                tell(queue.reap(1, &mut done), "reap")?;
            }
        }
        tell(timed("sync_data", || file.sync_data())?, "sync_data")?;
        let mut memory = AlignedBuf::zeroed(BLOCK, 4096);
        for (block, stamp) in model.iter().enumerate() {
            let offset = (block * BLOCK) as u64;
            let count = tell(file.read_at(&mut memory, offset), "read")?;
            let expected = |at: usize| if *stamp == 0 { 0 } else { stamp_byte(*stamp, offset + at as u64) };
            if let Some(at) = (0..count).find(|at| memory[*at] != expected(*at)) {
                return Err(format!("queue: byte {} is {:#x}", offset + at as u64, memory[at]));
            }
        }
        Ok(())
    }

    /// Something that needs metadata.
    fn names(&self, what: u64) -> diorite::Result<()> {
        let path = format!("/directory-{}", self.number);
        match what {
            0 => self.filesystem.metadata("/stream").map(drop),
            1 => match self.filesystem.create_dir(&path) {
                Err(error) if error.kind() == diorite::ErrorKind::AlreadyExists => {
                    self.filesystem.remove_dir(&path)
                }
                other => other,
            },
            _ => self.filesystem.read_dir("/").map(|entries| drop(entries.collect::<Vec<_>>())),
        }
    }

    /// Small files: made, synced, renamed, removed.
    fn small_files(mut self) -> Outcome {
        for call in 0..self.calls {
            let (path, other) = (format!("/small-{}", self.number), format!("/renamed-{}", self.number));
            let content = vec![call as u8 + 1; self.random.below(9000) as usize];
            tell(timed("write", || self.filesystem.write(&path, &content))?, "write")?;
            match self.random.below(4) {
                0 => {
                    let file = tell(self.filesystem.open_file(&path), "open")?;
                    tell(timed("sync_all", || file.sync_all())?, "sync_all")?;
                }
                1 => tell(timed("sync", || self.filesystem.sync())?, "sync")?,
                _ => {}
            }
            tell(self.filesystem.rename(&path, &other), "rename")?;
            if tell(timed("read", || self.filesystem.read(&other))?, "read")? != content {
                return Err("a small file is wrong".to_owned());
            }
            if self.random.one_in(2) {
                tell(self.filesystem.remove_file(&other), "remove")?;
            }
            sync::sleep(Duration::from_millis(self.random.below(200)));
        }
        Ok(())
    }
}

fn volume_on(disk: &Arc<SimDisk>, format: &Format, case: u64) -> Outcome {
    let mut options = format.options(case);
    options.size_bytes = Some(VOLUME_BYTES);
    options.inodes = Some(1024);
    mkfs(&**disk, &options).map_err(|error| format!("mkfs: {error}"))?;
    // Outside of a simulation nothing takes time.
    let device: Arc<dyn BlockDevice> = disk.clone();
    let filesystem = tell(FilesystemOptions::new().open_device(device), "open")?;
    let mut content = vec![0; STREAM_BYTES as usize];
    stamp_bytes(1, 0, &mut content);
    tell(filesystem.write("/stream", &content), "write")?;
    tell(filesystem.close(), "close")
}

/// Run one case: the number of calls, or an error.
pub fn run(case: u64, calls: u64) -> Outcome<u64> {
    let mut random = Random::new(case ^ 0x57ac);
    let (disk_name, scheduler) = (random.pick(&["sata-2009", "ssd"]), random.pick(&SCHEDULERS));
    let format = Format::by_name(random.pick(&FORMATS)).ok_or("no such format")?;
    let label = format!("case {case} ({}, {scheduler} on {disk_name})", format.name);
    let done = run_on(disk_name, scheduler, format, case, calls, random);
    done.map_err(|what| format!("{label}: {what}"))
}

fn run_on(
    disk_name: &str,
    scheduler: &str,
    format: Format,
    case: u64,
    calls: u64,
    mut random: Random,
) -> Outcome<u64> {
    let disk = SimDisk::named(disk_name).map_err(|error| error.to_string())?;
    volume_on(&disk, &format, case)?;
    let kind: SchedulerKind = scheduler.parse().map_err(|_| "no such scheduler")?;
    let options =
        FilesystemOptions::new().scheduler(kind).cache_bytes(random.pick(&[512 << 10, 2 << 20, 16 << 20]));
    let device: Arc<dyn BlockDevice> = disk.clone();
    let calls = simulate(case, move || {
        let done = threads(&options, device, format, calls, &mut random);
        // The volume's own threads end.
        sync::sleep(Duration::from_secs(100));
        done
    })??;
    let report = check(&*disk, &CheckOptions::default(), &mut |_| {}).map_err(|error| error.to_string())?;
    match report.problems.first() {
        Some(problem) => Err(format!("check finds: {problem}")),
        None => Ok(calls),
    }
}

type Body = fn(Actor) -> Outcome;

fn threads(
    options: &FilesystemOptions,
    device: Arc<dyn BlockDevice>,
    format: Format,
    calls: u64,
    random: &mut Random,
) -> Outcome<u64> {
    let filesystem = tell(options.open_device(device), "open")?;
    let bodies: [(&str, Body); 7] = [
        ("stream", Actor::stream),
        ("queue of 16", |actor| actor.queue(16)),
        ("queue of 64", |actor| actor.queue(64)),
        ("small files", Actor::small_files),
        ("model", Actor::model),
        ("second model", Actor::model),
        ("third model", Actor::model),
    ];
    let count = bodies.len() as u64;
    let actors = (1..).zip(bodies).map(|(number, (name, body))| {
        let priority = random.pick(&[4, 4, 7]);
        let owner = IoOwner { task: TaskId(number), priority: IoPriority::BestEffort(priority) };
        let actor = Actor { filesystem: filesystem.clone(), format, random: random.fork(), number, calls };
        let act = move || {
            let _guard = owner.enter();
            body(actor).map_err(|what| format!("{name}: {what}"))
        };
        (name, act)
    });
    let failures: Vec<String> = in_threads(actors)?.into_iter().filter_map(Result::err).collect();
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    tell(filesystem.close(), "close")?;
    Ok(calls * count)
}
