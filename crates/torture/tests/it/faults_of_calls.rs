//! An error of the device at every transfer of a workload that uses views, queues, and calls that do not wait or leave no page
//! in the cache, with more dirty pages than the cache keeps: the call that needs the transfer reports it, every kind of read shows the
//! written data, nothing stays pinned or claimed, and failed writebacks reach the device when it works again (ARCHITECTURE
//! invariants 2 and 9).

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use diorite::check::{CheckOptions, check};
use diorite::mkfs::mkfs;
use diorite::{
    AlignedBuf, BlockDevice, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions, IoFlags,
};
use diorite_sim::crash::RecordingDevice;
use diorite_sim::faults::{Effect, Fault};
use diorite_sim::{Simulation, WorldOptions};
use diorite_torture::disk::{disk, marked};
use diorite_torture::formats::Format;

const PAGE: usize = 4096;
const BYTES: usize = 16 * PAGE;
/// Of another file: more than may be dirty, and more than the cache has.
const OTHER: usize = 40 * PAGE;
const OTHER_ALL: usize = 80 * PAGE;
const STEPS: u8 = 52;

type Outcome = Result<(), ErrorKind>;

struct World {
    disk: Arc<RecordingDevice>,
    filesystem: Filesystem,
    direct: File,
    cached: File,
    other: File,
    /// What each byte may be: what it was, and what a call that failed was to make of it.
    old: Vec<u8>,
    new: Vec<u8>,
    /// What the other file has, if no write of it failed.
    other_value: Option<u8>,
    /// What the file was to be since it was durable.
    since_flush: Vec<Vec<u8>>,
}

fn memory(value: u8, len: usize) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(len, PAGE);
    memory.fill(value);
    memory
}

fn open(disk: &Arc<RecordingDevice>) -> Filesystem {
    let options = FilesystemOptions::new().cache_bytes(64 * PAGE).read_ahead_bytes(0);
    options.open_device(Arc::clone(disk) as Arc<dyn BlockDevice>).expect("open")
}

impl World {
    fn new(format: &Format) -> Self {
        let disk = disk(marked(format.megabytes << 20), true, 1);
        mkfs(&*disk, &format.options(1)).expect("mkfs");
        let filesystem = open(&disk);
        let open = |path, direct| {
            let options = filesystem.open_options().read(true).write(true).create(true);
            options.direct(direct).open(path).expect("open")
        };
        let (direct, cached) = (open("/file", DirectIo::Required), open("/file", DirectIo::Off));
        let other = open("/other", DirectIo::Off);
        direct.write_all_at(&memory(1, BYTES / 2), 0).expect("write");
        direct.set_len(BYTES as u64).expect("size");
        other.write_all_at(&memory(1, OTHER_ALL), 0).expect("write");
        filesystem.sync().expect("sync");
        let mut old = vec![1; BYTES / 2];
        old.resize(BYTES, 0);
        Self {
            disk,
            filesystem,
            direct,
            cached,
            other,
            new: old.clone(),
            other_value: Some(1),
            since_flush: vec![old.clone()],
            old,
        }
    }

    /// The call of this number.
    fn call(&mut self, step: u8) -> Outcome {
        let value = step + 2;
        let at = usize::from(step) * 3 % 14 * PAGE;
        let none = IoFlags::NONE;
        match step % 13 {
            0 => self.write(&self.direct.clone(), at, &memory(value, 2 * PAGE), none),
            1 => self.look(),
            2 => self.write(&self.cached.clone(), at + 500, &[value; 4000], none),
            3 => self.write(&self.cached.clone(), at + 100, &[value; 3000], IoFlags::DONTCACHE),
            4 => self.write_other(value),
            5 => self.read(&self.direct.clone(), none),
            6 => self.write(&self.cached.clone(), at + 7, &[value; 50], IoFlags::NOWAIT),
            7 => self.write(&self.cached.clone(), at + 50, &[value; 5000], none),
            // Everything that is dirty is old enough to be written back.
            8 => {
                diorite_block::sync::sleep(Duration::from_secs(7));
                Ok(())
            }
            9 => self.queue(at, value),
            10 => self.read_other(),
            11 => self.read(&self.cached.clone(), IoFlags::DONTCACHE),
            _ => {
                self.cached.sync_data().map_err(|error| error.kind())?;
                self.since_flush = vec![self.old.clone()];
                Ok(())
            }
        }
    }

    fn note(&mut self, at: usize, data: &[u8]) {
        self.new[at..at + data.len()].copy_from_slice(data);
        self.since_flush.push(self.new.clone());
    }

    /// What succeeded is there.
    fn settle<T>(&mut self, result: diorite::Result<T>) -> Outcome {
        result.map_err(|error| error.kind())?;
        self.old.clone_from(&self.new);
        Ok(())
    }

    fn write(&mut self, file: &File, at: usize, data: &[u8], flags: IoFlags) -> Outcome {
        self.note(at, data);
        let written = file.write_with(&[IoSlice::new(data)], at as u64, flags);
        match self.settle(written) {
            Err(ErrorKind::WouldBlock) => {
                self.new.clone_from(&self.old);
                Ok(())
            }
            result => result,
        }
    }

    fn read(&mut self, file: &File, flags: IoFlags) -> Outcome {
        let mut found = memory(0, BYTES);
        let got = file.read_with(&mut [IoSliceMut::new(&mut found)], 0, flags);
        got.map_err(|error| error.kind())?;
        self.judge(&found, "a read");
        Ok(())
    }

    fn write_other(&mut self, value: u8) -> Outcome {
        self.other_value = None;
        for at in [0, OTHER] {
            self.other.write_all_at(&vec![value; OTHER], at as u64).map_err(|error| error.kind())?;
        }
        self.other_value = Some(value);
        Ok(())
    }

    fn read_other(&mut self) -> Outcome {
        let mut found = vec![0; OTHER_ALL];
        self.other.read_exact_at(&mut found, 0).map_err(|error| error.kind())?;
        let is_right = self.other_value.is_none_or(|value| found.iter().all(|byte| *byte == value));
        assert!(is_right, "the other file has what was written");
        Ok(())
    }

    fn queue(&mut self, at: usize, value: u8) -> Outcome {
        self.note(at, &[value; PAGE]);
        let mut queue = DirectQueue::new(1);
        if let Err(refused) = queue.write(&self.direct, at as u64, memory(value, PAGE), PAGE, 0) {
            return self.settle::<()>(Err(refused.error));
        }
        let result = queue.next_finished().expect("reap").expect("one").result;
        self.settle(result)
    }

    /// A snapshot view of all.
    fn look(&mut self) -> Outcome {
        let mut found = Vec::new();
        self.cached
            .view(0, BYTES, &mut |piece| found.extend_from_slice(piece))
            .map_err(|error| error.kind())?;
        self.judge(&found, "a view");
        Ok(())
    }

    fn judge(&self, found: &[u8], what: &str) {
        for (at, byte) in found.iter().enumerate() {
            let (old, new) = (self.old[at], self.new[at]);
            assert!(*byte == old || *byte == new, "{what}: byte {at} is {byte}, neither {old} nor {new}");
        }
    }

    /// What the device or the cache can show is right.
    fn judge_what_is_readable(&mut self) {
        let mut found = memory(0, BYTES);
        if self.direct.read_at(&mut found, 0).is_ok() {
            self.judge(&found, "a direct read");
        }
        if self.cached.read_exact_at(&mut found, 0).is_ok() {
            self.judge(&found, "a cached read");
        }
    }

    /// The device works: every way to read shows the same, each byte old or new.
    fn agree(&mut self) {
        let mut found = memory(0, BYTES);
        self.direct.read_exact_at(&mut found, 0).expect("the device works");
        self.judge(&found, "a direct read");
        let mut cached = vec![0; BYTES];
        self.cached.read_exact_at(&mut cached, 0).expect("read");
        assert!(cached[..] == found[..], "the cache has what direct reads find");
        self.read_other().expect("read");
        self.old.copy_from_slice(&found);
        self.new.copy_from_slice(&found);
    }

    /// All steps: those after the one that failed find a device that works.
    fn work(&mut self) {
        let mut has_failed = false;
        for step in 0..STEPS {
            let Err(kind) = self.call(step) else { continue };
            assert!(matches!(kind, ErrorKind::Io | ErrorKind::ReadOnly), "step {step}: {kind:?}");
            self.judge_what_is_readable();
            if self.filesystem.read_only_reason().is_some() {
                return;
            }
            assert!(!has_failed, "step {step} failed on a device that works");
            has_failed = true;
            self.disk.set_faults([]);
            self.agree();
        }
    }

    /// Close, open again, and look.
    fn end(mut self, has_journal: bool) {
        let is_writable = self.filesystem.read_only_reason().is_none();
        if is_writable {
            self.agree();
            self.filesystem.sync().expect("the device works");
            self.agree();
        }
        let World { disk, filesystem, direct, cached, other, old, since_flush, .. } = self;
        let free = filesystem.statfs().blocks_available;
        drop((direct, cached, other));
        let closed = filesystem.close();
        assert!(closed.is_ok() || !is_writable, "{closed:?}");
        let filesystem = open(&disk);
        assert!(!is_writable || filesystem.statfs().blocks_available == free, "no block stays claimed");
        let found = filesystem.read("/file").expect("read");
        if is_writable {
            assert!(found == old, "all that was written is durable");
        }
        for (at, byte) in found.iter().enumerate() {
            let is_allowed = since_flush.iter().any(|state| state[at] == *byte);
            assert!(is_allowed, "byte {at} is {byte} after a replay");
        }
        filesystem.close().expect("close");
        if !is_writable && !has_journal {
            return;
        }
        let report = check(&*disk, &CheckOptions::default(), &mut |_| {}).expect("check");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// How many transfers the workload has; with a fault at one of them, what becomes of it.
fn run(format: Format, fault: Option<Fault>) -> u64 {
    let run = move || {
        let mut world = World::new(&format);
        world.disk.set_faults(fault);
        world.work();
        let transfers = world.disk.transfers();
        world.disk.set_faults([]);
        world.end(format.journal);
        transfers
    };
    Simulation::run_one(WorldOptions::default(), run).expect("no deadlock").0
}

fn an_error_at_any_transfer(format: &str) {
    let format = Format::by_name(format).expect("format");
    let transfers = run(format, None);
    assert!(transfers > 40, "{transfers}");
    for number in 0..transfers {
        let once = Fault::any(Effect::Error(5)).after(number);
        let lasting = once.times(u64::MAX);
        for fault in [once, lasting, lasting.sparing_reads()] {
            println!("{}, {fault:?} of {transfers}", format.name);
            run(format, Some(fault));
        }
    }
}

#[test]
fn an_error_at_any_transfer_of_ext4_loses_nothing_that_it_did_not_report() {
    an_error_at_any_transfer("ext4-4k");
}

#[test]
fn an_error_at_any_transfer_of_ext3_loses_nothing_that_it_did_not_report() {
    an_error_at_any_transfer("ext3-1k");
}

#[test]
fn an_error_at_any_transfer_of_ext2_loses_nothing_that_it_did_not_report() {
    an_error_at_any_transfer("ext2-4k");
}
