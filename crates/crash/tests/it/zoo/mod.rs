//! Small programs with one classic mistake each, and the corrected program. Each mistake is found within the usual number of states; in
//! each corrected program every subset of the unflushed writes is tested.

mod devices;
mod files;
mod logs;
mod names;
mod records;

use diorite::{File, Filesystem};
use diorite_crash::{CrashTest, Report};

/// Which of the two programs runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Wrong,
    Right,
}

use Program::{Right, Wrong};

/// More states than the subsets of the unflushed writes of a corrected program.
const ALL_SUBSETS: usize = 1 << 12;

/// The test of a program.
fn test(program: Program) -> CrashTest {
    let test = CrashTest::new().size(16 << 20);
    if program == Right { test.states(ALL_SUBSETS) } else { test }
}

/// Run both programs. `words` are part of the answer for the wrong one.
fn both(run: impl Fn(Program) -> Report, words: &str) {
    let report = run(Wrong);
    let failure = report.expect_failure();
    assert!(!failure.case.to_string().is_empty() && report.to_string().contains(words), "{report}");
    run(Right).assert_passed();
}

/// A new file, or an existing one, for reading and writing.
fn opened(volume: &Filesystem, path: &str) -> diorite::Result<File> {
    volume.open_options().read(true).write(true).create(true).open(path)
}

/// Write a whole file and sync it.
fn write_synced(volume: &Filesystem, path: &str, content: &[u8]) -> diorite::Result<()> {
    let file = volume.open_options().write(true).create(true).truncate(true).open(path)?;
    file.write_all_at(content, 0)?;
    file.sync_all()
}

/// Sync a directory.
fn sync_directory(volume: &Filesystem, path: &str) -> diorite::Result<()> {
    volume.resolve(path)?.sync()
}

/// The content, if the file exists.
fn content(volume: &Filesystem, path: &str) -> diorite::Result<Option<Vec<u8>>> {
    if volume.exists(path)? { volume.read(path).map(Some) } else { Ok(None) }
}

/// A simple checksum.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
