//! Commands that move data: cat, head and cp.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::front_end::host_paths;
use diorite::{Access, DirectIo, File, FileKind, Unaligned};
use diorite_copy::{
    Clobber, Copier, CopyOptions, Depth, Follow, HostTree, ImageTree, Meta, OnFailure, PastCache,
    ReadStream as _, Rehearsal, Selected, Selection, Side, Sink, Source, StandardInput, Summary, Sync,
    Unwatched, is_within,
};
use diorite_files::{Accounts, Ownership, Pattern};
use serde_json::json;

use crate::args::{Cp, Head, HolesKept};
use crate::blocks;
use crate::change::{for_each, in_image, is_worth_showing};
use crate::devices::refuse_to_destroy;
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::{Location, is_same_image};
use crate::output::{Output, json_name};
use crate::progress::{CopyProgress, CopySays};
use crate::size::Size;
use crate::verified::{fits_any, verify};

/// Size of a read.
const CHUNK_BYTES: usize = 1 << 20;
/// Size of a read of `head`, which needs little of a file.
const HEAD_BYTES: usize = 16 << 10;

/// Write files to standard output, one after the other.
pub(crate) fn cat(paths: &[Location], images: &mut Images, output: &mut Output) -> Result<()> {
    let direct = images.direct().unwrap_or(DirectIo::Preferred);
    for_each(&images.expand(paths, Access::ReadOnly)?, |location| {
        let (image, path) = match location {
            Location::Image { image, path } => (image, path),
            Location::Host(path) if is_standard(path) => return write_out_input(output),
            Location::Host(_) => {
                return Err(Failure::Usage(format!("{location}: is not in an image; write IMAGE:/path")));
            }
        };
        let filesystem = images.open(image, Access::ReadOnly)?;
        let failure = |error| Failure::of(location, "read", &error);
        let options = filesystem.open_options().read(true).direct(direct).unaligned(Unaligned::Bounce);
        let file = options.open(path).map_err(failure)?;
        let mut buffer = file.buffer(CHUNK_BYTES).map_err(failure)?;
        let mut offset = 0;
        loop {
            interrupt::check()?;
            let count = file.read_at(&mut buffer, offset).map_err(failure)?;
            output.bytes(&buffer[..count])?;
            offset += count as u64;
            if count < buffer.len() {
                return Ok(());
            }
        }
    })
}

/// The part of a file that `head` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Lines(u64),
    Bytes(u64),
    AllButLines(u64),
    AllButBytes(u64),
}

impl Part {
    fn of(arguments: &Head) -> Result<Self> {
        let number = |text: &str| -> Result<u64> {
            let size: Size = text.trim_start_matches('-').parse().map_err(Failure::Usage)?;
            Ok(size.0)
        };
        Ok(match (&arguments.bytes, &arguments.lines) {
            (Some(text), _) if text.starts_with('-') => Self::AllButBytes(number(text)?),
            (Some(text), _) => Self::Bytes(number(text)?),
            (None, Some(text)) if text.starts_with('-') => Self::AllButLines(number(text)?),
            (None, Some(text)) => Self::Lines(number(text)?),
            (None, None) => Self::Lines(10),
        })
    }
}

/// Write the first lines or bytes of files to standard output.
pub(crate) fn head(arguments: &Head, images: &mut Images, output: &mut Output) -> Result<()> {
    if arguments.common.reporting.json {
        return Err(Failure::Usage("--json: head writes the content of files; leave it out".to_owned()));
    }
    let part = Part::of(arguments)?;
    let paths = images.expand(&arguments.paths, Access::ReadOnly)?;
    let with_names = arguments.verbose || paths.len() > 1 && !arguments.quiet;
    let mut is_first = true;
    for_each(&paths, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadOnly)?;
        let direct = images.direct().unwrap_or(DirectIo::Off);
        let failure = |error| Failure::of(location, "read", &error);
        let options = filesystem.open_options().read(true).direct(direct).unaligned(Unaligned::Bounce);
        let file = options.open(path).map_err(failure)?;
        if with_names {
            let lead = if is_first { "" } else { "\n" };
            output.line(format!("{lead}==> {} <==", visible(&location.to_string())))?;
        }
        is_first = false;
        let end = match part {
            Part::Bytes(bytes) => bytes,
            Part::AllButBytes(bytes) => file.size().saturating_sub(bytes),
            Part::Lines(_) => u64::MAX,
            Part::AllButLines(lines) => end_of_all_but(&file, lines).map_err(failure)?,
        };
        let mut lines = if let Part::Lines(lines) = part { lines } else { u64::MAX };
        let mut buffer = file.buffer(HEAD_BYTES).map_err(failure)?;
        let mut offset = 0;
        while offset < end && lines > 0 {
            interrupt::check()?;
            let count = file.read_at(&mut buffer, offset).map_err(failure)?;
            if count == 0 {
                break;
            }
            let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(count);
            let mut shown = wanted;
            for (at, _) in buffer[..wanted].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                lines = lines.saturating_sub(1);
                if lines == 0 {
                    shown = at + 1;
                    break;
                }
            }
            output.bytes(&buffer[..shown])?;
            offset += count as u64;
        }
        Ok(())
    })
}

/// The end of the text before the last lines: the file is read backwards.
fn end_of_all_but(file: &File, lines: u64) -> diorite::Result<u64> {
    let mut end = file.size();
    if lines == 0 {
        return Ok(end);
    }
    let mut buffer = file.buffer(HEAD_BYTES)?;
    // The newline at the end of the file ends its last line.
    let mut seen = 0;
    let mut is_last_byte = true;
    while end > 0 {
        let start = (end - 1) / HEAD_BYTES as u64 * HEAD_BYTES as u64;
        let count = file.read_at(&mut buffer, start)?.min((end - start) as usize);
        for at in (0..count).rev() {
            if buffer[at] == b'\n' && !std::mem::take(&mut is_last_byte) {
                seen += 1;
                if seen == lines {
                    return Ok(start + at as u64 + 1);
                }
            }
            is_last_byte = false;
        }
        end = start;
    }
    Ok(0)
}

/// Write standard input to standard output.
fn write_out_input(output: &mut Output) -> Result<()> {
    let mut input = StandardInput::new()?;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = input.read(&mut buffer, &Unwatched)?;
        if count == 0 {
            return Ok(());
        }
        output.bytes(&buffer[..count])?;
    }
}

/// Whether a path stands for standard input or standard output.
fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Open a side of a copy; `others` are locations of the other side.
pub(crate) fn open_side(
    location: &Location,
    access: Access,
    others: &[Location],
    images: &mut Images,
) -> Result<Box<dyn Side>> {
    Ok(match location {
        Location::Host(_) => {
            let files = others.iter().filter_map(image_of);
            let files = files.flat_map(|image| host_paths(&image.to_string_lossy()));
            let is_on_host = !others.is_empty() && others.iter().all(|other| image_of(other).is_none());
            let past_cache = match images.direct() {
                Some(DirectIo::Required) => PastCache::Always,
                None if is_on_host => PastCache::LargeFiles,
                _ => PastCache::Never,
            };
            Box::new(HostTree::new().beside_images(files).past_cache(past_cache))
        }
        Location::Image { image, .. } => {
            let filesystem = images.open(image, access)?;
            Box::new(ImageTree::new(filesystem, image.display().to_string(), images.direct()))
        }
    })
}

pub(crate) fn path_of(location: &Location) -> &Path {
    match location {
        Location::Host(path) | Location::Image { path, .. } => path,
    }
}

fn image_of(location: &Location) -> Option<&Path> {
    match location {
        Location::Host(_) => None,
        Location::Image { image, .. } => Some(image),
    }
}

/// Whether both locations are in one image, or the same file of the host.
pub(crate) fn is_same_side(a: &Location, b: &Location) -> bool {
    match (image_of(a), image_of(b)) {
        (Some(a), Some(b)) => is_same_image(a, b),
        (a, b) => a == b,
    }
}

/// Whether a file can be an image. A slip of the pen, `disk.img` for `disk.img:/`, would replace it.
fn is_disk(meta: &Meta) -> bool {
    matches!(meta.kind, FileKind::Regular | FileKind::BlockDevice)
}

/// The destination and the sources.
fn operands(arguments: &Cp) -> Result<(&Location, &[Location])> {
    match (&arguments.target_directory, arguments.paths.split_last()) {
        (Some(to), _) => Ok((to, &arguments.paths)),
        (None, Some((to, sources))) if !sources.is_empty() => Ok((to, sources)),
        _ => Err(Failure::Usage("cp: a destination is missing; write FROM... TO".to_owned())),
    }
}

/// How to copy.
fn options_of(arguments: &Cp) -> CopyOptions {
    let HolesKept = arguments.sparse;
    let recursive = arguments.recursive || arguments.archive;
    CopyOptions {
        clobber: match (arguments.no_clobber, arguments.update) {
            (true, _) => Clobber::Keep,
            (_, true) => Clobber::KeepNewer,
            _ => Clobber::Replace,
        },
        depth: if recursive { Depth::Tree } else { Depth::File },
        sync: if arguments.no_sync { Sync::Never } else { Sync::AtEnd },
        on_failure: OnFailure::GoOn,
    }
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
        if arguments.common.reporting.json {
            return Err(Failure::Usage("--json and `-` both need standard output; leave one out".to_owned()));
        }
        return cat(sources, images, output);
    }
    // A second signal must not leave a half-written file on the host.
    interrupt::is_changing();
    let target = open_side(to, Access::ReadWrite, sources, images)?;
    let mut all = Vec::new();
    for from in sources {
        let access = if is_same_side(from, to) { Access::ReadWrite } else { Access::ReadOnly };
        all.extend(images.expand(std::slice::from_ref(from), access)?);
    }
    let sources = &all;
    let existing = target.existing(path_of(to), Follow::Yes)?;
    if is_on_host && !arguments.force && existing.as_ref().is_some_and(is_disk) {
        refuse_to_destroy(&to.to_string(), "cp")
            .map_err(|why| why.with(&format!("; a file in it is {to}:/path")))?;
    }
    let is_directory = existing.is_some_and(|meta| meta.kind == FileKind::Directory);
    let is_directory = is_directory && !arguments.no_target_directory;
    if arguments.target_directory.is_some() && !is_directory {
        let why = "it is not a directory; make it with `diorite mkdir -p`";
        return Err(Failure::Failed(format!("{to}: cannot copy into it: {why}")));
    }
    if sources.len() > 1 && !is_directory {
        return Err(Failure::Usage(format!("{to}: several sources need a directory as destination")));
    }
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
    let patterns: Vec<Pattern> = arguments.exclude.iter().map(|text| Pattern::new(text)).collect();
    let mut destination =
        Destination { location: to, is_directory, copied: HashSet::new(), made: Vec::new() };
    let copied = for_each(sources, |from| {
        let Some((_, side)) = jobs.iter().find(|(known, _)| *known == from) else { return Ok(()) };
        let start = path_of(from);
        let is_excluded = |path: &Path| fits_any(&patterns, start, path);
        let selection = Selection {
            exclude: if patterns.is_empty() { None } else { Some(&is_excluded) },
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
        diorite_copy::data_bytes(&**side, path_of(from), depth, &is_cancelled)
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

/// The destination of a copy.
struct Destination<'a> {
    location: &'a Location,
    is_directory: bool,
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
    let &mut Destination { location: to, is_directory: to_is_directory, ref mut copied, ref mut made } =
        destination;
    let (from_path, to_path) = (path_of(from), path_of(to));
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

/// An example of a file name in a directory.
fn example(directory: &Location) -> String {
    let text = directory.to_string();
    format!("{}/NAME", text.trim_end_matches('/'))
}

/// The file name of a path. For `..` on the host it is the name of that directory. The root of an image has none. `DIR/.` has none either,
/// because it stands for the content of the directory, as in cp(1).
fn name_of(path: &Path) -> Option<std::ffi::OsString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes == b"." || bytes.ends_with(b"/.") {
        return None;
    }
    path.file_name().map(ToOwned::to_owned).or_else(|| {
        let is_relative = !path.has_root();
        is_relative.then(|| path.canonicalize().ok()?.file_name().map(ToOwned::to_owned)).flatten()
    })
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
    let from_path = path_of(from);
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
        let why = "the destination is inside of it; choose another destination";
        return Err(Failure::Failed(format!("{from}: not copied: {why}")));
    }
    Ok(())
}

/// The result of a copy as JSON.
pub(crate) fn summary_json(command: &str, summary: &Summary) -> serde_json::Value {
    json!({
        "command": json_name(command.as_bytes()),
        "files": summary.files,
        "directories": summary.directories,
        "others": summary.others,
        "skipped": summary.skipped,
        "failed": summary.failed,
        "attributes_lost": summary.attributes_lost,
        "bytes": summary.bytes,
    })
}
