//! Completion of commands, of paths in the image, and of paths of the host after `host:`.

use std::os::unix::ffi::OsStrExt;

use diorite::Filesystem;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::words::{incomplete, quoted};
use super::{OWN, Session};
use crate::args;
use crate::generate::{is_offered, offered};

/// The start of a path of the host.
const HOST: &str = "host:";

/// Completes a line.
pub(super) struct Names {
    filesystem: Filesystem,
}

impl Names {
    pub(super) fn new(filesystem: Filesystem) -> Self {
        Self { filesystem }
    }
}

/// The names in a directory of the host that are offered, each with whether it leads to a directory.
fn in_host(directory: &str, start: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let directory = if directory.is_empty() { "." } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| is_offered(entry.file_name().as_bytes(), start));
    entries.map(|entry| (entry.file_name().as_bytes().to_vec(), entry.path().is_dir())).collect()
}

/// Commands that begin with `word`.
fn commands(word: &str) -> Vec<Pair> {
    let declared = args::command();
    let names = declared.get_subcommands().map(clap::Command::get_name).chain(OWN);
    let mut names: Vec<&str> = names.filter(|name| name.starts_with(word)).collect();
    names.sort_unstable();
    names.iter().map(|name| Pair { display: (*name).to_owned(), replacement: format!("{name} ") }).collect()
}

impl Helper for Names {}

impl Highlighter for Names {}

impl Validator for Names {}

impl Hinter for Names {
    type Hint = String;
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (before, word) = incomplete(&line[..at]);
        if before.is_empty() {
            return Ok((word.start, commands(&word.text)));
        }
        let (place, path) = match word.text.strip_prefix(HOST) {
            Some(path) => (HOST, path),
            None => ("", word.text.as_str()),
        };
        let (directory, start) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        let found = match place {
            HOST => in_host(directory, start.as_bytes()),
            _ => offered(&self.filesystem, &Session::directory().join(directory), start.as_bytes())
                .unwrap_or_default(),
        };
        let mut pairs = Vec::new();
        for (name, is_directory) in found {
            // A C1 control character could control the terminal.
            let Some(name) = String::from_utf8(name).ok().filter(|name| !name.contains(char::is_control))
            else {
                continue;
            };
            let mut replacement = quoted(&format!("{place}{directory}{name}"), word.quote);
            let mut display = name;
            if is_directory {
                display.push('/');
                replacement.push('/');
            } else {
                replacement.extend(word.quote);
                replacement.push(' ');
            }
            pairs.push(Pair { display, replacement });
        }
        pairs.sort_by(|a, b| a.display.cmp(&b.display));
        Ok((word.start, pairs))
    }
}
