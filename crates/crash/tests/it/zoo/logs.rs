//! Logs: files to which records are appended, or that are used in a circle.

use diorite::File;
use diorite_crash::Report;

use super::{Right, Wrong, both, content, opened, sum, test};

/// Bytes of a record with its header: several sectors, so that it can tear.
const RECORD: usize = 2048;
/// Records of a log that is allocated in advance.
const SLOTS: u64 = 4;

/// How the program marks its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// A number only.
    Number,
    /// A number, and a checksum of the number.
    Header,
    /// A number, and a checksum of all.
    All,
}

/// The record `number`.
fn record(number: u64, mark: Mark) -> Vec<u8> {
    let mut bytes = vec![number as u8; RECORD];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let checksum = match mark {
        Mark::Number => 0,
        Mark::Header => sum(&bytes[..8]),
        Mark::All => sum(&[&bytes[..8], &bytes[16..]].concat()),
    };
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The number of a record that the program accepts, or that it has not the content of its number.
fn accepted(found: &[u8], mark: Mark) -> Result<Option<u64>, String> {
    let number = u64::from_le_bytes(found[..8].try_into().unwrap_or_default());
    if number == 0 || found[8..16] != record_of(found, mark)[8..16] {
        return Ok(None);
    }
    if found == record(number, mark) { Ok(Some(number)) } else { Err(format!("record {number} is torn")) }
}

/// The bytes with the checksum that they should have.
fn record_of(found: &[u8], mark: Mark) -> Vec<u8> {
    let checksum = match mark {
        Mark::Number => 0,
        Mark::Header => sum(&found[..8]),
        Mark::All => sum(&[&found[..8], &found[16..]].concat()),
    };
    let mut bytes = found.to_vec();
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The numbers of the records from the start to the first that is not accepted.
fn records(file: &File, mark: Mark) -> Result<Vec<u64>, Box<dyn std::error::Error + Send + Sync>> {
    let mut numbers = Vec::new();
    let mut found = vec![0; RECORD];
    for slot in 0..SLOTS {
        if file.read_at(&mut found, slot * RECORD as u64)? < RECORD {
            break;
        }
        match accepted(&found, mark)? {
            Some(number) => numbers.push(number),
            None => break,
        }
    }
    Ok(numbers)
}

/// A log of zeros that is written in place.
fn of_marks(wrong: Mark, words: &str) {
    let run = |program| -> Report {
        let mark = if program == Wrong { wrong } else { Mark::All };
        test(program).prepared(|volume| Ok(volume.write("/file", vec![0; RECORD * SLOTS as usize])?)).file(
            move |file, power| {
                for slot in 0..3 {
                    file.write_all_at(&record(slot + 1, mark), slot * RECORD as u64)?;
                    file.sync_data()?;
                    power.acknowledge(format!("record {}", slot + 1));
                }
                Ok(())
            },
            move |file, lines| {
                let found = records(file, mark)?.len();
                if found < lines.len() {
                    return Err(format!("{found} of {} acknowledged records are left", lines.len()).into());
                }
                Ok(())
            },
        )
    };
    both(run, words);
}

#[test]
fn records_without_a_checksum() {
    of_marks(Mark::Number, "is torn");
}

#[test]
fn a_checksum_of_the_header_only() {
    of_marks(Mark::Header, "is torn");
}

/// The log is used again from its start. Records of the last round follow the new ones, and have valid checksums.
#[test]
fn old_records_of_a_log_that_is_used_again() {
    let run = |program| -> Report {
        let old = || (1..=SLOTS).flat_map(|number| record(number, Mark::All)).collect::<Vec<u8>>();
        test(program).prepared(move |volume| Ok(volume.write("/file", old())?)).file(
            |file, _| {
                file.write_all_at(&record(5, Mark::All), 0)?;
                Ok(file.sync_data()?)
            },
            move |file, _| {
                let mut numbers = records(file, Mark::All)?;
                if program == Right {
                    // A record that does not follow its predecessor is an old one.
                    let follows = numbers.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count();
                    numbers.truncate(follows + 1);
                }
                let has_old = numbers.first() == Some(&5) && numbers.len() > 1;
                if has_old { Err("old records follow the new one".into()) } else { Ok(()) }
            },
        )
    };
    both(run, "old records follow the new one");
}

/// The counter of records is in another file, which is synced first.
#[test]
fn two_files_in_the_wrong_order() {
    let run = |program| -> Report {
        test(program).filesystem(
            |volume, _| {
                let (log, count) = (opened(volume, "/log")?, opened(volume, "/count")?);
                log.write_all_at(&record(1, Mark::All), 0)?;
                count.write_all_at(&[1], 0)?;
                let files = if program == Right { [&log, &count] } else { [&count, &log] };
                if program == Right {
                    // The counter must not be written by chance before the log is durable.
                    log.sync_all()?;
                    count.write_all_at(&[1], 0)?;
                }
                Ok(files.into_iter().try_for_each(File::sync_all)?)
            },
            |volume, _| {
                let count = content(volume, "/count")?.and_then(|count| count.first().copied()).unwrap_or(0);
                let records = records(&opened(volume, "/log")?, Mark::All)?.len();
                if records < count.into() { Err("a counted record is lost".into()) } else { Ok(()) }
            },
        )
    };
    both(run, "a counted record is lost");
}

/// A page of the table is changed before its record in the log is durable.
#[test]
fn a_page_before_its_log_record() {
    let run = |program| -> Report {
        let prepared = |volume: &diorite::Filesystem| {
            volume.write("/table", [b'a'; 4096])?;
            Ok(volume.write("/log", vec![0; RECORD * SLOTS as usize])?)
        };
        test(program).prepared(prepared).filesystem(
            |volume, _| {
                let (log, table) = (opened(volume, "/log")?, opened(volume, "/table")?);
                log.write_all_at(&record(1, Mark::All), 0)?;
                if program == Right {
                    log.sync_data()?;
                }
                table.write_all_at(&[b'b'; 4096], 0)?;
                log.sync_data()?;
                Ok(table.sync_data()?)
            },
            |volume, _| {
                let is_logged = !records(&opened(volume, "/log")?, Mark::All)?.is_empty();
                if volume.read("/table")?.contains(&b'b') && !is_logged {
                    return Err("a changed page is not in the log".into());
                }
                Ok(())
            },
        )
    };
    both(run, "a changed page is not in the log");
}

/// The log is truncated before the pages that it protects are durable.
#[test]
fn a_checkpoint_that_truncates_too_early() {
    let run = |program| -> Report {
        let prepared = |volume: &diorite::Filesystem| {
            volume.write("/table", "a")?;
            Ok(volume.write("/log", record(1, Mark::All))?)
        };
        test(program).prepared(prepared).filesystem(
            |volume, _| {
                let (log, table) = (opened(volume, "/log")?, opened(volume, "/table")?);
                table.write_all_at(b"b", 0)?;
                if program == Right {
                    table.sync_data()?;
                }
                log.set_len(0)?;
                log.sync_all()?;
                Ok(table.sync_data()?)
            },
            |volume, _| {
                let is_logged = !records(&opened(volume, "/log")?, Mark::All)?.is_empty();
                if volume.read("/table")? != b"b" && !is_logged {
                    return Err("an acknowledged change is lost".into());
                }
                Ok(())
            },
        )
    };
    both(run, "an acknowledged change is lost");
}

/// Only every second commit is synced, and all are acknowledged.
#[test]
fn a_group_commit_acknowledged_too_early() {
    let run = |program| -> Report {
        test(program).file(
            |file, power| {
                let mut unsynced = Vec::new();
                for number in 1..=SLOTS {
                    file.append(&record(number, Mark::All))?;
                    unsynced.push(number);
                    if program == Wrong {
                        power.acknowledge(number.to_string());
                    }
                    if number.is_multiple_of(2) {
                        file.sync_data()?;
                        let acknowledged =
                            std::mem::take(&mut unsynced).into_iter().filter(|_| program == Right);
                        acknowledged.for_each(|number| power.acknowledge(number.to_string()));
                    }
                }
                Ok(())
            },
            |file, lines| {
                let found = records(file, Mark::All)?.len();
                if found < lines.len() {
                    return Err(format!("{found} of {} commits are left", lines.len()).into());
                }
                Ok(())
            },
        )
    };
    both(run, "commits are left");
}
