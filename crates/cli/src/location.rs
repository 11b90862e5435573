//! Path arguments: a file of the host, or a file in an image.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, StringValueParser, TypedValueParser, ValueParserFactory};
use diorite::front_end::{end_of_target, host_paths};

use crate::failure::{Failure, Result};
use crate::inside::{HOST, Inside};

/// A path argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// `PATH`, or `IMAGE` for commands that need no path.
    Host(PathBuf),
    /// `IMAGE:/path`.
    Image {
        /// The image, as it was typed.
        image: PathBuf,
        /// The path inside, which begins with `/`.
        path: PathBuf,
    },
}

impl Inside {
    /// Whether the location may be a pattern: it is not quoted in the command shell.
    pub(crate) fn may_expand(location: &Location) -> bool {
        Self::current()
            .is_none_or(|inside| inside.patterns.iter().any(|word| inside.clone().locate(word) == *location))
    }

    fn locate(self, argument: &Path) -> Location {
        let bytes = argument.as_os_str().as_bytes();
        if argument == Path::new("-") {
            return Location::Host(argument.to_owned());
        }
        if let Some(path) = bytes.strip_prefix(HOST) {
            return Location::Host(PathBuf::from(OsString::from_vec(path.to_vec())));
        }
        let path = bytes
            .strip_prefix(&*self.own_prefix())
            .map_or(argument, |path| Path::new(OsStr::from_bytes(path)));
        let path = if path == Path::new(".") { self.directory } else { self.directory.join(path) };
        Location::Image { path, image: self.image }
    }
}

impl Location {
    /// Split an argument at its first `:/` that is not part of a scheme, or at a later one if only the longer image name exists. An existing
    /// host file with the whole name takes precedence.
    pub(crate) fn parse(argument: &Path) -> Self {
        if let Some(inside) = Inside::current() {
            return inside.locate(argument);
        }
        let bytes = argument.as_os_str().as_bytes();
        match end_of_image(bytes) {
            Some(at) if argument.symlink_metadata().is_err() => Self::Image {
                image: with_partition(&bytes[..at]),
                path: PathBuf::from(OsString::from_vec(bytes[at + 1..].to_vec())),
            },
            _ => Self::Host(argument.to_owned()),
        }
    }

    /// The file that a word names in this directory; `None` if the word says itself in which image it is, or that it is on the host.
    pub(crate) fn below(&self, word: &Path) -> Option<Self> {
        let is_relative = match Inside::current() {
            Some(inside) => {
                let bytes = word.as_os_str().as_bytes();
                !bytes.starts_with(HOST) && !bytes.starts_with(&inside.own_prefix())
            }
            None => matches!(Self::parse(word), Self::Host(_)),
        };
        is_relative.then(|| match self {
            Self::Host(directory) => Self::Host(directory.join(word)),
            Self::Image { image, path } => Self::Image { image: image.clone(), path: path.join(word) },
        })
    }

    /// The image and the path in it. An argument without `:/` is an image and stands for its root.
    pub(crate) fn in_image(&self) -> (&Path, &Path) {
        match self {
            Self::Host(image) => (image, Path::new("/")),
            Self::Image { image, path } => (image, path),
        }
    }
}

impl Location {
    /// The path of a file that a word names, with or without the image.
    pub(crate) fn path_inside(&self) -> &Path {
        match self {
            Self::Host(path) | Self::Image { path, .. } => path,
        }
    }
}

/// The name of an image or a device. `DISK:N` is `DISK?partition=N`, unless a file has the first name.
pub(crate) fn with_partition(name: &[u8]) -> PathBuf {
    let whole = PathBuf::from(OsString::from_vec(name.to_vec()));
    let part = name.iter().rposition(|byte| *byte == b':').map(|at| (&name[..at], &name[at + 1..]));
    match part {
        Some((disk, number))
            if !number.is_empty()
                && number.iter().all(u8::is_ascii_digit)
                && !whole.exists()
                && Path::new(OsStr::from_bytes(disk)).exists() =>
        {
            PathBuf::from(OsString::from_vec([disk, b"?partition=", number].concat()))
        }
        _ => whole,
    }
}

/// The end of the image's name in an argument.
fn end_of_image(argument: &[u8]) -> Option<usize> {
    let first = end_of_target(argument)?;
    let is_there = |at: &usize| {
        let paths = std::str::from_utf8(&argument[..*at]).map(host_paths).unwrap_or_default();
        paths.iter().any(|path| path.exists() && !path.is_dir())
    };
    let ends = (first..argument.len()).filter(|at| argument[*at..].starts_with(b":/"));
    ends.clone().find(is_there).or(Some(first))
}

/// The name of an image as text.
pub(crate) fn name_of_image(image: &Path) -> Result<&str> {
    let wrong = "the name of an image must be UTF-8; rename the image, or make a link to it";
    image.to_str().ok_or_else(|| Failure::Usage(format!("{}: {wrong}", image.display())))
}

/// Whether two names stand for the same image: equal names, or names of one file with the same options of a part.
pub(crate) fn is_same_image(a: &Path, b: &Path) -> bool {
    let file = |name: &Path| name.metadata().ok().map(|at| (at.dev(), at.ino()));
    let place = |name: &Path| {
        let bytes = name.as_os_str().as_bytes();
        let whole = file(name).map(|file| (file, OsString::new()));
        let in_part = || {
            let (head, part) = bytes.split_at(bytes.iter().rposition(|byte| *byte == b'?')?);
            Some((file(Path::new(OsStr::from_bytes(head)))?, OsString::from_vec(part.to_vec())))
        };
        whole.or_else(in_part)
    };
    a == b || place(a).is_some_and(|first| place(b) == Some(first))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => path.display().fmt(f),
            Self::Image { image, path } => write!(f, "{}:{}", image.display(), path.display()),
        }
    }
}

/// Parses the name of an image or a device; `DISK:N` is a partition.
pub(crate) fn image_name() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().map(|name| with_partition(name.as_bytes()).into_os_string())
}

/// The same, for names that are text.
pub(crate) fn image_text() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|name| with_partition(name.as_bytes()).to_string_lossy().into_owned())
}

impl ValueParserFactory for Location {
    type Parser = clap::builder::TryMapValueParser<
        OsStringValueParser,
        fn(OsString) -> std::result::Result<Location, &'static str>,
    >;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().try_map(|argument| {
            if argument.is_empty() {
                return Err("a path cannot be empty");
            }
            if Inside::current().is_some() && argument.as_bytes() == HOST {
                return Err("a path of the host is missing after `host:`");
            }
            Ok(Self::parse(Path::new(&argument)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(image: &str, path: &str) -> Location {
        Location::Image { image: image.into(), path: path.into() }
    }

    #[test]
    fn arguments_are_taken_apart_at_the_first_colon_slash() {
        for (argument, location) in [
            ("disk.img:/", image("disk.img", "/")),
            ("disk.img:/a/b", image("disk.img", "/a/b")),
            ("disk.img?partition=2:/a:/b", image("disk.img?partition=2", "/a:/b")),
            ("./a:b:/c", image("./a:b", "/c")),
            ("raw:/dev/sdb", Location::Host("raw:/dev/sdb".into())),
            ("stripe:/dev/sdb,/dev/sdc", Location::Host("stripe:/dev/sdb,/dev/sdc".into())),
            (
                "stripe:/dev/sdb,/dev/sdc?chunk=4K:/a,b:/c",
                image("stripe:/dev/sdb,/dev/sdc?chunk=4K", "/a,b:/c"),
            ),
            ("md:raw:/dev/sdb,nbd://host/x:/", image("md:raw:/dev/sdb,nbd://host/x", "/")),
            ("lvm:/dev/sdb?volume=root:/etc", image("lvm:/dev/sdb?volume=root", "/etc")),
            ("nbd://host:10809/x:/a", image("nbd://host:10809/x", "/a")),
            ("plain", Location::Host("plain".into())),
            ("time-12:30", Location::Host("time-12:30".into())),
            (":/a", Location::Host(":/a".into())),
        ] {
            assert_eq!(Location::parse(Path::new(argument)), location, "{argument}");
        }
    }

    #[test]
    fn image_alone_means_its_root() {
        let location = Location::parse(Path::new("disk.img"));
        assert_eq!(location.in_image(), (Path::new("disk.img"), Path::new("/")));
    }

    #[test]
    fn image_is_the_same_under_other_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        std::fs::File::options().create(true).append(true).open(&path).unwrap();
        let name = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
        let other = |end: &str| PathBuf::from(format!("{}/./a.img{end}", directory.path().display()));
        assert!(is_same_image(&name(""), &other("")));
        assert!(is_same_image(&name("?partition=1"), &other("?partition=1")));
        assert!(!is_same_image(&name("?partition=1"), &other("?partition=2")));
        assert!(!is_same_image(&name("?partition=1"), &other("")));
        assert!(!is_same_image(Path::new("missing"), Path::new("./absent")));
    }

    #[test]
    fn number_after_a_disk_is_its_partition() {
        let directory = tempfile::tempdir().unwrap();
        let name = |name: &str| directory.path().join(name).display().to_string();
        for file in ["disk", "other", "other:2"] {
            std::fs::File::options().create(true).append(true).open(name(file)).unwrap();
        }
        let parse = |argument: &str| Location::parse(Path::new(&name(argument)));
        assert_eq!(parse("disk:2:/a"), image(&name("disk?partition=2"), "/a"));
        assert_eq!(parse("other:2:/a"), image(&name("other:2"), "/a"));
        assert_eq!(parse("disk:x:/a"), image(&name("disk:x"), "/a"));
        assert_eq!(parse("missing:2:/a"), image(&name("missing:2"), "/a"));
    }

    /// It was taken for an image `odd` that is not there.
    #[test]
    fn directory_of_an_image_may_end_in_a_colon() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("odd:")).unwrap();
        let path = directory.path().join("odd:/a.img");
        std::fs::File::options().create(true).append(true).open(&path).unwrap();
        for scheme in ["", "raw:"] {
            let name = format!("{scheme}{}", path.display());
            let inside = Location::parse(Path::new(&format!("{name}:/sub:/file")));
            assert_eq!(inside, image(&name, "/sub:/file"));
        }
        // Not where it would be a directory.
        std::fs::create_dir(directory.path().join("odd")).unwrap();
        let name = path.display().to_string();
        assert_eq!(Location::parse(Path::new(&format!("{name}:/"))), image(&name, "/"));
    }

    /// A host file may have `:/` in its path, and is then not an image.
    #[test]
    fn host_file_of_that_very_name_is_meant() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("odd:")).unwrap();
        let path = directory.path().join("odd:/file");
        std::fs::File::options().create(true).append(true).open(&path).unwrap();
        assert_eq!(Location::parse(&path), Location::Host(path));
    }
}
