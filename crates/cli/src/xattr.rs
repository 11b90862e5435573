//! The command xattr: extended attributes of files.

use std::os::unix::ffi::OsStrExt;

use diorite::{Access, Filesystem, XattrMode};
use serde_json::{Value, json};

use crate::args::{Xattr, XattrAction};
use crate::each::{for_each, in_image, report};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::location::Location;
use crate::output::{Output, bytes_of_hex, hex, json_name, json_path};

/// A value as text: as it stands if it can be printed, else in hexadecimal digits.
fn value_text(value: &[u8]) -> String {
    // ACLs and capabilities are binary; a label of SELinux ends with NUL.
    let text = std::str::from_utf8(value.strip_suffix(b"\0").unwrap_or(value)).ok();
    match text.filter(|text| !text.starts_with("0x") && !text.chars().any(char::is_control)) {
        Some(text) => text.to_owned(),
        None => format!("0x{}", hex(value)),
    }
}

/// The bytes of a value on the command line.
fn value_bytes(text: &[u8]) -> Result<Vec<u8>> {
    let Some(digits) = text.strip_prefix(b"0x") else { return Ok(text.to_vec()) };
    std::str::from_utf8(digits).ok().and_then(bytes_of_hex).ok_or_else(|| {
        let text = String::from_utf8_lossy(text);
        Failure::Usage(format!("{text}: after 0x an even number of hexadecimal digits is needed"))
    })
}

pub(crate) fn xattr(arguments: &Xattr, images: &mut Images, output: &mut Output) -> Result<()> {
    let reporting = arguments.action.common().reporting;
    let mut files: Vec<Value> = Vec::new();
    let done = match &arguments.action {
        XattrAction::List { paths, .. } => for_each(&images.expand(paths, Access::ReadOnly)?, |location| {
            let filesystem = images.open(in_image(location)?.0, Access::ReadOnly)?;
            files.push(list_attributes(&filesystem, location, reporting.json, output)?);
            Ok(())
        }),
        XattrAction::Get { name, path: location, .. } => {
            let (image, path) = in_image(location)?;
            let filesystem = images.open(image, Access::ReadOnly)?;
            let what = format!("read the attribute {}", name.display());
            let value = filesystem.xattr(path, name.as_bytes()).map_err(Failure::map(location, &what))?;
            if reporting.json {
                files.push(json!({ "path": json_path(path), "attributes": { name.to_string_lossy(): value_text(&value) } }));
                Ok(())
            } else {
                output.bytes(&value)
            }
        }
        XattrAction::Set { name, value, paths, .. } => {
            let value = value_bytes(value.as_bytes())?;
            let what = format!("set the attribute {}", name.display());
            for_each(&images.expand(paths, Access::ReadWrite)?, |location| {
                let (image, path) = in_image(location)?;
                let filesystem = images.open(image, Access::ReadWrite)?;
                let set = filesystem.set_xattr(path, name.as_bytes(), &value, XattrMode::Set);
                set.map_err(Failure::map(location, &what))?;
                files.push(json_path(path));
                Ok(())
            })
        }
        XattrAction::Remove { name, paths, .. } => {
            let what = format!("remove the attribute {}", name.display());
            for_each(&images.expand(paths, Access::ReadWrite)?, |location| {
                let (image, path) = in_image(location)?;
                let filesystem = images.open(image, Access::ReadWrite)?;
                filesystem.remove_xattr(path, name.as_bytes()).map_err(Failure::map(location, &what))?;
                files.push(json_path(path));
                Ok(())
            })
        }
    };
    report(reporting, done, output, || json!({ "command": "xattr", "files": files }))
}

/// Print the attributes of a file; with `json` only return them.
fn list_attributes(
    filesystem: &Filesystem,
    location: &Location,
    json: bool,
    output: &mut Output,
) -> Result<Value> {
    let (_, path) = in_image(location)?;
    let failure = |error| Failure::of(location, "read the attributes", &error);
    let mut names = filesystem.xattr_names(path).map_err(failure)?;
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        let value = filesystem.xattr(path, &name).map_err(failure)?;
        found.push((name, value_text(&value)));
    }
    if json {
        let attributes: Vec<Value> =
            found.iter().map(|(name, value)| json!({ "name": json_name(name), "value": value })).collect();
        return Ok(json!({ "path": json_path(path), "attributes": attributes }));
    }
    for (name, value) in found {
        output.text(&format!("{location}: "))?;
        output.name(&name)?;
        output.line(format!("={value}"))?;
    }
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_or_hexadecimal() {
        assert_eq!(value_text(b"abc"), "abc");
        assert_eq!(value_text(b"system_u:object_r:etc_t:s0\0"), "system_u:object_r:etc_t:s0");
        assert_eq!(value_text(b"\x01\xff"), "0x01ff");
        assert_eq!(value_text(b"0x1"), "0x307831");
        assert_eq!(value_bytes(b"0x01fF").unwrap(), [1, 255]);
        assert_eq!(value_bytes(b"x").unwrap(), b"x");
        assert!(value_bytes(b"0x1").is_err() && value_bytes("0x1é".as_bytes()).is_err());
    }
}
