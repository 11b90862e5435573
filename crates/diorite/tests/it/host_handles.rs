//! Several handles on one file of the host: one content, by any name and with any options, until the last one is closed.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::large_stack_arrays,
    reason = "a test fails by panicking, and the host is the judge"
)]

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::common;
use common::{Random, pattern};
use diorite::{DirectIo, ErrorKind, File, HostCache, HostFile, OpenOptions};

fn writable() -> OpenOptions<HostFile> {
    HostFile::options().read(true).write(true).create(true)
}

fn all(file: &File) -> Vec<u8> {
    let mut memory = vec![0xee; file.size() as usize];
    file.read_exact_at(&mut memory, 0).unwrap();
    memory
}

/// A write is seen by every other handle at once, whichever name and cache it has.
#[test]
fn handles_by_all_names_have_one_content() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let first = writable().open(at("file")).unwrap();
    fs::hard_link(at("file"), at("hard")).unwrap();
    std::os::unix::fs::symlink("file", at("soft")).unwrap();
    let second = writable().cache(HostCache::None).open(at("hard")).unwrap();
    let third = writable().direct(DirectIo::Preferred).open(at("soft")).unwrap();
    fs::rename(at("file"), at("moved")).unwrap();
    let fourth = HostFile::open(at("moved")).unwrap();
    let handles = [&first, &second, &third, &fourth];
    let mut model = Vec::new();
    for round in 0..30 {
        let writer = handles[round % 3];
        let data = pattern(1000 + 37 * round, round as u64);
        let offset = round * 700;
        writer.write_all_at(&data, offset as u64).unwrap();
        model.resize(model.len().max(offset + data.len()), 0);
        model[offset..offset + data.len()].copy_from_slice(&data);
        for (number, reader) in handles.iter().enumerate() {
            assert!(all(reader) == model, "round {round}, handle {number}");
        }
    }
    second.set_len(777).unwrap();
    assert!(handles.iter().all(|handle| handle.size() == 777));
    drop((first, third, fourth));
    assert_eq!(second.read_at(&mut [0; 1000], 0).unwrap(), 777);
    second.close().unwrap();
    assert!(fs::read(at("moved")).unwrap() == model[..777]);
}

/// A file that was open for reading becomes writable with a second open, and is locked from then on.
#[test]
fn a_second_open_may_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [1; 10_000]).unwrap();
    let reader = HostFile::options().read(true).open(&path).unwrap();
    let outside = fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert!(outside.try_lock_shared().is_ok(), "readers share the file");
    outside.unlock().unwrap();
    assert_eq!(all(&reader), [1; 10_000]);
    let writer = HostFile::options().write(true).open(&path).unwrap();
    assert!(outside.try_lock_shared().is_err(), "a writer has it alone");
    for (value, file) in [(2, &writer), (3, &writer)] {
        file.write_all_at(&[value; 5000], 2500).unwrap();
        assert!(all(&reader)[2500..7500].iter().all(|byte| *byte == value));
    }
    assert_eq!(reader.write_at(&[4], 0).unwrap_err().errno(), 9, "the handle is for reading");
    assert_eq!(writer.read_at(&mut [0], 0).unwrap_err().errno(), 9, "the handle is for writing");
    drop(writer);
    assert!(all(&reader)[2500..7500].iter().all(|byte| *byte == 3), "not lost with the writer");
    drop(reader);
    assert_eq!(fs::read(&path).unwrap()[2500..7500], [3; 5000]);
    assert!(outside.try_lock().is_ok(), "no lock is left");
}

#[test]
fn a_second_open_for_writing_is_refused_beside_a_reader_of_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [1; 100]).unwrap();
    let reader = HostFile::open(&path).unwrap();
    let outside = fs::File::open(&path).unwrap();
    outside.lock_shared().unwrap();
    let error = HostFile::options().write(true).open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(all(&reader), [1; 100], "the reader goes on");
    drop(outside);
    HostFile::options().write(true).open(&path).unwrap().write_all_at(&[2; 100], 0).unwrap();
    assert_eq!(all(&reader), [2; 100]);
}

/// An open of a file whose last handle was being closed met the lock of this process, or missed what was written back.
#[test]
fn files_are_opened_while_they_are_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [0; 4 * 8192]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let path = &path;
            scope.spawn(move || {
                for round in 1..60_u8 {
                    let options = writable().cache([HostCache::Pages, HostCache::None][round as usize % 2]);
                    let file = options.open(path).unwrap();
                    let offset = (thread * 8192) as u64;
                    let mut found = [0xee; 8192];
                    file.read_exact_at(&mut found, offset).unwrap();
                    assert_eq!(found, [round - 1; 8192], "thread {thread}");
                    file.write_all_at(&[round; 8192], offset).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read(&path).unwrap(), [59; 4 * 8192]);
}

#[test]
fn truncation_at_an_open_is_seen_by_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = writable().open(&path).unwrap();
    file.write_all_at(&[1; 9000], 0).unwrap();
    let new = HostFile::create(&path).unwrap();
    assert_eq!((file.size(), file.read_at(&mut [0; 100], 0).unwrap()), (0, 0));
    new.write_all_at(&[2; 10], 5).unwrap();
    assert_eq!(all(&file), [[0; 5].as_slice(), &[2; 10]].concat());
    assert_eq!(writable().create_new(true).open(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

/// What other programs may do to a file that is open here.
fn outside(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

const CACHES: [HostCache; 2] = [HostCache::Pages, HostCache::None];

/// A commit truncated the file to the size that this process knew, and with it the bytes that another program had appended.
#[test]
fn bytes_that_another_program_appends_stay() {
    let directory = tempfile::tempdir().unwrap();
    for cache in CACHES {
        let path = directory.path().join(format!("{cache:?}"));
        fs::write(&path, [1; 10_000]).unwrap();
        let file = writable().cache(cache).open(&path).unwrap();
        outside(&path).write_all_at_end(&[2; 50_000]);
        file.write_all_at(&[3; 100], 50).unwrap();
        file.sync_all().unwrap();
        let mut expected = [[1; 10_000].as_slice(), &[2; 50_000]].concat();
        expected[50..150].fill(3);
        assert!(fs::read(&path).unwrap() == expected, "{cache:?}: {}", fs::read(&path).unwrap().len());
        let mut found = vec![0; 60_000];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), 60_000, "{cache:?}: a read reaches the new end");
        assert!(found == expected, "{cache:?}");
        outside(&path).write_all_at_end(&[4; 7]);
        assert_eq!(file.append(&[5; 3]).unwrap(), 60_007, "{cache:?}");
        file.sync_all().unwrap();
        assert_eq!(fs::read(&path).unwrap()[60_000..], [4, 4, 4, 4, 4, 4, 4, 5, 5, 5], "{cache:?}");
    }
}

trait AtEnd {
    fn write_all_at_end(self, data: &[u8]);
}

impl AtEnd for fs::File {
    fn write_all_at_end(mut self, data: &[u8]) {
        self.seek(SeekFrom::End(0)).unwrap();
        self.write_all(data).unwrap();
    }
}

/// A reader that follows a log, as `tail -f` does.
#[test]
fn a_reader_follows_a_file_that_grows() {
    let directory = tempfile::tempdir().unwrap();
    for cache in CACHES {
        let path = directory.path().join(format!("{cache:?}"));
        fs::write(&path, "").unwrap();
        let mut file = HostFile::options().read(true).cache(cache).open(&path).unwrap();
        let (mut model, mut found) = (Vec::new(), Vec::new());
        for round in 0..40 {
            let data = pattern(1 + round * 97, round as u64);
            outside(&path).write_all_at_end(&data);
            model.extend_from_slice(&data);
            file.read_to_end(&mut found).unwrap();
            assert!(found == model, "{cache:?}, round {round}: {} of {}", found.len(), model.len());
        }
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), model.len() as u64);
    }
}

/// Bytes of memory that no transfer had touched were returned for the part of the file that was gone.
#[test]
fn a_file_that_is_truncated_outside_has_no_old_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for cache in CACHES {
        for new in [0, 1, 5000, 8192] {
            let path = directory.path().join(format!("{cache:?}-{new}"));
            fs::write(&path, vec![1; 100_000]).unwrap();
            let file = writable().cache(cache).open(&path).unwrap();
            assert_eq!(all(&file).len(), 100_000);
            file.write_all_at(&[2; 10], 90_000).unwrap();
            file.sync_all().unwrap();
            outside(&path).set_len(new).unwrap();
            assert_eq!(file.metadata().unwrap().size, new, "{cache:?}");
            let mut found = vec![0xee; 100_000];
            assert_eq!(file.read_at(&mut found, 0).unwrap() as u64, new, "{cache:?}");
            assert!(found[..new as usize].iter().all(|byte| *byte == 1));
            file.sync_all().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), new, "{cache:?}: a sync does not make it longer");
            file.set_len(20_000).unwrap();
            assert!(
                all(&file)[new as usize..].iter().all(|byte| *byte == 0),
                "{cache:?}: old bytes came back"
            );
            drop(file);
            assert_eq!(fs::metadata(&path).unwrap().len(), 20_000, "{cache:?}");
        }
        // A direct read looks by itself.
        let path = directory.path().join("direct");
        fs::write(&path, vec![1; 100_000]).unwrap();
        let file = HostFile::open(&path).unwrap();
        outside(&path).set_len(6000).unwrap();
        let mut found = vec![0xee; 50_000];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), 6000);
    }
}

/// Each open drops clean pages of a file that was changed outside.
#[test]
fn an_open_sees_what_another_program_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [1; 50_000]).unwrap();
    let first = writable().open(&path).unwrap();
    assert_eq!(all(&first), [1; 50_000]);
    first.write_all_at(&[7; 4096], 4096).unwrap();
    for value in 2..6 {
        fs::File::write_all(&mut outside(&path), &[value; 40_000]).unwrap();
        let second = HostFile::options().read(true).open(&path).unwrap();
        let mut expected = [[value; 40_000].as_slice(), &[1; 10_000]].concat();
        expected[4096..8192].fill(7);
        assert!(
            all(&second) == expected && all(&first) == expected,
            "dirty pages stay, clean ones go: {value}"
        );
    }
    first.close().unwrap();
    assert_eq!(fs::read(&path).unwrap()[4096..8192], [7; 4096]);
}

#[test]
fn a_handle_stays_on_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for cache in CACHES {
        fs::write(&path, [1; 10_000]).unwrap();
        let old = writable().cache(cache).open(&path).unwrap();
        fs::write(directory.path().join("new"), [2; 20]).unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        let new = writable().cache(cache).open(&path).unwrap();
        old.write_all_at(&[3; 5], 0).unwrap();
        old.sync_all().unwrap();
        assert_eq!((new.size(), all(&new)), (20, vec![2; 20]));
        assert_eq!((old.size(), all(&old)[..6].to_vec()), (10_000, vec![3, 3, 3, 3, 3, 1]));
        let attributes = old.metadata().unwrap();
        assert_eq!((attributes.links, attributes.size), (0, 10_000), "it is removed, and there");
        fs::remove_file(&path).unwrap();
        new.write_all_at(&[4; 5], 18).unwrap();
        assert_eq!(new.metadata().unwrap().size, 23);
        new.close().unwrap();
        old.close().unwrap();
        assert!(!path.exists());
    }
}

/// Random changes by this process and by another program take turns, with a new open after each of the other's.
#[test]
fn two_programs_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "").unwrap();
    let mut random = Random(4711);
    let keeper = writable().open(&path).unwrap();
    let mut model: Vec<u8> = Vec::new();
    for round in 0..150 {
        let cache = CACHES[random.below(2) as usize];
        let file = writable().cache(cache).open(&path).unwrap();
        assert!(all(&file) == model && all(&keeper) == model, "round {round}: {cache:?}");
        let (offset, len) = (random.below(30_000) as usize, random.below(6000) as usize + 1);
        let data = pattern(len, round);
        file.write_all_at(&data, offset as u64).unwrap();
        model.resize(model.len().max(offset + len), 0);
        model[offset..offset + len].copy_from_slice(&data);
        keeper.sync_all().unwrap();
        assert!(fs::read(&path).unwrap() == model, "round {round}");
        let (offset, len) = (random.below(30_000), random.below(6000) as usize + 1);
        let data = pattern(len, round + 1000);
        // Another process.
        if random.below(3) == 0 {
            let shell =
                std::process::Command::new("truncate").arg(format!("--size={offset}")).arg(&path).status();
            assert!(shell.unwrap().success());
            model.resize(offset as usize, 0);
        } else {
            let mut child = std::process::Command::new("dd")
                .args(["conv=notrunc", "bs=1M", "oflag=seek_bytes", "status=none"])
                .arg(format!("seek={offset}"))
                .arg(format!("of={}", path.display()))
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(&data).unwrap();
            assert!(child.wait().unwrap().success());
            let offset = offset as usize;
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&data);
        }
    }
}

/// The reason for buffered transfers is with the handle; where direct I/O is required, it is the error.
#[test]
fn a_filesystem_without_direct_io_is_reported() {
    let file = HostFile::open("/proc/version").unwrap();
    let why = file.direct_refusal().expect("procfs has no direct I/O").to_owned();
    assert!(!why.is_empty());
    let error = file.set_direct(DirectIo::Required).unwrap_err();
    assert!(error.to_string().contains(&why), "{error}");
    let required = HostFile::options().read(true).direct(DirectIo::Required);
    assert_eq!(required.open("/proc/version").unwrap_err().errno(), 22);
}
