//! Files of the host that are read and written past the host's page cache, by the library.
//!
//! Where it sits: below `host.rs`. The library locks the files that it opens: shared for reading, exclusively for writing.

use std::path::Path;

use diorite::{DirectIo, File, HostFile, Unaligned};

use crate::Error;

/// Opening a file in the library costs more than copying a smaller one through the cache.
const LARGE_BYTES: u64 = 1 << 20;

/// The files of the host that are read and written past its page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PastCache {
    /// None.
    #[default]
    Never,
    /// Large ones, if their filesystem has direct I/O.
    LargeFiles,
    /// All; a file whose filesystem does not have direct I/O is an error.
    Always,
}

/// Options to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

impl PastCache {
    /// Open the file at `at` in the library, if it is transferred past the cache. Errors name `path`.
    pub(crate) fn open(
        self,
        at: &Path,
        path: &Path,
        size: u64,
        purpose: Purpose,
    ) -> Result<Option<File>, Error> {
        let direct = match self {
            Self::Always if size > 0 => DirectIo::Required,
            Self::LargeFiles if size >= LARGE_BYTES => DirectIo::Preferred,
            _ => return Ok(None),
        };
        let options = HostFile::options().read(true).write(purpose == Purpose::Write);
        match options.direct(direct).unaligned(Unaligned::Bounce).open(at) {
            Ok(file) => Ok(Some(file)),
            // Another process may have locked it.
            Err(_) if self == Self::LargeFiles => Ok(None),
            Err(source) => Err(Error::HostDirect {
                path: path.to_owned(),
                what: "open for direct I/O",
                source: Box::new(source),
            }),
        }
    }
}
