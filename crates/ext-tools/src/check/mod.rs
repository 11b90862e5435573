//! Checks a volume without writing to it, and says what is wrong and where.
//!
//! The order is that of e2fsck: first what the groups say of themselves (`groups`), then each inode and what it maps
//! (`inodes`, `mapping`, `xattrs`), then each directory (`directories`, `index`), then whether names lead everywhere (`links`), then
//! bitmaps and counts (`bitmaps`). Each part only believes what the parts before it have found sound.
//!
//! Invariants:
//! 1. Nothing is written.
//! 2. Memory follows what is in use: one bit for a cluster and a few bytes for an inode, in groups that have any.
//! 3. Each block of a map or a directory is read at most once for its first owner, whatever the image claims.

mod bitmaps;
mod claim;
mod directories;
mod groups;
mod index;
mod inodes;
mod links;
mod mapping;
mod quota;
mod report;
mod shared;
mod small;
mod special;
mod used;
mod xattrs;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use diorite_block::BlockDevice;

pub use report::{CheckOptions, CheckPhase, CheckProgress, CheckReport, Problem, ProblemKind};

use diorite_ext::{Error, Result, find_superblock, replay_in_memory};
use diorite_ext_format::{FsBlock, Incompatible};
use diorite_ext_format::{GroupDescriptor, Incompat, InodeFlags, Layout, Superblock, casefold};
use mapping::Reader;
use quota::Usage;
use report::{Findings, Place};
use used::{InodeNotes, UsedClusters};
use xattrs::ValueUse;

/// Shared runs after which the rest of a file is left alone.
const MAX_SHARED_RUNS_OF_FILE: u32 = 256;

/// A directory as the inode scan leaves it for the directory scan.
#[derive(Debug)]
struct DirectoryWork {
    inode: u32,
    generation: u32,
    size: u64,
    indexed: bool,
    names: NameForm,
    /// Blocks in order: block of the directory, block of the volume, number.
    runs: Vec<(u64, FsBlock, u64)>,
    /// Content in the inode, instead of blocks: first part (with the parent) and what attributes add.
    inline: Option<Vec<u8>>,
}

/// How a directory's names are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameForm {
    Plain,
    /// Compared, and hashed, without regard to case.
    Folded,
    /// Any bytes; their hashes are not checked.
    Encrypted,
}

impl NameForm {
    fn of(flags: InodeFlags) -> Self {
        if flags.contains(InodeFlags::ENCRYPTED) {
            Self::Encrypted
        } else if flags.contains(InodeFlags::CASEFOLD) {
            Self::Folded
        } else {
            Self::Plain
        }
    }

    /// What names that are one have in common.
    fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::Folded { casefold::key(name) } else { Cow::Borrowed(name) }
    }
}

/// What is known of a directory's place in the tree.
#[derive(Clone, Copy, Debug, Default)]
struct Parents {
    /// Whose entry names it.
    named_in: u32,
    /// What its `..` says.
    dot_dot: u32,
}

/// An attribute block and who uses it.
#[derive(Clone, Copy, Debug)]
struct XattrBlock {
    references: u32,
    found: u32,
    sound: bool,
    values: ValueUse,
}

/// A check under way.
struct Checker<'d> {
    reader: Reader<'d>,
    superblock: Superblock,
    layout: Layout,
    descriptors: Vec<GroupDescriptor>,
    used: UsedClusters,
    /// With clusters, the blocks of the volume's own structures, which may share a cluster but no block: first block and count.
    own_runs: Vec<(FsBlock, u64, Place)>,
    shared: BTreeSet<(u64, u64)>,
    /// Blocks that files use which others use too, where that is allowed; each time counts.
    shared_uses: u64,
    notes: InodeNotes,
    directories: Vec<DirectoryWork>,
    parents: HashMap<u32, Parents>,
    xattr_blocks: HashMap<u64, XattrBlock>,
    /// Inodes that hold values of attributes, and how often they are used; 0 for those of Lustre, which do not count that.
    value_inodes: HashMap<u32, u64>,
    /// Inodes that say that they hold one.
    value_holders: BTreeSet<u32>,
    /// Encryption policies of inodes that have one.
    policies: HashMap<u32, Box<[u8]>>,
    orphans: BTreeSet<u32>,
    /// The first file that needs the feature `large_file`.
    large_file: Option<u32>,
    usage: Usage,
    journal: JournalState,
    findings: Findings,
    progress: &'d mut dyn FnMut(CheckProgress),
}

/// As [`check()`], but a journal that has not been replayed is replayed in memory first, as it would be when the volume is
/// opened. Nothing is written.
///
/// # Errors
/// As [`check()`].
pub fn check_replayed(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let (superblock, backup) = match find_superblock(&**device) {
        Ok(found) if found.0.features().unreadable().is_empty() => found,
        // Reported by the check.
        _ => return check(&**device, options, progress),
    };
    let dirty = superblock.features().has_incompat(Incompat::RECOVER) || backup.is_some();
    if !dirty || superblock.journal_inode().is_none() {
        return check(&**device, options, progress);
    }
    let (mut report, damage) = match replay_in_memory(device, &superblock, backup.is_some()) {
        Ok(replayed) => {
            let mut report = check_as(&*replayed.device, options, JournalState::Replayed, progress)?;
            if replayed.blocks > 0 {
                let what = format!("the journal was replayed in memory: {} blocks", replayed.blocks);
                report.notes.insert(0, what);
            }
            (report, replayed.damage)
        }
        Err(Error::Corrupt(damage)) => (check(&**device, options, progress)?, Some(damage)),
        Err(error) => return Err(error),
    };
    if let Some(damage) = damage {
        let what = format!("the journal cannot be replayed: {damage}");
        report.problem_count += 1;
        let (inode, block, group) = (superblock.journal_inode().map(|inode| inode.0), None, None);
        report.problems.insert(0, Problem { kind: ProblemKind::Journal, inode, block, group, what });
    }
    Ok(report)
}

/// Check the volume on `device`, as it stands there. `progress` receives the phase. An error means that the check could not be made (the
/// device failed, there is no volume, or it uses features that are not known); what is wrong with the volume
/// is in the report.
///
/// # Errors
/// The device failed, or there is no superblock at all. What is wrong with the volume is in the report.
pub fn check(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    check_as(device, options, JournalState::AsFound, progress)
}

/// Whether the journal's content is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalState {
    AsFound,
    Replayed,
}

fn check_as(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    journal: JournalState,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let mut findings = Findings::new(options);
    let (superblock, backup) = match find_superblock(device) {
        Ok(found) => found,
        Err(Error::Corrupt(corrupt)) if !matches!(corrupt, diorite_ext_format::Corrupt::Magic { .. }) => {
            findings.add(ProblemKind::Superblock, Place::VOLUME, corrupt.to_string());
            findings.report.incomplete = true;
            return Ok(findings.report);
        }
        Err(error) => return Err(error),
    };
    if let Some(backup) = backup {
        let what = format!("{}; checked by the backup in block {}", backup.damage, backup.block);
        findings.add(ProblemKind::Superblock, Place::VOLUME, what);
    }
    let mut unknown = superblock.features().unreadable();
    unknown.extend(superblock.features().unknown());
    if !unknown.is_empty() {
        unknown.dedup();
        return Err(Incompatible::Features { names: unknown.join(", ") }.into());
    }
    let layout = Layout::new(&superblock);
    let capacity = device.geometry().capacity_bytes;
    if layout.blocks_count > capacity / layout.block_size.bytes() {
        let what = format!(
            "the volume has {} blocks of {} bytes, but the device ends after {capacity} bytes",
            layout.blocks_count,
            layout.block_size.bytes()
        );
        findings.add(ProblemKind::Superblock, Place::VOLUME, what);
        findings.report.incomplete = true;
        return Ok(findings.report);
    }
    let mut checker = Checker {
        reader: Reader { device, layout },
        layout,
        descriptors: Vec::new(),
        used: UsedClusters::new(layout),
        own_runs: Vec::new(),
        shared: BTreeSet::new(),
        shared_uses: 0,
        notes: InodeNotes::new(&layout),
        directories: Vec::new(),
        parents: HashMap::new(),
        xattr_blocks: HashMap::new(),
        value_inodes: HashMap::new(),
        value_holders: BTreeSet::new(),
        policies: HashMap::new(),
        orphans: BTreeSet::new(),
        large_file: None,
        usage: Usage::new(&superblock),
        journal,
        superblock,
        findings,
        progress,
    };
    checker.run()?;
    Ok(checker.findings.report)
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        if !self.check_groups()? {
            self.findings.report.incomplete = true;
            return Ok(());
        }
        self.collect_orphans()?;
        self.check_inodes()?;
        self.check_special_inodes()?;
        self.explain_shared_blocks()?;
        self.check_directories()?;
        self.check_links();
        self.check_xattr_blocks();
        self.check_bitmaps()?;
        self.check_quota()
    }

    fn problem(&mut self, kind: ProblemKind, place: Place, what: impl Into<String>) {
        self.findings.add(kind, place, what);
    }

    fn progress(&mut self, phase: CheckPhase, done: u64, total: u64) {
        (self.progress)(CheckProgress { phase, done, total });
    }
}
