//! A trace in a file.
//!
//! On disk, little-endian: [`MAGIC`]; the length of the description (u64) and the number of events (u64); the description as JSON; the
//! events, each in the five words of [`Record`], with times in nanoseconds; the CRC-32C of all of that (u32).

use std::path::{Path, PathBuf};

use diorite_uncached::shared::record::{Kind, Record, SLOT_BYTES, WORDS, flag};

use super::{Action, Event, Span, Trace};

const MAGIC: &[u8; 16] = b"diorite trace 1\n";
const HEAD_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;
/// A flag of stored events: not timed.
const UNTIMED: u8 = 64;

/// Why a trace cannot be stored or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A call of the system failed.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failed action.
        what: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{}: not a record of `diorite advise`: it begins with other bytes; make one with --record", .0.display())]
    Foreign(PathBuf),
    /// The content is damaged.
    #[error("{}: the record is damaged: {why}; record the program again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Store a trace.
///
/// # Errors
/// The file cannot be written.
pub fn store(trace: &Trace, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io { path: path.to_owned(), what: "write", source };
    let bytes = encode(trace).map_err(failed)?;
    #[expect(clippy::disallowed_methods, reason = "a report, not data I/O")]
    std::fs::write(path, bytes).map_err(failed)
}

/// Load a trace.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn load(path: &Path) -> Result<Trace, StoreError> {
    #[expect(clippy::disallowed_methods, reason = "a report, not data I/O")]
    let bytes = std::fs::read(path);
    let failed = |source| StoreError::Io { path: path.to_owned(), what: "read", source };
    decode(&bytes.map_err(failed)?).map_err(|wrong| match wrong {
        Wrong::Foreign => StoreError::Foreign(path.to_owned()),
        Wrong::Damaged(why) => StoreError::Damaged { path: path.to_owned(), why },
    })
}

fn encode(trace: &Trace) -> std::io::Result<Vec<u8>> {
    let description = serde_json::to_vec(trace)?;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + description.len() + trace.events.len() * SLOT_BYTES);
    bytes.extend(MAGIC);
    bytes.extend((description.len() as u64).to_le_bytes());
    bytes.extend((trace.events.len() as u64).to_le_bytes());
    bytes.extend(description);
    for event in &trace.events {
        record_of(event).words().iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(bytes)
}

#[derive(Debug, PartialEq)]
enum Wrong {
    Foreign,
    Damaged(String),
}

fn decode(bytes: &[u8]) -> Result<Trace, Wrong> {
    let damaged = |why: &str| Wrong::Damaged(why.to_owned());
    if !bytes.starts_with(MAGIC) {
        return Err(Wrong::Foreign);
    }
    let (content, checksum) = bytes
        .split_at_checked(bytes.len().saturating_sub(CHECKSUM_BYTES))
        .filter(|(content, _)| content.len() >= HEAD_BYTES)
        .ok_or_else(|| damaged("it ends in its head"))?;
    if crc32c::crc32c(content).to_le_bytes() != checksum {
        return Err(damaged("its checksum does not fit"));
    }
    let number = |at: usize| {
        let raw: [u8; 8] = content[at..at + 8].try_into().unwrap_or_default();
        usize::try_from(u64::from_le_bytes(raw)).unwrap_or(usize::MAX)
    };
    let (description_len, count) = (number(16), number(24));
    let (description, events) = content[HEAD_BYTES..]
        .split_at_checked(description_len)
        .ok_or_else(|| damaged("its description is longer than the file"))?;
    if count.checked_mul(SLOT_BYTES) != Some(events.len()) {
        return Err(Wrong::Damaged(format!("{count} events do not have {} bytes", events.len())));
    }
    let mut trace: Trace = serde_json::from_slice(description)
        .map_err(|error| Wrong::Damaged(format!("its description: {error}")))?;
    for (index, raw) in events.chunks_exact(SLOT_BYTES).enumerate() {
        let mut words = [0; WORDS];
        for (word, raw) in words.iter_mut().zip(raw.chunks_exact(8)) {
            *word = u64::from_le_bytes(raw.try_into().unwrap_or_default());
        }
        let event = Record::of(words).and_then(|record| event_of(&record));
        let event = event.ok_or_else(|| Wrong::Damaged(format!("event {index} has no known kind")))?;
        if event.file as usize >= trace.files.len() {
            return Err(Wrong::Damaged(format!(
                "event {index} is on file {} of {}",
                event.file,
                trace.files.len()
            )));
        }
        trace.events.push(event);
    }
    Ok(trace)
}

fn record_of(event: &Event) -> Record {
    let (kind, offset, len) = match event.action {
        Action::Open(size) => (Kind::File, size, 0),
        Action::Read(span) => (Kind::Read, span.offset, span.len),
        Action::Write(span) => (Kind::Write, span.offset, span.len),
        Action::Sync => (Kind::Sync, 0, 0),
        Action::Truncate(size) => (Kind::Truncate, 0, size),
    };
    Record {
        start: event.start_ns,
        offset,
        len,
        file: event.file,
        thread: event.thread,
        duration: event.duration_ns,
        kind,
        flags: if event.is_direct { flag::DIRECT } else { 0 } | if event.is_timed { 0 } else { UNTIMED },
    }
}

fn event_of(record: &Record) -> Option<Event> {
    let span = Span { offset: record.offset, len: record.len };
    let action = match record.kind {
        Kind::File => Action::Open(record.offset),
        Kind::Read => Action::Read(span),
        Kind::Write => Action::Write(span),
        Kind::Sync => Action::Sync,
        Kind::Truncate => Action::Truncate(record.len),
        Kind::Chunk | Kind::Stream | Kind::Map => return None,
    };
    Some(Event {
        start_ns: record.start,
        duration_ns: record.duration,
        file: record.file,
        thread: record.thread,
        action,
        is_direct: record.flags & flag::DIRECT != 0,
        is_timed: record.flags & UNTIMED == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Source, TracedFile, Unseen};
    use super::*;

    fn trace() -> Trace {
        let file = |path: &str, size| TracedFile { path: path.to_owned(), size, mapped: 7 };
        let event = |start_ns, action| Event {
            start_ns,
            duration_ns: 32,
            file: 1,
            thread: 3,
            action,
            is_direct: true,
            is_timed: start_ns > 9,
        };
        Trace {
            program: "dd if=a b\u{fffd}".to_owned(),
            source: Source::Strace,
            seconds: 1.5,
            cpu_s: Some(0.25),
            cost_s: 0.5,
            memory_bytes: 1 << 20,
            files: vec![file("/a", 10), file("/b \n", u64::MAX)],
            unseen: Unseen { read: 1, written: 2, mapped: 3, rings: 4, lost: 5 },
            events: vec![
                event(0, Action::Open(9)),
                event(10, Action::Read(Span { offset: 1 << 40, len: 5 })),
                event(u64::MAX, Action::Write(Span { offset: 0, len: u64::MAX })),
                event(12, Action::Sync),
                event(13, Action::Truncate(77)),
            ],
        }
    }

    #[test]
    fn a_stored_trace_is_the_same_after_loading() {
        let bytes = encode(&trace()).expect("JSON");
        assert_eq!(decode(&bytes), Ok(trace()));
        assert_eq!(decode(&encode(&Trace::default()).expect("JSON")), Ok(Trace::default()));
    }

    /// Each changed or missing byte is an error that says so, and none ends the program.
    #[test]
    fn damaged_files_are_errors() {
        let bytes = encode(&trace()).expect("JSON");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x21;
            assert!(decode(&changed).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        assert_eq!(decode(b"something else"), Err(Wrong::Foreign));
    }

    /// Content that an attacker made, with a good checksum.
    #[test]
    fn hostile_numbers_are_errors() {
        let hostile = |description: &[u8], len: u64, count: u64, events: &[u8]| {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(count.to_le_bytes());
            bytes.extend(description);
            bytes.extend(events);
            let checksum = crc32c::crc32c(&bytes);
            bytes.extend(checksum.to_le_bytes());
            decode(&bytes)
        };
        let good = serde_json::to_vec(&Trace::default()).expect("JSON");
        let len = good.len() as u64;
        assert!(hostile(&good, len, 0, b"").is_ok());
        assert!(hostile(&good, u64::MAX, 0, b"").is_err());
        assert!(hostile(&good, len, u64::MAX, b"").is_err());
        assert!(hostile(&good, len, u64::MAX / 40 + 1, &[0; 40]).is_err());
        assert!(hostile(&good, len, 1, &[0; 40]).is_err(), "no kind");
        let mut event = [0; 40];
        event[36] = Kind::Read as u8;
        assert!(hostile(&good, len, 1, &event).is_err(), "no file");
        assert!(hostile(b"{", 1, 0, b"").is_err());
    }
}
