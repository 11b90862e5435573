//! Commands that show names and what is known of them: ls, tree, stat, du, extents.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::{
    Access, Attributes, DirectoryEntry, ExtentKind, FileKind, Filesystem, InodeNumber, SeenDirectories,
};
use serde_json::{Value, json};

use crate::args::{Du, Ls, ManyPaths, OnePath, Tree};
use crate::change::{for_each, is_worth_showing};
use crate::failure::{Failure, Result, complain, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_name, json_time, local_time};
use crate::size::human;

/// A name and what `lstat` tells of it.
struct Entry {
    name: Vec<u8>,
    path: PathBuf,
    attributes: Attributes,
}

/// The entries of a directory, sorted by name, and whether some are missing there: one whose inode cannot be read, as in a
/// damaged image, is told and does not hide the others.
fn entries_of(
    filesystem: &Filesystem,
    directory: &Path,
    location: &Location,
    is_partial: &mut bool,
) -> Result<Vec<Entry>> {
    let names = filesystem.read_dir(directory).map_err(Failure::map(location, "list"))?;
    let mut entries = Vec::with_capacity(names.len());
    for DirectoryEntry { name, .. } in names {
        interrupt::check()?;
        let path = directory.join(OsStr::from_bytes(&name));
        match filesystem.symlink_metadata(&path) {
            Ok(attributes) => entries.push(Entry { name, path, attributes }),
            Err(error) => {
                let (image, _) = location.in_image();
                let entry = Location::Image { image: image.to_owned(), path };
                if let Failure::Failed(text) = Failure::of(&entry, "look up", &error) {
                    complain(&text);
                }
                *is_partial = true;
            }
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// What was missing has been told.
fn whole(is_partial: bool) -> Result<()> {
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

/// Kind and permissions as `ls -l` shows them.
fn mode_text(attributes: &Attributes) -> String {
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

fn is_device(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::BlockDevice | FileKind::CharacterDevice)
}

/// What is known of a file, as JSON.
fn json_entry(filesystem: &Filesystem, path: &Path, name: &[u8], attributes: &Attributes) -> Value {
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
        && let Ok(target) = filesystem.read_link(path)
    {
        value["target"] = json_name(target.as_os_str().as_bytes());
    }
    value
}

pub(crate) fn ls(arguments: &Ls, images: &mut Images, output: &mut Output) -> Result<()> {
    let several = arguments.paths.len() > 1 || arguments.recursive;
    let mut lists = Vec::new();
    let mut is_first = true;
    let done = for_each(&arguments.paths, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let attributes = filesystem.symlink_metadata(path).map_err(Failure::map(location, "list"))?;
        // A link on the command line is followed to a directory, as ls does without -l.
        let followed = filesystem.metadata(path).unwrap_or_else(|_| attributes.clone());
        let mut waiting = Vec::new();
        if followed.kind == FileKind::Directory && !arguments.directory {
            waiting.push(path.to_owned());
        } else {
            let name = path.as_os_str().as_bytes().to_vec();
            let entry = Entry { name, path: path.to_owned(), attributes };
            if arguments.reporting.json {
                lists.push(
                    json!({ "entries": [json_entry(&filesystem, path, &entry.name, &entry.attributes)] }),
                );
            } else {
                show_list(&filesystem, &[entry], arguments, output)?;
            }
            is_first = false;
        }
        let mut seen = SeenDirectories::default();
        let mut is_partial = false;
        while let Some(directory) = waiting.pop() {
            interrupt::check()?;
            let attributes = filesystem.metadata(&directory).map_err(Failure::map(location, "list"))?;
            seen.note(attributes.inode).map_err(Failure::map(location, "list"))?;
            let mut entries = entries_of(&filesystem, &directory, location, &mut is_partial)?;
            entries.retain(|entry| arguments.all || !entry.name.starts_with(b"."));
            if arguments.reporting.json {
                let list: Vec<Value> = entries
                    .iter()
                    .map(|e| json_entry(&filesystem, &e.path, &e.name, &e.attributes))
                    .collect();
                lists.push(
                    json!({ "directory": json_name(directory.as_os_str().as_bytes()), "entries": list }),
                );
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
                let below = entries.iter().rev().filter(|entry| entry.attributes.kind == FileKind::Directory);
                waiting.extend(below.map(|entry| entry.path.clone()));
            }
        }
        whole(is_partial)
    });
    if arguments.reporting.json && is_worth_showing(&done) {
        output.json(&json!({ "command": "ls", "lists": lists }))?;
    }
    done
}

fn show_list(filesystem: &Filesystem, entries: &[Entry], arguments: &Ls, output: &mut Output) -> Result<()> {
    let width =
        |figure: &dyn Fn(&Entry) -> String| entries.iter().map(|e| figure(e).len()).max().unwrap_or(0);
    let size = |entry: &Entry| {
        if is_device(&entry.attributes) {
            format!("{}, {}", entry.attributes.device.0, entry.attributes.device.1)
        } else if arguments.sizes.human_readable {
            human(entry.attributes.size)
        } else {
            entry.attributes.size.to_string()
        }
    };
    let inode_width = width(&|entry| entry.attributes.inode.to_string());
    let links_width = width(&|entry| entry.attributes.links.to_string());
    let uid_width = width(&|entry| entry.attributes.owner.uid.to_string());
    let gid_width = width(&|entry| entry.attributes.owner.gid.to_string());
    let size_width = width(&size);
    for entry in entries {
        let attributes = &entry.attributes;
        if arguments.inode {
            output.text(&format!("{:>inode_width$} ", attributes.inode.0))?;
        }
        if arguments.long {
            output.text(&format!(
                "{} {:>links_width$} {:>uid_width$} {:>gid_width$} {:>size_width$} {} ",
                mode_text(attributes),
                attributes.links,
                attributes.owner.uid,
                attributes.owner.gid,
                size(entry),
                local_time(attributes.modified, "%Y-%m-%d %H:%M"),
            ))?;
        }
        output.name(&entry.name)?;
        if arguments.long && attributes.kind == FileKind::Symlink {
            output.text(" -> ")?;
            match filesystem.read_link(&entry.path) {
                Ok(target) => output.name(target.as_os_str().as_bytes())?,
                Err(error) => output.text(&format!("({error})"))?,
            }
        }
        output.line("")?;
    }
    Ok(())
}

pub(crate) fn tree(arguments: &Tree, images: &mut Images, output: &mut Output) -> Result<()> {
    let location = &arguments.path;
    let (image, path) = location.in_image();
    let filesystem = images.open(image, Access::ReadOnly)?;
    let depth_max = arguments.depth.unwrap_or(usize::MAX);
    if arguments.reporting.json {
        let mut entries = Vec::new();
        for entry in filesystem.walk(path) {
            let entry = entry.map_err(Failure::map(location, "list"))?;
            if entry.depth <= depth_max {
                let name = entry.path.file_name().unwrap_or(OsStr::new("/")).as_bytes();
                let mut value = json_entry(&filesystem, &entry.path, name, &entry.attributes);
                value["depth"] = json!(entry.depth);
                entries.push(value);
            }
        }
        return output.json(&json!({ "command": "tree", "entries": entries }));
    }
    let top = filesystem.metadata(path).map_err(Failure::map(location, "list"))?;
    if top.kind != FileKind::Directory {
        return Err(Failure::Failed(format!(
            "{location}: cannot list: it is not a directory; use ls or stat"
        )));
    }
    output.line(location.to_string())?;
    let (mut directories, mut files) = (0u64, 0u64);
    // Entries still to show: what stands before the name, whether it is the last of its directory, and its depth.
    let mut waiting: Vec<(String, Entry, bool, usize)> = Vec::new();
    let mut is_partial = false;
    let mut below =
        |directory: &Path, lead: &str, depth: usize, waiting: &mut Vec<(String, Entry, bool, usize)>| {
            let entries = entries_of(&filesystem, directory, location, &mut is_partial)?;
            let last = entries.len().saturating_sub(1);
            let new = entries
                .into_iter()
                .enumerate()
                .map(|(index, entry)| (lead.to_owned(), entry, index == last, depth));
            waiting.extend(new.collect::<Vec<_>>().into_iter().rev());
            Ok::<(), Failure>(())
        };
    if depth_max > 0 {
        below(path, "", 1, &mut waiting)?;
    }
    while let Some((lead, entry, is_last, depth)) = waiting.pop() {
        interrupt::check()?;
        output.text(&lead)?;
        output.text(if is_last { "└── " } else { "├── " })?;
        output.name(&entry.name)?;
        match entry.attributes.kind {
            FileKind::Directory => {
                directories += 1;
                output.line("/")?;
                if depth < depth_max {
                    let lead = format!("{lead}{}", if is_last { "    " } else { "│   " });
                    below(&entry.path, &lead, depth + 1, &mut waiting)?;
                }
            }
            FileKind::Symlink => {
                files += 1;
                let target =
                    filesystem.read_link(&entry.path).map_err(Failure::map(location, "read a link"))?;
                output.text(" -> ")?;
                output.name(target.as_os_str().as_bytes())?;
                output.line("")?;
            }
            _ => {
                files += 1;
                output.line("")?;
            }
        }
    }
    output.line(format!("\n{directories} directories, {files} files"))?;
    whole(is_partial)
}

pub(crate) fn stat(arguments: &ManyPaths, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut files = Vec::new();
    let done = for_each(&arguments.paths, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let failure = |error| Failure::of(location, "look up", &error);
        let attributes = filesystem.symlink_metadata(path).map_err(failure)?;
        let node = filesystem.resolve_link(path).map_err(failure)?;
        let xattrs = node.xattr_names().map_err(failure)?;
        if arguments.reporting.json {
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
    if arguments.reporting.json && is_worth_showing(&done) {
        output.json(&json!({ "command": "stat", "files": files }))?;
    }
    done
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

/// What `du` adds up for one file.
fn du_bytes(attributes: &Attributes, apparent: bool) -> u64 {
    if apparent { attributes.size } else { attributes.sectors.saturating_mul(512) }
}

pub(crate) fn du(arguments: &Du, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut totals = Vec::new();
    let done = for_each(&arguments.paths, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let mut seen: HashSet<InodeNumber> = HashSet::new();
        // Directories from the top to where the walk is, with their sums.
        let mut stack: Vec<(PathBuf, u64, usize)> = Vec::new();
        let mut total = 0u64;
        let mut lines: Vec<(u64, PathBuf)> = Vec::new();
        for entry in filesystem.walk(path) {
            interrupt::check()?;
            let entry = entry.map_err(Failure::map(location, "list"))?;
            while stack.last().is_some_and(|(_, _, depth)| *depth >= entry.depth) {
                close_directory(&mut stack, &mut lines);
            }
            let is_new = entry.attributes.links < 2
                || entry.attributes.kind == FileKind::Directory
                || seen.insert(entry.attributes.inode);
            let bytes = if is_new { du_bytes(&entry.attributes, arguments.apparent_size) } else { 0 };
            total = total.saturating_add(bytes);
            if entry.attributes.kind == FileKind::Directory {
                stack.push((entry.path, bytes, entry.depth));
            } else {
                if let Some((_, sum, _)) = stack.last_mut() {
                    *sum = sum.saturating_add(bytes);
                }
                if arguments.all || entry.depth == 0 {
                    lines.push((bytes, entry.path));
                }
            }
        }
        while !stack.is_empty() {
            close_directory(&mut stack, &mut lines);
        }
        if arguments.summarize {
            lines = vec![(total, path.to_owned())];
        }
        for (bytes, path) in lines {
            if arguments.reporting.json {
                totals.push(json!({
                    "image": json_name(image.as_os_str().as_bytes()),
                    "path": json_name(path.as_os_str().as_bytes()),
                    "bytes": bytes,
                }));
                continue;
            }
            let size = if arguments.bytes { bytes.to_string() } else { human(bytes) };
            output.text(&format!("{size}\t"))?;
            output.name(path.as_os_str().as_bytes())?;
            output.line("")?;
        }
        Ok(())
    });
    if arguments.reporting.json && is_worth_showing(&done) {
        output.json(&json!({ "command": "du", "totals": totals }))?;
    }
    done
}

/// A directory's sum is complete: it counts for its parent.
fn close_directory(stack: &mut Vec<(PathBuf, u64, usize)>, lines: &mut Vec<(u64, PathBuf)>) {
    if let Some((path, sum, _)) = stack.pop() {
        if let Some((_, parent, _)) = stack.last_mut() {
            *parent = parent.saturating_add(sum);
        }
        lines.push((sum, path));
    }
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
    };
    if arguments.reporting.json {
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
        return output.json(&json!({
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
