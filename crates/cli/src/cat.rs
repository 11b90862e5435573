//! Commands that print files: cat, head and tail.

use std::path::Path;

use diorite::{Access, DirectIo, File, Filesystem, Unaligned};
use diorite_copy::{ReadStream as _, StandardInput, Unwatched};

use crate::args::{Common, Head, Tail};
use crate::each::{for_each, in_image};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;
use crate::size::Size;

/// Size of a read.
const CHUNK_BYTES: usize = 1 << 20;

/// Size of a read of `head` and `tail`, which need little of a file.
const HEAD_BYTES: usize = 16 << 10;

/// Write files to standard output, one after the other.
pub(crate) fn cat(paths: &[Location], images: &mut Images, output: &mut Output) -> Result<()> {
    let direct = images.direct().unwrap_or(DirectIo::Preferred);
    for_each(&images.expand(paths, Access::ReadOnly)?, |location| {
        if matches!(location, Location::Host(path) if is_standard(path)) {
            return write_out_input(output);
        }
        let filesystem = images.open(in_image(location)?.0, Access::ReadOnly)?;
        for_each_chunk(&opened(&filesystem, location, direct)?, location, |chunk| output.bytes(chunk))
    })
}

/// Open the file of an image at a location.
pub(crate) fn opened(filesystem: &Filesystem, location: &Location, direct: DirectIo) -> Result<File> {
    let options = filesystem.open_options().read(true).direct(direct).unaligned(Unaligned::Bounce);
    options.open(location.path_inside()).map_err(Failure::map(location, "read"))
}

/// Read a file from front to back.
pub(crate) fn for_each_chunk(
    file: &File,
    location: &Location,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let failure = |error| Failure::of(location, "read", &error);
    let mut buffer = file.buffer(CHUNK_BYTES).map_err(failure)?;
    let mut offset = 0;
    loop {
        interrupt::check()?;
        let count = file.read_at(&mut buffer, offset).map_err(failure)?;
        each(&buffer[..count])?;
        offset += count as u64;
        if count < buffer.len() {
            return Ok(());
        }
    }
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

/// Whether the names of files are printed before their content.
#[derive(Clone, Copy, Debug)]
struct Titles {
    always: bool,
    never: bool,
}

/// Open each file, print its name if several are shown, and call `show`.
fn each_file(
    paths: &[Location],
    titles: Titles,
    images: &mut Images,
    output: &mut Output,
    show: &dyn Fn(&File, &Location, &mut Output) -> Result<()>,
) -> Result<()> {
    let paths = images.expand(paths, Access::ReadOnly)?;
    let with_names = titles.always || paths.len() > 1 && !titles.never;
    let mut is_first = true;
    for_each(&paths, |location| {
        let filesystem = images.open(in_image(location)?.0, Access::ReadOnly)?;
        let file = opened(&filesystem, location, images.direct().unwrap_or(DirectIo::Off))?;
        if with_names {
            let lead = if is_first { "" } else { "\n" };
            output.line(format!("{lead}==> {} <==", visible(&location.to_string())))?;
        }
        is_first = false;
        show(&file, location, output)
    })
}

fn refuse_json(common: Common, command: &str) -> Result<()> {
    if common.reporting.json {
        return Err(Failure::Usage(format!("--json: {command} writes the content of files; leave it out")));
    }
    Ok(())
}

/// Write the first lines or bytes of files to standard output.
pub(crate) fn head(arguments: &Head, images: &mut Images, output: &mut Output) -> Result<()> {
    refuse_json(arguments.common, "head")?;
    let part = Part::of(arguments)?;
    let titles = Titles { always: arguments.verbose, never: arguments.quiet };
    each_file(&arguments.paths, titles, images, output, &|file, location, output| {
        let failure = |error| Failure::of(location, "read", &error);
        let end = match part {
            Part::Bytes(bytes) => bytes,
            Part::AllButBytes(bytes) => file.size().saturating_sub(bytes),
            Part::Lines(_) => u64::MAX,
            Part::AllButLines(lines) => end_of_all_but(file, lines).map_err(failure)?,
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
            let shown = end_of_lines(&buffer[..wanted], &mut lines);
            output.bytes(&buffer[..shown])?;
            offset += count as u64;
        }
        Ok(())
    })
}

/// The end of the last wanted line in `text`, which has all of it if it has fewer lines. `lines` counts down.
fn end_of_lines(text: &[u8], lines: &mut u64) -> usize {
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        *lines = lines.saturating_sub(1);
        if *lines == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// The start of the part that `tail` prints, as a number of lines or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    BeforeEnd(u64),
    /// The number of the first one, from 1.
    At(u64),
}

impl Start {
    fn parse(text: &str) -> Result<Self> {
        let number = |text: &str| text.parse::<Size>().map(|size| size.0).map_err(Failure::Usage);
        match text.strip_prefix('+') {
            Some(text) => number(text).map(Self::At),
            None => number(text.strip_prefix('-').unwrap_or(text)).map(Self::BeforeEnd),
        }
    }

    fn of_lines(self, file: &File) -> diorite::Result<u64> {
        match self {
            Self::BeforeEnd(lines) => end_of_all_but(file, lines),
            Self::At(line) => start_of_line(file, line.saturating_sub(1)),
        }
    }

    fn of_bytes(self, file: &File) -> u64 {
        match self {
            Self::BeforeEnd(bytes) => file.size().saturating_sub(bytes),
            Self::At(byte) => byte.saturating_sub(1),
        }
    }
}

/// Write the last lines or bytes of files to standard output.
pub(crate) fn tail(arguments: &Tail, images: &mut Images, output: &mut Output) -> Result<()> {
    refuse_json(arguments.common, "tail")?;
    let bytes = arguments.bytes.as_deref().map(Start::parse).transpose()?;
    let lines = Start::parse(arguments.lines.as_deref().unwrap_or("10"))?;
    let titles = Titles { always: arguments.verbose, never: arguments.quiet };
    each_file(&arguments.paths, titles, images, output, &|file, location, output| {
        let failure = |error| Failure::of(location, "read", &error);
        let start = match bytes {
            Some(bytes) => bytes.of_bytes(file),
            None => lines.of_lines(file).map_err(failure)?,
        };
        let mut buffer = file.buffer(HEAD_BYTES).map_err(failure)?;
        let mut offset = start;
        while offset < file.size() {
            interrupt::check()?;
            let count = file.read_at(&mut buffer, offset).map_err(failure)?;
            if count == 0 {
                break;
            }
            output.bytes(&buffer[..count])?;
            offset += count as u64;
        }
        Ok(())
    })
}

/// The offset after this number of lines.
fn start_of_line(file: &File, mut lines: u64) -> diorite::Result<u64> {
    let mut buffer = file.buffer(HEAD_BYTES)?;
    let mut offset = 0;
    while lines > 0 {
        let count = file.read_at(&mut buffer, offset)?;
        if count == 0 {
            break;
        }
        offset += end_of_lines(&buffer[..count], &mut lines) as u64;
    }
    Ok(offset)
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
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}
