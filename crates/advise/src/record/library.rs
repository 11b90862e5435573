//! Recording by the preloaded library, in a file that the caller makes.
//!
//! The caller makes a memory file, calls [`prepare`], and sets [`diorite_uncached::shared::RECORD`] to its path. When the program has ended, or
//! at any time, [`collect`] reads the records. A record that another program damaged is counted, never trusted.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use diorite_uncached::shared::counters::Counters;
use diorite_uncached::shared::record::{
    CHUNK_BYTES, HEAD_BYTES, Kind, PATH_BYTES_MAX, Record, SLOT_BYTES, SLOTS, WORDS, flag, path_slots,
};

use super::builder::{Builder, Run, is_stored};
use crate::trace::{Action, Event, Source, Span, Trace};

/// The largest size of all records: 100 million calls. Memory is used as they are written.
const CHUNKS_MAX: u64 = 16 << 10;
/// Time of the library for a call, measured with `dd bs=4k`.
const COST_S_PER_CALL: f64 = 50e-9;
/// Calls of a stream are recorded together; this is the size of a stream's buffer.
const STREAM_CALL_BYTES: u64 = 4096;
/// No stream becomes more events.
const STREAM_CALLS_MAX: u64 = 100_000;

/// Prepare an empty file for records.
///
/// # Errors
/// The file cannot be written.
pub fn prepare(records: &File) -> io::Result<()> {
    records.set_len(HEAD_BYTES as u64 + CHUNKS_MAX * CHUNK_BYTES as u64)?;
    let mut head = [0; 24];
    head[8..16].copy_from_slice(&CHUNKS_MAX.to_ne_bytes());
    records.write_all_at(&head, 0)
}

/// The trace of the records, with the bytes that the counters know.
///
/// # Errors
/// The file cannot be read.
pub fn collect(records: &File, counters: &Counters, mut run: Run) -> io::Result<Trace> {
    use std::sync::atomic::Ordering::Relaxed;
    let mut head = [0; 24];
    records.read_exact_at(&mut head, 0)?;
    let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let chunks = word(0).min(CHUNKS_MAX);
    // Processes have the records mapped.
    run.memory_bytes = run.memory_bytes.saturating_sub(chunks * CHUNK_BYTES as u64);
    let mut reader = Reader::default();
    let mut memory = vec![0; CHUNK_BYTES];
    for chunk in 0..chunks {
        records.read_exact_at(&mut memory, HEAD_BYTES as u64 + chunk * CHUNK_BYTES as u64)?;
        reader.read_chunk(&slots_of(&memory));
    }
    let unseen = &mut reader.builder.unseen;
    unseen.lost = unseen.lost.saturating_add(word(16));
    unseen.read = counters.other_read.load(Relaxed);
    unseen.written = counters.other_written.load(Relaxed);
    unseen.mapped = counters.mapped.load(Relaxed);
    unseen.rings = counters.rings.load(Relaxed);
    let ticks = Ticks::of(&reader.moments);
    reader.builder.set_times(|event| {
        event.start_ns = ticks.moment_ns(event.start_ns);
        event.duration_ns = ticks.span_ns(event.duration_ns);
    });
    let cost_s = reader.builder.events_len() as f64 * COST_S_PER_CALL;
    Ok(reader.builder.build(run, Source::Library, cost_s))
}

fn slots_of(memory: &[u8]) -> Vec<[u64; WORDS]> {
    let mut slots = Vec::with_capacity(SLOTS);
    for raw in memory.chunks_exact(SLOT_BYTES) {
        let mut words = [0; WORDS];
        for (word, raw) in words.iter_mut().zip(raw.chunks_exact(8)) {
            *word = u64::from_ne_bytes(raw.try_into().unwrap_or_default());
        }
        slots.push(words);
    }
    slots
}

/// A file of the trace, and whether it belongs in it.
#[derive(Clone, Copy)]
enum Known {
    File(u32),
    /// Of `/proc`, for instance.
    Other,
}

#[derive(Default)]
struct Reader {
    builder: Builder,
    /// By process and number.
    numbers: HashMap<(u32, u32), Known>,
    /// By device and inode.
    files: HashMap<(u64, u64), u32>,
    /// Moments in ticks and in nanoseconds.
    moments: Vec<(u64, u64)>,
}

/// Nanoseconds of ticks: a line through the first and the last moment.
struct Ticks {
    begin: u64,
    begin_ns: u64,
    ns_per_tick: f64,
}

impl Ticks {
    fn of(moments: &[(u64, u64)]) -> Self {
        let first = moments.iter().min().copied().unwrap_or_default();
        let last = moments.iter().max().copied().unwrap_or_default();
        let ns_per_tick = match last.0 - first.0 {
            0 => 1.0,
            ticks => last.1.saturating_sub(first.1) as f64 / ticks as f64,
        };
        Self { begin: first.0, begin_ns: first.1, ns_per_tick }
    }

    fn moment_ns(&self, ticks: u64) -> u64 {
        let distance = (ticks.abs_diff(self.begin) as f64 * self.ns_per_tick) as u64;
        if ticks < self.begin {
            self.begin_ns.saturating_sub(distance)
        } else {
            self.begin_ns.saturating_add(distance)
        }
    }

    fn span_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

impl Reader {
    fn read_chunk(&mut self, slots: &[[u64; WORDS]]) {
        let Some(first) =
            slots.first().copied().and_then(Record::of).filter(|found| found.kind == Kind::Chunk)
        else {
            return;
        };
        let process = first.file;
        self.moments.push((first.start, first.offset));
        let used = usize::try_from(first.len).unwrap_or(SLOTS).min(slots.len());
        let mut at = 1;
        while at < used {
            let Some(record) = Record::of(slots[at]) else {
                at += 1;
                continue;
            };
            at += if record.kind == Kind::File {
                self.read_file(process, &record, &slots[at + 1..])
            } else {
                self.read_call(process, &record);
                1
            };
        }
    }

    /// Returns the number of slots.
    fn read_file(&mut self, process: u32, record: &Record, rest: &[[u64; WORDS]]) -> usize {
        let len = usize::try_from(record.len).unwrap_or(usize::MAX);
        let path_slots = path_slots(len.min(PATH_BYTES_MAX));
        let Some((identity, raw)) = rest.split_first().filter(|(_, raw)| raw.len() >= path_slots) else {
            self.builder.unseen.lost += 1;
            return 1;
        };
        self.moments.push((identity[3], identity[4]));
        let mut bytes: Vec<u8> =
            raw[..path_slots].iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.truncate(len);
        let path = String::from_utf8_lossy(&bytes).into_owned();
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned();
        let known = if is_stored(&path) {
            let file = self.number_of((identity[0], identity[1]), path, record.offset);
            self.call(process, record, file, Action::Open(record.offset), true);
            Known::File(file)
        } else {
            Known::Other
        };
        self.numbers.insert((process, record.file), known);
        2 + path_slots
    }

    /// A new file can have the inode of a removed one.
    fn number_of(&mut self, identity: (u64, u64), path: String, size: u64) -> u32 {
        if let Some(known) = self.files.get(&identity)
            && (size > 0 || self.builder.file(*known).path == path)
        {
            return *known;
        }
        let number = self.builder.add_file(path, size);
        self.files.insert(identity, number);
        number
    }

    fn read_call(&mut self, process: u32, record: &Record) {
        let file = match self.numbers.get(&(process, record.file)) {
            Some(Known::File(file)) => *file,
            Some(Known::Other) => return,
            None => {
                self.builder.unseen.lost += 1;
                return;
            }
        };
        let span = Span { offset: record.offset, len: record.len };
        match record.kind {
            Kind::Read => self.call(process, record, file, Action::Read(span), true),
            Kind::Write => {
                self.call(process, record, file, Action::Write(span), true);
                if record.flags & flag::SYNC != 0 {
                    let after = Record {
                        start: record.start.saturating_add(record.duration),
                        duration: 0,
                        ..*record
                    };
                    self.call(process, &after, file, Action::Sync, true);
                }
            }
            Kind::Sync => self.call(process, record, file, Action::Sync, true),
            Kind::Truncate => self.call(process, record, file, Action::Truncate(record.len), true),
            Kind::Stream => self.stream(process, record, file),
            Kind::Map => self.builder.map(file, record.len),
            Kind::Chunk | Kind::File => self.builder.unseen.lost += 1,
        }
    }

    /// The calls of a stream, evenly over the time in which it was open.
    fn stream(&mut self, process: u32, record: &Record, file: u32) {
        let size = STREAM_CALL_BYTES.max(record.len.div_ceil(STREAM_CALLS_MAX));
        let count = record.len.div_ceil(size);
        for index in 0..count {
            let offset = record.offset.saturating_add(index * size);
            let span = Span { offset, len: size.min(record.len - index * size) };
            let is_written = record.flags & flag::WRITTEN != 0;
            let action = if is_written { Action::Write(span) } else { Action::Read(span) };
            let passed = u128::from(record.duration) * u128::from(index) / u128::from(count);
            let start = record.start.saturating_add(passed as u64);
            self.call(process, &Record { start, duration: 0, ..*record }, file, action, false);
        }
    }

    fn call(&mut self, process: u32, record: &Record, file: u32, action: Action, is_timed: bool) {
        let thread = self.builder.thread(process, record.thread);
        self.builder.add(Event {
            start_ns: record.start,
            duration_ns: record.duration,
            file,
            thread,
            action,
            is_direct: record.flags & flag::DIRECT != 0,
            is_timed,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, file: u32, offset: u64, len: u64) -> Record {
        Record { start: 1000 + offset, offset, len, file, thread: 9, duration: 160, kind, flags: 0 }
    }

    /// Slots of a chunk, as the library writes them.
    fn chunk(process: u32, parts: &[Vec<[u64; WORDS]>]) -> Vec<[u64; WORDS]> {
        let all: Vec<_> = parts.iter().flatten().copied().collect();
        let mut slots = vec![record(Kind::Chunk, process, 0, all.len() as u64 + 1).words()];
        slots.extend(all);
        slots.resize(SLOTS, [0; WORDS]);
        slots
    }

    fn file(number: u32, inode: u64, size: u64, path: &str) -> Vec<[u64; WORDS]> {
        let mut bytes = path.as_bytes().to_vec();
        bytes.resize(path_slots(path.len()) * SLOT_BYTES, 0);
        let mut slots =
            vec![record(Kind::File, number, size, path.len() as u64).words(), [1, inode, 0, 0, 0]];
        slots.extend(slots_of(&bytes));
        slots
    }

    fn read(chunks: &[Vec<[u64; WORDS]>]) -> Trace {
        let mut reader = Reader::default();
        for slots in chunks {
            reader.read_chunk(slots);
        }
        reader.builder.build(Run::default(), Source::Library, 0.0)
    }

    #[test]
    fn files_are_known_by_inode_in_all_processes() {
        let long = format!("/data/{}", "x".repeat(90));
        let one = chunk(7, &[file(1, 50, 4096, &long), vec![record(Kind::Read, 1, 0, 4096).words()]]);
        let two = chunk(
            8,
            &[
                file(1, 60, 10, "/data/b (deleted)"),
                file(2, 50, 4096, "/data/renamed"),
                vec![record(Kind::Write, 2, 4096, 5).words(), record(Kind::Read, 1, 0, 3).words()],
            ],
        );
        let trace = read(&[one, two]);
        let paths: Vec<&str> = trace.files.iter().map(|file| &*file.path).collect();
        assert_eq!(paths, [&*long, "/data/b"]);
        let moved: Vec<_> = trace.events.iter().filter(|event| event.bytes() > 0).collect();
        assert_eq!(
            moved.iter().map(|event| (event.file, event.bytes())).collect::<Vec<_>>(),
            [(0, 4096), (1, 3), (0, 5)]
        );
        assert_ne!(moved[0].thread, moved[1].thread);
        assert_eq!(trace.unseen.lost, 0);
    }

    #[test]
    fn ticks_become_nanoseconds_by_the_first_and_the_last_moment() {
        let ticks = Ticks::of(&[(3000, 1500), (1000, 500), (9000, 4500)]);
        assert_eq!((ticks.moment_ns(2000), ticks.moment_ns(500), ticks.span_ns(100)), (1000, 250, 50));
        assert_eq!((ticks.moment_ns(0), ticks.moment_ns(1 << 40)), (0, 1 << 39));
        assert_eq!(Ticks::of(&[(7, 9)]).span_ns(16), 16);
        assert_eq!(Ticks::of(&[]).moment_ns(5), 5);
    }

    #[test]
    fn a_stream_becomes_calls_of_its_buffer() {
        let stream = Record { duration: 3200, flags: flag::WRITTEN, ..record(Kind::Stream, 1, 100, 10_000) };
        let trace = read(&[chunk(7, &[file(1, 50, 0, "/data/a"), vec![stream.words()]])]);
        let spans = trace.events.iter().filter_map(|event| match event.action {
            Action::Write(span) => Some((span.offset, span.len, event.is_timed)),
            _ => None,
        });
        assert_eq!(spans.collect::<Vec<_>>(), [(100, 4096, false), (4196, 4096, false), (8292, 1808, false)]);
        let huge = Record { len: u64::MAX, ..stream };
        assert!(read(&[chunk(7, &[file(1, 50, 0, "/data/a"), vec![huge.words()]])]).events.len() <= 100_002);
    }

    /// Chunks that a program overwrote, or that it did not finish.
    #[test]
    fn damaged_chunks_are_counted() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let mut slots =
                chunk(7, &[file(1, 50, 9, "/data/a"), vec![record(Kind::Read, 1, 0, 4).words(); 6]]);
            for _ in 0..8 {
                slots[random.usize(..14)][random.usize(..WORDS)] = random.u64(..) >> random.u32(..64);
            }
            read(&[slots]);
        }
        assert_eq!(read(&[chunk(7, &[vec![record(Kind::Read, 4, 0, 1).words()]])]).unseen.lost, 1);
        let unfinished = chunk(7, &[vec![[0; WORDS]; 3], file(1, 50, 9, "/data/a")]);
        assert_eq!(read(&[unfinished]).files.len(), 1);
    }
}
