//! Commands that change attributes of files: chmod, chown, touch.

use std::ffi::OsStr;
use std::path::Path;

use diorite::{
    Access, Attributes, ErrorKind, FileKind, Filesystem, NodeRef, SetAttributes, SetTime, Timestamp,
};
use diorite_files::{Accounts, ModeChange, Ownership, parse_time};
use serde_json::json;

use crate::args::{Chmod, Chown, Touch};
use crate::each::{for_each, in_image, report};
use crate::entry::{mode_text, walked, whole};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path};

/// A wrong argument.
fn usage(wrong: &diorite_files::Wrong) -> Failure {
    Failure::Usage(wrong.to_string())
}

/// A file that a command changes.
struct Changed<'a> {
    filesystem: &'a Filesystem,
    path: &'a Path,
    attributes: Attributes,
    /// Whether it was found below an argument, not named.
    is_below: bool,
}

impl Changed<'_> {
    fn node(&self) -> diorite::Result<NodeRef> {
        self.filesystem.node(self.attributes.inode)
    }
}

/// Call `act` for the file at a location, and for all files below it if `recursive`. A link named by the location is followed if `follow`.
fn each_file(
    filesystem: &Filesystem,
    location: &Location,
    recursive: bool,
    follow: bool,
    act: &mut dyn FnMut(&Changed<'_>) -> Result<()>,
) -> Result<()> {
    let (_, path) = in_image(location)?;
    let found = if follow { filesystem.metadata(path) } else { filesystem.symlink_metadata(path) };
    let attributes = found.map_err(Failure::map(location, "change"))?;
    if !recursive || attributes.kind != FileKind::Directory {
        return act(&Changed { filesystem, path, attributes, is_below: false });
    }
    let mut is_partial = false;
    for entry in filesystem.walk(path) {
        interrupt::check()?;
        let Some(entry) = walked(entry, location, &mut is_partial)? else { continue };
        let is_below = entry.depth > 0;
        // A walk does not follow the link at its start, but a recursive change does.
        let found = if is_below { entry.metadata() } else { Ok(&attributes) };
        let Some(attributes) = walked(found, location, &mut is_partial)?.cloned() else { continue };
        act(&Changed { filesystem, path: &entry.path, attributes, is_below })?;
    }
    whole(is_partial)
}

/// The attributes of the file that an option names. `paths` are changed by the command.
pub(crate) fn reference_of(
    reference: &Location,
    paths: &[Location],
    images: &mut Images,
) -> Result<Attributes> {
    let (image, path) = in_image(reference)?;
    let is_changed =
        paths.iter().any(|location| crate::location::is_same_image(location.in_image().0, image));
    let access = if is_changed { Access::ReadWrite } else { Access::ReadOnly };
    let found = images.open(image, access)?.metadata(path);
    found.map_err(Failure::map(reference, "look up"))
}

/// The files to change, and the attributes of `--reference`. With it, the first word is a file, too.
fn with_reference(
    reference: Option<&Location>,
    first: &OsStr,
    paths: &[Location],
    images: &mut Images,
) -> Result<(Vec<Location>, Option<Attributes>)> {
    let Some(reference) = reference else {
        return Ok((images.expand(paths, Access::ReadWrite)?, None));
    };
    let first = Location::parse(Path::new(first));
    let paths: Vec<Location> = std::iter::once(first).chain(paths.iter().cloned()).collect();
    let found = reference_of(reference, &paths, images)?;
    Ok((images.expand(&paths, Access::ReadWrite)?, Some(found)))
}

fn text_of(word: &OsStr) -> Result<&str> {
    word.to_str().ok_or_else(|| Failure::Usage(format!("{}: it must be text in UTF-8", word.display())))
}

/// The process's umask: clauses of chmod without a class keep to it.
fn umask() -> u16 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits() as u16
}

/// The file as text for `-v`.
fn name_of(location: &Location, path: &Path) -> String {
    let (image, _) = location.in_image();
    Location::Image { image: image.to_owned(), path: path.to_owned() }.to_string()
}

pub(crate) fn chmod(arguments: &Chmod, images: &mut Images, output: &mut Output) -> Result<()> {
    let (paths, reference) =
        with_reference(arguments.reference.as_ref(), &arguments.mode, &arguments.paths, images)?;
    let mode = match &reference {
        Some(found) => format!("{:05o}", found.permissions),
        None => text_of(&arguments.mode)?.to_owned(),
    };
    let change = ModeChange::parse(&mode).map_err(|wrong| usage(&wrong))?;
    let umask = umask();
    let mut files = Vec::new();
    let done = for_each(&paths, |location| {
        let filesystem = images.open(in_image(location)?.0, Access::ReadWrite)?;
        each_file(&filesystem, location, arguments.recursive, true, &mut |file| {
            if file.is_below && file.attributes.kind == FileKind::Symlink {
                return Ok(());
            }
            let before = file.attributes.permissions;
            let after = change.apply(before, file.attributes.is_dir(), umask);
            if after != before {
                let changes = SetAttributes { permissions: Some(after), ..SetAttributes::default() };
                let changed = file.node().and_then(|node| node.set_attributes(&changes));
                changed.map_err(Failure::map(name_of(location, file.path), "change the permissions"))?;
                files.push(json!({ "path": json_path(file.path), "permissions": format!("{after:04o}") }));
            }
            if arguments.verbose || arguments.changes && after != before {
                let now = mode_text(&Attributes { permissions: after, ..file.attributes.clone() });
                let name = name_of(location, file.path);
                output.line(format!("{name}: {before:04o} -> {after:04o} ({})", &now[1..]))?;
            }
            Ok(())
        })
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "chmod", "changed": files }))
}

pub(crate) fn chown(arguments: &Chown, images: &mut Images, output: &mut Output) -> Result<()> {
    let (paths, reference) =
        with_reference(arguments.reference.as_ref(), &arguments.owner, &arguments.paths, images)?;
    let mut files = Vec::new();
    let done = for_each(&paths, |location| {
        let filesystem = images.open(in_image(location)?.0, Access::ReadWrite)?;
        let accounts = Accounts::of(&filesystem);
        let owner = match &reference {
            Some(found) => Ownership { uid: Some(found.owner.uid), gid: Some(found.owner.gid) },
            None => Ownership::parse(text_of(&arguments.owner)?, &accounts).map_err(|wrong| usage(&wrong))?,
        };
        let from = arguments.from.as_deref().map(|text| Ownership::parse(text, &accounts));
        let from = from.transpose().map_err(|wrong| usage(&wrong))?.unwrap_or_default();
        each_file(&filesystem, location, arguments.recursive, !arguments.no_dereference, &mut |file| {
            if !from.fits(&file.attributes) {
                return Ok(());
            }
            let before = file.attributes.owner;
            let after = (owner.uid.unwrap_or(before.uid), owner.gid.unwrap_or(before.gid));
            let is_change = after != (before.uid, before.gid);
            if is_change {
                let (uid, gid) = (owner.uid, owner.gid);
                let changes = SetAttributes { uid, gid, clear_privileges: true, ..SetAttributes::default() };
                let changed = file.node().and_then(|node| node.set_attributes(&changes));
                changed.map_err(Failure::map(name_of(location, file.path), "change the owner"))?;
                files.push(json!({ "path": json_path(file.path), "uid": after.0, "gid": after.1 }));
            }
            if arguments.verbose || arguments.changes && is_change {
                let text = |uid, gid| format!("{}:{}", accounts.user(uid), accounts.group(gid));
                let name = name_of(location, file.path);
                output.line(format!(
                    "{name}: {} -> {}",
                    text(before.uid, before.gid),
                    text(after.0, after.1)
                ))?;
            }
            Ok(())
        })
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "chown", "changed": files }))
}

/// Make an empty file if there is none. Returns whether the file exists then.
pub(crate) fn make_if_missing(
    filesystem: &Filesystem,
    location: &Location,
    path: &Path,
    no_create: bool,
) -> Result<bool> {
    match filesystem.metadata(path) {
        Ok(_) => return Ok(true),
        Err(error) if error.is_not_found() && no_create => return Ok(false),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(Failure::of(location, "look up", &error)),
    }
    let made = filesystem.open_options().write(true).create(true).open(path);
    made.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Failed(format!(
            "{location}: cannot make the file: its directory does not exist; make it first (`diorite mkdir -p`)"
        )),
        _ => Failure::of(location, "make the file", &error),
    })?;
    Ok(true)
}

/// `[[CC]YY]MMDDhhmm[.ss]`
fn stamp(text: &str) -> Result<Timestamp> {
    let wrong =
        || Failure::Usage(format!("-t {text}: a stamp is [[CC]YY]MMDDhhmm[.ss], such as 200102030405.06"));
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    if !digits.bytes().chain(seconds.bytes()).all(|digit| digit.is_ascii_digit()) || seconds.len() != 2 {
        return Err(wrong());
    }
    // As in POSIX: 69 to 99 are years of the 20th century.
    let year = match digits.len() {
        8 => jiff::Zoned::now().year().to_string(),
        10 if &digits[..2] >= "69" => format!("19{}", &digits[..2]),
        10 => format!("20{}", &digits[..2]),
        12 => digits[..4].to_owned(),
        _ => return Err(wrong()),
    };
    let rest = &digits[digits.len() - 8..];
    let (date, time) = rest.split_at(4);
    let (month, day, hour, minute) = (&date[..2], &date[2..], &time[..2], &time[2..]);
    parse_time(&format!("{year}-{month}-{day} {hour}:{minute}:{seconds}")).map_err(|_| wrong())
}

/// Reject times that the inode cannot hold; it would get the nearest time that it can.
fn refuse_time_out_of_range(node: &NodeRef, location: &Location, changes: &SetAttributes) -> Result<()> {
    for time in [changes.accessed, changes.modified] {
        let Some(SetTime::To(time)) = time else { continue };
        let stored = node.time_as_stored(time).seconds;
        if stored != time.seconds {
            let (side, year) = match stored {
                ..0 => ("before", 1901),
                _ if stored == i64::from(i32::MAX) => ("after", 2038),
                _ => ("after", 2446),
            };
            return Err(Failure::Failed(format!(
                "{location}: cannot set the times: its inode holds no time {side} {year}; choose another time"
            )));
        }
    }
    Ok(())
}

pub(crate) fn touch(arguments: &Touch, images: &mut Images, output: &mut Output) -> Result<()> {
    let given = match (&arguments.date, &arguments.stamp) {
        (Some(date), _) => Some(parse_time(date).map_err(|wrong| usage(&wrong))?),
        (_, Some(text)) => Some(stamp(text)?),
        _ => None,
    };
    let paths = images.expand(&arguments.paths, Access::ReadWrite)?;
    let times = match &arguments.reference {
        Some(reference) => {
            let found = reference_of(reference, &paths, images)?;
            (SetTime::To(found.accessed), SetTime::To(found.modified))
        }
        None => given.map_or((SetTime::Now, SetTime::Now), |time| (SetTime::To(time), SetTime::To(time))),
    };
    let both = arguments.access == arguments.modification;
    let changes = SetAttributes {
        accessed: (both || arguments.access).then_some(times.0),
        modified: (both || arguments.modification).then_some(times.1),
        ..SetAttributes::default()
    };
    let mut files = Vec::new();
    let done = for_each(&paths, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadWrite)?;
        let no_create = arguments.no_create || arguments.no_dereference;
        let is_link = arguments.no_dereference && filesystem.symlink_metadata(path).is_ok();
        let node = if is_link { filesystem.resolve_link(path) } else { filesystem.resolve(path) };
        // A new file is like the root in this.
        let node =
            node.or_else(|_| filesystem.resolve("/")).map_err(Failure::map(location, "set the times"))?;
        refuse_time_out_of_range(&node, location, &changes)?;
        if !is_link && !make_if_missing(&filesystem, location, path, no_create)? {
            return Ok(());
        }
        let node = if is_link { filesystem.resolve_link(path) } else { filesystem.resolve(path) };
        let set = node.and_then(|node| node.set_attributes(&changes));
        set.map_err(Failure::map(location, "set the times"))?;
        files.push(json_path(path));
        Ok(())
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "touch", "touched": files }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_those_of_posix() {
        assert!(stamp("200102030405.06").is_ok() && stamp("0102030405").is_ok() && stamp("02030405").is_ok());
        for wrong in ["", "2001", "20010203040", "200102030405.6", "200113030405", "2001020304é5"] {
            assert!(stamp(wrong).is_err(), "{wrong}");
        }
        assert_eq!(stamp("6901010000").unwrap(), stamp("196901010000").unwrap());
    }
}
