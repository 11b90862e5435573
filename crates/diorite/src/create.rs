//! New volumes in new images.

use std::path::Path;

use diorite_device::{Create, DirectIo, FileDevice, OpenOptions as DeviceOptions};

use crate::mkfs::{MkfsOptions, mkfs};
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
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if there is a file, which stays as it is. [`Error::Mkfs`](crate::Error::Mkfs)
    /// if there cannot be such a volume: then there is no image either. Otherwise as [`Filesystem::open`].
    pub fn create(path: impl AsRef<Path>, size: u64, options: &MkfsOptions) -> Result<Self> {
        FilesystemOptions::new().create(path, size, options)
    }
}

impl FilesystemOptions {
    /// As [`Filesystem::create`]; the volume is opened with these options.
    ///
    /// # Errors
    /// As [`Filesystem::create`].
    pub fn create(&self, path: impl AsRef<Path>, size: u64, options: &MkfsOptions) -> Result<Filesystem> {
        let path = path.as_ref();
        // Blocks may be smaller than what direct I/O on the image moves.
        let new = DeviceOptions::read_write().direct(DirectIo::Off).create(Create::NewSized(size));
        let device = FileDevice::open(path, &new)?;
        let made = mkfs(&*device, options);
        drop(device);
        if let Err(error) = made {
            let _ = std::fs::remove_file(path);
            return Err(Error::Mkfs(error).at(path));
        }
        self.open(path)
    }
}
