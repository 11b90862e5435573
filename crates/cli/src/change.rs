//! Commands that make and remove: mkdir, rmdir, rm.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::{Access, ErrorKind, FileKind, Filesystem, InodeNumber};
use serde_json::json;

use crate::args::{Mkdir, Rm, Rmdir};
use crate::each::{for_each, in_image, report, said};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path};
use crate::progress::ask;

/// The permission bit by which new files get the group of their directory.
const SET_GROUP_ID: u16 = 0o2000;

pub(crate) fn mkdir(arguments: &Mkdir, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut made = Vec::new();
    let done = for_each(&arguments.paths, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadWrite)?;
        let failure = Failure::map(location, "make the directory");
        let mode = arguments.mode.apply(0o777, true, 0);
        if arguments.parents {
            if let Some(parent) = path.parent() {
                filesystem.create_dir_all(parent).map_err(Failure::map(location, "make the parents"))?;
            }
            if filesystem.metadata(path).is_ok_and(|attributes| attributes.kind == FileKind::Directory) {
                return Ok(());
            }
        }
        let made_with_mode = filesystem.create_dir(path).and_then(|()| {
            // As mkdir(1): the bit that a directory has from its parent stays.
            let inherited = filesystem.symlink_metadata(path)?.permissions & SET_GROUP_ID;
            filesystem.set_permissions(path, mode | inherited)
        });
        made_with_mode.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Failed(format!(
                "{location}: cannot make the directory: its parent does not exist; use -p to make it, too"
            )),
            _ => failure(error),
        })?;
        made.push(json_path(path));
        if arguments.verbose { output.line(format!("made {location}")) } else { Ok(()) }
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "mkdir", "made": made }))
}

pub(crate) fn rmdir(arguments: &Rmdir, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut removed = Vec::new();
    let done = for_each(&images.expand(&arguments.paths, Access::ReadWrite)?, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadWrite)?;
        let parents = if arguments.parents { usize::MAX } else { 1 };
        for directory in path.ancestors().take(parents).filter(|directory| *directory != Path::new("/")) {
            let at = Location::Image { image: image.to_owned(), path: directory.to_owned() };
            match filesystem.remove_dir(directory) {
                Err(error)
                    if arguments.ignore_fail_on_non_empty && error.kind() == ErrorKind::DirectoryNotEmpty =>
                {
                    break;
                }
                other => other.map_err(Failure::map(&at, "remove the directory"))?,
            }
            removed.push(json_path(directory));
            if arguments.verbose {
                output.line(format!("removed {at}"))?;
            }
        }
        if path == Path::new("/") {
            return Err(Failure::Failed(format!("{location}: cannot remove: it is the root of the image")));
        }
        Ok(())
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "rmdir", "removed": removed }))
}

/// Counters of removed files.
#[derive(Default)]
struct Removed {
    files: u64,
    directories: u64,
}

pub(crate) fn rm(arguments: &Rm, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut removed = Removed::default();
    let done = for_each(&images.expand(&arguments.paths, Access::ReadWrite)?, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadWrite)?;
        let attributes = match filesystem.symlink_metadata(path) {
            Err(error) if error.is_not_found() && arguments.force => return Ok(()),
            other => other.map_err(Failure::map(location, "remove"))?,
        };
        if arguments.interactive && !ask(&format!("remove {location}?"))? {
            return Ok(());
        }
        if attributes.kind != FileKind::Directory {
            filesystem.remove_file(path).map_err(Failure::map(location, "remove"))?;
            removed.files += 1;
            return said(arguments.verbose, output, &format!("removed {location}"));
        }
        if let Some(why) = irremovable(&filesystem, path, attributes.inode) {
            return Err(Failure::Failed(format!("{location}: cannot remove: {why}")));
        }
        if arguments.recursive {
            remove_tree(&filesystem, path, location, &mut removed)?;
        } else if arguments.dir {
            filesystem.remove_dir(path).map_err(Failure::map(location, "remove"))?;
            removed.directories += 1;
        } else {
            return Err(Failure::Failed(format!("{location}: cannot remove: it is a directory; use -r")));
        }
        said(arguments.verbose, output, &format!("removed {location}"))
    });
    report(
        arguments.common.reporting,
        done,
        output,
        || json!({ "command": "rm", "files": removed.files, "directories": removed.directories }),
    )
}

/// The reason why the directory at this path cannot be removed. It is checked before its content is removed.
fn irremovable(filesystem: &Filesystem, path: &Path, directory: InodeNumber) -> Option<&'static str> {
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
    if matches!(last, Some(b"." | b"..")) {
        return Some("the path ends with `.` or `..`; give the directory's own name");
    }
    // A path with a trailing slash follows a symbolic link.
    let without_slash = path.components().as_path();
    if filesystem.symlink_metadata(without_slash).is_ok_and(|at| at.kind == FileKind::Symlink) {
        return Some("it is a symbolic link; leave out the slash to remove the link, or name its target");
    }
    (directory == InodeNumber::ROOT)
        .then_some("it is the root of the image; name the files in it, or use mkfs")
}

/// Remove a directory recursively. An interrupt ends it between two entries.
fn remove_tree(
    filesystem: &Filesystem,
    top: &Path,
    location: &Location,
    removed: &mut Removed,
) -> Result<()> {
    let mut note = |kind| {
        match kind {
            FileKind::Directory => removed.directories += 1,
            _ => removed.files += 1,
        }
        interrupt::check().is_ok()
    };
    filesystem.remove_dir_all_with(top, &mut note).map_err(Failure::map(location, "remove"))?;
    interrupt::check()
}
