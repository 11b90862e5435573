//! The command hash: checksums of files, as sha256sum prints and checks them.

mod check;

use std::path::Path;

use diorite::{Access, DirectIo, File, FileKind};
use serde_json::json;
use sha2::{Digest, Sha256, Sha512};

use crate::args::{Algorithm, Hash};
use crate::cat::{for_each_chunk, opened};
use crate::each::{for_each, in_image, report};
use crate::entry::{location_bytes, walked, whole};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, hex, json_path};

/// A regular file, open for its checksum.
struct Hashing {
    file: File,
    at: Location,
}

impl Hashing {
    fn of(location: &Location, images: &mut Images) -> Result<Self> {
        let direct = images.direct().unwrap_or(DirectIo::Preferred);
        let filesystem = images.open(in_image(location)?.0, Access::ReadOnly)?;
        Ok(Self { file: opened(&filesystem, location, direct)?, at: location.clone() })
    }

    /// The checksum, in hexadecimal digits.
    fn digest(&self, algorithm: Algorithm) -> Result<String> {
        match algorithm {
            Algorithm::Sha256 => self.digest_with(Sha256::new()),
            Algorithm::Sha512 => self.digest_with(Sha512::new()),
        }
    }

    fn digest_with<D: Digest>(&self, mut state: D) -> Result<String> {
        for_each_chunk(&self.file, &self.at, |chunk| {
            state.update(chunk);
            Ok(())
        })?;
        Ok(hex(state.finalize()))
    }
}

/// A name as sha256sum prints it. The line of a name with escapes begins with a backslash.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            other => escaped.push(*other),
        }
    }
    escaped
}

pub(crate) fn hash(arguments: &Hash, images: &mut Images, output: &mut Output) -> Result<()> {
    if arguments.check {
        return check::check(arguments, images, output);
    }
    let mut files = Vec::new();
    let json = arguments.common.reporting.json;
    let done = for_each(&images.expand(&arguments.paths, Access::ReadOnly)?, |location| {
        let (image, path) = in_image(location)?;
        let filesystem = images.open(image, Access::ReadOnly)?;
        let mut one = |path: &Path| {
            let at = Location::Image { image: image.to_owned(), path: path.to_owned() };
            let digest = Hashing::of(&at, images)?.digest(arguments.algorithm)?;
            if json {
                files.push(json!({ "path": json_path(path), "digest": digest }));
                return Ok(());
            }
            let name = location_bytes(image, path);
            let escaped = escaped(&name);
            output.text(if escaped == name { "" } else { "\\" })?;
            output.text(&format!("{digest}  "))?;
            output.name(&escaped)?;
            output.line("")
        };
        let kind = filesystem.metadata(path).map_err(Failure::map(location, "read"))?.kind;
        if kind != FileKind::Directory || !arguments.recursive {
            return one(path);
        }
        let mut is_partial = false;
        for entry in filesystem.walk(path) {
            interrupt::check()?;
            let Some(entry) = walked(entry, location, &mut is_partial)? else { continue };
            if entry.kind == FileKind::Regular
                && let Err(failure) = one(&entry.path)
            {
                failure.of_part()?;
                is_partial = true;
            }
        }
        whole(is_partial)
    });
    let algorithm = arguments.algorithm.name();
    report(
        arguments.common.reporting,
        done,
        output,
        || json!({ "command": "hash", "algorithm": algorithm, "files": files }),
    )
}
