//! The command tar: trees of images and of the host as tar streams, and back.

mod list;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::{Access, FileKind};
use diorite_copy::{
    DirectoryLinks, Exclude, Follow, Members, OnFailure, Packer, Selected, Selection, Summary, UnpackOptions,
    list_archive, unpack_members,
};
use diorite_files::Exclusions;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::args::Tar;
use crate::each::report;
use crate::failure::{Failure, Result, complain_of_part};
use crate::images::Images;
use crate::inside::Inside;
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;
use crate::progress::{CopyProgress, CopySays, Names};
use crate::sides::{open_side, summary_json};
use crate::sources::open_archive;
use crate::stdout::Stdout;
use list::List;

/// Size of a write to the archive.
const WRITE_BYTES: usize = 1 << 20;

pub(crate) fn tar(arguments: &Tar, images: &mut Images, output: &mut Output) -> Result<()> {
    let file = &host_file(&arguments.file)?;
    if arguments.create {
        return create(arguments, file, images, output);
    }
    if arguments.extract && arguments.directory.is_none() {
        return Err(Failure::Usage(
            "tar -x: the destination is missing; add -C IMAGE:/ or -C DIRECTORY".to_owned(),
        ));
    }
    let no_archive =
        || Failure::Usage("-f: a directory is not an archive; to copy one, use `diorite cp -r`".to_owned());
    if file.is_dir() {
        return Err(no_archive());
    }
    let archive = open_archive(file)?;
    let mut members = Members::named(arguments.paths.iter().map(|name| name.as_bytes()));
    let says = CopySays { entries: names_on(arguments, Names::Output), ..CopySays::default() };
    let progress = CopyProgress::new(0, interrupt::cancel(), says);
    if arguments.list {
        let json = arguments.common.reporting.json;
        let mut list = List::new(arguments.verbose, json);
        archive.read(&progress, |reader, name| {
            list_archive(reader, name, &mut members, |entry| list.add(entry, output))
        })?;
        let found = all_found(arguments, &members);
        return report(arguments.common.reporting, found, output, || list.json());
    }
    let Some(to) = &arguments.directory else { return Ok(()) };
    interrupt::is_changing();
    let directory_links =
        if arguments.keep_directory_symlink { DirectoryLinks::Follow } else { DirectoryLinks::Refuse };
    let options = UnpackOptions { on_failure: OnFailure::GoOn, directory_links };
    let sink = open_side(to, Access::ReadWrite, &[], images)?;
    let unpacked = archive.read(&progress, |reader, name| {
        unpack_members(reader, name, &*sink, to.path_inside(), (&mut members, options), &progress)
    });
    progress.finish();
    let summary = unpacked?;
    let found = all_found(arguments, &members);
    finish(arguments, &summary, output)?;
    found
}

/// The archive, which is a file of the host. In the command shell, other paths are in the image.
fn host_file(file: &Path) -> Result<PathBuf> {
    let name = file.display();
    match Location::parse(file) {
        Location::Host(path) => Ok(path),
        Location::Image { .. } if Inside::current().is_some() => Err(Failure::Usage(format!(
            "tar -f {name}: archives are files of the host; write -f host:{name}"
        ))),
        Location::Image { .. } => Err(Failure::Usage(format!(
            "tar -f {name}: archives are files of the host; use `-f -` and a pipe with `diorite cat {name}` or `diorite cp - {name}`"
        ))),
    }
}

/// The output to which `-v` prints the names of entries.
fn names_on(arguments: &Tar, names: Names) -> Names {
    if arguments.verbose { names } else { Names::Nowhere }
}

/// Fail if a requested entry is not in the archive.
fn all_found(arguments: &Tar, members: &Members) -> Result<()> {
    let mut is_whole = true;
    for name in members.missing() {
        let (archive, name) = (arguments.file.display(), String::from_utf8_lossy(name));
        complain_of_part(&format!(
            "{archive}: `{name}`: not found in the archive; `tar -t` lists its entries"
        ));
        is_whole = false;
    }
    if is_whole { Ok(()) } else { Err(Failure::Reported) }
}

/// Report the summary. Lost files and attributes are reported already.
fn finish(arguments: &Tar, summary: &Summary, output: &mut Output) -> Result<()> {
    if arguments.common.reporting.json {
        output.json(summary_json("tar", summary))?;
    }
    if summary.failed + summary.attributes_lost > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// The files of a word, each with its name in the archive. A word without an image is in the directory of `-C`.
fn files_of(
    word: &OsString,
    directory: Option<&Location>,
    images: &mut Images,
) -> Result<Vec<(Location, Vec<u8>)>> {
    let word = Path::new(word);
    let below = directory.and_then(|directory| directory.below(word));
    let root = if below.is_some() { directory.map(Location::path_inside) } else { None };
    let location = below.unwrap_or_else(|| Location::parse(word));
    let found = if Inside::may_be_pattern(word) {
        images.expand_pattern(&location, Access::ReadOnly)?
    } else {
        vec![location]
    };
    let named = found.into_iter().map(|file| {
        let path = file.path_inside();
        let name = name_in_archive(root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path))?;
        Ok((file, name))
    });
    named.collect()
}

/// The name of a path in the archive: relative, without `..`, as in tar(1).
fn name_in_archive(path: &Path) -> Result<Vec<u8>> {
    let relative: PathBuf = path
        .components()
        .filter(|part| !matches!(part, std::path::Component::RootDir | std::path::Component::CurDir))
        .collect();
    if relative.components().any(|part| part == std::path::Component::ParentDir) {
        let why = "`..` cannot be in the name of an entry; use -C DIRECTORY";
        return Err(Failure::Usage(format!("{}: {why}", path.display())));
    }
    let name = relative.as_os_str().as_bytes().to_vec();
    Ok(if name.is_empty() { b".".to_vec() } else { name })
}

fn create(arguments: &Tar, file: &Path, images: &mut Images, output: &mut Output) -> Result<()> {
    if arguments.paths.is_empty() {
        return Err(Failure::Usage("tar -c: a path is missing; write IMAGE:/path".to_owned()));
    }
    let to_output = file == Path::new("-");
    if to_output && (arguments.common.reporting.json || output.is_terminal()) {
        let why = "the archive would go to standard output; write it to a file with -f, or pipe it";
        return Err(Failure::Usage(format!("tar -c: {why}")));
    }
    let mut sources = Vec::new();
    for word in &arguments.paths {
        sources.extend(files_of(word, arguments.directory.as_ref(), images)?);
    }
    let stream = if to_output { Names::Errors } else { Names::Output };
    let says = CopySays { entries: names_on(arguments, stream), ..CopySays::default() };
    let progress = CopyProgress::new(0, interrupt::cancel(), says);
    let summary = if to_output {
        let mut stream = BufWriter::with_capacity(WRITE_BYTES, Stdout::lock());
        compressed(arguments, &sources, images, "standard output", &mut stream, &progress)
    } else {
        new_archive(arguments, file, &sources, images, &progress)
    };
    progress.finish();
    finish(arguments, &summary?, output)
}

/// Make the archive under a temporary name, so that it is complete when it gets its own.
#[expect(clippy::disallowed_methods, reason = "the archive is an argument of the command")]
fn new_archive(
    arguments: &Tar,
    path: &Path,
    sources: &[(Location, Vec<u8>)],
    images: &mut Images,
    progress: &CopyProgress,
) -> Result<Summary> {
    let failure = |error: io::Error| Failure::host(path.display(), "write the archive", &error);
    interrupt::is_changing();
    let is_special = path.metadata().is_ok_and(|found| !found.is_file());
    let temporary = if is_special { path.to_owned() } else { diorite_copy::incomplete_name(path) };
    let file = File::create(&temporary).map_err(failure)?;
    let name = path.display().to_string();
    let mut stream = BufWriter::with_capacity(WRITE_BYTES, file);
    let packed = compressed(arguments, sources, images, &name, &mut stream, progress);
    let done = packed.and_then(|summary| {
        let file = stream.into_inner().map_err(|error| failure(error.into_error()))?;
        if !is_special {
            file.sync_all().map_err(failure)?;
            std::fs::rename(&temporary, path).map_err(failure)?;
        }
        Ok(summary)
    });
    done.inspect_err(|_| {
        if !is_special {
            // The first error is reported.
            let _ = std::fs::remove_file(&temporary);
        }
    })
}

/// Write the archive, compressed if that is wanted.
fn compressed(
    arguments: &Tar,
    sources: &[(Location, Vec<u8>)],
    images: &mut Images,
    name: &str,
    stream: &mut dyn Write,
    progress: &CopyProgress,
) -> Result<Summary> {
    if !arguments.gzip {
        return pack(arguments, sources, images, name, stream, progress);
    }
    let mut encoder = GzEncoder::new(stream, Compression::default());
    let summary = pack(arguments, sources, images, name, &mut encoder, progress)?;
    encoder.finish().map_err(|error| Failure::host(name, "write the archive", &error))?;
    Ok(summary)
}

fn pack(
    arguments: &Tar,
    sources: &[(Location, Vec<u8>)],
    images: &mut Images,
    name: &str,
    stream: &mut dyn Write,
    progress: &CopyProgress,
) -> Result<Summary> {
    let exclusions = Exclusions::new(&arguments.excluding.exclude);
    let mut packer = Packer::new(name, stream, progress);
    for (location, name) in sources {
        let (source, path) = (open_side(location, Access::ReadOnly, &[], images)?, location.path_inside());
        let exclude = |file: &Path, is_directory: &dyn Fn() -> bool| {
            let below = file.strip_prefix(path).unwrap_or(file);
            exclusions.leave_out(Path::new(OsStr::from_bytes(name)), below, is_directory)
        };
        let is_directory =
            || source.meta(path, Follow::No).is_ok_and(|meta| meta.kind == FileKind::Directory);
        if exclude(path, &is_directory) {
            continue;
        }
        let exclude: Option<&Exclude<'_>> = if exclusions.is_empty() { None } else { Some(&exclude) };
        let selection = Selection { exclude, ..Selection::default() };
        packer.add(&Selected::new(&*source, selection, path), path, name)?;
    }
    Ok(packer.finish()?)
}
