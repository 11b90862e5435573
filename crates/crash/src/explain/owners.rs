//! Which file a block of the device belongs to.

use std::ops::Range;
use std::path::{Path, PathBuf};

use diorite::{FileKind, Filesystem};

/// Bytes of a block of the log with a header: its magic number, from jbd2's documentation.
const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// The magic number of a tree of extents.
const EXTENTS_MAGIC: u64 = 0xf30a;

/// A range of the device that belongs to a file.
#[derive(Clone, Debug)]
struct Owned {
    device: Range<u64>,
    /// The offset in the file.
    offset: u64,
    path: PathBuf,
}

/// The owners of a volume's blocks.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    /// By the first byte.
    files: Vec<Owned>,
    /// The blocks of the journal.
    journal: Vec<Range<u64>>,
}

impl Owners {
    /// Look at every file.
    pub(super) fn of(filesystem: &Filesystem) -> Self {
        let mut files = Vec::new();
        for entry in filesystem.walk("/").flatten() {
            let extents = match entry.kind {
                FileKind::Regular => filesystem.open_file(&entry.path).and_then(|file| file.extents()),
                _ => continue,
            };
            for extent in extents.unwrap_or_default() {
                let Some(sector) = extent.sector else { continue };
                let device = sector.to_bytes()..sector.to_bytes() + extent.len;
                files.push(Owned { device, offset: extent.offset, path: entry.path.clone() });
            }
        }
        files.sort_by_key(|owned| owned.device.start);
        Self { files, journal: journal_of(filesystem).unwrap_or_default() }
    }

    /// What a write to `range` changes, if it is known.
    pub(super) fn describe(&self, range: &Range<u64>, bytes: &[u8]) -> Option<String> {
        let found: Vec<String> = self
            .files
            .iter()
            .filter(|owned| owned.device.start < range.end && range.start < owned.device.end)
            .map(|owned| owned.describe(range))
            .collect();
        if !found.is_empty() {
            return Some(found.join(", "));
        }
        let is_in_journal = self.journal.iter().any(|journal| journal.contains(&range.start));
        describe_log(bytes).or_else(|| is_in_journal.then(|| "blocks of the journal".to_owned()))
    }
}

impl Owned {
    fn describe(&self, range: &Range<u64>) -> String {
        let start = range.start.max(self.device.start) - self.device.start + self.offset;
        let end = range.end.min(self.device.end) - self.device.start + self.offset;
        let path: &Path = &self.path;
        format!("bytes {start}..{end} of `{}`", path.display())
    }
}

/// The ranges of the journal, from the copy of its block list in the superblock (`s_jnl_blocks`): the extents, or the first block of a
/// journal that is mapped by blocks.
fn journal_of(filesystem: &Filesystem) -> Option<Vec<Range<u64>>> {
    let mut superblock = [0; 1024];
    filesystem.device().read_bytes(1024, &mut superblock).ok()?;
    let word =
        |at: usize| u64::from(u32::from_le_bytes(superblock[at..at + 4].try_into().unwrap_or_default()));
    let half = |at: usize| u64::from(u16::from_le_bytes([superblock[at], superblock[at + 1]]));
    let block = 1024_u64.checked_shl(word(0x18) as u32)?;
    let (list, size) = (0x10c, word(0x10c + 16 * 4));
    if half(list) != EXTENTS_MAGIC {
        let first = word(list) * block;
        return (first > 0).then(|| std::iter::once(first..first + size).collect());
    }
    let extent = |index: usize| {
        let at = list + 12 + index * 12;
        let first = (half(at + 6) << 32 | word(at + 8)) * block;
        first..first + half(at + 4) * block
    };
    Some((0..(half(list + 2) as usize).min(4)).map(extent).collect())
}

/// The part of a transaction that a write to the log has.
fn describe_log(bytes: &[u8]) -> Option<String> {
    let header = bytes.get(..12).filter(|header| header[..4] == JOURNAL_MAGIC)?;
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap_or_default());
    let transaction = word(8);
    match word(4) {
        1 => Some(format!("the blocks of transaction {transaction} in the journal")),
        2 => Some(format!("the commit block of transaction {transaction} in the journal")),
        3 | 4 => Some("the superblock of the journal".to_owned()),
        5 => Some(format!("the revoked blocks of transaction {transaction} in the journal")),
        _ => None,
    }
}
