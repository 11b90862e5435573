//! The report of a check: problems with their location, and totals.

use std::fmt;

/// Options of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Problems that are kept in full; the rest is counted only.
    pub max_problems: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { max_problems: 1000 }
    }
}

/// Part of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckPhase {
    /// Superblock, backups, descriptors.
    Groups,
    /// Inodes and their blocks.
    Inodes,
    /// Entries of directories.
    Directories,
    /// Names and link counts.
    Links,
    /// Bitmaps and counts.
    Bitmaps,
}

impl fmt::Display for CheckPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Groups => "groups",
            Self::Inodes => "inodes",
            Self::Directories => "directories",
            Self::Links => "links",
            Self::Bitmaps => "bitmaps",
        })
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// The part.
    pub phase: CheckPhase,
    /// Steps of it that are done.
    pub done: u64,
    /// Steps of it in all.
    pub total: u64,
}

/// Class of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The superblock contradicts itself or the device.
    Superblock,
    /// A group descriptor, or where a group's own blocks are.
    GroupDescriptor,
    /// A block bitmap that differs from the blocks in use.
    BlockBitmap,
    /// An inode bitmap that differs from the inodes in use.
    InodeBitmap,
    /// A field of an inode.
    Inode,
    /// A map of file blocks.
    Mapping,
    /// A block that is used twice.
    SharedBlock,
    /// A directory's blocks, entries or index.
    Directory,
    /// Something that no name leads to, or a wrong parent.
    Connectivity,
    /// A wrong number of links.
    LinkCount,
    /// The list or the file of removed files.
    Orphan,
    /// Extended attributes.
    Xattr,
    /// A wrong number of free blocks or inodes, or of directories.
    Count,
    /// The journal.
    Journal,
    /// The inode that reserves space for growth.
    Resize,
    /// Usage of users, groups and projects.
    Quota,
}

/// A contradiction, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Class.
    pub kind: ProblemKind,
    /// The inode, if one is concerned.
    pub inode: Option<u32>,
    /// The block on the volume, or in the directory, if one is concerned.
    pub block: Option<u64>,
    /// The group, if one is concerned.
    pub group: Option<u32>,
    /// The problem, as a sentence without the location.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(group) = self.group {
            write!(f, "group {group}: ")?;
        }
        if let Some(inode) = self.inode {
            write!(f, "inode {inode}: ")?;
        }
        if let Some(block) = self.block {
            write!(f, "block {block}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The first problems, in the order found.
    pub problems: Vec<Problem>,
    /// All problems, those not kept included.
    pub problem_count: u64,
    /// Remarks that are not problems.
    pub notes: Vec<String>,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Of these, regular files.
    pub files: u64,
    /// Of these, directories.
    pub directories: u64,
    /// Of these, symbolic links.
    pub symlinks: u64,
    /// Of these, device nodes, pipes and sockets.
    pub special_files: u64,
    /// Blocks in use, the volume's own included.
    pub blocks_used: u64,
    /// Files whose blocks are in more than one piece.
    pub fragmented: u64,
    /// Whether a part was not checked: because of earlier problems, or because the journal is on another device.
    pub incomplete: bool,
}

impl CheckReport {
    /// Whether everything was looked at and nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0 && !self.incomplete
    }

    /// Whether there is a problem of that class among those kept.
    pub fn has(&self, kind: ProblemKind) -> bool {
        self.problems.iter().any(|problem| problem.kind == kind)
    }
}

/// Collects problems, and tells the caller how far the check is.
pub(super) struct Findings<'p> {
    pub(super) report: CheckReport,
    max: usize,
    progress: &'p mut dyn FnMut(CheckProgress),
}

/// Where a problem is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Location {
    pub(super) inode: Option<u32>,
    pub(super) block: Option<u64>,
    pub(super) group: Option<u32>,
}

impl Location {
    pub(super) const VOLUME: Self = Self { inode: None, block: None, group: None };

    pub(super) const fn inode(inode: u32) -> Self {
        Self { inode: Some(inode), ..Self::VOLUME }
    }

    pub(super) const fn group(group: u32) -> Self {
        Self { group: Some(group), ..Self::VOLUME }
    }

    pub(super) const fn block(block: u64) -> Self {
        Self { block: Some(block), ..Self::VOLUME }
    }

    pub(super) const fn and_block(self, block: u64) -> Self {
        Self { block: Some(block), ..self }
    }
}

/// An inode.
impl From<u32> for Location {
    fn from(inode: u32) -> Self {
        Self::inode(inode)
    }
}

impl<'p> Findings<'p> {
    pub(super) fn new(options: &CheckOptions, progress: &'p mut dyn FnMut(CheckProgress)) -> Self {
        Self { report: CheckReport::default(), max: options.max_problems, progress }
    }

    pub(super) fn progress(&mut self, phase: CheckPhase, done: impl Into<u64>, total: impl Into<u64>) {
        (self.progress)(CheckProgress { phase, done: done.into(), total: total.into() });
    }

    pub(super) fn add(&mut self, kind: ProblemKind, place: Location, what: impl Into<String>) {
        self.report.problem_count += 1;
        if self.report.problems.len() < self.max {
            let Location { inode, block, group } = place;
            self.report.problems.push(Problem { kind, inode, block, group, what: what.into() });
        }
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        if self.report.notes.len() < self.max {
            self.report.notes.push(what.into());
        }
    }
}
