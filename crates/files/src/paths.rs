//! Paths in a volume: expansion of patterns, and paths without symbolic links.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use diorite::{Filesystem, Result};

use crate::pattern::Pattern;

/// The number of symbolic links that a path may have, as in Linux.
const LINKS_MAX: u32 = 40;

/// Whether a path has a pattern.
pub fn has_pattern(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that fit a path with patterns, sorted. A pattern fits within one name, and a leading dot must be written, as in a shell. With
/// a slash at the end, only directories fit. A file with the whole name, and a path that nothing fits, stand for themselves.
///
/// # Errors
/// A directory cannot be read.
pub fn expand(filesystem: &Filesystem, path: &Path) -> Result<Vec<PathBuf>> {
    if !has_pattern(path) || filesystem.symlink_metadata(path).is_ok() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = vec![PathBuf::from("/")];
    for component in path.components() {
        let Component::Normal(name) = component else {
            if component == Component::ParentDir {
                for directory in &mut found {
                    directory.push("..");
                }
            }
            continue;
        };
        let before = std::mem::take(&mut found);
        let pattern = Pattern::new(name).with_literal_dot();
        for directory in before {
            if !has_pattern(Path::new(name)) {
                found.push(directory.join(name));
                continue;
            }
            if !filesystem.metadata(&directory).is_ok_and(|at| at.is_dir()) {
                continue;
            }
            let mut names = Vec::new();
            for entry in filesystem.read_dir(&directory)? {
                let name = entry?.name;
                if pattern.fits(&name) {
                    names.push(name);
                }
            }
            names.sort_unstable();
            found.extend(names.iter().map(|name| directory.join(OsStr::from_bytes(name))));
        }
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        found.retain(|path| filesystem.metadata(path).is_ok_and(|at| at.is_dir()));
        // The slash stays, so that a link means its directory.
        for path in &mut found {
            path.push("");
        }
    }
    found.retain(|path| filesystem.symlink_metadata(path).is_ok());
    if found.is_empty() {
        found.push(path.to_owned());
    }
    Ok(found)
}

/// The path without symbolic links, `.` and `..`. The last name may be missing, as with `readlink -f`.
///
/// # Errors
/// A directory of the path is missing or is none; a loop of links.
pub fn canonical(filesystem: &Filesystem, path: &Path) -> Result<PathBuf> {
    let mut done = PathBuf::from("/");
    let mut rest = components(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        match filesystem.symlink_metadata(&next) {
            Ok(attributes) if attributes.is_symlink() => {
                links += 1;
                if links > LINKS_MAX {
                    // The error of a loop.
                    filesystem.metadata(&next)?;
                }
                let target = filesystem.read_link(&next)?;
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                rest.extend(components(&target));
            }
            Err(error) if !(error.is_not_found() && rest.is_empty()) => return Err(error),
            _ => done = next,
        }
    }
    Ok(done)
}

/// The names of a path, the last one first.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}
