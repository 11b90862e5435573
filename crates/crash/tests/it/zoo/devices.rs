//! Raw devices: the order of writes without a filesystem.

use diorite::File;
use diorite_crash::{CrashTest, Report};

use super::{Program, Right, Wrong, both, sum};

const BLOCK: u64 = 4096;

fn device(program: Program) -> CrashTest {
    super::test(program).size(1 << 20)
}

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK as usize]
}

fn read(file: &File, number: u64) -> diorite::Result<Vec<u8>> {
    let mut found = block(0);
    file.read_exact_at(&mut found, number * BLOCK)?;
    Ok(found)
}

/// A pointer to new blocks is written without a flush after the blocks.
#[test]
fn a_pointer_before_its_blocks() {
    let run = |program| -> Report {
        device(program).raw(
            |file, _| {
                file.write_all_at(&block(7), 3 * BLOCK)?;
                if program == Right {
                    file.sync_data()?;
                }
                file.write_all_at(&[3; 512], 0)?;
                Ok(file.sync_data()?)
            },
            |file, _| {
                let pointer = u64::from(read(file, 0)?[0]);
                if pointer != 0 && read(file, pointer)? != block(7) {
                    return Err("the pointer leads to a block that is not written".into());
                }
                Ok(())
            },
        )
    };
    both(run, "a block that is not written");
}

/// The commit record is in the same flush as the data, and has no checksum of it.
#[test]
fn a_commit_record_without_a_barrier() {
    let run = |program| -> Report {
        device(program).raw(
            |file, power| {
                let data = [block(1), block(2)].concat();
                file.write_all_at(&data, BLOCK)?;
                let mut commit = vec![0; 512];
                let checksum = if program == Right { sum(&data) } else { 1 };
                commit[..8].copy_from_slice(&checksum.to_le_bytes());
                file.write_all_at(&commit, 0)?;
                file.sync_data()?;
                power.acknowledge("committed");
                Ok(())
            },
            |file, lines| {
                let commit = u64::from_le_bytes(read(file, 0)?[..8].try_into()?);
                let data = [read(file, 1)?, read(file, 2)?].concat();
                let expected = if program == Right { sum(&data) } else { 1 };
                let is_committed = commit != 0 && commit == expected;
                let is_whole = data == [block(1), block(2)].concat();
                match (is_committed, is_whole) {
                    (true, false) => Err("the transaction is committed, and its data is not there".into()),
                    (false, _) if lines.contains("committed") => Err("the transaction is lost".into()),
                    _ => Ok(()),
                }
            },
        )
    };
    both(run, "its data is not there");
}

/// A freed block is used again before the block that refers to it is durable.
#[test]
fn a_block_used_again_too_early() {
    let run = |program| -> Report {
        device(program).raw(
            |file, power| {
                // Block 0 refers to block 1, which holds the letter A.
                file.write_all_at(&block(b'A'), BLOCK)?;
                file.sync_data()?;
                file.write_all_at(&[1; 512], 0)?;
                file.sync_data()?;
                power.acknowledge("A");
                // A is freed, and its block gets other data.
                file.write_all_at(&[0; 512], 0)?;
                if program == Right {
                    file.sync_data()?;
                }
                file.write_all_at(&block(b'B'), BLOCK)?;
                Ok(file.sync_data()?)
            },
            |file, _| {
                if read(file, 0)?[0] == 1 && read(file, 1)? != block(b'A') {
                    return Err("A has the content of B".into());
                }
                Ok(())
            },
        )
    };
    both(run, "A has the content of B");
}

/// The length of a log is in its first block, and is written together with the records.
#[test]
fn a_length_written_with_the_records() {
    let run = |program| -> Report {
        device(program).raw(
            |file, _| {
                for number in 1..=2 {
                    file.write_all_at(&block(number), u64::from(number) * BLOCK)?;
                    if program == Right {
                        file.sync_data()?;
                    }
                    file.write_all_at(&[number; 512], 0)?;
                    file.sync_data()?;
                }
                Ok(())
            },
            |file, _| {
                let length = read(file, 0)?[0];
                for number in 1..=length {
                    if read(file, u64::from(number))? != block(number) {
                        return Err(format!("record {number} of {length} is not there").into());
                    }
                }
                Ok(())
            },
        )
    };
    both(run, "is not there");
}

/// A mirror is written in both places before a flush; a reader takes the first one that exists.
#[test]
fn a_mirror_without_checksums() {
    let run = |program| -> Report {
        device(program).raw(
            |file, power| {
                for at in [0, BLOCK] {
                    let mut copy = block(9);
                    let checksum = sum(&copy[8..]);
                    copy[..8].copy_from_slice(&checksum.to_le_bytes());
                    file.write_all_at(&copy, at)?;
                    file.sync_data()?;
                }
                power.acknowledge("written");
                Ok(())
            },
            |file, lines| {
                let copies = [read(file, 0)?, read(file, 1)?];
                let is_right = |copy: &Vec<u8>| {
                    u64::from_le_bytes(copy[..8].try_into().unwrap_or_default()) == sum(&copy[8..])
                };
                let chosen = match program {
                    Wrong => copies.iter().find(|copy| copy.iter().any(|byte| *byte != 0)),
                    Right => copies.iter().find(|copy| is_right(copy)),
                };
                match chosen {
                    Some(copy) if copy[8..] != block(9)[8..] => Err("the chosen copy is torn".into()),
                    None if !lines.is_empty() => Err("no copy is left".into()),
                    _ => Ok(()),
                }
            },
        )
    };
    both(run, "the chosen copy is torn");
}
