//! Plain loops over a host file without a cache: readahead and write-behind, with any sizes, beside other handles.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::large_stack_arrays,
    reason = "a test fails by panicking, and the host is the judge"
)]

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};

use crate::common;
use common::{Random, pattern};
use diorite::{DirectIo, DirectQueue, File, HostCache, HostFile, OpenOptions, Unaligned};

/// Several pieces of readahead, with an end within a block.
const LEN: usize = (5 << 20) + 12_345;

fn directory() -> tempfile::TempDir {
    // The default may be a filesystem in memory.
    let chosen = std::env::var_os("TMPDIR").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    tempfile::tempdir_in(chosen).unwrap()
}

fn writable() -> OpenOptions<HostFile> {
    HostFile::options().read(true).write(true).create(true).cache(HostCache::None)
}

#[test]
fn a_loop_reads_and_writes_as_std_does() {
    let directory = directory();
    let path = directory.path().join("file");
    let data = pattern(LEN, 1);
    for step in [1000, 4096, 65_536, 100_001, 3 << 20, 6 << 20] {
        let mut file = HostFile::create(&path).unwrap();
        for chunk in data.chunks(step) {
            file.write_all(chunk).unwrap();
        }
        file.close().unwrap();
        assert!(fs::read(&path).unwrap() == data, "written in steps of {step}");
        let (mut file, mut found, mut chunk) = (HostFile::open(&path).unwrap(), Vec::new(), vec![0xee; step]);
        loop {
            let got = file.read(&mut chunk).unwrap();
            if got == 0 {
                break;
            }
            assert!(got == step || found.len() + got == LEN, "a short read at {}", found.len());
            found.extend_from_slice(&chunk[..got]);
        }
        assert!(found == data, "read in steps of {step}");
        let stats = file.stats();
        assert_eq!(stats.cache_misses, 0, "no page cache");
        if file.direct_refusal().is_none() && step < 1 << 20 {
            let reads = stats.device.reads;
            assert!(reads < 20, "{reads} reads of {LEN} bytes in steps of {step}: no readahead");
        }
    }
    let lines: Vec<u8> = (0..100_000).flat_map(|line: u32| format!("{line}\n").into_bytes()).collect();
    fs::write(&path, &lines).unwrap();
    let lines = BufReader::new(HostFile::open(&path).unwrap()).lines();
    assert!(lines.enumerate().all(|(number, line)| line.unwrap() == number.to_string()));
}

/// Small writes of a loop are gathered.
#[test]
fn small_writes_become_large_transfers() {
    let directory = directory();
    let mut file = HostFile::create(directory.path().join("file")).unwrap();
    let data = pattern(LEN, 2);
    data.chunks(777).for_each(|chunk| file.write_all(chunk).unwrap());
    file.sync_data().unwrap();
    let stats = file.stats();
    if file.direct_refusal().is_none() {
        let writes = stats.device.writes;
        assert!(writes < 40, "{writes} writes of {LEN} bytes");
    }
}

/// What was read ahead is not returned after a write by another handle, or by the same one, of any kind.
#[test]
fn readahead_is_never_old() {
    let directory = directory();
    let path = directory.path().join("file");
    let mut model = pattern(LEN, 3);
    fs::write(&path, &model).unwrap();
    let mut reader = writable().open(&path).unwrap();
    let cached = writable().direct(DirectIo::Off).open(&path).unwrap();
    let direct = writable().unaligned(Unaligned::Error).direct(DirectIo::Preferred).open(&path).unwrap();
    let mut random = Random(5);
    for round in 0..6 {
        reader.seek(SeekFrom::Start(0)).unwrap();
        let mut at = 0;
        while at < model.len() {
            let mut chunk = vec![0xee; random.below(150_000) as usize + 1];
            let got = reader.read(&mut chunk).unwrap();
            assert!(chunk[..got] == model[at..at + got], "round {round}: {got} bytes at {at}");
            at += got;
            if random.below(4) == 0 && at < model.len() {
                let offset = at + random.below(400_000) as usize;
                let data = pattern(random.below(20_000) as usize + 1, offset as u64);
                let writer = [&reader, &cached, &direct][random.below(3) as usize];
                writer.write_all_at(&data, offset as u64).unwrap();
                model.resize(model.len().max(offset + data.len()), 0);
                model[offset..offset + data.len()].copy_from_slice(&data);
            }
            if random.below(40) == 0 {
                let len = model.len() - random.below(100_000) as usize;
                cached.set_len(len as u64).unwrap();
                model.truncate(len);
            }
        }
    }
}

/// A write of a loop is seen by every handle before it is on the disk, and by a sync of another handle.
#[test]
fn writes_behind_are_seen_at_once() {
    let directory = directory();
    let path = directory.path().join("file");
    let mut writer = writable().open(&path).unwrap();
    let mut reader = HostFile::open(&path).unwrap();
    let cached = HostFile::options().read(true).open(&path).unwrap();
    let mut model = Vec::new();
    for round in 0..200 {
        let data = pattern(1 + round * 53 % 9000, round as u64);
        writer.write_all(&data).unwrap();
        model.extend_from_slice(&data);
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        assert!(found == data, "round {round}: {} of {} bytes", found.len(), data.len());
        let mut found = vec![0; model.len()];
        cached.read_exact_at(&mut found, 0).unwrap();
        assert!(found == model, "round {round}");
    }
    cached.sync_data().unwrap();
    assert!(fs::read(&path).unwrap() == model);
}

/// A thread that has queued writes in flight may read in a loop: readahead waits for no range.
#[test]
fn readahead_waits_for_no_queued_write_of_the_same_thread() {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, vec![1; LEN]).unwrap();
    let mut file = writable().open(&path).unwrap();
    let mut queue = DirectQueue::new(4);
    let unit = file.alignment().offset as u64;
    let place = (2 << 20) / unit * unit;
    let mut memory = file.buffer(65_536).unwrap();
    memory.fill(2);
    queue.write(&file, place, memory, 65_536, 0).unwrap();
    let mut chunk = vec![0; 65_536];
    for _ in 0..(2 << 20) / 65_536 {
        file.read_exact(&mut chunk).unwrap();
        assert!(chunk.iter().all(|byte| *byte == 1));
    }
    queue.next_finished().unwrap().unwrap().result.unwrap();
    file.read_exact(&mut chunk).unwrap();
    assert!(chunk.iter().all(|byte| *byte == 2));
}

/// Handles are dropped in the middle of their streams.
#[test]
fn streams_end_with_their_handles() {
    let directory = directory();
    let path = directory.path().join("file");
    let data = pattern(LEN, 9);
    for round in 1..20 {
        let mut file = HostFile::create(&path).unwrap();
        let len = round * 200_000;
        data[..len].chunks(5000).for_each(|chunk| file.write_all(chunk).unwrap());
        drop(file);
        let mut file = HostFile::open(&path).unwrap();
        let mut chunk = vec![0; round * 10_000];
        for _ in 0..3 {
            file.read_exact(&mut chunk).unwrap();
        }
        assert!(chunk == data[2 * chunk.len()..3 * chunk.len()]);
    }
}

/// A write that was accepted and cannot be written back is reported by each sync by any handle, and by the close.
#[test]
fn errors_of_writes_behind_are_not_lost() {
    if !is_own_process!() {
        return;
    }
    let directory = directory();
    let path = directory.path().join("file");
    let limited = |file: &mut File| {
        // A write after this size of a file fails with EFBIG, once its signal is ignored.
        let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        (0..40).try_for_each(|_| file.write_all(&[1; 50_000]))
    };
    let ignore = std::env::var_os("DIORITE_TEST_IGNORES_XFSZ").is_some();
    if !ignore {
        // The signal's action is inherited: a shell ignores it.
        let test = std::env::current_exe().unwrap();
        let script = "trap '' XFSZ; DIORITE_TEST_IGNORES_XFSZ=1 exec \"$0\" --exact host_positions::errors_of_writes_behind_are_not_lost --nocapture";
        let done = std::process::Command::new("sh").args(["-c", script]).arg(test).status().unwrap();
        assert!(done.success());
        return;
    }
    let mut file = writable().open(&path).unwrap();
    let other = writable().open(&path).unwrap();
    match limited(&mut file) {
        Ok(()) => {}
        // The background was faster.
        Err(error) => assert_ne!(error.kind(), ErrorKind::WriteZero, "{error}"),
    }
    for handle in [&file, &other, &file] {
        let error = handle.sync_data().unwrap_err();
        assert!(
            matches!(error, diorite::Error::WriteBack(_)) || error.to_string().contains("large"),
            "{error}"
        );
    }
    assert!(file.close().is_err());
    assert!(other.close().is_err(), "still not written");
}
