//! Commands that change names of files: mv and ln.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use diorite::{Access, ErrorKind, FileKind, Filesystem, RenameMode};
use diorite_copy::incomplete_name;
use serde_json::json;

use crate::args::{Ln, Mv};
use crate::each::{for_each, in_image, report, said};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::location::{Location, is_same_image};
use crate::output::{Output, json_path};

/// The relation of two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Same {
    /// Names of two files, or a missing file.
    No,
    /// The same name.
    Name,
    /// Two spellings of one name in a directory that ignores case.
    Spelling,
    /// Two names of one file.
    File,
}

impl Same {
    fn of(filesystem: &Filesystem, a: &Path, b: &Path) -> diorite::Result<Self> {
        let inode = |path: &Path| filesystem.symlink_metadata(path).map(|at| at.inode).ok();
        if inode(a).is_none() || inode(a) != inode(b) {
            return Ok(Self::No);
        }
        let (Some(parent), Some(name)) = (b.parent(), b.file_name()) else { return Ok(Self::Name) };
        let directory = |path: &Path| filesystem.metadata(path).map(|at| at.inode);
        if directory(a.parent().unwrap_or(parent))? != directory(parent)? {
            return Ok(Self::File);
        }
        if a.file_name() == Some(name) {
            return Ok(Self::Name);
        }
        let has_spelling = || -> diorite::Result<bool> {
            for entry in filesystem.read_dir(parent)? {
                if entry?.name == name.as_bytes() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        Ok(if has_spelling()? { Self::File } else { Self::Spelling })
    }
}

/// The destination of `from`: inside `to` if that is a directory, else `to` itself.
fn destination(filesystem: &Filesystem, from: &Path, to: &Path) -> PathBuf {
    let is_directory = filesystem.metadata(to).is_ok_and(|attributes| attributes.kind == FileKind::Directory);
    match from.file_name() {
        Some(name) if is_directory => to.join(name),
        _ => to.to_owned(),
    }
}

pub(crate) fn mv(arguments: &Mv, images: &mut Images, output: &mut Output) -> Result<()> {
    let Some((to, sources)) = arguments.paths.split_last() else { return Ok(()) };
    if let Some(host) = arguments.paths.iter().find(|path| matches!(path, Location::Host(_))) {
        return Err(Failure::Usage(format!(
            "{host}: is not in an image; mv works within one image: use `diorite cp -a`, then remove the source"
        )));
    }
    let (to_image, to_path) = in_image(to)?;
    let filesystem = images.open(to_image, Access::ReadWrite)?;
    let sources = images.expand(sources, Access::ReadWrite)?;
    let is_directory = filesystem.metadata(to_path).is_ok_and(|at| at.kind == FileKind::Directory);
    if sources.len() > 1 && !is_directory {
        return Err(Failure::Usage(format!("{to}: several sources need a directory as destination")));
    }
    let (mut moved, mut inodes) = (Vec::new(), HashSet::new());
    let done = for_each(&sources, |from| {
        let (image, path) = in_image(from)?;
        if !is_same_image(image, to_image) {
            return Err(Failure::Failed(format!(
                "{from}: cannot move: {} is another image; use `diorite cp -a`, then `diorite rm -r`",
                to_image.display()
            )));
        }
        let same_as = |to: &Path| Same::of(&filesystem, path, to).map_err(Failure::map(from, "move"));
        let (target, same) = match same_as(to_path)? {
            // Another spelling of the directory itself.
            Same::Spelling => (to_path.to_owned(), Same::Spelling),
            same => {
                let target = destination(&filesystem, path, to_path);
                let same = if target == to_path { same } else { same_as(&target)? };
                (target, same)
            }
        };
        let mode = if arguments.no_clobber { RenameMode::NoReplace } else { RenameMode::Replace };
        let inode = || filesystem.symlink_metadata(&target).ok().map(|there| there.inode);
        if mode == RenameMode::Replace && inode().is_some_and(|there| inodes.contains(&there)) {
            return Err(Failure::Failed(format!(
                "{from}: not moved: another source was just moved to {}; move them one by one, or to different names",
                target.display()
            )));
        }
        let renamed = match (same, mode) {
            (Same::Name, RenameMode::Replace) => {
                let target = target.display();
                return Err(Failure::Failed(format!("{from}: not moved: it is the same file as {target}")));
            }
            // rename(2) does nothing if both are names of one file.
            (Same::File, RenameMode::Replace) => filesystem.remove_file(path),
            (Same::Spelling, _) => spell(&filesystem, path, &target),
            _ => filesystem.rename_with(path, &target, mode),
        };
        match renamed {
            // -n keeps the existing file.
            Err(error) if arguments.no_clobber && error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => {
                other.map_err(|error| move_failure(from, to_image, &target, &error))?;
                moved.push(json!({ "from": json_path(path), "to": json_path(&target) }));
                inodes.extend(inode());
                let to = Location::Image { image: to_image.to_owned(), path: target.clone() };
                said(arguments.verbose, output, &format!("{from} -> {to}"))
            }
        }
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "mv", "moved": moved }))
}

/// Change the spelling of a name in a directory that ignores case, over a temporary name.
fn spell(filesystem: &Filesystem, from: &Path, to: &Path) -> diorite::Result<()> {
    let between = incomplete_name(to);
    filesystem.rename_with(from, &between, RenameMode::NoReplace)?;
    filesystem.rename_with(&between, to, RenameMode::NoReplace).inspect_err(|_| {
        // The first error is reported.
        let _ = filesystem.rename_with(&between, from, RenameMode::NoReplace);
    })
}

/// The error of a move, with the source or the destination as its object.
fn move_failure(from: &Location, image: &Path, target: &Path, error: &diorite::Error) -> Failure {
    // If both are the same path, the source is missing.
    if error.path() != Some(target) || matches!(from, Location::Image { path, .. } if path == target) {
        return Failure::of(from, "move", error);
    }
    let to = Location::Image { image: image.to_owned(), path: target.to_owned() };
    match error.kind() {
        ErrorKind::NotFound => Failure::Failed(format!(
            "{to}: cannot move {from} here: the directory does not exist; make it first (`diorite mkdir -p`)"
        )),
        _ => Failure::of(to, &format!("move {from} here"), error),
    }
}

/// Make a link. `-f` replaces an existing file after the link is complete.
fn make_link(filesystem: &Filesystem, target: &Path, link: &Path, arguments: &Ln) -> diorite::Result<()> {
    let make = |at: &Path| {
        if arguments.symbolic { filesystem.symlink(target, at) } else { filesystem.hard_link(target, at) }
    };
    let existing = filesystem.symlink_metadata(link).ok().filter(|at| at.kind != FileKind::Directory);
    let Some(existing) = existing.filter(|_| arguments.force) else { return make(link) };
    if !arguments.symbolic && filesystem.symlink_metadata(target)?.inode == existing.inode {
        // The link exists already.
        return Ok(());
    }
    let new = incomplete_name(link);
    // A killed run may have left a temporary file.
    if filesystem.symlink_metadata(&new).is_ok() {
        filesystem.remove_file(&new)?;
    }
    make(&new)?;
    filesystem.rename(new, link)
}

/// The path from the directory of a link to its target. The target may be missing.
fn relative_target(filesystem: &Filesystem, target: &Location, link: &Path) -> Result<PathBuf> {
    let failure = |error| Failure::of(target, "find the path", &error);
    let to = diorite_files::canonical(filesystem, target.path_inside()).map_err(failure)?;
    let parent = link.parent().unwrap_or(Path::new("/"));
    let from = diorite_files::canonical(filesystem, parent).map_err(failure)?;
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(to.components().skip(shared)).collect();
    Ok(if path.as_os_str().is_empty() { ".".into() } else { path })
}

pub(crate) fn ln(arguments: &Ln, images: &mut Images, output: &mut Output) -> Result<()> {
    let (image, link) = in_image(&arguments.link)?;
    let filesystem = images.open(image, Access::ReadWrite)?;
    let target_location = Location::parse(Path::new(&arguments.target));
    let target = match &target_location {
        _ if arguments.symbolic => Path::new(&arguments.target),
        Location::Image { image: of, path } if is_same_image(of, image) => path,
        _ => {
            let target = arguments.target.display();
            return Err(Failure::Usage(format!(
                "{target}: a hard link must be in the image of its file; write {}:/path, or use -s",
                image.display()
            )));
        }
    };
    let is_link = filesystem.symlink_metadata(link).is_ok_and(|at| at.is_symlink());
    let link = if arguments.no_dereference && is_link {
        link.to_owned()
    } else {
        destination(&filesystem, target, link)
    };
    let relative = arguments.relative.then(|| relative_target(&filesystem, &target_location, &link));
    let relative = relative.transpose()?;
    let target = relative.as_deref().unwrap_or(target);
    let made = make_link(&filesystem, target, &link, arguments);
    let done = made.map_err(|error| match error.path() {
        // The error may be about the file instead of the link.
        Some(path) if path == target => Failure::of(&target_location, "link", &error),
        _ => Failure::of(&arguments.link, "make the link", &error),
    });
    if done.is_ok() && arguments.verbose {
        let at = Location::Image { image: image.to_owned(), path: link.clone() };
        output.line(visible(&format!("{at} -> {}", target.display())))?;
    }
    report(arguments.common.reporting, done, output, || {
        let kind = if arguments.symbolic { "symbolic" } else { "hard" };
        json!({ "command": "ln", "kind": kind, "link": json_path(&link), "target": json_path(target) })
    })
}
