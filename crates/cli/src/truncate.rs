//! The command truncate.

use diorite::Access;
use serde_json::json;

use crate::args::Truncate;
use crate::attributes::{make_if_missing, reference_of};
use crate::each::{for_each, in_image, report};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::output::{Output, json_path};
use crate::size::Size;

/// The size of a file after truncate(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewSize {
    how: char,
    bytes: u64,
}

impl NewSize {
    fn parse(text: &str) -> Result<Self> {
        let how = text.chars().next().filter(|first| "+-<>/%".contains(*first));
        let bytes: Size = text[how.map_or(0, char::len_utf8)..].parse().map_err(Failure::Usage)?;
        let how = how.unwrap_or('=');
        if "/%".contains(how) && bytes.0 == 0 {
            return Err(Failure::Usage(format!(
                "{text}: division by zero; round to a multiple of 1 or more"
            )));
        }
        Ok(Self { how, bytes: bytes.0 })
    }

    /// The size of a file that has `now` bytes; `None` if it is too large.
    fn of(self, now: u64) -> Option<u64> {
        let bytes = self.bytes;
        match self.how {
            '+' => now.checked_add(bytes),
            '-' => Some(now.saturating_sub(bytes)),
            '<' => Some(now.min(bytes)),
            '>' => Some(now.max(bytes)),
            '/' => Some(now / bytes * bytes),
            '%' => now.div_ceil(bytes).checked_mul(bytes),
            _ => Some(bytes),
        }
    }
}

pub(crate) fn truncate(arguments: &Truncate, images: &mut Images, output: &mut Output) -> Result<()> {
    let size = arguments.size.as_deref().map(NewSize::parse).transpose()?;
    if arguments.reference.is_some() && size.is_some_and(|size| size.how == '=') {
        return Err(Failure::Usage(
            "--size: with --reference it must be relative; write +SIZE or -SIZE".to_owned(),
        ));
    }
    let paths = images.expand(&arguments.paths, Access::ReadWrite)?;
    let reference = match &arguments.reference {
        Some(reference) => Some(reference_of(reference, &paths, images)?.size),
        None => None,
    };
    let mut files = Vec::new();
    let done = for_each(&paths, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadWrite)?;
        if !make_if_missing(&filesystem, location, path, arguments.no_create)? {
            return Ok(());
        }
        let failure = |error| Failure::of(location, "set the size", &error);
        let file = filesystem.open_options().write(true).open(path).map_err(failure)?;
        let now = reference.unwrap_or_else(|| file.size());
        let wanted = size.map_or(Some(now), |size| size.of(now));
        let wanted = wanted.ok_or_else(|| {
            let most = filesystem.max_file_size();
            Failure::Failed(format!(
                "{location}: cannot set the size: a file on this volume has at most {most} bytes"
            ))
        })?;
        file.set_len(wanted).map_err(failure)?;
        files.push(json!({ "path": json_path(path), "size": wanted }));
        Ok(())
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "truncate", "files": files }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_truncate() {
        let size = |text: &str, now| NewSize::parse(text).unwrap().of(now);
        assert_eq!(size("5K", 1), Some(5120));
        assert_eq!(size("+5", 1), Some(6));
        assert_eq!(size("-5", 1), Some(0));
        assert_eq!((size("<5", 9), size("<5", 3)), (Some(5), Some(3)));
        assert_eq!((size(">5", 9), size(">5", 3)), (Some(9), Some(5)));
        assert_eq!((size("/4", 9), size("%4", 9), size("%4", 8)), (Some(8), Some(12), Some(8)));
        assert_eq!(size("+2", u64::MAX), None);
        assert!(NewSize::parse("/0").is_err() && NewSize::parse("").is_err() && NewSize::parse("é").is_err());
    }
}
