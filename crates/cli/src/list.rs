//! Commands that list names and attributes: ls, tree, stat, du, extents.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use diorite::front_end::SeenDirectories;
use diorite::{
    Access, Attributes, DirEntry, ErrorKind, ExtentKind, FileKind, Filesystem, InodeNumber, WalkEntry,
};
use serde_json::{Value, json};

use crate::args::{Du, Ls, ManyPaths, OnePath, Readlink, Tree};
use crate::change::{for_each, in_image, report};
use crate::failure::{Failure, Result, complain_of_part, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_name, json_time, local_time};
use crate::size::human;

/// A name in a directory.
struct Entry {
    name: Vec<u8>,
    inode: InodeNumber,
    kind: FileKind,
    /// The result of `lstat`, if the listing needs it.
    attributes: Option<Attributes>,
}

/// The attributes that a listing shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The kind, which most directories store with the name, so no inode is read.
    Kind,
    /// The result of `lstat`.
    Attributes,
}

/// The options of a listing.
#[derive(Clone, Copy)]
struct Listing<'a> {
    filesystem: &'a Filesystem,
    location: &'a Location,
    shown: Shown,
    /// Include names that begin with a dot.
    hidden: bool,
}

impl Listing<'_> {
    /// The entries of a directory, sorted by name. An entry whose inode cannot be read is reported and sets `is_partial`; the others are
    /// listed.
    fn entries(&self, number: InodeNumber, path: &Path, is_partial: &mut bool) -> Result<Vec<Entry>> {
        let failure = |error| Failure::of(self.location, "list", &error);
        let directory = self.filesystem.node(number).map_err(failure)?;
        let mut found = Vec::new();
        for entry in directory.read_dir().map_err(failure)? {
            let DirEntry { name, inode, kind, .. } = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report(path.to_owned(), "list", &error);
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
                    self.report(path.join(OsStr::from_bytes(&name)), "look up", &error);
                    *is_partial = true;
                }
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Report an error that affects a part of the listing.
    fn report(&self, path: PathBuf, what: &str, error: &diorite::Error) {
        let (image, _) = self.location.in_image();
        let at = Location::Image { image: image.to_owned(), path };
        if let Failure::Failed(text) = Failure::of(&at, what, error) {
            complain_of_part(&text);
        }
    }
}

/// `IMAGE:/path`, byte for byte.
pub(crate) fn location_bytes(image: &Path, path: &Path) -> Vec<u8> {
    [image.as_os_str().as_bytes(), b":", path.as_os_str().as_bytes()].concat()
}

/// The target of a symbolic link.
pub(crate) fn link_target(filesystem: &Filesystem, link: InodeNumber) -> diorite::Result<Vec<u8>> {
    filesystem.node(link)?.read_link()
}

/// The entry of a walk. `None` for damage below the start, which is reported.
pub(crate) fn walked(
    entry: diorite::Result<WalkEntry>,
    location: &Location,
    is_partial: &mut bool,
) -> Result<Option<WalkEntry>> {
    let error = match entry {
        Ok(entry) => return Ok(Some(entry)),
        Err(error) => error,
    };
    match Failure::of(location, "list", &error) {
        Failure::Failed(text) if error.kind() == ErrorKind::Corrupt => {
            complain_of_part(&text);
            *is_partial = true;
            Ok(None)
        }
        failure => Err(failure),
    }
}

/// Fail if a part of the listing was reported as missing.
pub(crate) fn whole(is_partial: bool) -> Result<()> {
    if is_partial { Err(Failure::Reported) } else { Ok(()) }
}

/// The word for a kind.
fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharacterDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// Kind and permissions in the form of `ls -l`.
pub(crate) fn mode_text(attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mode = attributes.permissions;
    let mut text = String::from(kind);
    for (shift, special, with, without) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

pub(crate) fn is_device(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::BlockDevice | FileKind::CharacterDevice)
}

/// The attributes of a file as JSON.
pub(crate) fn json_entry(filesystem: &Filesystem, path: &Path, name: &[u8], attributes: &Attributes) -> Value {
    let mut value = json!({
        "name": json_name(name),
        "path": json_name(path.as_os_str().as_bytes()),
        "kind": kind_name(attributes.kind),
        "inode": attributes.inode.0,
        "permissions": format!("{:04o}", attributes.permissions),
        "links": attributes.links,
        "uid": attributes.owner.uid,
        "gid": attributes.owner.gid,
        "size": attributes.size,
        "allocated": attributes.sectors.saturating_mul(512),
        "accessed": json_time(attributes.accessed),
        "modified": json_time(attributes.modified),
        "changed": json_time(attributes.changed),
    });
    if let Some(created) = attributes.created {
        value["created"] = json_time(created);
    }
    if is_device(attributes) {
        value["device"] = json!([attributes.device.0, attributes.device.1]);
    }
    if attributes.kind == FileKind::Symlink
        && let Ok(target) = link_target(filesystem, attributes.inode)
    {
        value["target"] = json_name(&target);
    }
    value
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
        let wants_all = arguments.long || arguments.common.reporting.json;
        let shown = if wants_all { Shown::Attributes } else { Shown::Kind };
        let listing = Listing { filesystem: &filesystem, location, shown, hidden: arguments.all };
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
                show_list(&filesystem, &[entry], arguments, output)?;
            }
            is_first = false;
        }
        let mut seen = SeenDirectories::default();
        let mut is_partial = false;
        while let Some((directory, number)) = waiting.pop() {
            interrupt::check()?;
            seen.note(number).map_err(Failure::map(location, "list"))?;
            let entries = listing.entries(number, &directory, &mut is_partial)?;
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
                show_list(&filesystem, &entries, arguments, output)?;
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

/// A directory with its entries, as JSON.
fn json_list(filesystem: &Filesystem, directory: &Path, entries: &[Entry]) -> Value {
    let entry = |entry: &Entry| {
        let path = directory.join(OsStr::from_bytes(&entry.name));
        Some(json_entry(filesystem, &path, &entry.name, entry.attributes.as_ref()?))
    };
    let list: Vec<Value> = entries.iter().filter_map(entry).collect();
    json!({ "directory": json_name(directory.as_os_str().as_bytes()), "entries": list })
}

/// The columns of a long list between mode and time: links, owner, group, and the size of a file or the numbers of a device.
fn columns(attributes: &Attributes, arguments: &Ls) -> [String; 4] {
    let size = if is_device(attributes) {
        format!("{}, {}", attributes.device.0, attributes.device.1)
    } else if arguments.sizes.human_readable {
        human(attributes.size)
    } else {
        attributes.size.to_string()
    };
    let owner = attributes.owner;
    [attributes.links.to_string(), owner.uid.to_string(), owner.gid.to_string(), size]
}

fn show_list(filesystem: &Filesystem, entries: &[Entry], arguments: &Ls, output: &mut Output) -> Result<()> {
    let inode_width = entries.iter().map(|entry| entry.inode.0.to_string().len()).max().unwrap_or(0);
    let row = |entry: &Entry| {
        let attributes = entry.attributes.as_ref().filter(|_| arguments.long)?;
        let time = local_time(attributes.modified, "%Y-%m-%d %H:%M");
        Some((mode_text(attributes), columns(attributes, arguments), time))
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    let mut widths = [0; 4];
    for (_, columns, _) in rows.iter().flatten() {
        widths = std::array::from_fn(|column| columns[column].len().max(widths[column]));
    }
    for (entry, row) in entries.iter().zip(rows) {
        if arguments.inode {
            output.text(&format!("{:>inode_width$} ", entry.inode.0))?;
        }
        if let Some((mode, columns, time)) = &row {
            output.text(mode)?;
            for (text, width) in columns.iter().zip(widths) {
                output.text(&format!(" {text:>width$}"))?;
            }
            output.text(&format!(" {time} "))?;
        }
        output.name(&entry.name)?;
        if row.is_some() && entry.kind == FileKind::Symlink {
            show_target(filesystem, entry.inode, output)?;
        }
        output.line("")?;
    }
    Ok(())
}

/// Write the target of a symbolic link behind its name. False if it cannot be read.
fn show_target(filesystem: &Filesystem, link: InodeNumber, output: &mut Output) -> Result<bool> {
    output.text(" -> ")?;
    match link_target(filesystem, link) {
        Ok(target) => output.name(&target).map(|()| true),
        Err(error) => output.text(&format!("({error})")).map(|()| false),
    }
}

pub(crate) fn tree(arguments: &Tree, images: &mut Images, output: &mut Output) -> Result<()> {
    let location = &arguments.path;
    let (image, path) = location.in_image();
    let filesystem = images.open(image, Access::ReadOnly)?;
    let depth_max = arguments.depth.unwrap_or(usize::MAX);
    if arguments.common.reporting.json {
        let mut entries = Vec::new();
        let mut is_partial = false;
        for entry in filesystem.walk(path) {
            let Some(entry) = walked(entry, location, &mut is_partial)? else { continue };
            if entry.depth <= depth_max {
                let name = entry.path.file_name().unwrap_or(OsStr::new("/")).as_bytes();
                let mut value = json_entry(&filesystem, &entry.path, name, &entry.attributes);
                value["depth"] = json!(entry.depth);
                entries.push(value);
            }
        }
        output.json(json!({ "command": "tree", "entries": entries }))?;
        return whole(is_partial);
    }
    let top = filesystem.metadata(path).map_err(Failure::map(location, "list"))?;
    if top.kind != FileKind::Directory {
        return Err(Failure::Failed(format!(
            "{location}: cannot list: it is not a directory; use ls or stat"
        )));
    }
    output.line(location.to_string())?;
    let (mut directories, mut files) = (0u64, 0u64);
    let listing = Listing { filesystem: &filesystem, location, shown: Shown::Kind, hidden: true };
    let mut waiting: Vec<Branch> = Vec::new();
    let mut seen = SeenDirectories::default();
    let (mut is_partial, mut has_bad_link) = (false, false);
    let mut below = |number, path: &Path, lead: &str, depth: usize, waiting: &mut Vec<Branch>| {
        seen.note(number).map_err(Failure::map(location, "list"))?;
        let entries = listing.entries(number, path, &mut is_partial)?;
        let (directory, lead): (Rc<Path>, Rc<str>) = (path.into(), lead.into());
        let last = entries.len().saturating_sub(1);
        let branches = entries.into_iter().enumerate().rev().map(|(index, entry)| Branch {
            lead: Rc::clone(&lead),
            directory: Rc::clone(&directory),
            entry,
            is_last: index == last,
            depth,
        });
        waiting.extend(branches);
        Ok::<(), Failure>(())
    };
    if depth_max > 0 {
        below(top.inode, path, "", 1, &mut waiting)?;
    }
    while let Some(Branch { lead, directory, entry, is_last, depth }) = waiting.pop() {
        interrupt::check()?;
        output.text(&lead)?;
        output.text(if is_last { "└── " } else { "├── " })?;
        output.name(&entry.name)?;
        match entry.kind {
            FileKind::Directory => {
                directories += 1;
                output.line("/")?;
                if depth < depth_max {
                    let lead = format!("{lead}{}", if is_last { "    " } else { "│   " });
                    let path = directory.join(OsStr::from_bytes(&entry.name));
                    below(entry.inode, &path, &lead, depth + 1, &mut waiting)?;
                }
            }
            FileKind::Symlink => {
                files += 1;
                has_bad_link |= !show_target(&filesystem, entry.inode, output)?;
                output.line("")?;
            }
            _ => {
                files += 1;
                output.line("")?;
            }
        }
    }
    output.line(format!("\n{directories} directories, {files} files"))?;
    if has_bad_link {
        let why = "a symbolic link cannot be read; run `diorite check`";
        return Err(Failure::Failed(format!("{location}: incomplete: {why}")));
    }
    whole(is_partial)
}

/// An entry that `tree` has not printed yet.
struct Branch {
    /// The text before it.
    lead: Rc<str>,
    /// Its parent.
    directory: Rc<Path>,
    entry: Entry,
    /// Whether it is the last entry of its directory.
    is_last: bool,
    depth: usize,
}

pub(crate) fn readlink(arguments: &Readlink, images: &mut Images, output: &mut Output) -> Result<()> {
    let paths = images.expand(&arguments.paths, Access::ReadOnly)?;
    let end: &[u8] = if arguments.zero { b"\0" } else { b"\n" };
    let last = paths.len();
    let mut links = Vec::new();
    let mut done_so_far = 0;
    let done = for_each(&paths, |location| {
        done_so_far += 1;
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadOnly)?;
        let target = if arguments.canonicalize || arguments.canonicalize_existing {
            let found = diorite_files::canonical(&filesystem, path);
            let found = match found {
                Ok(found) if arguments.canonicalize_existing => filesystem.metadata(&found).map(|_| found),
                other => other,
            };
            location_bytes(image, &found.map_err(Failure::map(location, "find the path"))?)
        } else {
            match filesystem.read_link(path) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    return Err(Failure::Failed(format!("{location}: cannot read the link: it is not a symbolic link")));
                }
                other => other.map_err(Failure::map(location, "read the link"))?.into_os_string().into_vec(),
            }
        };
        if arguments.common.reporting.json {
            links.push(json!({ "path": json_name(path.as_os_str().as_bytes()), "target": json_name(&target) }));
            return Ok(());
        }
        output.name(&target)?;
        if arguments.no_newline && done_so_far == last { Ok(()) } else { output.bytes(end) }
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "readlink", "links": links }))
}

pub(crate) fn stat(arguments: &ManyPaths, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut files = Vec::new();
    let done = for_each(&images.expand(&arguments.paths, Access::ReadOnly)?, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let failure = |error| Failure::of(location, "look up", &error);
        let attributes = filesystem.symlink_metadata(path).map_err(failure)?;
        let node = filesystem.resolve_link(path).map_err(failure)?;
        let xattrs = node.xattr_names().map_err(failure)?;
        if arguments.common.reporting.json {
            let name = path.file_name().unwrap_or(OsStr::new("/")).as_bytes();
            let mut value = json_entry(&filesystem, path, name, &attributes);
            value["flags"] = json!(attributes.flags);
            value["generation"] = json!(attributes.generation);
            value["xattrs"] = xattrs.iter().map(|name| json_name(name)).collect();
            files.push(value);
            return Ok(());
        }
        show_stat(&filesystem, location, path, &attributes, &xattrs, output)
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "stat", "files": files }))
}

fn show_stat(
    filesystem: &Filesystem,
    location: &Location,
    path: &Path,
    attributes: &Attributes,
    xattrs: &[Vec<u8>],
    output: &mut Output,
) -> Result<()> {
    output.text(&format!("  File: {}", visible(&location.to_string())))?;
    if attributes.kind == FileKind::Symlink {
        let target = filesystem.read_link(path).map_err(Failure::map(location, "read the link"))?;
        output.text(" -> ")?;
        output.name(target.as_os_str().as_bytes())?;
    }
    let allocated = attributes.sectors.saturating_mul(512);
    output.line("")?;
    output.line(format!("  Kind: {}", kind_name(attributes.kind)))?;
    if is_device(attributes) {
        output.line(format!("Device: {}, {}", attributes.device.0, attributes.device.1))?;
    }
    output.line(format!("  Size: {} bytes, {allocated} allocated", attributes.size))?;
    output.line(format!(" Inode: {}  Links: {}", attributes.inode, attributes.links))?;
    output.line(format!(
        "Access: {:04o} {}  Uid: {}  Gid: {}",
        attributes.permissions,
        mode_text(attributes),
        attributes.owner.uid,
        attributes.owner.gid
    ))?;
    let times = [
        ("  Read", Some(attributes.accessed)),
        ("Modify", Some(attributes.modified)),
        ("Change", Some(attributes.changed)),
        (" Birth", attributes.created),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            output.line(format!("{name}: {}", local_time(time, "%Y-%m-%d %H:%M:%S.%9f %z")))?;
        }
    }
    for name in xattrs {
        output.text(" Xattr: ")?;
        output.name(name)?;
        output.line("")?;
    }
    Ok(())
}

/// The bytes of one file in the sum of `du`.
fn du_bytes(attributes: &Attributes, apparent: bool) -> u64 {
    if apparent { attributes.size } else { attributes.sectors.saturating_mul(512) }
}

pub(crate) fn du(arguments: &Du, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut totals = Vec::new();
    // A file with several names counts once over all arguments.
    let mut seen: HashMap<PathBuf, HashSet<InodeNumber>> = HashMap::new();
    let done = for_each(&images.expand(&arguments.paths, Access::ReadOnly)?, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let seen = seen.entry(image.to_owned()).or_default();
        let mut show = |bytes: u64, path: &Path| {
            if arguments.common.reporting.json {
                totals.push(json!({
                    "image": json_name(image.as_os_str().as_bytes()),
                    "path": json_name(path.as_os_str().as_bytes()),
                    "bytes": bytes,
                }));
                return Ok(());
            }
            let size = if arguments.bytes { bytes.to_string() } else { human(bytes) };
            output.text(&format!("{size}\t"))?;
            output.name(&location_bytes(image, path))?;
            output.line("")
        };
        // The directories above the current entry, with their sums.
        let mut stack: Vec<(PathBuf, u64, usize)> = Vec::new();
        let (mut total, mut is_partial) = (0u64, false);
        let mut close_below = |stack: &mut Vec<(PathBuf, u64, usize)>, depth: usize| {
            while let Some((path, sum, _)) = stack.pop_if(|(_, _, open)| *open >= depth) {
                if let Some((_, parent, _)) = stack.last_mut() {
                    *parent = parent.saturating_add(sum);
                }
                if !arguments.summarize {
                    show(sum, &path)?;
                }
            }
            Ok::<(), Failure>(())
        };
        for entry in filesystem.walk(path) {
            interrupt::check()?;
            let Some(entry) = walked(entry, location, &mut is_partial)? else { continue };
            close_below(&mut stack, entry.depth)?;
            let is_new = entry.attributes.links < 2
                || entry.attributes.kind == FileKind::Directory
                || seen.insert(entry.attributes.inode);
            let bytes = if is_new { du_bytes(&entry.attributes, arguments.apparent_size) } else { 0 };
            total = total.saturating_add(bytes);
            if entry.attributes.kind == FileKind::Directory || arguments.all || entry.depth == 0 {
                // A file is treated as a directory without entries.
                stack.push((entry.path, bytes, entry.depth));
            } else if let Some((_, sum, _)) = stack.last_mut() {
                *sum = sum.saturating_add(bytes);
            }
        }
        close_below(&mut stack, 0)?;
        if arguments.summarize {
            show(total, path)?;
        }
        whole(is_partial)
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "du", "totals": totals }))
}

pub(crate) fn extents(arguments: &OnePath, images: &mut Images, output: &mut Output) -> Result<()> {
    let location = &arguments.path;
    let (image, path) = location.in_image();
    let filesystem = images.open(image, Access::ReadOnly)?;
    let failure = |error| Failure::of(location, "map", &error);
    let file = filesystem.open_file(path).map_err(failure)?;
    let extents = file.extents().map_err(failure)?;
    let kind = |kind: ExtentKind| match kind {
        ExtentKind::Data => "data",
        ExtentKind::Unwritten => "unwritten",
        ExtentKind::Delayed => "delayed",
        ExtentKind::Inline => "inline",
        _ => "other",
    };
    if arguments.common.reporting.json {
        let list: Vec<Value> = extents
            .iter()
            .map(|extent| {
                let mut value =
                    json!({ "offset": extent.offset, "length": extent.len, "kind": kind(extent.kind) });
                if let Some(sector) = extent.sector {
                    value["device_offset"] = json!(sector.to_bytes());
                }
                value
            })
            .collect();
        return output.json(json!({
            "command": "extents",
            "path": json_name(path.as_os_str().as_bytes()),
            "size": file.size(),
            "extents": list,
        }));
    }
    output.line(format!("{:>16} {:>16} {:>16}  KIND", "OFFSET", "LENGTH", "ON DEVICE"))?;
    for extent in extents {
        let place = extent.sector.map_or_else(|| "-".to_owned(), |sector| sector.to_bytes().to_string());
        output.line(format!(
            "{:>16} {:>16} {place:>16}  {}",
            extent.offset,
            extent.len,
            kind(extent.kind)
        ))?;
    }
    Ok(())
}
