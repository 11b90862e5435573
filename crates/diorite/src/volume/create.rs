//! New volumes in new images.

use std::path::Path;

use diorite_device::{Create, DirectIo, FileDevice, OpenOptions as DeviceOptions};

use crate::open::open_target;

use crate::mkfs::{MkfsOptions, mkfs};
use crate::volume::what_is_on::what_is_on;
use crate::{Error, Filesystem, FilesystemOptions, Result};

impl Filesystem {
    /// Make a volume in a new image of `size` bytes, and open it for reading and writing. The file is sparse: it takes space as it
    /// is filled.
    ///
    /// ```
    /// use diorite::Filesystem;
    /// use diorite::mkfs::{Flavor, MkfsOptions};
    ///
    /// # fn main() -> diorite::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("disk.img");
    /// let filesystem = Filesystem::create(&path, 64 << 20, &MkfsOptions::new(Flavor::Ext4))?;
    /// filesystem.write("/hello", "world\n")?;
    /// filesystem.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if there is a file, which stays as it is.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other. After any other error than that there is no image. Otherwise as [`Filesystem::open`].
    pub fn create(path: impl AsRef<Path>, size: u64, options: &MkfsOptions) -> Result<Self> {
        FilesystemOptions::new().create(path, size, options)
    }
}

/// The treatment of existing content of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep it: the call fails.
    Keep,
    /// Overwrite it.
    Overwrite,
}

/// Make a volume on a disk, a part of it, or an image that exists.
///
/// # Errors
/// [`Error::HasContent`](crate::Error::HasContent) if it has [known content](crate::front_end::what_is_on) that must
/// be kept;
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other; or it cannot be opened.
pub fn mkfs_on(target: &str, options: &MkfsOptions, existing: Existing) -> Result<()> {
    // Before it is opened for writing, which locks it.
    let found = if existing == Existing::Keep { what_is_on(target) } else { None };
    if let Some(found) = found {
        return Err(Error::HasContent(found).at(target));
    }
    // Blocks may be smaller than the unit of direct I/O.
    let device = open_target(target, &DeviceOptions::read_write().direct(DirectIo::Off))?;
    mkfs(&*device, options).map_err(|error| Error::from(error).at(target))?;
    Ok(())
}

impl FilesystemOptions {
    /// As [`Filesystem::create`]; the volume is opened with these options.
    ///
    /// # Errors
    /// As [`Filesystem::create`].
    pub fn create(&self, path: impl AsRef<Path>, size: u64, options: &MkfsOptions) -> Result<Filesystem> {
        let path = path.as_ref();
        // Blocks may be smaller than the unit of direct I/O on the image.
        let new = DeviceOptions::read_write().direct(DirectIo::Off).create(Create::NewSized(size));
        let device = FileDevice::open(path, &new)?;
        let made = mkfs(&*device, options);
        drop(device);
        if let Err(error) = made {
            let _ = std::fs::remove_file(path);
            return Err(Error::from(error).at(path));
        }
        self.clone().new_volume().open(path).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    }
}
