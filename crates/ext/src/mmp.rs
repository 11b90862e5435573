//! Multi-mount protection (MMP): a block on the volume names the host that has it open, and is renewed until the volume is closed.
//!
//! Where it sits: acquired before the first write to the volume, the journal's replay included, and released at the end.
//! Like the crate it has no thread: [`Volume::mmp_tick`] is called by an owner of a timer, and every transaction that
//! begins renews the block if that is due.
//!
//! States: free (`SEQUENCE_CLEAN`) -> ours (a sequence that grows with every update) -> free. A sequence that does not grow for twice the check
//! interval and a second belongs to a dead host, as in the kernel.
//!
//! Invariants: the block is written only if it still has the content that we wrote last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diorite_block::sync::{Mutex, Rank, now, sleep};
use diorite_block::{BioFlags, BlockDevice, Process};

use crate::layout::mmp::{
    CHECK_INTERVAL_MAX, CHECK_INTERVAL_MIN, DEVICE_MAX, MmpBlock, NODE_MAX, SEQUENCE_CLEAN, SEQUENCE_FSCK,
    SEQUENCE_MAX,
};
use crate::layout::{ChecksumSeed, Superblock};
use crate::memory::BlockMemory;
use crate::types::{MmpWait, VolumeOptions};
use crate::{Corrupt, Error, Result};

/// How often the caller's watch is called during a wait.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Our entry in the block.
#[derive(Debug)]
pub(crate) struct Mmp {
    place: MmpLocation,
    interval: Duration,
    /// The entry as written last; `None` when it was given back or lost.
    entry: Mutex<Option<MmpBlock>>,
    /// When that was, in nanoseconds of [`now`].
    written_ns: AtomicU64,
    process: Process,
}

/// Where the block is.
#[derive(Debug)]
struct MmpLocation {
    device: Arc<dyn BlockDevice>,
    offset: u64,
    len: usize,
    block: u64,
    seed: Option<ChecksumSeed>,
}

impl MmpLocation {
    fn read(&self) -> Result<(BlockMemory, MmpBlock)> {
        let mut memory = BlockMemory::zeroed(self.len);
        self.device.read_bytes(self.offset, &mut memory)?;
        let entry = MmpBlock::parse(&memory, self.seed);
        let corrupt = |what| Corrupt::Mmp { block: crate::FsBlock(self.block), what };
        Ok((memory, entry.map_err(corrupt)?))
    }

    fn write(&self, memory: &mut BlockMemory, entry: &MmpBlock) -> Result<()> {
        entry.write_into(memory, self.seed);
        Ok(self.device.write_bytes(self.offset, memory, BioFlags::META | BioFlags::SYNC)?)
    }

    /// Put `previous` back where our own entry is still there.
    fn restore(&self, ours: &MmpBlock, previous: &MmpBlock) -> Result<()> {
        let (mut memory, found) = self.read()?;
        if found == *ours { self.write(&mut memory, previous) } else { Ok(()) }
    }
}

impl Mmp {
    /// Take the volume for this host; waits until it is clear whether another one has it. `None` on volumes without the feature.
    pub(crate) fn acquire(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        options: &VolumeOptions,
    ) -> Result<Option<Self>> {
        let Some(block) = superblock.mmp_block() else { return Ok(None) };
        let size = superblock.block_size();
        let seed = superblock.checksum_seed();
        let place = MmpLocation {
            device: Arc::clone(device),
            offset: size.address_of(block),
            len: size.bytes() as usize,
            block: block.0,
            seed: superblock.features().metadata_csum().then_some(seed),
        };
        let interval = superblock.mmp_update_interval();
        let (mut memory, found) = place.read()?;
        let previous = found.clone();
        let wait = match found.sequence {
            SEQUENCE_CLEAN => Duration::ZERO,
            SEQUENCE_FSCK => return Err(in_use(&found)),
            sequence => {
                let wait = wait_for(&found, interval);
                // The same time again after our own mark is written.
                pause(wait, &found, (Duration::ZERO, wait * 2), options)?;
                let (again, entry) = place.read()?;
                if entry.sequence != sequence {
                    return Err(in_use(&entry));
                }
                memory = again;
                wait
            }
        };
        let entry = MmpBlock {
            sequence: new_sequence(options),
            time: options.clock.now().seconds.max(0) as u64,
            node: field(&options.host_name, NODE_MAX),
            device: field(device.name().rsplit('/').next().unwrap_or_default(), DEVICE_MAX),
            check_interval: interval.saturating_mul(2).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX),
        };
        place.write(&mut memory, &entry)?;
        let written = now();
        if let Err(error) = pause(wait, &previous, (wait, wait * 2), options) {
            // The wait's own error counts. An entry of ours that stays is as old as any other.
            let _ = place.restore(&entry, &previous);
            return Err(error);
        }
        let (_, found) = place.read()?;
        if found != entry {
            return Err(in_use(&found));
        }
        Ok(Some(Self {
            place,
            interval: Duration::from_secs(interval.into()),
            entry: Mutex::ranked(Rank::Mmp, Some(entry)),
            written_ns: AtomicU64::new(written.as_nanos() as u64),
            process: Process::current(),
        }))
    }

    /// Time of the next update of the block.
    pub(crate) fn due(&self) -> Duration {
        Duration::from_nanos(self.written_ns.load(Ordering::Acquire)) + self.interval
    }

    /// Renew our entry, if it is still there.
    pub(crate) fn renew(&self, at: Duration, time: u64) -> Result<()> {
        let mut held = self.entry.lock();
        let Some(entry) = held.as_mut().filter(|_| self.due() <= at) else { return Ok(()) };
        let (mut memory, found) = self.place.read()?;
        if found != *entry {
            *held = None;
            return Err(in_use(&found));
        }
        entry.sequence = if entry.sequence >= SEQUENCE_MAX { 1 } else { entry.sequence + 1 };
        entry.time = time;
        self.place.write(&mut memory, entry)?;
        self.written_ns.store(at.as_nanos() as u64, Ordering::Release);
        Ok(())
    }

    /// The volume is no longer open.
    pub(crate) fn release(&self) -> Result<()> {
        let Some(entry) = self.entry.lock().take() else { return Ok(()) };
        let (mut memory, found) = self.place.read()?;
        if found != entry {
            return Err(in_use(&found));
        }
        self.place.write(&mut memory, &MmpBlock { sequence: SEQUENCE_CLEAN, ..entry })
    }
}

impl Drop for Mmp {
    /// A user that ends without a close writes nothing more either. In a forked child the mark is the parent's.
    fn drop(&mut self) {
        if self.process.is_current() {
            let _ = self.release();
        }
    }
}

/// Sleep for `time`, of a wait that has lasted for `elapsed` of `total` so far; ends early if the caller's watch says so.
fn pause(
    time: Duration,
    found: &MmpBlock,
    (elapsed, total): (Duration, Duration),
    options: &VolumeOptions,
) -> Result<()> {
    let start = now();
    loop {
        let passed = now().saturating_sub(start);
        if passed >= time {
            return Ok(());
        }
        if let Some(watch) = &options.mmp_watch {
            let wait = MmpWait {
                node: String::from_utf8_lossy(&found.node).into_owned(),
                device: String::from_utf8_lossy(&found.device).into_owned(),
                time: found.time,
                total,
                elapsed: elapsed + passed,
            };
            if watch.is_to_stop(&wait) {
                return Err(Error::Interrupted);
            }
        }
        sleep(time.saturating_sub(passed).min(WATCH_INTERVAL));
    }
}

/// How long an entry must stay unchanged before its host counts as dead.
fn wait_for(found: &MmpBlock, interval: u16) -> Duration {
    let check = found.check_interval.min(CHECK_INTERVAL_MAX).max(interval).max(CHECK_INTERVAL_MIN);
    let seconds = u64::from(check);
    Duration::from_secs((seconds * 2 + 1).min(seconds + 60))
}

fn new_sequence(options: &VolumeOptions) -> u32 {
    let mut bytes = [0; 4];
    if getrandom::fill(&mut bytes).is_err() {
        let now = options.clock.now();
        bytes = (now.seconds as u32 ^ now.nanoseconds.wrapping_mul(0x9e37_79b1)).to_le_bytes();
    }
    u32::from_le_bytes(bytes) % SEQUENCE_MAX + 1
}

/// A name as the block can hold it.
fn field(name: &str, most: usize) -> Vec<u8> {
    name.bytes().take_while(|byte| *byte != 0).take(most).collect()
}

fn in_use(found: &MmpBlock) -> Error {
    Error::InUse {
        by_check: found.sequence == SEQUENCE_FSCK,
        node: String::from_utf8_lossy(&found.node).into_owned(),
        device: String::from_utf8_lossy(&found.device).into_owned(),
        time: found.time,
    }
}
