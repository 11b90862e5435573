//! The files of tensors: on the host, and in images.
//!
//! Where it sits: over the library's files. A file of the host is opened for direct I/O if its filesystem has it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::front_end::{OpenError, end_of_target, host_paths};
use diorite::{DirectIo, Error, File, Filesystem, HostFile};

use crate::error::Result;

/// How the bytes of a file move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Past the host's page cache.
    Direct,
    /// Through it.
    Buffered,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    /// As the caller gave it.
    pub(crate) name: PathBuf,
    /// Its path on the host, if it is no file in an image.
    pub(crate) host: Option<PathBuf>,
    pub(crate) way: Way,
    /// The number of its image. Files of one image share their counters.
    pub(crate) image: Option<usize>,
}

/// An image, and the path of a file in it.
fn in_image(path: &Path) -> Option<(&Path, &Path)> {
    let bytes = path.as_os_str().as_bytes();
    if path.exists() {
        return None;
    }
    let first = end_of_target(bytes)?;
    let is_there = |at: &usize| {
        let paths = std::str::from_utf8(&bytes[..*at]).map(host_paths).unwrap_or_default();
        paths.iter().any(|path| path.exists() && !path.is_dir())
    };
    let mut ends = (first..bytes.len()).filter(|at| bytes[*at..].starts_with(b":/"));
    let end = ends.find(is_there)?;
    Some((Path::new(OsStr::from_bytes(&bytes[..end])), Path::new(OsStr::from_bytes(&bytes[end + 1..]))))
}

/// Opens files, and each image once.
pub(crate) struct Opener {
    direct: DirectIo,
    images: Vec<(PathBuf, Filesystem, Way)>,
}

impl Opener {
    pub(crate) fn new(direct: DirectIo) -> Self {
        Self { direct, images: Vec::new() }
    }

    /// Open the file at `path`: of the host, or `IMAGE:/path`.
    pub(crate) fn open(&mut self, path: &Path) -> Result<Source> {
        let name = path.to_owned();
        if let Some((image, inside)) = in_image(path) {
            let number = self.image(image)?;
            let (_, filesystem, way) = &self.images[number];
            let file = filesystem.open_options().read(true).direct(DirectIo::Preferred).open(inside)?;
            return Ok(Source { file, name, host: None, way: *way, image: Some(number) });
        }
        let open = |direct| HostFile::options().read(true).direct(direct).open(path);
        let (file, way) = directly(self.direct, open)?;
        Ok(Source { file, name, host: Some(path.to_owned()), way, image: None })
    }

    /// The number of an image, which is opened if it is not yet.
    fn image(&mut self, image: &Path) -> Result<usize> {
        if let Some(number) = self.images.iter().position(|(name, ..)| name == image) {
            return Ok(number);
        }
        let options = Filesystem::options().access(diorite::Access::ReadOnly);
        let open = |direct| options.clone().device_direct(direct).open(image);
        let (filesystem, way) = directly(self.direct, open)?;
        self.images.push((image.to_owned(), filesystem, way));
        Ok(self.images.len() - 1)
    }
}

/// Open directly if that is possible, or required.
fn directly<T>(wanted: DirectIo, open: impl Fn(DirectIo) -> diorite::Result<T>) -> Result<(T, Way)> {
    if wanted == DirectIo::Off {
        return Ok((open(DirectIo::Off)?, Way::Buffered));
    }
    match open(DirectIo::Required) {
        Ok(opened) => Ok((opened, Way::Direct)),
        Err(error) if wanted == DirectIo::Preferred && is_refused(&error) => {
            Ok((open(DirectIo::Preferred)?, Way::Buffered))
        }
        Err(error) => Err(error.into()),
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error.without_path().open_error(), Some(OpenError::DirectRefused { .. }))
}
