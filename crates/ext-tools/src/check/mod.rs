//! Checks a volume without writing to it, and reports problems with their location.
//!
//! The order is that of e2fsck: first the group descriptors (`groups`), then each inode and its blocks
//! (`inodes`, `claim`, `xattrs`), then each directory (`directories`, `index`), then connectivity and link counts (`links`), then
//! bitmaps and counts (`bitmaps`). Each part relies only on structures that the parts before it verified.
//!
//! Invariants:
//! 1. Nothing is written.
//! 2. Memory grows with the blocks and inodes in use: one bit for a cluster and a few bytes for an inode, in groups that have any.
//! 3. Each block of a map or a directory is read at most once for its first owner, whatever the image claims. Those that an
//!    inode names itself are read ahead, if no earlier inode uses them (`read_ahead`).
//!
//! Reads: each part knows which blocks come next, and reads them in windows ([`BlockReader::read_ahead`]).

mod bitmaps;
mod claim;
mod directories;
mod fields;
mod groups;
mod index;
mod inodes;
mod links;
mod orphans;
mod quota;
mod read_ahead;
mod report;
mod shared;
mod special;
mod used;
mod volume;
mod xattrs;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use diorite_block::BlockDevice;

pub use report::{CheckOptions, CheckPhase, CheckProgress, CheckReport, Problem, ProblemKind};

use bitmaps::BitmapCheck;
use claim::FileBlocks;
use diorite_ext::{BlockReader, Error, Result, find_superblock, replay_in_memory};
use diorite_ext_format::superblock::ENCODING_UTF8;
use diorite_ext_format::{Compat, FsBlock, Incompatible, RoCompat, Superblock};
use diorite_ext_format::{Incompat, InodeFlags, Layout, casefold};
use directories::DirectoryCheck;
use groups::GroupCheck;
use inodes::InodeCheck;
use links::LinkCheck;
use orphans::OrphanCheck;
use quota::{QuotaCheck, Usage};
use report::{Findings, Location};
use special::SpecialFiles;
use used::{InodeNotes, UsedClusters};
use volume::Volume;
use xattrs::Xattrs;

/// Blocks in a row of a file: block of the file, block of the volume, number.
type Run = (u64, FsBlock, u64);

/// A directory as the inode scan leaves it for the directory scan.
#[derive(Debug)]
struct DirectoryWork {
    inode: u32,
    generation: u32,
    size: u64,
    indexed: bool,
    names: NameForm,
    /// In order and short.
    runs: Vec<Run>,
    /// Inline data, instead of blocks: first part (with the parent), and the part in the attribute.
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

    /// The folded form of a name, or the name itself.
    fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::Folded { casefold::key(name) } else { Cow::Borrowed(name) }
    }
}

/// The position of a directory in the tree.
#[derive(Clone, Copy, Debug, Default)]
struct TreePosition {
    /// Whose entry names it.
    named_in: u32,
    /// The inode of its entry `..`.
    dot_dot: u32,
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
        Ok((replayed, blocks, damage)) => {
            let mut report = check_as(&*replayed, options, JournalState::Replayed, progress)?;
            if blocks > 0 {
                let what = format!("the journal was replayed in memory: {blocks} blocks");
                report.notes.insert(0, what);
            }
            (report, damage)
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

/// Check the volume on `device` without its journal. `progress` receives the phase. The report has the problems of the volume.
///
/// # Errors
/// The check cannot be made: the device failed, there is no superblock, or the volume has features that Diorite does not know.
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
    let mut findings = Findings::new(options, progress);
    let (superblock, backup) = match find_superblock(device) {
        Ok(found) => found,
        Err(Error::Corrupt(corrupt)) if !matches!(corrupt, diorite_ext_format::Corrupt::Magic { .. }) => {
            findings.add(ProblemKind::Superblock, Location::VOLUME, corrupt.to_string());
            findings.report.incomplete = true;
            return Ok(findings.report);
        }
        Err(error) => return Err(error),
    };
    if let Some(backup) = backup {
        let what = format!("{}; checked by the backup in block {}", backup.damage, backup.block);
        findings.add(ProblemKind::Superblock, Location::VOLUME, what);
    }
    let mut unknown = superblock.features().unreadable();
    unknown.extend(superblock.features().unknown());
    if !unknown.is_empty() {
        unknown.dedup();
        return Err(Incompatible::Features { names: unknown.join(", ") }.into());
    }
    check_dependencies(&superblock, &mut findings);
    let layout = Layout::new(&superblock);
    let capacity = device.geometry().capacity_bytes;
    if layout.blocks_count > capacity / layout.block_size.bytes() {
        let what = format!(
            "the volume has {} blocks of {} bytes, but the device has only {capacity} bytes",
            layout.blocks_count,
            layout.block_size.bytes()
        );
        findings.add(ProblemKind::Superblock, Location::VOLUME, what);
        findings.report.incomplete = true;
        return Ok(findings.report);
    }
    let reader = BlockReader::new(device, layout);
    run(Volume { reader, superblock, layout, descriptors: Vec::new() }, journal, &mut findings)?;
    Ok(findings.report)
}

/// Features that need another feature, or a field.
fn check_dependencies(superblock: &Superblock, findings: &mut Findings<'_>) {
    let features = superblock.features();
    let has_journal = features.has_compat(Compat::HAS_JOURNAL);
    let rules = [
        (
            features.has_incompat(Incompat::RECOVER) && !has_journal,
            "the journal needs recovery, but the volume has no journal",
        ),
        (
            features.has_ro_compat(RoCompat::BIGALLOC) && !features.has_incompat(Incompat::EXTENTS),
            "bigalloc needs the feature extent",
        ),
        (
            features.has_ro_compat(RoCompat::ORPHAN_PRESENT) && !features.has_compat(Compat::ORPHAN_FILE),
            "orphans are recorded in an orphan file, but the volume has none",
        ),
        (
            superblock.encoding().is_some_and(|encoding| encoding != ENCODING_UTF8),
            "the encoding of names that ignore case (casefold) is unknown",
        ),
    ];
    for (_, what) in rules.into_iter().filter(|(is_broken, _)| *is_broken) {
        findings.add(ProblemKind::Superblock, Location::VOLUME, what);
    }
}

/// All parts of the check, in order.
fn run<'d>(mut volume: Volume<'d>, journal: JournalState, findings: &mut Findings<'d>) -> Result<()> {
    let mut used = UsedClusters::new(volume.layout);
    if !GroupCheck::new(&mut volume, &mut used, findings).run()? {
        findings.report.incomplete = true;
        return Ok(());
    }
    let volume = &volume;
    let mut orphans = OrphanCheck { volume, orphans: BTreeSet::new(), findings };
    orphans.run()?;
    let OrphanCheck { orphans, .. } = orphans;
    let (mut blocks, mut notes) = (FileBlocks::new(used), InodeNotes::new(&volume.layout));
    let (mut xattrs, mut usage) = (Xattrs::default(), Usage::new(&volume.superblock));
    let mut inodes = InodeCheck {
        volume,
        orphans: &orphans,
        blocks: &mut blocks,
        notes: &mut notes,
        xattrs: &mut xattrs,
        usage: &mut usage,
        directories: Vec::new(),
        findings,
    };
    inodes.run()?;
    let directories = inodes.directories;
    SpecialFiles { volume, used: &mut blocks.used, journal, findings }.run()?;
    blocks.shared.explain(volume, &notes, findings)?;
    let (parents, policies) = (HashMap::new(), &xattrs.policies);
    let mut tree = DirectoryCheck { volume, notes: &mut notes, parents, policies, ready: 0, findings };
    tree.run(&directories)?;
    let parents = tree.parents;
    LinkCheck { volume, notes: &notes, parents: &parents, findings }.run();
    xattrs.check_references(findings);
    xattrs.check_value_inodes(volume, &notes, findings)?;
    BitmapCheck { volume, used: &blocks.used, notes: &notes, findings }.run()?;
    QuotaCheck { volume, findings }.run(usage)
}

#[cfg(test)]
mod tests {
    use diorite_ext_format::{Features, Incompat};

    /// The check accepts each readable feature: a new one needs a rule here. The second column is the module of its rules.
    #[test]
    fn each_readable_feature_has_a_rule() {
        let rules = [
            (Incompat::FILETYPE, "directories"),
            (Incompat::RECOVER, "mod: check_dependencies"),
            (Incompat::META_BG, "groups"),
            (Incompat::EXTENTS, "claim"),
            (Incompat::SIXTY_FOUR_BIT, "groups"),
            (Incompat::MMP, "groups"),
            (Incompat::FLEX_BG, "groups"),
            (Incompat::EA_INODE, "xattrs"),
            (Incompat::CSUM_SEED, "volume"),
            (Incompat::LARGE_DIR, "fields"),
            (Incompat::INLINE_DATA, "fields"),
            (Incompat::ENCRYPT, "xattrs"),
            (Incompat::CASEFOLD, "directories"),
        ];
        let checked = rules.iter().fold(Incompat::empty(), |all, (feature, _)| all | *feature);
        assert_eq!(checked, Features::READABLE_INCOMPAT);
    }
}
