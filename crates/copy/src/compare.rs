//! The differences of two trees, and which files of a destination are out of date.
//!
//! Where it sits: above the two sides of a copy. Both trees are only read, except by [`remove_extra`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::{FileKind, Timestamp};

use crate::selected::Exclude;
use crate::tree::{Entered, Follow, Item, Meta, Sink, Source};
use crate::{Error, Watch};

/// Size of a read when contents are compared.
const CHUNK_BYTES: usize = 1 << 20;

/// The differences between two files of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the first tree has it.
    OnlyFirst(Meta),
    /// Only the second tree has it.
    OnlySecond(Meta),
    /// Attributes or content: a word such as `size` or `permissions`, and both values.
    Changed(Vec<(&'static str, String, String)>),
}

/// The scope of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompareOptions {
    /// Contents of files are equal if size and modification time are.
    pub trusts_times: bool,
    /// Owners, permissions, times and extended attributes do not count.
    pub only_content: bool,
}

/// A side of a comparison: a tree, and the path where it begins.
pub type Start<'a> = (&'a dyn Source, &'a Path);

/// Call `found` for each difference of two trees, with the path below their starts, in the order of paths.
///
/// # Errors
/// A directory or file cannot be read, or the comparison was cancelled.
pub fn compare(
    first: Start<'_>,
    second: Start<'_>,
    options: CompareOptions,
    watch: &dyn Watch,
    found: &mut dyn FnMut(&Path, &Difference) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut comparison = Comparison { first, second, options, watch, found, entered: Entered::default() };
    comparison.file(Path::new(""), 0)
}

struct Comparison<'a, 'f> {
    first: Start<'a>,
    second: Start<'a>,
    options: CompareOptions,
    watch: &'a dyn Watch,
    found: &'f mut dyn FnMut(&Path, &Difference) -> Result<(), Error>,
    /// Directories of the first tree that were entered.
    entered: Entered,
}

/// A path below a start.
fn below(start: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { start.to_owned() } else { start.join(path) }
}

impl Comparison<'_, '_> {
    fn file(&mut self, path: &Path, depth: usize) -> Result<(), Error> {
        if self.watch.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let (one, other) = (below(self.first.1, path), below(self.second.1, path));
        let (a, b) = (self.first.0.meta(&one, Follow::No)?, self.second.0.meta(&other, Follow::No)?);
        let mut changes = Vec::new();
        let mut differs = |what, one: String, other: String| {
            if one != other {
                changes.push((what, one, other));
            }
        };
        // At the resolution of both: one of them may be a copy of the other.
        let [a_time, b_time] =
            [&a, &b].map(|meta| self.first.0.kept_time(self.second.0.kept_time(meta.modified)));
        differs("kind", format!("{:?}", a.kind), format!("{:?}", b.kind));
        if a.kind == b.kind {
            if !self.options.only_content {
                differs("permissions", format!("{:04o}", a.permissions), format!("{:04o}", b.permissions));
                differs("owner", format!("{}:{}", a.uid, a.gid), format!("{}:{}", b.uid, b.gid));
                if a.kind != FileKind::Symlink {
                    differs("time", time(a_time), time(b_time));
                }
                let attributes = |source: &dyn Source, path: &Path| {
                    source.attributes(path).map(|list| format!("{list:?}"))
                };
                let (list, others) = (attributes(self.first.0, &one)?, attributes(self.second.0, &other)?);
                if list != others {
                    differs("extended attributes", String::new(), "other".to_owned());
                }
            }
            match a.kind {
                FileKind::Regular => {
                    differs("size", a.size.to_string(), b.size.to_string());
                    let is_trusted = self.options.trusts_times && a_time == b_time;
                    if a.size == b.size && !is_trusted && !self.has_same_content((&one, &a), (&other, &b))? {
                        differs("content", String::new(), "other".to_owned());
                    }
                }
                FileKind::Symlink => {
                    let target = |source: &dyn Source, path: &Path| {
                        source.link_target(path).map(|target| String::from_utf8_lossy(&target).into_owned())
                    };
                    differs("target", target(self.first.0, &one)?, target(self.second.0, &other)?);
                }
                FileKind::CharacterDevice | FileKind::BlockDevice => {
                    differs("device", format!("{:?}", a.device), format!("{:?}", b.device));
                }
                _ => {}
            }
        }
        if !changes.is_empty() {
            (self.found)(path, &Difference::Changed(changes))?;
        }
        if a.kind == FileKind::Directory && b.kind == FileKind::Directory {
            self.entered.enter(Item { source: self.first.0, path: &one, meta: &a }, depth)?;
            self.entries(path, depth)?;
        }
        Ok(())
    }

    /// Compare the entries of two directories. Both lists are sorted.
    fn entries(&mut self, path: &Path, depth: usize) -> Result<(), Error> {
        let names = |(source, start): Start<'_>| -> Result<Vec<Vec<u8>>, Error> {
            let names = source.names(&below(start, path))?;
            names.damage.map_or(Ok(names.names), Err)
        };
        let (ours, theirs) = (names(self.first)?, names(self.second)?);
        let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
        loop {
            let (name, is_ours, is_theirs) = match (ours.peek(), theirs.peek()) {
                (None, None) => return Ok(()),
                (Some(one), None) => (*one, true, false),
                (None, Some(other)) => (*other, false, true),
                (Some(one), Some(other)) => ((*one).min(*other), one <= other, other <= one),
            };
            let path = path.join(OsStr::from_bytes(name));
            match (is_ours, is_theirs) {
                (true, true) => self.file(&path, depth + 1)?,
                (true, false) => {
                    let meta = self.first.0.meta(&below(self.first.1, &path), Follow::No)?;
                    (self.found)(&path, &Difference::OnlyFirst(meta))?;
                }
                _ => {
                    let meta = self.second.0.meta(&below(self.second.1, &path), Follow::No)?;
                    (self.found)(&path, &Difference::OnlySecond(meta))?;
                }
            }
            if is_ours {
                ours.next();
            }
            if is_theirs {
                theirs.next();
            }
        }
    }

    fn has_same_content(&self, one: (&Path, &Meta), other: (&Path, &Meta)) -> Result<bool, Error> {
        let (a, b) = (self.first.0.open(one.0, one.1)?, self.second.0.open(other.0, other.1)?);
        let (mut memory, mut others) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let mut at = 0;
        while at < one.1.size {
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            // Both have holes here.
            let next = match (a.next_data(at)?, b.next_data(at)?) {
                (None, None) => return Ok(true),
                (Some((start, _)), None) | (None, Some((start, _))) => start,
                (Some((start, _)), Some((other, _))) => start.min(other),
            };
            at = at.max(next / CHUNK_BYTES as u64 * CHUNK_BYTES as u64);
            let (count, other_count) = (a.read_at(&mut memory, at)?, b.read_at(&mut others, at)?);
            if memory[..count] != others[..other_count] {
                return Ok(false);
            }
            if count == 0 {
                return Ok(true);
            }
            at += count as u64;
            self.watch.advance(count as u64);
        }
        Ok(true)
    }
}

fn time(Timestamp { seconds, nanoseconds }: Timestamp) -> String {
    format!("{seconds}.{nanoseconds:09}")
}

/// Whether a file of the destination is up to date: same kind, size and modification time, or same target or device.
pub(crate) fn is_up_to_date(
    source: &dyn Source,
    from: &Path,
    meta: &Meta,
    sink: &dyn Sink,
    to: &Path,
    existing: &Meta,
) -> Result<bool, Error> {
    Ok(meta.kind == existing.kind
        && match meta.kind {
            FileKind::Regular => {
                meta.size == existing.size && sink.kept_time(meta.modified) == existing.modified
            }
            FileKind::Symlink => source.link_target(from)? == sink.link_target(to)?,
            FileKind::CharacterDevice | FileKind::BlockDevice => meta.device == existing.device,
            _ => true,
        })
}

/// A tree that is compared and changed.
pub trait Side: Source + Sink {}

impl<T: Source + Sink> Side for T {}

/// Remove what `destination` has and `source` does not, below directories that both have. A name that `keeps` says stays, with the directories
/// above it. `removed` gets each path; with `dry_run` nothing is removed.
///
/// # Errors
/// A directory cannot be read, a file cannot be removed or holds the image of the other side, or the watch is cancelled.
pub fn remove_extra(
    source: Start<'_>,
    destination: (&dyn Side, &Path),
    keeps: &Exclude<'_>,
    dry_run: bool,
    watch: &dyn Watch,
    removed: &mut dyn FnMut(&Path),
) -> Result<(), Error> {
    let entered = Entered::default();
    let mut removal = Removal { destination, keeps, dry_run, watch, removed, entered };
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        if watch.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let (from, to) = (below(source.1, &path), below(destination.1, &path));
        let wanted = source.0.names(&from)?;
        if let Some(damage) = wanted.damage {
            // Names that cannot be read must not count as missing.
            return Err(damage);
        }
        for name in destination.0.names(&to)?.names {
            let at = path.join(OsStr::from_bytes(&name));
            let meta = destination.0.meta(&below(destination.1, &at), Follow::No)?;
            let is_directory = meta.kind == FileKind::Directory;
            if keeps(&at, &|| is_directory) {
                continue;
            }
            let is_wanted = wanted.names.binary_search(&name).is_ok();
            let ours = is_wanted.then(|| source.0.meta(&below(source.1, &at), Follow::No)).transpose()?;
            match ours {
                // A file and a directory do not replace each other.
                Some(ours) if (ours.kind == FileKind::Directory) == is_directory => {
                    if is_directory {
                        waiting.push(at);
                    }
                }
                _ => {
                    removal.remove(&at, &meta, 0)?;
                }
            }
        }
    }
    Ok(())
}

struct Removal<'a, 'f> {
    destination: (&'a dyn Side, &'a Path),
    keeps: &'a Exclude<'a>,
    dry_run: bool,
    watch: &'a dyn Watch,
    removed: &'f mut dyn FnMut(&Path),
    entered: Entered,
}

impl Removal<'_, '_> {
    /// Remove a file, or a directory with everything in it that is not kept. Returns whether it is gone. `path` is below the destination.
    fn remove(&mut self, path: &Path, meta: &Meta, depth: usize) -> Result<bool, Error> {
        if self.watch.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let side = self.destination.0;
        let there = below(self.destination.1, path);
        let is_directory = meta.kind == FileKind::Directory;
        if is_directory {
            self.entered.enter(Item { source: side, path: &there, meta }, depth)?;
            let mut is_empty = true;
            for name in side.names(&there)?.names {
                let entry = path.join(OsStr::from_bytes(&name));
                let meta = side.meta(&below(self.destination.1, &entry), Follow::No)?;
                let is_kept = (self.keeps)(&entry, &|| meta.kind == FileKind::Directory);
                let is_gone = !is_kept && self.remove(&entry, &meta, depth + 1)?;
                is_empty &= is_gone;
            }
            if !is_empty {
                return Ok(false);
            }
        }
        if side.is_image(meta) {
            let why = "this copy uses it as an image; leave it out with --exclude".to_owned();
            return Err(Error::Refused { name: side.name_of(&there), what: "not removed", why });
        }
        if !self.dry_run {
            if is_directory { side.remove_directory(&there)? } else { side.remove(&there)? }
        }
        (self.removed)(&there);
        Ok(true)
    }
}
