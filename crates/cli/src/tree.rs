//! The command tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use diorite::front_end::SeenDirectories;
use diorite::{Access, FileKind};
use serde_json::json;

use crate::args::Tree;
use crate::entry::{json_entry, show_target, walked, whole};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::ls::{Entry, Listing, Shown};
use crate::output::Output;

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
            if entry.depth <= depth_max && (!arguments.directories || entry.kind == FileKind::Directory) {
                let Some(attributes) = walked(entry.metadata(), location, &mut is_partial)? else { continue };
                let name = entry.path.file_name().unwrap_or(OsStr::new("/")).as_bytes();
                let mut value = json_entry(&filesystem, &entry.path, name, attributes);
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
        let mut entries = listing.entries(number, path, &mut is_partial)?;
        entries.retain(|entry| !arguments.directories || entry.kind == FileKind::Directory);
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
