//! The six tests of the seeds' bonnie, on any [`Target`].
//!
//! Interface:
//! - Each test opens the file before the clock starts, and syncs it before the clock stops.
//! - [`Test::Rewrite`] and the reading tests use the file of an earlier test.
//! - Per-byte tests use a stream and the cache in every mode. Seeks use the mode of the block tests, so a row has one mode; in
//!   2001 they were buffered.

use std::collections::VecDeque;
use std::sync::Arc;

use diorite_block::sync::{Mutex, now, spawn};
use diorite_device::AlignedBuf;

use super::series::Sample;
use super::target::{Target, TargetCounts};
use super::{CHUNK_BYTES, Test};
use crate::error::Error;
use crate::host::{FileIo, Start, WorkFile};
use crate::measure::{Latencies, Snapshot};
use crate::watch::{Cancel, Observer};

/// Buffer size of a stream, as of C's `stdio` on a filesystem with blocks of 4 KiB.
const STREAM_BYTES: usize = 4096;
/// Bytes between two reports of progress.
const PROGRESS_BYTES: u64 = 4 << 20;

/// The seek test, with the defaults of the seeds' program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeking {
    /// Number of reads.
    pub seeks: u32,
    /// Number of threads.
    pub seekers: u32,
    /// One of this many reads is written back.
    pub update_every: u32,
}

impl Default for Seeking {
    fn default() -> Self {
        Self { seeks: 4000, seekers: 3, update_every: 10 }
    }
}

/// File and options of the tests.
#[derive(Debug)]
pub struct Workload<'a> {
    /// The file.
    pub target: &'a dyn Target,
    /// Path of the data in block tests.
    pub io: FileIo,
    /// Size of the file in bytes, a multiple of [`CHUNK_BYTES`].
    pub size: u64,
    /// The seek test.
    pub seeking: Seeking,
    /// Stops the tests.
    pub cancel: &'a Cancel,
}

/// Clocks and counters at the start of a test.
struct Meter {
    start: Snapshot,
    counts: Option<TargetCounts>,
    latencies: Latencies,
}

impl Workload<'_> {
    /// Run one test; returns its cost.
    pub fn run(&self, test: Test, observer: &dyn Observer) -> Result<Sample, Error> {
        let mut sample = match test {
            Test::Putc => self.putc(observer),
            Test::Rewrite => self.rewrite(observer),
            Test::BlockWrite => self.block_write(observer),
            Test::Getc => self.getc(observer),
            Test::BlockRead => self.block_read(observer),
            Test::Seeks => self.seeks(observer),
        }?;
        sample.memory_bytes = crate::measure::resident_bytes();
        Ok(sample)
    }

    fn meter(&self) -> Meter {
        Meter { counts: self.target.counts(), latencies: Latencies::default(), start: Snapshot::now() }
    }

    fn finish(&self, meter: Meter, test: Test, bytes: u64, operations: u64) -> Sample {
        let spent = meter.start.spent();
        let counts = self.target.counts().zip(meter.counts).map(|(now, then)| TargetCounts {
            bios: now.bios.saturating_sub(then.bios),
            bytes_copied: now.bytes_copied.saturating_sub(then.bytes_copied),
        });
        Sample { test, bytes, operations, spent, latencies: meter.latencies, counts, memory_bytes: 0 }
    }

    fn buffer(&self) -> Result<AlignedBuf, Error> {
        self.target.buffer(self.io, CHUNK_BYTES)
    }

    fn putc(&self, observer: &dyn Observer) -> Result<Sample, Error> {
        let file = self.target.open(FileIo::Buffered, Start::New)?;
        let meter = self.meter();
        let mut stream = [0; STREAM_BYTES];
        let (mut fill, mut offset) = (0, 0);
        for word in 0..self.size {
            stream[fill] = (word & 0x7f) as u8;
            fill += 1;
            if fill == STREAM_BYTES {
                file.write_all_at(&stream, offset)?;
                offset += STREAM_BYTES as u64;
                fill = 0;
                self.progress(offset, observer)?;
            }
        }
        file.write_all_at(&stream[..fill], offset)?;
        file.sync()?;
        drop(file);
        Ok(self.finish(meter, Test::Putc, self.size, self.size))
    }

    fn getc(&self, observer: &dyn Observer) -> Result<Sample, Error> {
        let file = self.target.open(FileIo::Buffered, Start::Existing)?;
        let meter = self.meter();
        let mut counts = [0u32; 256];
        let mut stream = [0; STREAM_BYTES];
        let mut offset = 0;
        loop {
            let fill = file.read_at(&mut stream, offset)?;
            for byte in &stream[..fill] {
                counts[usize::from(*std::hint::black_box(byte))] += 1;
            }
            offset += fill as u64;
            if fill < STREAM_BYTES {
                break;
            }
            self.progress(offset, observer)?;
        }
        std::hint::black_box(&counts);
        self.expect(offset)?;
        Ok(self.finish(meter, Test::Getc, offset, offset))
    }

    fn block_write(&self, observer: &dyn Observer) -> Result<Sample, Error> {
        let mut writer = self.target.writer(self.io)?;
        let mut meter = self.meter();
        for (index, offset) in self.chunk_offsets().enumerate() {
            let started = now();
            change_word(writer.buffer()?, index, 1);
            writer.submit()?;
            meter.latencies.record(now().saturating_sub(started));
            self.progress(offset, observer)?;
        }
        writer.finish()?;
        Ok(self.finish(meter, Test::BlockWrite, self.size, self.size / CHUNK_BYTES as u64))
    }

    fn rewrite(&self, observer: &dyn Observer) -> Result<Sample, Error> {
        let mut buffer = self.buffer()?;
        let chunk = &mut buffer[..CHUNK_BYTES];
        let file = self.target.open(self.io, Start::Existing)?;
        let mut meter = self.meter();
        let (mut offset, mut index) = (0, 0);
        loop {
            let started = now();
            let count = file.read_at(chunk, offset)?;
            if count < CHUNK_BYTES {
                break;
            }
            change_word(chunk, index, -1);
            file.write_all_at(chunk, offset)?;
            meter.latencies.record(now().saturating_sub(started));
            offset += CHUNK_BYTES as u64;
            index += 1;
            self.progress(offset, observer)?;
        }
        file.sync()?;
        drop(file);
        self.expect(offset)?;
        Ok(self.finish(meter, Test::Rewrite, offset, index as u64))
    }

    fn block_read(&self, observer: &dyn Observer) -> Result<Sample, Error> {
        let mut reader = self.target.reader(self.io)?;
        let mut meter = self.meter();
        let mut offset = 0;
        loop {
            let started = now();
            let Some(chunk) = reader.next_chunk()? else { break };
            meter.latencies.record(now().saturating_sub(started));
            std::hint::black_box(&chunk[(offset as usize >> 20) % chunk.len()]);
            offset += chunk.len() as u64;
            self.progress(offset, observer)?;
        }
        drop(reader);
        self.expect(offset)?;
        Ok(self.finish(meter, Test::BlockRead, offset, offset / CHUNK_BYTES as u64))
    }

    fn seeks(&self, observer: &dyn Observer) -> Result<Sample, Error> {
        let chunks = (self.size / CHUNK_BYTES as u64).max(1);
        let tickets = Arc::new(Mutex::new((0..self.seeking.seeks).collect::<VecDeque<u32>>()));
        let mut seekers = Vec::new();
        for number in 0..self.seeking.seekers.max(1) {
            seekers.push(Seeker {
                file: self.target.open(self.io, Start::Existing)?,
                buffer: self.buffer()?,
                random: fastrand::Rng::with_seed(number.into()),
                chunks,
                update_every: u64::from(self.seeking.update_every.max(1)),
                tickets: Arc::clone(&tickets),
                cancel: self.cancel.clone(),
            });
        }
        let results = Arc::new(Mutex::new(Vec::new()));
        let mut meter = self.meter();
        let mut threads = Vec::new();
        for seeker in seekers {
            let results = Arc::clone(&results);
            let thread = spawn("seeker", move || {
                let result = seeker.run();
                results.lock().push(result);
            });
            threads.push(thread.map_err(|source| Error::Memory { bytes: 0, source })?);
        }
        for thread in threads {
            thread.join();
        }
        let (mut bytes, mut operations) = (0, 0);
        for result in results.lock().drain(..) {
            let (latencies, seeker_bytes) = result?;
            operations += latencies.count();
            bytes += seeker_bytes;
            meter.latencies.add(&latencies);
        }
        self.cancel.check()?;
        observer.advance(operations * CHUNK_BYTES as u64);
        self.target.open(self.io, Start::Existing)?.sync()?;
        Ok(self.finish(meter, Test::Seeks, bytes, operations))
    }

    fn chunk_offsets(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.size / CHUNK_BYTES as u64).map(|index| index * CHUNK_BYTES as u64)
    }

    /// Report progress at intervals, and stop if cancelled.
    fn progress(&self, offset: u64, observer: &dyn Observer) -> Result<(), Error> {
        if offset > 0 && offset.is_multiple_of(PROGRESS_BYTES) {
            observer.advance(PROGRESS_BYTES);
            self.cancel.check()?;
        }
        Ok(())
    }

    fn expect(&self, returned: u64) -> Result<(), Error> {
        if returned == self.size {
            Ok(())
        } else {
            Err(Error::Truncated { object: self.target.name(), returned, expected: self.size })
        }
    }
}

/// Change a 4-byte word of a chunk, at another position each time.
fn change_word(chunk: &mut [u8], index: usize, by: i32) {
    let at = index % (chunk.len() / 4) * 4;
    if let Some(Ok(word)) = chunk.get_mut(at..at + 4).map(<&mut [u8; 4]>::try_from) {
        *word = i32::from_ne_bytes(*word).wrapping_add(by).to_ne_bytes();
    }
}

/// A thread of the seek test: takes tickets until none is left.
struct Seeker {
    file: Arc<dyn WorkFile>,
    buffer: AlignedBuf,
    /// The same numbers in every run, so that runs compare.
    random: fastrand::Rng,
    chunks: u64,
    update_every: u64,
    tickets: Arc<Mutex<VecDeque<u32>>>,
    cancel: Cancel,
}

impl Seeker {
    fn run(mut self) -> Result<(Latencies, u64), Error> {
        let mut latencies = Latencies::default();
        let mut bytes = 0;
        loop {
            let ticket = self.tickets.lock().pop_front();
            if ticket.is_none() || self.cancel.is_cancelled() {
                return Ok((latencies, bytes));
            }
            let offset = self.random.u64(..self.chunks) * CHUNK_BYTES as u64;
            let started = now();
            let chunk = &mut self.buffer[..CHUNK_BYTES];
            let count = self.file.read_at(chunk, offset)?;
            bytes += count as u64;
            if latencies.count().is_multiple_of(self.update_every) {
                change_word(&mut chunk[..count], self.random.usize(..CHUNK_BYTES / 4), -1);
                self.file.write_all_at(&chunk[..count], offset)?;
                bytes += count as u64;
            }
            latencies.record(now().saturating_sub(started));
        }
    }
}
