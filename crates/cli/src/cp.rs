//! The command cp.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use diorite::{Access, DirectIo, FileKind};
use diorite_copy::{
    Clobber, Copier, CopyOptions, Data, Depth, Exclude, Follow, Meta, OnFailure, Rehearsal, Selected,
    Selection, Side, Sink, Source, StandardInput, Sync, is_within,
};
use diorite_files::{Accounts, Exclusions, Ownership};

use crate::args::{Cp, HolesKept};
use crate::blocks;
use crate::cat::{cat, is_standard};
use crate::devices::refuse_to_destroy;
use crate::each::{for_each, is_worth_showing};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;
use crate::progress::{CopyProgress, CopySays};
use crate::sides::{image_of, is_same_side, name_of, open_side, summary_json};
use crate::verified::verify;

/// Reject a destination on the host that is an image. A slip of the pen, `disk.img` for `disk.img:/`, would replace it.
fn refuse_to_replace_disk(to: &Location, target: &dyn Sink) -> Result<()> {
    let can_be_disk = |meta: Meta| matches!(meta.kind, FileKind::Regular | FileKind::BlockDevice);
    if !target.existing(to.path_inside(), Follow::Yes)?.is_some_and(can_be_disk) {
        return Ok(());
    }
    refuse_to_destroy(&to.to_string(), "cp").map_err(|why| why.with(&format!("; a file in it is {to}:/path")))
}

/// The destination and the sources.
fn operands(arguments: &Cp) -> Result<(&Location, &[Location])> {
    match (&arguments.target_directory, arguments.paths.split_last()) {
        (Some(to), _) => Ok((to, &arguments.paths)),
        (None, Some((to, sources))) if !sources.is_empty() => Ok((to, sources)),
        _ => Err(Failure::Usage("cp: a destination is missing; write FROM... TO".to_owned())),
    }
}

/// Options of a copy.
fn options_of(arguments: &Cp) -> CopyOptions {
    let HolesKept = arguments.sparse;
    let recursive = arguments.recursive || arguments.archive;
    // Only a copy of trees copies links as links. Directories are refused before.
    let keeps_links = arguments.no_dereference || arguments.links_only;
    CopyOptions {
        clobber: match (arguments.no_clobber, arguments.update) {
            (true, _) => Clobber::Keep,
            (_, true) => Clobber::KeepNewer,
            _ => Clobber::Replace,
        },
        depth: if recursive || keeps_links || arguments.link { Depth::Tree } else { Depth::File },
        data: if arguments.link { Data::Link } else { Data::Copy },
        sync: if arguments.no_sync { Sync::Never } else { Sync::AtEnd },
        on_failure: OnFailure::GoOn,
    }
}

/// Reject hard links from one image to another.
fn refuse_impossible(arguments: &Cp, to: &Location, sources: &[Location]) -> Result<()> {
    let is_other = |from: &&Location| image_of(from).is_none() || !is_same_side(from, to);
    match sources.iter().find(is_other) {
        Some(from) if arguments.link => Err(Failure::Usage(format!(
            "{from}: not linked to {to}: a hard link cannot point to another image or to the host; leave out -l"
        ))),
        _ => Ok(()),
    }
}

/// Whether the sources become entries of `to`. Fails if they must and `to` is no directory.
fn is_directory_to_copy_into(
    arguments: &Cp,
    to: &Location,
    target: &dyn Sink,
    sources: usize,
) -> Result<bool> {
    let existing = target.existing(to.path_inside(), Follow::Yes)?;
    let is_directory = existing.is_some_and(|meta| meta.kind == FileKind::Directory);
    let is_directory = is_directory && !arguments.no_target_directory;
    if (arguments.target_directory.is_some() || arguments.parents) && !is_directory {
        let why = "it is not a directory; make it with `diorite mkdir -p`";
        return Err(Failure::Failed(format!("{to}: cannot copy into it: {why}")));
    }
    if sources > 1 && !is_directory {
        return Err(Failure::Usage(format!("{to}: several sources need a directory as destination")));
    }
    Ok(is_directory)
}

pub(crate) fn cp(arguments: &Cp, images: &mut Images, output: &mut Output) -> Result<()> {
    let (to, sources) = operands(arguments)?;
    if let Some(block) = arguments.bs {
        let direct = images.direct().unwrap_or(DirectIo::Preferred);
        return blocks::copy(arguments, (sources, to), block.0, direct, output);
    }
    let is_on_host = image_of(to).is_none() && sources.iter().all(|from| image_of(from).is_none());
    if let Location::Host(path) = to
        && is_standard(path)
    {
        if is_on_host {
            return Err(Failure::Usage(format!("{to}: only files in images go there; write IMAGE:/path")));
        }
        if arguments.common.reporting.json {
            return Err(Failure::Usage("--json and `-` both need standard output; leave one out".to_owned()));
        }
        return cat(sources, images, output);
    }
    refuse_impossible(arguments, to, sources)?;
    // A second signal must not leave a half-written file on the host.
    interrupt::is_changing();
    let target = open_side(to, Access::ReadWrite, sources, images)?;
    let mut all = Vec::new();
    for from in sources {
        let access = if is_same_side(from, to) { Access::ReadWrite } else { Access::ReadOnly };
        all.extend(images.expand(std::slice::from_ref(from), access)?);
    }
    let sources = &all;
    if is_on_host && !arguments.force {
        refuse_to_replace_disk(to, &*target)?;
    }
    let is_directory = is_directory_to_copy_into(arguments, to, &*target, sources.len())?;
    let owner = owner_of(arguments, to, images)?;
    let rehearsal = Rehearsal::new(&*target, []);
    let sink: &dyn Sink = if arguments.dry_run { &rehearsal } else { &*target };
    let mut jobs = Vec::new();
    for from in sources {
        let access = if is_same_side(from, to) { Access::ReadWrite } else { Access::ReadOnly };
        jobs.push((from, open_side(from, access, std::slice::from_ref(to), images)?));
    }
    let options = options_of(arguments);
    let total = total_of(&jobs, options.depth);
    let says = CopySays {
        copied: arguments.verbose || arguments.dry_run && !arguments.common.reporting.json,
        asks: arguments.interactive,
        ..CopySays::default()
    };
    let progress = CopyProgress::new(total, interrupt::cancel(), says);
    let mut copier = Copier::new(sink, options, &progress);
    let exclusions = Exclusions::new(&arguments.excluding.exclude);
    let parents = if arguments.parents { Parents::Copied } else { Parents::LeftOut };
    let mut destination =
        Destination { location: to, is_directory, parents, copied: HashSet::new(), made: Vec::new() };
    let copied = for_each(sources, |from| {
        let Some((_, side)) = jobs.iter().find(|(known, _)| *known == from) else { return Ok(()) };
        let start = from.path_inside();
        refuse_directory_without_r(arguments, &**side, from)?;
        let name = name_of(start).unwrap_or_default();
        let exclude = |path: &Path, is_directory: &dyn Fn() -> bool| {
            let below = path.strip_prefix(start).unwrap_or(path);
            exclusions.leave_out(Path::new(&name), below, is_directory)
        };
        let is_directory = || side.meta(start, Follow::No).is_ok_and(|meta| meta.kind == FileKind::Directory);
        if exclude(start, &is_directory) {
            return Ok(());
        }
        let selection = Selection {
            exclude: if exclusions.is_empty() { None } else { Some(&exclude as &Exclude<'_>) },
            follow_links: arguments.dereference,
            one_filesystem: arguments.one_file_system,
            uid: owner.uid,
            gid: owner.gid,
            without_data: arguments.dry_run,
        };
        copy_one(&mut copier, &Selected::new(&**side, selection, start), sink, from, &mut destination)
    });
    let finished = copier.finish();
    let verified = match &finished {
        Ok(_) if arguments.verify => verify(&jobs, &destination.made, &*target, arguments, &progress),
        _ => Ok(()),
    };
    progress.finish();
    if !is_worth_showing(&copied) {
        return copied;
    }
    let summary = finished?;
    if arguments.common.reporting.json {
        output.json(summary_json("cp", &summary))?;
    }
    verified?;
    if summary.failed + summary.attributes_lost > 0 { Err(Failure::Reported) } else { copied }
}

/// The bytes that a copy will move, if they are shown.
fn total_of(jobs: &[(&Location, Box<dyn Side>)], depth: Depth) -> u64 {
    if !CopyProgress::is_visible() {
        return 0;
    }
    let cancel = interrupt::cancel();
    let is_cancelled = || cancel.is_cancelled();
    let bytes = |(from, side): &(&Location, Box<dyn Side>)| {
        diorite_copy::data_bytes(&**side, from.path_inside(), depth, &is_cancelled)
    };
    jobs.iter().map(bytes).sum()
}

/// The owner that `--chown` gives to the copies.
fn owner_of(arguments: &Cp, to: &Location, images: &mut Images) -> Result<Ownership> {
    let Some(text) = &arguments.chown else { return Ok(Ownership::default()) };
    let accounts = match image_of(to) {
        Some(image) => Accounts::of(&images.open(image, Access::ReadWrite)?),
        None => Accounts::of_host(),
    };
    Ownership::parse(text, &accounts).map_err(|wrong| Failure::Usage(format!("--chown {wrong}")))
}

/// Whether a copy is below its parents, as `cp --parents` makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parents {
    LeftOut,
    Copied,
}

/// The destination of a copy.
struct Destination<'a> {
    location: &'a Location,
    is_directory: bool,
    parents: Parents,
    /// The identities of the copied files and directories.
    copied: HashSet<(u64, u64)>,
    /// Each source and its copy.
    made: Vec<(Location, PathBuf)>,
}

fn copy_one(
    copier: &mut Copier<'_>,
    source: &dyn Source,
    sink: &dyn Sink,
    from: &Location,
    destination: &mut Destination<'_>,
) -> Result<()> {
    let &mut Destination {
        location: to,
        is_directory: to_is_directory,
        parents,
        ref mut copied,
        ref mut made,
    } = destination;
    let (from_path, to_path) = (from.path_inside(), to.path_inside());
    if let Location::Host(path) = from
        && is_standard(path)
    {
        if to_is_directory {
            return Err(Failure::Usage(format!(
                "{to}: standard input needs a file name; write {}",
                example(to)
            )));
        }
        let name = Path::new(StandardInput::NAME);
        return Ok(copier.copy_stream(&mut StandardInput::new()?, name, &StandardInput::meta(), to_path)?);
    }
    let target: PathBuf = match name_of(from_path) {
        _ if parents == Parents::Copied => {
            let below = path_below_root(from_path)
                .ok_or_else(|| Failure::Usage(format!("{from}: --parents needs a path without `..`")))?;
            copier.copy_parents(source, from_path, to_path, &below)?;
            to_path.join(below)
        }
        Some(name) if to_is_directory => to_path.join(name),
        Some(_) => to_path.to_owned(),
        // A source without a name: its content is copied into the destination.
        None => {
            refuse_nesting(source, sink, from, to, to_path, to_path)?;
            if to_is_directory {
                copier.copy_content(source, from_path, to_path)?;
                made.push((from.clone(), to_path.to_owned()));
                return Ok(());
            }
            to_path.to_owned()
        }
    };
    refuse_nesting(source, sink, from, to, &target, target.parent().unwrap_or(&target))?;
    let identity = || Ok::<_, Failure>(sink.existing(&target, Follow::No)?.map(|meta| meta.identity));
    if identity()?.is_some_and(|there| copied.contains(&there)) {
        return Err(Failure::Failed(format!(
            "{from}: not copied: another source was just copied to {}; copy them one by one, or to different names",
            sink.name_of(&target)
        )));
    }
    copier.copy(source, from_path, &target)?;
    made.push((from.clone(), target.clone()));
    copied.extend(identity()?);
    Ok(())
}

/// The path without `/` and `.`; `None` if it has `..` or no name.
fn path_below_root(path: &Path) -> Option<PathBuf> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let below: PathBuf = path.components().filter(is_name).collect();
    let leads_up = below.components().any(|part| part == Component::ParentDir);
    (!leads_up && !below.as_os_str().is_empty()).then_some(below)
}

/// Reject a directory that is not copied recursively. Copies of links and hard links look like copies of trees below.
fn refuse_directory_without_r(arguments: &Cp, side: &dyn Side, from: &Location) -> Result<()> {
    if arguments.recursive || arguments.archive || is_standard(from.path_inside()) {
        return Ok(());
    }
    let meta = side.meta(from.path_inside(), Follow::No)?;
    if meta.kind == FileKind::Directory {
        return Err(Failure::Failed(format!("{from}: not copied: it is a directory; use -r")));
    }
    Ok(())
}

/// An example of a file name in a directory.
fn example(directory: &Location) -> String {
    let text = directory.to_string();
    format!("{}/NAME", text.trim_end_matches('/'))
}

/// Reject a copy onto itself, which would lose the file, and a copy into itself, which would not end. Links are followed. `into` is the
/// parent of `target`.
fn refuse_nesting(
    source: &dyn Source,
    sink: &dyn Sink,
    from: &Location,
    to: &Location,
    target: &Path,
    into: &Path,
) -> Result<()> {
    let from_path = from.path_inside();
    let is_on_host = image_of(from).is_none() && image_of(to).is_none();
    if !is_on_host && !is_same_side(from, to) {
        return Ok(());
    }
    let meta = source.meta(from_path, Follow::No).ok();
    let there = sink.existing(target, Follow::No)?.map(|there| there.identity);
    if from_path == target || there.is_some() && there == meta.as_ref().map(|meta| meta.identity) {
        return Err(Failure::Failed(format!("{from}: not copied: source and destination are the same file")));
    }
    let directory = meta.filter(|meta| meta.kind == FileKind::Directory);
    if directory.is_some_and(|meta| is_within(sink, into, meta.identity)) {
        let why = "the destination is inside the source; choose another destination";
        return Err(Failure::Failed(format!("{from}: not copied: {why}")));
    }
    Ok(())
}
