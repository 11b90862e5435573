//! Completions and manual pages, generated from the declarations in `args`.
//!
//! The scripts of clap complete commands and flags. For a word with `:/`, a path in an image, bash, zsh and fish call
//! `diorite completions SHELL --rest-of WORD`, which reads the image.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man as Page;
use diorite::{Access, DirEntry, FileKind, Filesystem};

use crate::args::examples::{below, manual_section};
use crate::args::{Cli, Completions, Man};
use crate::failure::{Failure, Result};
use crate::location::Location;
use crate::output::Output;

const BASH: &str = include_str!("completions/paths.bash");
const ZSH: &str = include_str!("completions/paths.zsh");
const FISH: &str = include_str!("completions/paths.fish");

pub(crate) fn completions(arguments: &Completions, output: &mut Output) -> Result<()> {
    if let Some(word) = &arguments.rest_of {
        return rests(word, output);
    }
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "diorite", &mut script);
    let script = String::from_utf8_lossy(&script);
    match arguments.shell {
        Shell::Bash => {
            output.text(&script)?;
            output.text(BASH)
        }
        // The last lines of the script call the first function.
        Shell::Zsh => {
            let entry = "\n_diorite() {\n";
            output.text(&script.replacen(entry, &format!("\n{ZSH}{entry}    _diorite_paths && return\n"), 1))
        }
        Shell::Fish => {
            output.text(&script)?;
            output.text(FISH)
        }
        _ => output.text(&script),
    }
}

/// Whether a name is offered for its `start`. Names with control characters could break the line or control the terminal.
pub(crate) fn is_offered(name: &[u8], start: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".") && !start.starts_with(b".");
    let is_special = name == b"." || name == b"..";
    name.starts_with(start) && !is_hidden && !is_special && !name.iter().any(u8::is_ascii_control)
}

/// The names in a directory of an image that are offered, sorted, each with whether it leads to a directory.
pub(crate) fn offered(
    filesystem: &Filesystem,
    directory: &Path,
    start: &[u8],
) -> diorite::Result<Vec<(Vec<u8>, bool)>> {
    let mut names = Vec::new();
    // Names that a damaged block hides are not offered.
    for DirEntry { name, kind, .. } in filesystem.read_dir(directory)?.flatten() {
        if is_offered(&name, start) {
            let is_directory = match kind {
                Some(FileKind::Symlink) | None => {
                    let path = directory.join(OsStr::from_bytes(&name));
                    filesystem.metadata(path).is_ok_and(|found| found.is_dir())
                }
                Some(kind) => kind == FileKind::Directory,
            };
            names.push((name, is_directory));
        }
    }
    names.sort();
    Ok(names)
}

/// Print the possible rests of an incomplete path in an image, one in a line. A directory ends in a slash.
fn rests(word: &Location, output: &mut Output) -> Result<()> {
    let Location::Image { image, path } = word else { return Ok(()) };
    let path = path.as_os_str().as_bytes();
    let name_start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, start) = path.split_at(name_start);
    let failure = |error| Failure::of(word, "complete", &error);
    let filesystem = Filesystem::options().access(Access::ReadOnly).open(image).map_err(failure)?;
    let place = Path::new(OsStr::from_bytes(directory));
    for (name, is_directory) in offered(&filesystem, place, start).map_err(failure)? {
        output.bytes(&name[start.len()..])?;
        output.line(if is_directory { "/" } else { "" })?;
    }
    Ok(())
}

pub(crate) fn man(arguments: &Man, output: &mut Output) -> Result<()> {
    // `help COMMAND` has the same text as the page of the command.
    let mut command = Cli::command().disable_help_subcommand(true);
    if let Some(directory) = &arguments.output {
        let failure = |error: std::io::Error| Failure::host(directory.display(), "write the pages", &error);
        std::fs::create_dir_all(directory).map_err(failure)?;
        command.build();
        return write_pages(&command, "", directory).map_err(failure);
    }
    command.build();
    let (page, name) = match &arguments.command {
        None => (command, ""),
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            let missing = || Failure::Usage(format!("{name}: no such command; `diorite help` lists them"));
            (found.ok_or_else(missing)?, name.as_str())
        }
    };
    output.text(&page_of(&Page::new(page), name)?)
}

/// A manual page, with the examples before the version.
fn page_of(page: &Page, name: &str) -> std::io::Result<String> {
    let mut text = Vec::new();
    page.render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let version = text.rfind("\n.SH VERSION").map_or(text.len(), |before| before + 1);
    text.insert_str(version, &manual_section(name));
    Ok(text)
}

/// The pages of a command and of all commands below it.
#[expect(clippy::disallowed_methods, reason = "pages are files of the host")]
fn write_pages(command: &Command, name: &str, directory: &Path) -> std::io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, &below(name, inner), directory)?;
    }
    let page = Page::new(command.clone());
    let mut file = std::fs::File::create(directory.join(page.get_filename()))?;
    file.write_all(page_of(&page, name)?.as_bytes())
}
