//! The place of a workload: an image, with the library, or a directory of the host.

use std::fs;
use std::path::Path;

use diorite::Filesystem;
use rustix::fs::RawDir;

use crate::Failure;

/// Buffer size of the C library's `readdir`.
const READDIR_BYTES: usize = 32 << 10;

/// See the module's head.
pub(crate) enum Place {
    /// An image, opened by the library.
    Image(Filesystem),
    /// The current directory of the process.
    Host,
}

impl Place {
    /// Change to a directory, so that paths are as short as on the image.
    pub(crate) fn host(path: &Path) -> Result<Self, Failure> {
        std::env::set_current_dir(path)?;
        Ok(Self::Host)
    }

    /// Make everything durable.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        match self {
            Self::Image(filesystem) => Ok(filesystem.sync()?),
            Self::Host => Ok(rustix::fs::syncfs(open_directory(".")?)?),
        }
    }

    /// Make a directory.
    pub(crate) fn make_directory(&self, path: &str) -> Result<(), Failure> {
        match self {
            Self::Image(filesystem) => Ok(filesystem.create_dir(path)?),
            Self::Host => Ok(fs::create_dir(path)?),
        }
    }

    /// Remove an empty directory.
    pub(crate) fn remove_directory(&self, path: &str) -> Result<(), Failure> {
        match self {
            Self::Image(filesystem) => Ok(filesystem.remove_dir(path)?),
            Self::Host => Ok(fs::remove_dir(path)?),
        }
    }

    /// Make a new file, and close it.
    pub(crate) fn create(&self, path: &str) -> Result<(), Failure> {
        match self {
            Self::Image(filesystem) => {
                drop(filesystem.open_options().write(true).create_new(true).open(path)?);
            }
            Self::Host => drop(fs::OpenOptions::new().write(true).create_new(true).open(path)?),
        }
        Ok(())
    }

    /// Size of a file, by its path.
    pub(crate) fn size_of(&self, path: &str) -> Result<u64, Failure> {
        match self {
            Self::Image(filesystem) => Ok(filesystem.metadata(path)?.size),
            Self::Host => Ok(fs::metadata(path)?.len()),
        }
    }

    /// Number of names in a directory, without keeping them; on the host as with `readdir(3)`.
    pub(crate) fn count_names(&self, path: &str) -> Result<usize, Failure> {
        match self {
            Self::Image(filesystem) => {
                Ok(filesystem.read_dir(path)?.try_fold(0, |count, entry| entry.map(|_| count + 1))?)
            }
            Self::Host => {
                let mut memory = Vec::with_capacity(READDIR_BYTES);
                let directory = open_directory(path)?;
                let mut entries = RawDir::new(directory, memory.spare_capacity_mut());
                let mut count = 0;
                while let Some(entry) = entries.next() {
                    count += usize::from(!matches!(entry?.file_name().to_bytes(), b"." | b".."));
                }
                Ok(count)
            }
        }
    }

    /// Number of names in a directory, after all are in memory.
    pub(crate) fn list(&self, path: &str) -> Result<usize, Failure> {
        match self {
            Self::Image(filesystem) => {
                Ok(filesystem.read_dir(path)?.collect::<diorite::Result<Vec<_>>>()?.len())
            }
            Self::Host => {
                // The names are kept, as the library gives them.
                let names: Result<Vec<_>, _> = fs::read_dir(path)?.collect();
                Ok(names?.len())
            }
        }
    }

    /// Remove a file.
    pub(crate) fn remove(&self, path: &str) -> Result<(), Failure> {
        match self {
            Self::Image(filesystem) => Ok(filesystem.remove_file(path)?),
            Self::Host => Ok(fs::remove_file(path)?),
        }
    }

    /// Close the image; nothing in it may be open.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Self::Image(filesystem) => Ok(filesystem.close()?),
            Self::Host => Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the host is what is measured")]
fn open_directory(path: &str) -> std::io::Result<fs::File> {
    fs::File::open(path)
}
