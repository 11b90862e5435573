//! The command sync: a tree made equal to another one, of images or of the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::{Access, FileKind};
use diorite_copy::{
    Clobber, Copier, CopyOptions, Depth, Follow, Meta, OnFailure, Rehearsal, Selected, Selection, Side, Sink,
    Source, Sync, is_within, remove_extra,
};
use diorite_files::Exclusions;

use crate::args::SyncTrees;
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path};
use crate::progress::{CopyProgress, CopySays};
use crate::sides::{is_same_side, open_side, summary_json};

/// The destination of a source.
enum Place {
    /// To the destination itself, which can be a link to a directory.
    Content(PathBuf),
    /// To an entry of the destination. A link there is not followed.
    Entry(PathBuf),
}

/// Whether a path stands for the content of a directory, as in rsync.
fn has_slash(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

impl Place {
    /// A source without a trailing slash is an entry of the destination, as in rsync. A single file can also be copied to another name.
    fn of(from: &Location, source: &dyn Source, to: &Location, target: &dyn Sink) -> Result<Self> {
        let (from, to) = (from.path_inside(), to.path_inside());
        let Some(name) = from.file_name().filter(|_| !has_slash(from)) else {
            return Ok(Self::Content(to.to_owned()));
        };
        let is_directory = |meta: Meta| meta.kind == FileKind::Directory;
        let renames = !has_slash(to)
            && !target.existing(to, Follow::Yes)?.is_some_and(is_directory)
            && !is_directory(source.meta(from, Follow::No)?);
        Ok(Self::Entry(if renames { to.to_owned() } else { to.join(name) }))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Content(path) | Self::Entry(path) => path,
        }
    }

    /// Whether a link at the path is followed, in the source and in the destination.
    fn follow(&self) -> Follow {
        match self {
            Self::Content(_) => Follow::Yes,
            Self::Entry(_) => Follow::No,
        }
    }
}

/// Reject a directory as the destination that is, has in it, or is in the source: the copy or the removal would change its own source.
fn refuse_nesting(from: &Location, source: &dyn Sink, target: &dyn Sink, place: &Place) -> Result<()> {
    let identity = |sink: &dyn Sink, path: &Path, follow| {
        let there = sink.existing(path, follow)?;
        Ok::<_, Failure>(there.filter(|at| at.kind == FileKind::Directory).map(|at| at.identity))
    };
    let Some(tree) = identity(source, from.path_inside(), place.follow())? else { return Ok(()) };
    let destination = identity(target, place.path(), place.follow())?;
    let refused =
        |why| Err(Failure::Failed(format!("{from}: not copied: {why}; choose another destination")));
    if destination == Some(tree) {
        return refused("source and destination are the same directory");
    }
    if destination.is_some_and(|there| is_within(source, from.path_inside(), there)) {
        return refused("it is inside the destination");
    }
    // The directory that the destination is or will be in.
    let above = place.path().ancestors().skip(usize::from(destination.is_none()));
    let above = above.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    let existing =
        above.into_iter().find(|path| target.existing(path, Follow::Yes).is_ok_and(|at| at.is_some()));
    if existing.is_some_and(|path| is_within(target, path, tree)) {
        return refused("the destination is inside of it");
    }
    Ok(())
}

/// Remove a file or a link that is where a directory will be, as [`remove_extra`] does with entries.
fn make_way(target: &dyn Sink, place: &Place, dry_run: bool) -> Result<Option<PathBuf>> {
    let path = place.path();
    let Some(there) = target.existing(path, place.follow())? else { return Ok(None) };
    if there.kind == FileKind::Directory || matches!(place, Place::Content(_)) || target.is_image(&there) {
        return Ok(None);
    }
    if !dry_run {
        target.remove(path)?;
    }
    Ok(Some(path.to_owned()))
}

/// Reject a file as the destination of the content of a directory.
fn refuse_other_content(from: &Location, to: &Location, target: &dyn Sink, place: &Place) -> Result<()> {
    let Place::Content(path) = place else { return Ok(()) };
    match target.existing(path, Follow::Yes)? {
        Some(there) if there.kind != FileKind::Directory => {
            let why = format!("{to} is not a directory; choose another destination");
            Err(Failure::Failed(format!("{from}: not copied: {why}")))
        }
        _ => Ok(()),
    }
}

/// Whether the file is the directory that e2fsck needs in the root of a volume, with nothing in it: a part of the volume and not of a tree.
pub(crate) fn is_own_lost_and_found(location: &Location, side: &dyn Side, path: &Path) -> bool {
    matches!(location, Location::Image { .. })
        && path == Path::new("/lost+found")
        && side.meta(path, Follow::No).is_ok_and(|meta| meta.kind == FileKind::Directory)
        && side.names(path).is_ok_and(|found| found.names.is_empty() && found.damage.is_none())
}

fn is_missing(side: &dyn Side, path: &Path) -> bool {
    side.existing(path, Follow::No).is_ok_and(|there| there.is_none())
}

pub(crate) fn sync(arguments: &SyncTrees, images: &mut Images, output: &mut Output) -> Result<()> {
    let (from, to) = (&arguments.from, &arguments.to);
    if !arguments.dry_run {
        interrupt::is_changing();
    }
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let target = open_side(to, access, std::slice::from_ref(from), images)?;
    let access = if is_same_side(from, to) { access } else { Access::ReadOnly };
    let source = open_side(from, access, std::slice::from_ref(to), images)?;
    let place = Place::of(from, &*source, to, &*target)?;
    refuse_nesting(from, &*source, &*target, &place)?;
    refuse_other_content(from, to, &*target, &place)?;
    let destination = place.path();
    let start = from.path_inside();
    let exclusions = Exclusions::new(&arguments.excluding.exclude);
    let name = match &place {
        Place::Content(_) => OsStr::new(""),
        Place::Entry(_) => start.file_name().unwrap_or_default(),
    };
    let is_left_out = |below: &Path, is_directory: &dyn Fn() -> bool| {
        exclusions.leave_out(Path::new(name), below, is_directory)
    };
    let is_excluded = |path: &Path, is_directory: &dyn Fn() -> bool| {
        let below = path.strip_prefix(start).unwrap_or(path);
        is_left_out(below, is_directory)
            || is_own_lost_and_found(from, &*source, path) && is_missing(&*target, &destination.join(below))
    };
    let is_kept = |below: &Path, is_directory: &dyn Fn() -> bool| {
        is_left_out(below, is_directory)
            || is_own_lost_and_found(to, &*target, &destination.join(below))
                && is_missing(&*source, &start.join(below))
    };
    let selection =
        Selection { exclude: Some(&is_excluded), without_data: arguments.dry_run, ..Selection::default() };
    let selected = Selected::new(&*source, selection, start);
    let is_directory = source.meta(start, place.follow())?.kind == FileKind::Directory;
    let (json, shows) = (arguments.common.reporting.json, arguments.verbose || arguments.dry_run);
    let says = CopySays { copied: shows && !json, ..CopySays::default() };
    let progress = CopyProgress::new(0, interrupt::cancel(), says);
    let mut removed: Vec<PathBuf> = Vec::new();
    let is_there = || {
        let there = target.existing(destination, place.follow())?;
        Ok::<_, Failure>(there.is_some_and(|there| there.kind == FileKind::Directory))
    };
    let exists = is_there()?;
    if arguments.delete && is_directory && !exists {
        removed.extend(make_way(&*target, &place, arguments.dry_run)?);
    }
    if arguments.delete && is_directory && exists {
        let mut note = |path: &Path| removed.push(path.to_owned());
        let there = (&*target, destination);
        remove_extra((&*source, start), there, &is_kept, arguments.dry_run, &progress, &mut note)?;
    }
    if shows && !json {
        for path in &removed {
            output.line(visible(&format!("removed {}", target.name_of(path))))?;
        }
        output.flush()?;
    }
    let rehearsal = Rehearsal::new(&*target, removed.iter().cloned());
    let sink: &dyn Sink = if arguments.dry_run { &rehearsal } else { &*target };
    let options = CopyOptions {
        clobber: Clobber::KeepSame,
        depth: Depth::Tree,
        sync: Sync::AtEnd,
        on_failure: OnFailure::GoOn,
        ..CopyOptions::default()
    };
    let mut copier = Copier::new(sink, options, &progress);
    if let Place::Entry(path) = &place
        && let Some(parent) = path.parent().filter(|parent| *parent == to.path_inside())
        && sink.existing(parent, Follow::Yes)?.is_none()
    {
        copier.make_destination(parent)?;
    }
    let copied = if is_left_out(Path::new(""), &|| is_directory) {
        Ok(())
    } else if is_directory && exists {
        copier.copy_content(&selected, start, destination)
    } else {
        copier.copy(&selected, start, destination)
    };
    let finished = copied.and_then(|()| copier.finish());
    progress.finish();
    let summary = finished?;
    if json {
        let mut value = summary_json("sync", &summary);
        value["removed"] = removed.iter().map(|path| json_path(path)).collect();
        output.json(value)?;
    }
    if summary.failed + summary.attributes_lost > 0 { Err(Failure::Reported) } else { Ok(()) }
}
