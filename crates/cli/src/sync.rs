//! The commands sync and diff: two trees, of images or of the host.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::{Access, FileKind};
use diorite_copy::{
    Clobber, CompareOptions, Copier, CopyOptions, Depth, Difference, Follow, OnFailure, Rehearsal, Selected,
    Selection, Sink, Source, Sync, compare, is_within, remove_extra,
};
use diorite_files::Pattern;
use serde_json::{Value, json};

use crate::args::{Diff, SyncTrees};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path};
use crate::progress::{CopyProgress, CopySays};
use crate::sides::{is_same_side, open_side, summary_json};

/// Where a source goes.
enum Place {
    /// To the destination itself, which can be a link to a directory.
    Content(PathBuf),
    /// To an entry of the destination. A link there is not followed.
    Entry(PathBuf),
}

impl Place {
    /// A source without a trailing slash is an entry of the destination, as in rsync.
    fn of(from: &Location, to: &Location) -> Self {
        let (from, to) = (from.path_inside(), to.path_inside());
        let bytes = from.as_os_str().as_bytes();
        let has_slash = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        match from.file_name() {
            Some(name) if !has_slash => Self::Entry(to.join(name)),
            _ => Self::Content(to.to_owned()),
        }
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
        return refused("it is inside of the destination");
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

pub(crate) fn sync(arguments: &SyncTrees, images: &mut Images, output: &mut Output) -> Result<()> {
    let (from, to) = (&arguments.from, &arguments.to);
    if !arguments.dry_run {
        interrupt::is_changing();
    }
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let target = open_side(to, access, std::slice::from_ref(from), images)?;
    let access = if is_same_side(from, to) { access } else { Access::ReadOnly };
    let source = open_side(from, access, std::slice::from_ref(to), images)?;
    let place = Place::of(from, to);
    refuse_nesting(from, &*source, &*target, &place)?;
    let destination = place.path();
    let patterns: Vec<Pattern> = arguments.exclude.iter().map(|text| Pattern::new(text)).collect();
    let is_kept = |below: &Path| {
        let (name, below) = (below.file_name().unwrap_or_default().as_bytes(), below.as_os_str().as_bytes());
        patterns.iter().any(|pattern| pattern.fits(name) || pattern.fits(below))
    };
    let start = from.path_inside();
    let is_excluded = |path: &Path| is_kept(path.strip_prefix(start).unwrap_or(path));
    let exclude: Option<&dyn Fn(&Path) -> bool> = if patterns.is_empty() { None } else { Some(&is_excluded) };
    let selection = Selection { exclude, without_data: arguments.dry_run, ..Selection::default() };
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
    };
    let mut copier = Copier::new(sink, options, &progress);
    let copied = if is_directory && exists {
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

pub(crate) fn diff(arguments: &Diff, images: &mut Images, output: &mut Output) -> Result<()> {
    let open = |location: &Location, other: &Location, images: &mut Images| {
        open_side(location, Access::ReadOnly, std::slice::from_ref(other), images)
    };
    let first = open(&arguments.first, &arguments.second, images)?;
    let second = open(&arguments.second, &arguments.first, images)?;
    let options =
        CompareOptions { trusts_times: arguments.trust_times, only_content: arguments.only_content };
    let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
    let (first_start, second_start) = (arguments.first.path_inside(), arguments.second.path_inside());
    let (one, other): (&dyn Source, &dyn Source) = (&*first, &*second);
    let mut found: Vec<Value> = Vec::new();
    let mut count = 0u64;
    let json = arguments.common.reporting.json;
    let mut said = Ok(());
    compare((one, first_start), (other, second_start), options, &progress, &mut |path, difference| {
        count += 1;
        if json {
            found.push(json_difference(path, difference));
        } else if said.is_ok() {
            let at = |source: &dyn Source, start: &Path| {
                source.name_of(&if path.as_os_str().is_empty() { start.to_owned() } else { start.join(path) })
            };
            let line = match difference {
                Difference::OnlyFirst(_) => format!("only in first: {}", at(one, first_start)),
                Difference::OnlySecond(_) => format!("only in second: {}", at(other, second_start)),
                Difference::Changed(changes) => {
                    format!("{}: {}", at(one, first_start), changes_text(changes))
                }
            };
            said = output.line(visible(&line));
        }
        Ok(())
    })?;
    said?;
    if json {
        output.json(json!({ "command": "diff", "differences": found }))?;
    }
    if count == 0 { Ok(()) } else { Err(Failure::Reported) }
}

fn changes_text(changes: &[(&str, String, String)]) -> String {
    let text = |(what, one, other): &(&str, String, String)| match (one.is_empty(), other.as_str()) {
        (true, "other") => format!("{what} differ"),
        _ => format!("{what} {one} -> {other}"),
    };
    changes.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn json_difference(path: &Path, difference: &Difference) -> Value {
    let path = json_path(path);
    match difference {
        Difference::OnlyFirst(_) => json!({ "path": path, "only_in": "first" }),
        Difference::OnlySecond(_) => json!({ "path": path, "only_in": "second" }),
        Difference::Changed(changes) => {
            let changes: Vec<Value> = changes
                .iter()
                .map(|(what, one, other)| json!({ "what": what, "first": one, "second": other }))
                .collect();
            json!({ "path": path, "changes": changes })
        }
    }
}
