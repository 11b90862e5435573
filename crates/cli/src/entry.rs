//! The attributes of a file that listing commands show, as text and as JSON.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::{Attributes, ErrorKind, FileKind, Filesystem, InodeNumber};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::location::Location;
use crate::output::{Output, json_name, json_path, json_time};

/// `IMAGE:/path`, byte for byte.
pub(crate) fn location_bytes(image: &Path, path: &Path) -> Vec<u8> {
    [image.as_os_str().as_bytes(), b":", path.as_os_str().as_bytes()].concat()
}

/// The target of a symbolic link.
pub(crate) fn link_target(filesystem: &Filesystem, link: InodeNumber) -> diorite::Result<Vec<u8>> {
    filesystem.node(link)?.read_link()
}

/// The result of a walk: an entry or its attributes. `None` for damage below the start, which is reported.
pub(crate) fn walked<T>(
    found: diorite::Result<T>,
    location: &Location,
    is_partial: &mut bool,
) -> Result<Option<T>> {
    let error = match found {
        Ok(found) => return Ok(Some(found)),
        Err(error) => error,
    };
    let failure = Failure::of(location, "list", &error);
    if error.kind() != ErrorKind::Corrupt {
        return Err(failure);
    }
    *is_partial = true;
    failure.of_part().map(|()| None)
}

/// Fail if a part of the listing was reported as missing.
pub(crate) fn whole(is_partial: bool) -> Result<()> {
    if is_partial { Err(Failure::Reported) } else { Ok(()) }
}

/// The word for a kind.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
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
    mode_of(attributes.kind, attributes.permissions)
}

/// The same of a kind and permissions.
pub(crate) fn mode_of(kind: FileKind, mode: u16) -> String {
    let kind = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
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
pub(crate) fn json_entry(
    filesystem: &Filesystem,
    path: &Path,
    name: &[u8],
    attributes: &Attributes,
) -> Value {
    let mut value = json!({
        "name": json_name(name),
        "path": json_path(path),
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

/// Write the target of a symbolic link after its name. False if it cannot be read.
pub(crate) fn show_target(filesystem: &Filesystem, link: InodeNumber, output: &mut Output) -> Result<bool> {
    output.text(" -> ")?;
    match link_target(filesystem, link) {
        Ok(target) => output.name(&target).map(|()| true),
        Err(error) => output.text(&format!("({error})")).map(|()| false),
    }
}
