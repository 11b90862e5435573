//! Commands that show one file: stat, readlink, extents.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use diorite::{Access, Attributes, ErrorKind, ExtentKind, FileKind, Filesystem, Timestamp};
use diorite_files::Accounts;
use serde_json::{Value, json};

use crate::args::{OnePath, Readlink, Stat};
use crate::each::{for_each, in_image, report};
use crate::entry::{is_device, json_entry, kind_name, link_target, location_bytes, mode_text};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::layout::{Kind, Layout, Precision};
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
    let accounts = Accounts::of(filesystem);
    let shown = Shown { filesystem, location, attributes, accounts: &accounts };
    let (mut text, mut rest) = (Vec::new(), format.as_bytes());
    while let [next, after @ ..] = rest {
        rest = after;
        match next {
            b'%' => push_directive(&mut rest, &shown, &mut text)?.map_err(|directive| {
                Failure::Usage(format!(
                    "-c {format}: {directive} is unknown; `diorite stat --help` lists the directives"
                ))
            })?,
            b'\\' if escapes => {
                let (byte, after) = match rest {
                    [b'n', after @ ..] => (b'\n', after),
                    [b't', after @ ..] => (b'\t', after),
                    [b'0', after @ ..] => (0, after),
                    [other, after @ ..] => (*other, after),
                    [] => (b'\\', rest),
                };
                text.push(byte);
                rest = after;
            }
            other => text.push(*other),
        }
    }
    Ok(text)
}

/// What a directive of `stat -c` can show.
struct Shown<'a> {
    filesystem: &'a Filesystem,
    location: &'a Location,
    attributes: &'a Attributes,
    accounts: &'a Accounts,
}

/// A value of a directive.
enum Shape {
    Text(Vec<u8>),
    Decimal(u64),
    Octal(u64),
    Hexadecimal(u64),
    /// Seconds since 1970. The precision is the number of digits after the point.
    Time(Timestamp),
}

/// Add the value of a directive, which is taken from the start of `rest`. The inner error is an unknown directive.
fn push_directive(
    rest: &mut &[u8],
    shown: &Shown<'_>,
    text: &mut Vec<u8>,
) -> Result<std::result::Result<(), String>> {
    let start = *rest;
    let mut layout = Layout::parse(rest);
    let Some(directive) = std::str::from_utf8(rest).unwrap_or_default().chars().next() else {
        // A `%` at the end stands for itself.
        text.push(b'%');
        text.extend(start);
        return Ok(Ok(()));
    };
    *rest = &rest[directive.len_utf8()..];
    if directive == '%' {
        text.push(b'%');
        return Ok(Ok(()));
    }
    let Some(shape) = directive_value(directive, shown)? else {
        let taken = &start[..start.len() - rest.len()];
        return Ok(Err(format!("%{}", String::from_utf8_lossy(taken))));
    };
    let prefix = |prefix: &'static str| if layout.alternate { prefix } else { "" };
    let (value, kind) = match shape {
        Shape::Text(value) => (value, Kind::Text),
        Shape::Decimal(number) => (number.to_string().into_bytes(), Kind::Signed),
        Shape::Octal(number) => (format!("{}{number:o}", prefix("0")).into_bytes(), Kind::Unsigned),
        Shape::Hexadecimal(number) => (format!("{}{number:x}", prefix("0x")).into_bytes(), Kind::Unsigned),
        Shape::Time(time) => (seconds(time, layout.take_precision()).into_bytes(), Kind::Signed),
    };
    layout.push(&value, kind, text);
    Ok(Ok(()))
}

/// Seconds since 1970 with as many digits after the point as the precision says; nine if it has no number.
fn seconds(time: Timestamp, precision: Option<Precision>) -> String {
    let digits = match precision {
        None | Some(Precision::Of(0)) => return time.seconds.to_string(),
        Some(Precision::Unstated) => 9,
        Some(Precision::Of(digits)) => digits,
    };
    // Before 1970 the fraction counts from the other side.
    let nanoseconds = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (whole, fraction) = (nanoseconds.abs() / 1_000_000_000, nanoseconds.abs() % 1_000_000_000);
    let fraction = format!("{fraction:09}");
    let shown = &fraction[..digits.min(fraction.len())];
    format!("{sign}{whole}.{shown:0<digits$}")
}

/// The value of a directive of `stat -c`; `None` if it is unknown.
fn directive_value(directive: char, shown: &Shown<'_>) -> Result<Option<Shape>> {
    let Shown { filesystem, location, attributes, accounts } = *shown;
    let owner = attributes.owner;
    let readable = |time| Shape::Text(local_time(time, "%Y-%m-%d %H:%M:%S.%9f %z").into_bytes());
    let text = |text: &str| Shape::Text(text.as_bytes().to_vec());
    Ok(Some(match directive {
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
            Shape::Text(name)
        }
        's' => Shape::Decimal(attributes.size),
        'b' => Shape::Decimal(attributes.sectors),
        'B' => Shape::Decimal(512),
        'o' => Shape::Decimal(filesystem.statfs().block_size),
        'a' => Shape::Octal(attributes.permissions.into()),
        'A' => text(&mode_text(attributes)),
        'f' => Shape::Hexadecimal((attributes.kind.mode_bits() | attributes.permissions).into()),
        'F' if attributes.is_file() && attributes.size == 0 => text("regular empty file"),
        'F' if attributes.is_file() => text("regular file"),
        'F' if attributes.is_symlink() => text("symbolic link"),
        'F' => text(
            &kind_name(attributes.kind)
                .replace("character device", "character special file")
                .replace("block device", "block special file"),
        ),
        'u' => Shape::Decimal(owner.uid.into()),
        'g' => Shape::Decimal(owner.gid.into()),
        'U' => text(&accounts.user(owner.uid)),
        'G' => text(&accounts.group(owner.gid)),
        'i' => Shape::Decimal(attributes.inode.0.into()),
        'h' => Shape::Decimal(attributes.links.into()),
        't' => Shape::Hexadecimal(attributes.device.0.into()),
        'T' => Shape::Hexadecimal(attributes.device.1.into()),
        'x' => readable(attributes.accessed),
        'y' => readable(attributes.modified),
        'z' => readable(attributes.changed),
        'w' => attributes.created.map_or_else(|| text("-"), readable),
        'X' => Shape::Time(attributes.accessed),
        'Y' => Shape::Time(attributes.modified),
        'Z' => Shape::Time(attributes.changed),
        'W' => Shape::Time(attributes.created.unwrap_or_default()),
        _ => return Ok(None),
    }))
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
