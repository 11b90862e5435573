//! The command ls.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::front_end::SeenDirectories;
use diorite::{Access, Attributes, DirEntry, FileKind, Filesystem, InodeNumber};
use diorite_files::Accounts;
use serde_json::{Value, json};

use crate::args::Ls;
use crate::colors::Colors;
use crate::each::{for_each, report};
use crate::entry::{is_device, json_entry, location_bytes, mode_text, show_target, whole};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path, local_time};
use crate::size::human;

/// A name in a directory.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: InodeNumber,
    pub(crate) kind: FileKind,
    /// The result of `lstat`, if the listing needs it.
    pub(crate) attributes: Option<Attributes>,
}

/// The attributes that a listing shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The kind, which most directories store with the name, so no inode is read.
    Kind,
    /// The result of `lstat`.
    Attributes,
}

/// The options of a listing.
#[derive(Clone, Copy)]
pub(crate) struct Listing<'a> {
    pub(crate) filesystem: &'a Filesystem,
    pub(crate) location: &'a Location,
    pub(crate) shown: Shown,
    /// Include names that begin with a dot.
    pub(crate) hidden: bool,
}

impl Listing<'_> {
    /// The entries of a directory, sorted by name. An entry whose inode cannot be read is reported and sets `is_partial`; the others are
    /// listed.
    pub(crate) fn entries(
        &self,
        number: InodeNumber,
        path: &Path,
        is_partial: &mut bool,
    ) -> Result<Vec<Entry>> {
        let failure = |error| Failure::of(self.location, "list", &error);
        let directory = self.filesystem.node(number).map_err(failure)?;
        let mut found = Vec::new();
        for entry in directory.read_dir().map_err(failure)? {
            let DirEntry { name, inode, kind, .. } = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report(path.to_owned(), "list", &error)?;
                    *is_partial = true;
                    continue;
                }
            };
            if self.hidden || !name.starts_with(b".") {
                found.push((inode, kind, name));
            }
        }
        let needs_inode = |kind: Option<FileKind>| self.shown == Shown::Attributes || kind.is_none();
        if found.iter().any(|(_, kind, _)| needs_inode(*kind)) {
            // In this order the inode table is read once from start to end.
            found.sort_unstable_by_key(|(inode, ..)| *inode);
        }
        let mut entries = Vec::with_capacity(found.len());
        for (inode, kind, name) in found {
            interrupt::check()?;
            let attributes = match kind {
                Some(kind) if !needs_inode(Some(kind)) => {
                    entries.push(Entry { name, inode, kind, attributes: None });
                    continue;
                }
                _ => self.filesystem.node(inode).and_then(|node| node.attributes()),
            };
            match attributes {
                Ok(attributes) => {
                    entries.push(Entry { name, inode, kind: attributes.kind, attributes: Some(attributes) });
                }
                Err(error) => {
                    self.report(path.join(OsStr::from_bytes(&name)), "look up", &error)?;
                    *is_partial = true;
                }
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Report an error that affects a part of the listing.
    fn report(&self, path: PathBuf, what: &str, error: &diorite::Error) -> Result<()> {
        let (image, _) = self.location.in_image();
        let at = Location::Image { image: image.to_owned(), path };
        Failure::of(&at, what, error).of_part()
    }
}

pub(crate) fn ls(arguments: &Ls, images: &mut Images, output: &mut Output) -> Result<()> {
    let paths = images.expand(&arguments.paths, Access::ReadOnly)?;
    let several = paths.len() > 1 || arguments.recursive;
    let mut lists = Vec::new();
    let mut is_first = true;
    let done = for_each(&paths, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let attributes = filesystem.symlink_metadata(path).map_err(Failure::map(location, "list"))?;
        // A link to a directory on the command line is followed, as in ls without -l.
        let followed = filesystem.metadata(path).unwrap_or_else(|_| attributes.clone());
        let json = arguments.common.reporting.json;
        let width = output.columns().filter(|_| !arguments.one_per_line);
        let colors = Colors::new(arguments.color, output.is_terminal());
        let needs_attributes = arguments.by_time || arguments.by_size || arguments.classify || colors.is_on();
        let wants_all = arguments.is_long() || json || needs_attributes;
        let shown = if wants_all { Shown::Attributes } else { Shown::Kind };
        // Programs that read a long list need numbers.
        let has_names = arguments.is_long() && output.is_terminal();
        let accounts = if has_names { Accounts::of(&filesystem) } else { Accounts::default() };
        let style = Style { arguments, accounts, colors, width };
        let hidden = arguments.all || arguments.almost_all;
        let listing = Listing { filesystem: &filesystem, location, shown, hidden };
        let mut waiting = Vec::new();
        if followed.kind == FileKind::Directory && !arguments.directory {
            waiting.push((path.to_owned(), followed.inode));
        } else {
            if arguments.common.reporting.json {
                let name = path.as_os_str().as_bytes();
                lists.push(json!({ "entries": [json_entry(&filesystem, path, name, &attributes)] }));
            } else {
                // In the form that other commands accept.
                let name = location_bytes(image, path);
                let (inode, kind) = (attributes.inode, attributes.kind);
                let entry = Entry { name, inode, kind, attributes: Some(attributes) };
                style.list(&filesystem, &[entry], output)?;
            }
            is_first = false;
        }
        let mut seen = SeenDirectories::default();
        let mut is_partial = false;
        while let Some((directory, number)) = waiting.pop() {
            interrupt::check()?;
            seen.note(number).map_err(Failure::map(location, "list"))?;
            let mut entries = listing.entries(number, &directory, &mut is_partial)?;
            sort(&mut entries, arguments);
            if arguments.common.reporting.json {
                lists.push(json_list(&filesystem, &directory, &entries));
            } else {
                if several {
                    let lead = if is_first { "" } else { "\n" };
                    output.line(format!(
                        "{lead}{}:{}:",
                        image.display(),
                        visible(&directory.to_string_lossy())
                    ))?;
                }
                style.list(&filesystem, &entries, output)?;
            }
            is_first = false;
            if arguments.recursive {
                let below = entries.iter().rev().filter(|entry| entry.kind == FileKind::Directory);
                waiting
                    .extend(below.map(|entry| (directory.join(OsStr::from_bytes(&entry.name)), entry.inode)));
            }
        }
        whole(is_partial)
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "ls", "lists": lists }))
}

/// Sort entries, which are in the order of their names.
fn sort(entries: &mut [Entry], arguments: &Ls) {
    let attributes = |entry: &Entry| entry.attributes.clone();
    if arguments.by_time {
        entries.sort_by_cached_key(|entry| {
            Reverse(attributes(entry).map(|at| (at.modified.seconds, at.modified.nanoseconds)))
        });
    } else if arguments.by_size {
        entries.sort_by_cached_key(|entry| Reverse(attributes(entry).map(|at| at.size)));
    }
    if arguments.reverse {
        entries.reverse();
    }
}

/// A directory with its entries, as JSON.
fn json_list(filesystem: &Filesystem, directory: &Path, entries: &[Entry]) -> Value {
    let entry = |entry: &Entry| {
        let path = directory.join(OsStr::from_bytes(&entry.name));
        Some(json_entry(filesystem, &path, &entry.name, entry.attributes.as_ref()?))
    };
    let list: Vec<Value> = entries.iter().filter_map(entry).collect();
    json!({ "directory": json_path(directory), "entries": list })
}

/// The format of names and attributes.
struct Style<'a> {
    arguments: &'a Ls,
    accounts: Accounts,
    colors: Colors,
    /// The width of the terminal, for names in columns.
    width: Option<usize>,
}

impl Style<'_> {
    /// The columns of a long list between mode and time: links, owner, group, and the size of a file or the numbers of a device.
    fn columns(&self, attributes: &Attributes) -> [String; 4] {
        let size = if is_device(attributes) {
            format!("{}, {}", attributes.device.0, attributes.device.1)
        } else if self.arguments.sizes.human_readable {
            human(attributes.size)
        } else {
            attributes.size.to_string()
        };
        let owner = attributes.owner;
        let (user, group) = if self.arguments.numeric_uid_gid {
            (owner.uid.to_string(), owner.gid.to_string())
        } else {
            (self.accounts.user(owner.uid), self.accounts.group(owner.gid))
        };
        [attributes.links.to_string(), user, group, size]
    }

    /// The character of `-F` after a name.
    fn mark(&self, entry: &Entry) -> &'static str {
        if !self.arguments.classify {
            return "";
        }
        match entry.kind {
            FileKind::Directory => "/",
            FileKind::Symlink if self.arguments.is_long() => "",
            FileKind::Symlink => "@",
            FileKind::Fifo => "|",
            FileKind::Socket => "=",
            FileKind::Regular => {
                let mode = entry.attributes.as_ref().map_or(0, |attributes| attributes.permissions);
                if mode & 0o111 != 0 { "*" } else { "" }
            }
            _ => "",
        }
    }

    fn name(&self, entry: &Entry, output: &mut Output) -> Result<()> {
        let code = self.colors.code(&entry.name, entry.kind, entry.attributes.as_ref());
        if code.is_empty() {
            output.name(&entry.name)?;
        } else {
            output.text(&format!("\x1b[{code}m"))?;
            output.name(&entry.name)?;
            output.text("\x1b[0m")?;
        }
        output.text(self.mark(entry))
    }

    fn list(&self, filesystem: &Filesystem, entries: &[Entry], output: &mut Output) -> Result<()> {
        if self.arguments.is_long() {
            return self.long(filesystem, entries, output);
        }
        let inode_width = Self::inode_width(entries);
        let lead = if self.arguments.inode { inode_width + 1 } else { 0 };
        let widths: Vec<usize> = entries
            .iter()
            .map(|entry| lead + Output::width_of(&entry.name) + self.mark(entry).len())
            .collect();
        let rows = self.width.map_or(entries.len(), |width| rows_of(&widths, width));
        for row in 0..rows {
            for (at, entry) in entries.iter().enumerate().skip(row).step_by(rows) {
                if self.arguments.inode {
                    output.text(&format!("{:>inode_width$} ", entry.inode.0))?;
                }
                self.name(entry, output)?;
                if at + rows < entries.len() {
                    let column = &widths[at - row..(at - row + rows).min(widths.len())];
                    let widest = column.iter().copied().max().unwrap_or(0);
                    output.text(&" ".repeat(widest - widths[at] + GAP))?;
                }
            }
            output.line("")?;
        }
        Ok(())
    }

    fn inode_width(entries: &[Entry]) -> usize {
        entries.iter().map(|entry| entry.inode.0.to_string().len()).max().unwrap_or(0)
    }

    fn long(&self, filesystem: &Filesystem, entries: &[Entry], output: &mut Output) -> Result<()> {
        let inode_width = Self::inode_width(entries);
        let columns: Vec<_> =
            entries.iter().map(|entry| entry.attributes.as_ref().map(|at| (at, self.columns(at)))).collect();
        let mut widths = [0; 4];
        for (_, columns) in columns.iter().flatten() {
            widths = std::array::from_fn(|column| columns[column].len().max(widths[column]));
        }
        for (entry, columns) in entries.iter().zip(columns) {
            if self.arguments.inode {
                output.text(&format!("{:>inode_width$} ", entry.inode.0))?;
            }
            if let Some((attributes, [links, user, group, size])) = columns {
                let [links_width, user_width, group_width, size_width] = widths;
                let time = local_time(attributes.modified, "%Y-%m-%d %H:%M");
                output.text(&format!(
                    "{} {links:>links_width$} {user:<user_width$} {group:<group_width$} {size:>size_width$} {time} ",
                    mode_text(attributes)
                ))?;
            }
            self.name(entry, output)?;
            if entry.kind == FileKind::Symlink {
                show_target(filesystem, entry.inode, output)?;
            }
            output.line("")?;
        }
        Ok(())
    }
}

/// Spaces between two columns of names.
const GAP: usize = 2;

/// The smallest number of rows in which names of these widths fit. Names run down the columns. As in GNU ls, the last column of the terminal
/// stays empty, because some terminals begin a new line after it.
fn rows_of(widths: &[usize], width: usize) -> usize {
    let fits = |rows: usize| {
        let columns = widths.chunks(rows).map(|column| column.iter().copied().max().unwrap_or(0) + GAP);
        columns.sum::<usize>() < width + GAP
    };
    (1..widths.len()).find(|rows| fits(*rows)).unwrap_or(widths.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_use_the_width_of_the_terminal() {
        assert_eq!(rows_of(&[3; 10], 80), 1);
        assert_eq!(rows_of(&[3; 10], 49), 1);
        assert_eq!(rows_of(&[3; 10], 48), 2);
        assert_eq!(rows_of(&[3; 10], 10), 5);
        assert_eq!(rows_of(&[90, 3], 80), 2);
        assert_eq!(rows_of(&[], 80), 0);
    }
}
