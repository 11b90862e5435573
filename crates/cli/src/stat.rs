//! Commands that show one file: stat, readlink, extents.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use diorite::{Access, Attributes, ErrorKind, ExtentKind, FileKind, Filesystem};
use diorite_files::Accounts;
use serde_json::{Value, json};

use crate::args::{OnePath, Readlink, Stat};
use crate::each::{for_each, in_image, report};
use crate::entry::{is_device, json_entry, kind_name, link_target, location_bytes, mode_text};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::location::Location;
use crate::output::{Output, json_name, json_path, local_time};

pub(crate) fn stat(arguments: &Stat, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut files = Vec::new();
    let done = for_each(&images.expand(&arguments.paths, Access::ReadOnly)?, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let failure = |error| Failure::of(location, "look up", &error);
        let attributes = filesystem.symlink_metadata(path).map_err(failure)?;
        let format = arguments.format.as_ref().map(|format| (format, false));
        if let Some((format, escapes)) = format.or(arguments.printf.as_ref().map(|format| (format, true))) {
            let text = formatted(format, escapes, &filesystem, location, &attributes)?;
            output.bytes(&text)?;
            return if escapes { Ok(()) } else { output.line("") };
        }
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

/// The format of `stat -c`.
fn formatted(
    format: &str,
    escapes: bool,
    filesystem: &Filesystem,
    location: &Location,
    attributes: &Attributes,
) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let accounts = Accounts::of(filesystem);
    let mut rest = format.chars();
    while let Some(next) = rest.next() {
        match next {
            '%' => {
                let directive = rest.next().unwrap_or('%');
                let value = directive_value(directive, filesystem, location, attributes, &accounts)?;
                text.extend(value.ok_or_else(|| {
                    Failure::Usage(format!(
                        "-c {format}: %{directive} is unknown; `diorite stat --help` lists them"
                    ))
                })?);
            }
            '\\' if escapes => match rest.next() {
                Some('n') => text.push(b'\n'),
                Some('t') => text.push(b'\t'),
                Some('0') => text.push(0),
                Some(other) => text.extend(other.encode_utf8(&mut [0; 4]).bytes()),
                None => text.push(b'\\'),
            },
            other => text.extend(other.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Ok(text)
}

/// The value of a directive of `stat -c`; `None` if it is unknown.
fn directive_value(
    directive: char,
    filesystem: &Filesystem,
    location: &Location,
    attributes: &Attributes,
    accounts: &Accounts,
) -> Result<Option<Vec<u8>>> {
    let owner = attributes.owner;
    let readable = |time| local_time(time, "%Y-%m-%d %H:%M:%S.%9f %z");
    let text = match directive {
        '%' => "%".to_owned(),
        'n' | 'N' => {
            let (image, path) = location.in_image();
            let mut name = location_bytes(image, path);
            if directive == 'N' && attributes.is_symlink() {
                name.extend(b" -> ");
                name.extend(
                    link_target(filesystem, attributes.inode)
                        .map_err(Failure::map(location, "read the link"))?,
                );
            }
            return Ok(Some(name));
        }
        's' => attributes.size.to_string(),
        'b' => attributes.sectors.to_string(),
        'B' => "512".to_owned(),
        'o' => filesystem.statfs().block_size.to_string(),
        'a' => format!("{:o}", attributes.permissions),
        'A' => mode_text(attributes),
        'f' => format!("{:x}", attributes.kind.mode_bits() | attributes.permissions),
        'F' if attributes.is_file() && attributes.size == 0 => "regular empty file".to_owned(),
        'F' if attributes.is_file() => "regular file".to_owned(),
        'F' if attributes.is_symlink() => "symbolic link".to_owned(),
        'F' => kind_name(attributes.kind)
            .replace("character device", "character special file")
            .replace("block device", "block special file"),
        'u' => owner.uid.to_string(),
        'g' => owner.gid.to_string(),
        'U' => accounts.user(owner.uid),
        'G' => accounts.group(owner.gid),
        'i' => attributes.inode.0.to_string(),
        'h' => attributes.links.to_string(),
        't' => format!("{:x}", attributes.device.0),
        'T' => format!("{:x}", attributes.device.1),
        'x' => readable(attributes.accessed),
        'y' => readable(attributes.modified),
        'z' => readable(attributes.changed),
        'w' => attributes.created.map_or_else(|| "-".to_owned(), readable),
        'X' => attributes.accessed.seconds.to_string(),
        'Y' => attributes.modified.seconds.to_string(),
        'Z' => attributes.changed.seconds.to_string(),
        'W' => attributes.created.map_or(0, |time| time.seconds).to_string(),
        _ => return Ok(None),
    };
    Ok(Some(text.into_bytes()))
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
                    return Err(Failure::Failed(format!(
                        "{location}: cannot read the link: it is not a symbolic link"
                    )));
                }
                other => other.map_err(Failure::map(location, "read the link"))?.into_os_string().into_vec(),
            }
        };
        if arguments.common.reporting.json {
            links.push(json!({ "path": json_path(path), "target": json_name(&target) }));
            return Ok(());
        }
        output.name(&target)?;
        if arguments.no_newline && done_so_far == last { Ok(()) } else { output.bytes(end) }
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "readlink", "links": links }))
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
            "path": json_path(path),
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
