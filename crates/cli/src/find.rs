//! `find`: the output of its actions. `diorite-files` parses and evaluates the expression.

mod format;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use diorite::{Access, FileKind, Filesystem, Timestamp, WalkEntry};
use diorite_files::{Accounts, Action, Expression, Given};
use serde_json::{Value, json};

use crate::args::Find;
use crate::each::{for_each, report};
use crate::entry::{json_entry, link_target, location_bytes, mode_text, walked, whole};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, local_time};
use format::{Format, Shown};

/// The current time.
fn now() -> Timestamp {
    let now = jiff::Timestamp::now();
    Timestamp { seconds: now.as_second(), nanoseconds: now.subsec_nanosecond().unsigned_abs() }
}

/// The paths before the expression, and the words of the expression.
fn split(words: &[OsString]) -> Result<(Vec<Location>, &[OsString])> {
    let end = words.iter().position(|word| Expression::begins_with(word)).unwrap_or(words.len());
    let paths: Vec<Location> = words[..end].iter().map(|word| Location::parse(Path::new(word))).collect();
    if paths.is_empty() {
        return Err(Failure::Usage(
            "find: a path is missing before the expression; write IMAGE:/path".to_owned(),
        ));
    }
    Ok((paths, &words[end..]))
}

/// The path in the volume of a file that a word names.
fn path_of(word: &OsStr) -> PathBuf {
    Location::parse(Path::new(word)).path_inside().to_owned()
}

pub(crate) fn find(arguments: &Find, images: &mut Images, output: &mut Output) -> Result<()> {
    let (paths, words) = split(&arguments.words)?;
    // The flags of the program may also follow the paths.
    let is_json = |word: &OsString| word == "--json";
    let json = arguments.common.reporting.json || words.iter().any(is_json);
    let words: Vec<OsString> = words.iter().filter(|word| !is_json(word)).cloned().collect();
    let access =
        if words.iter().any(|word| word == "-delete") { Access::ReadWrite } else { Access::ReadOnly };
    let paths = images.expand(&paths, access)?;
    let mut files: Vec<Value> = Vec::new();
    let mut has_ended = false;
    let done = for_each(&paths, |location| {
        if has_ended {
            return Ok(());
        }
        let (image, path) = location.in_image();
        let filesystem = images.open(image, access)?;
        let accounts = Accounts::of(&filesystem);
        let given = Given { filesystem: &filesystem, accounts: &accounts, now: now(), path_of };
        let expression =
            Expression::parse(&words, &given).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
        let files = json.then_some(&mut files);
        let formats = expression.formats.iter().map(|text| Format::parse(text)).collect::<Result<_>>()?;
        let mut search = Search {
            formats,
            start: path,
            depth: 0,
            filesystem: &filesystem,
            accounts: &accounts,
            image,
            files,
            output,
            is_pruned: false,
            has_ended: false,
        };
        let searched = search.run(&expression, path, location);
        has_ended = search.has_ended;
        searched
    });
    let reporting = crate::args::Reporting { json };
    report(reporting, done, output, || json!({ "command": "find", "files": files }))
}

/// A search below a path.
struct Search<'a> {
    /// The formats of the expression.
    formats: Vec<Format>,
    start: &'a Path,
    /// The depth of the current entry.
    depth: usize,
    filesystem: &'a Filesystem,
    accounts: &'a Accounts,
    image: &'a Path,
    /// The found files, with `--json`.
    files: Option<&'a mut Vec<Value>>,
    output: &'a mut Output,
    /// The current directory must not be entered.
    is_pruned: bool,
    has_ended: bool,
}

impl Search<'_> {
    fn run(&mut self, expression: &Expression, path: &Path, location: &Location) -> Result<()> {
        let mut walk = self.filesystem.walk(path);
        // With -depth, directories wait here for the end of their entries.
        let mut open: Vec<WalkEntry> = Vec::new();
        let mut is_partial = false;
        while let Some(entry) = walk.next() {
            interrupt::check()?;
            let Some(entry) = walked(entry, location, &mut is_partial)? else { continue };
            while let Some(directory) = open.pop_if(|directory| directory.depth >= entry.depth) {
                is_partial |= self.visit(expression, &directory)?;
            }
            if self.has_ended {
                break;
            }
            let is_directory = entry.kind == FileKind::Directory;
            if entry.depth > 0 && expression.excludes(&entry.path) {
                walk.skip_entries();
                continue;
            }
            if is_directory && entry.depth >= expression.depth_max {
                walk.skip_entries();
            }
            if is_directory && expression.contents_first {
                open.push(entry);
                continue;
            }
            is_partial |= self.visit(expression, &entry)?;
            if is_directory && std::mem::take(&mut self.is_pruned) {
                walk.skip_entries();
            }
            if self.has_ended {
                break;
            }
        }
        while let Some(directory) = open.pop().filter(|_| !self.has_ended) {
            is_partial |= self.visit(expression, &directory)?;
        }
        whole(is_partial)
    }

    /// Test an entry. Returns whether a failure was reported.
    fn visit(&mut self, expression: &Expression, entry: &WalkEntry) -> Result<bool> {
        if entry.depth < expression.depth_min || entry.depth > expression.depth_max {
            return Ok(false);
        }
        self.depth = entry.depth;
        let filesystem = self.filesystem;
        match expression.evaluate(filesystem, entry, &mut |action, found| self.act(action, found)) {
            Ok(_) => Ok(false),
            Err(Stopped::Entry(what, error)) => {
                let at = Location::Image { image: self.image.to_owned(), path: entry.path.clone() };
                Failure::of(&at, what, &error).of_part().map(|()| true)
            }
            Err(Stopped::Command(failure)) => Err(failure),
        }
    }

    fn act(&mut self, action: Action, found: &WalkEntry) -> std::result::Result<bool, Stopped> {
        match action {
            Action::Prune => self.is_pruned = true,
            Action::Quit => self.has_ended = true,
            Action::Delete => {
                // As in find, `.` is left alone: here the root of the image.
                if found.path() == Path::new("/") {
                    return Ok(true);
                }
                let removed = match found.kind {
                    FileKind::Directory => self.filesystem.remove_dir(found.path()),
                    _ => self.filesystem.remove_file(found.path()),
                };
                removed.map_err(|error| Stopped::Entry("remove", error))?;
            }
            Action::Print | Action::Print0 | Action::List | Action::Format(_) if self.files.is_some() => {
                let name = found.path().file_name().unwrap_or(OsStr::new("/"));
                let name = std::os::unix::ffi::OsStrExt::as_bytes(name);
                let entry = json_entry(self.filesystem, found.path(), name, found.metadata()?);
                if let Some(files) = &mut self.files {
                    files.push(entry);
                }
            }
            Action::Print => {
                self.output.name(&location_bytes(self.image, found.path()))?;
                self.output.line("")?;
            }
            Action::Print0 => {
                self.output.bytes(&location_bytes(self.image, found.path()))?;
                self.output.bytes(b"\0")?;
            }
            Action::List => self.list(found)?,
            Action::Format(format) => {
                let shown = Shown {
                    filesystem: self.filesystem,
                    accounts: self.accounts,
                    image: self.image,
                    start: self.start,
                    depth: self.depth,
                    is_terminal: self.output.is_terminal(),
                };
                let text = self.formats[format].text(found, &shown)?;
                self.output.bytes(&text)?;
            }
        }
        Ok(true)
    }

    /// The line of `-ls`: inode, KiB, permissions, links, owner, size, time, path.
    fn list(&mut self, found: &WalkEntry) -> std::result::Result<(), Stopped> {
        let attributes = found.metadata()?;
        self.output.text(&format!(
            "{:>9} {:>6} {} {:>3} {:<8} {:<8} {:>10} {} ",
            attributes.inode.0,
            attributes.sectors.div_ceil(2),
            mode_text(attributes),
            attributes.links,
            self.accounts.user(attributes.owner.uid),
            self.accounts.group(attributes.owner.gid),
            attributes.size,
            local_time(attributes.modified, "%Y-%m-%d %H:%M"),
        ))?;
        self.output.name(&location_bytes(self.image, found.path()))?;
        if attributes.kind == FileKind::Symlink {
            self.output.text(" -> ")?;
            self.output.name(&link_target(self.filesystem, attributes.inode)?)?;
        }
        Ok(self.output.line("")?)
    }
}

/// Why the evaluation of an entry stopped.
enum Stopped {
    /// What cannot be done with the entry. It is reported, and the search continues.
    Entry(&'static str, diorite::Error),
    Command(Failure),
}

impl From<diorite::Error> for Stopped {
    fn from(error: diorite::Error) -> Self {
        Self::Entry("search", error)
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Command(failure)
    }
}
