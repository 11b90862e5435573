//! `hash -c`: the checksums of lists, as sha256sum and this program write them.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::Access;
use serde_json::{Value, json};

use super::{Hashing, escaped};
use crate::args::{Algorithm, Hash};
use crate::each::{for_each, report};
use crate::failure::{Failure, Result, complain, complain_of_part};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_name};

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    algorithm: Algorithm,
    /// In lower case.
    digest: String,
    name: Vec<u8>,
}

impl Line {
    /// `DIGEST  NAME`, `DIGEST *NAME` or `SHA256 (NAME) = DIGEST`. A `\` before it all says that the name has escapes.
    fn parse(line: &[u8]) -> Option<Self> {
        let (line, has_escapes) = line.strip_prefix(b"\\").map_or((line, false), |rest| (rest, true));
        let of_bsd = [("SHA256 (", Algorithm::Sha256), ("SHA512 (", Algorithm::Sha512)];
        let of_bsd = of_bsd.into_iter().find_map(|(tag, algorithm)| {
            let rest = line.strip_prefix(tag.as_bytes())?;
            let end = rest.windows(4).rposition(|text| text == b") = ")?;
            Some((algorithm, &rest[end + 4..], &rest[..end]))
        });
        let (algorithm, digest, name) = if let Some(parts) = of_bsd {
            parts
        } else {
            let end = line.iter().position(|byte| !byte.is_ascii_hexdigit())?;
            let (digest, rest) = line.split_at(end);
            let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
            (Algorithm::of_digits(digest.len())?, digest, name)
        };
        let is_digest = digest.len() == algorithm.digits() && digest.iter().all(u8::is_ascii_hexdigit);
        let name = if has_escapes { unescaped(name)? } else { name.to_vec() };
        let digest = String::from_utf8(digest.to_ascii_lowercase()).ok()?;
        (is_digest && !name.is_empty()).then_some(Self { algorithm, digest, name })
    }
}

/// The name that [`escaped`] wrote.
fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name.iter());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(bytes)
}

/// The results of a list.
#[derive(Default)]
struct Counts {
    lines: u64,
    malformed: u64,
    unreadable: u64,
    different: u64,
    verified: u64,
}

/// The text of a list, in a file of the host or of an image, or in standard input.
#[expect(clippy::disallowed_methods, reason = "the list is an argument of the command")]
fn read_list(list: &Location, images: &mut Images) -> Result<Vec<u8>> {
    match list {
        Location::Host(path) if path == Path::new("-") => {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|error| Failure::host("standard input", "read", &error))?;
            Ok(text)
        }
        Location::Host(path) => {
            std::fs::read(path).map_err(|error| Failure::host(path.display(), "read", &error))
        }
        Location::Image { image, path } => {
            let filesystem = images.open(image, Access::ReadOnly)?;
            filesystem.read(path).map_err(Failure::map(list, "read"))
        }
    }
}

/// Check the files of each list.
pub(super) fn check(arguments: &Hash, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut files: Vec<Value> = Vec::new();
    let lists = images.expand(&arguments.paths, Access::ReadOnly)?;
    let done = for_each(&lists, |list| {
        let text = read_list(list, images)?;
        let mut counts = Counts::default();
        for line in text.split(|byte| *byte == b'\n') {
            interrupt::check()?;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match Line::parse(line) {
                Some(line) => {
                    counts.lines += 1;
                    let json = arguments.common.reporting.json.then_some(&mut files);
                    check_line(arguments, &line, images, output, &mut counts, json)?;
                }
                None => counts.malformed += 1,
            }
        }
        conclude(arguments, list, &counts)
    });
    report(arguments.common.reporting, done, output, || json!({ "command": "hash", "files": files }))
}

fn check_line(
    arguments: &Hash,
    line: &Line,
    images: &mut Images,
    output: &mut Output,
    counts: &mut Counts,
    json: Option<&mut Vec<Value>>,
) -> Result<()> {
    let word = Path::new(OsStr::from_bytes(&line.name));
    let below = arguments.directory.as_ref().and_then(|directory| directory.below(word));
    let location = below.unwrap_or_else(|| Location::parse(word));
    let is_equal = match Hashing::of(&location, images).and_then(|file| file.digest(line.algorithm)) {
        Ok(digest) => digest == line.digest,
        Err(Failure::Failed(_)) if arguments.ignore_missing && is_missing(&location, images) => return Ok(()),
        Err(Failure::Failed(text) | Failure::Usage(text)) => {
            complain_of_part(&text);
            counts.unreadable += 1;
            return verdict(arguments, line, "FAILED open or read", output, json);
        }
        Err(other) => return Err(other),
    };
    counts.verified += 1;
    counts.different += u64::from(!is_equal);
    verdict(arguments, line, if is_equal { "OK" } else { "FAILED" }, output, json)
}

fn is_missing(location: &Location, images: &mut Images) -> bool {
    let (image, path) = location.in_image();
    let found = images.open(image, Access::ReadOnly).map(|filesystem| filesystem.metadata(path));
    matches!(found, Ok(Err(error)) if error.is_not_found())
}

fn verdict(
    arguments: &Hash,
    line: &Line,
    verdict: &str,
    output: &mut Output,
    json: Option<&mut Vec<Value>>,
) -> Result<()> {
    if let Some(files) = json {
        files.push(json!({ "path": json_name(&line.name), "ok": verdict == "OK" }));
        return Ok(());
    }
    if arguments.status || arguments.quiet && verdict == "OK" {
        return Ok(());
    }
    if line.name.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        output.text("\\")?;
        output.name(&escaped(&line.name))?;
    } else {
        output.name(&line.name)?;
    }
    output.line(format!(": {verdict}"))
}

/// Report the counts of a list, and fail if a file differs.
fn conclude(arguments: &Hash, list: &Location, counts: &Counts) -> Result<()> {
    let Counts { lines, malformed, unreadable, different, verified } = *counts;
    if lines == 0 {
        let why = "it has no checksums; a line is DIGEST, two spaces and a name";
        return Err(Failure::Failed(format!("{list}: nothing to check: {why}")));
    }
    let warn = |count: u64, one: &str, several: &str| {
        if count > 0 && !arguments.status {
            complain(&format!("{list}: {count} {}", if count == 1 { one } else { several }));
        }
    };
    warn(malformed, "line has no checksum", "lines have no checksum");
    warn(unreadable, "listed file could not be read", "listed files could not be read");
    warn(different, "file differs from its checksum", "files differ from their checksums");
    if verified == 0 && unreadable == 0 {
        let why = "no listed file exists; leave out --ignore-missing to see their names";
        return Err(Failure::Failed(format!("{list}: nothing to check: {why}")));
    }
    let is_failed = different + unreadable > 0 || arguments.strict && malformed > 0;
    if is_failed { Err(Failure::Reported) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        let digest = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
        let parse = |line: &str| Line::parse(line.as_bytes()).map(|line| (line.algorithm, line.name));
        let named = |name: &str| Some((Algorithm::Sha256, name.as_bytes().to_vec()));
        assert_eq!(parse(&format!("{digest}  a b")), named("a b"));
        assert_eq!(parse(&format!("{digest} *a")), named("a"));
        assert_eq!(parse(&format!("\\{digest}  a\\nb\\\\c")), named("a\nb\\c"));
        assert_eq!(parse(&format!("{digest}  a\\nb")), named("a\\nb"));
        assert_eq!(parse(&format!("SHA256 (a) = b) = {digest}")), named("a) = b"));
        let long = digest.repeat(2);
        assert_eq!(parse(&format!("{long}  a")).map(|line| line.0), Some(Algorithm::Sha512));
        for wrong in
            ["", "x", &digest, &format!("{digest}  "), &format!("{digest} a"), &format!("{digest}0  a")]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(&format!("\\{digest}  a\\x")), None);
    }
}
