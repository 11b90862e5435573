//! The command edit: a file of an image in the user's editor.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use diorite::{Access, Filesystem, Unaligned};
use serde_json::json;

use crate::args::Edit;
use crate::each::{in_image, report};
use crate::failure::{Failure, Result, complain};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path};

/// Larger files are not edited.
const BYTES_MAX: u64 = 64 << 20;

/// The editor's command line.
fn editor(arguments: &Edit) -> String {
    let given = |name| std::env::var(name).ok().filter(|text: &String| !text.trim().is_empty());
    arguments
        .editor
        .clone()
        .or_else(|| given("VISUAL"))
        .or_else(|| given("EDITOR"))
        .unwrap_or_else(|| "vi".to_owned())
}

/// The content of the file; empty if there is none.
fn content(filesystem: &Filesystem, location: &Location, path: &Path) -> Result<Vec<u8>> {
    match filesystem.metadata(path) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(Failure::of(location, "edit", &error)),
        Ok(found) if !found.is_file() => {
            return Err(Failure::Failed(format!("{location}: cannot edit: it is not a regular file")));
        }
        Ok(found) if found.size > BYTES_MAX => {
            let why = "it is larger than 64M; copy it out with `diorite cp`";
            return Err(Failure::Failed(format!("{location}: cannot edit: {why}")));
        }
        Ok(_) => {}
    }
    filesystem.read(path).map_err(Failure::map(location, "read"))
}

pub(crate) fn edit(arguments: &Edit, images: &mut Images, output: &mut Output) -> Result<()> {
    let location = &arguments.path;
    let (image, path) = in_image(location)?;
    let filesystem = images.open(image, Access::ReadWrite)?;
    let before = content(&filesystem, location, path)?;
    check_parent(&filesystem, location, path)?;
    let directory =
        tempfile::tempdir().map_err(|error| Failure::host("the temporary directory", "make", &error))?;
    // The editor chooses the syntax by the name.
    let copy = directory.path().join(path.file_name().unwrap_or_default());
    let failure = |error: std::io::Error| Failure::host(copy.display(), "write the copy", &error);
    let mut file = std::fs::File::create_new(&copy).map_err(failure)?;
    file.write_all(&before).map_err(failure)?;
    drop(file);
    let command = editor(arguments);
    output.flush()?;
    let status = Command::new("sh").args(["-c", &format!("{command} \"$1\""), "sh"]).arg(&copy).status();
    let status = status.map_err(|error| Failure::host(&command, "start the editor", &error))?;
    #[expect(clippy::disallowed_methods, reason = "the copy for the editor")]
    let after = std::fs::read(&copy);
    let saved = interrupt::check().and_then(|()| {
        if !status.success() {
            let why = format!("the editor `{command}` failed ({status})");
            return Err(Failure::Failed(format!("{location}: not changed: {why}")));
        }
        let after = after.as_ref().map_err(|error| Failure::host(copy.display(), "read the copy", error))?;
        if *after != before {
            save(&filesystem, location, path, &before, after)?;
        }
        Ok(*after != before)
    });
    if saved.is_err() && after.is_ok_and(|after| after != before) {
        let _ = directory.keep();
        complain(&format!("{location}: the edited text is kept in {}", copy.display()));
    }
    let is_changed = saved?;
    if !is_changed && !arguments.common.reporting.json {
        complain(&format!("{location}: not changed"));
    }
    report(
        arguments.common.reporting,
        Ok(()),
        output,
        || json!({ "command": "edit", "path": json_path(path), "changed": is_changed }),
    )
}

/// Fails before the editor starts if the file could not be made.
fn check_parent(filesystem: &Filesystem, location: &Location, path: &Path) -> Result<()> {
    let failure = |error| Failure::of(location, "edit", &error);
    let canonical = diorite_files::canonical(filesystem, path).map_err(failure)?;
    let parent = filesystem.metadata(canonical.parent().unwrap_or(&canonical)).map_err(failure)?;
    if !parent.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Failure::Failed(format!(
            "{location}: cannot edit: the path does not end with a file name"
        )));
    }
    Ok(())
}

/// Give the file the new content, and make it durable.
fn save(
    filesystem: &Filesystem,
    location: &Location,
    path: &Path,
    before: &[u8],
    after: &[u8],
) -> Result<()> {
    let failure = |error| Failure::of(location, "write", &error);
    let path = &diorite_files::canonical(filesystem, path).map_err(failure)?;
    let has_other_names = filesystem.metadata(path).is_ok_and(|file| file.links > 1);
    let saved = if has_other_names {
        overwrite(filesystem, path, before, after)
    } else {
        replace(filesystem, path, after)
    };
    saved.and_then(|()| filesystem.sync()).map_err(failure)
}

/// Write into the file itself, so that its other names stay names of it. After an error it gets its old content back, which needs no new
/// blocks. If the machine stops meanwhile, the file can have parts of both contents.
fn overwrite(filesystem: &Filesystem, path: &Path, before: &[u8], after: &[u8]) -> diorite::Result<()> {
    let file = filesystem.open_options().read(true).write(true).unaligned(Unaligned::Bounce).open(path)?;
    let put = |content: &[u8]| {
        file.write_all_at(content, 0)?;
        // A file in a cache may get its blocks only now.
        file.sync_all()?;
        file.set_len(content.len() as u64)
    };
    put(after).inspect_err(|_| {
        // The first error is reported.
        let _ = put(before);
    })
}

/// Give the file the content under a temporary name, so that a failure leaves the old file.
fn replace(filesystem: &Filesystem, path: &Path, content: &[u8]) -> diorite::Result<()> {
    let temporary = diorite_copy::incomplete_name(path);
    let replaced = filesystem.write(&temporary, content).and_then(|()| {
        if let Ok(old) = filesystem.resolve(path) {
            let new = filesystem.resolve(&temporary)?;
            let attributes = old.attributes()?;
            for name in old.xattr_names()? {
                new.set_xattr(&name, &old.xattr(&name)?, diorite::XattrMode::Set)?;
            }
            new.set_attributes(&diorite::SetAttributes {
                permissions: Some(attributes.permissions),
                uid: Some(attributes.owner.uid),
                gid: Some(attributes.owner.gid),
                ..Default::default()
            })?;
        }
        // Its blocks are allocated before it replaces the old file.
        filesystem.sync()?;
        filesystem.rename(&temporary, path)
    });
    replaced.inspect_err(|_| {
        // The first error is reported.
        let _ = filesystem.remove_file(&temporary);
    })
}
