//! A new image that replaces an old one: made beside it, and renamed when it is complete.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite::BlockDevice;
use diorite_copy::incomplete_name;

use crate::args::Mkfs;
use crate::failure::{Failure, Result};
use crate::new_volume::{SMALLEST_BYTES, Target, open_device};

/// An incomplete image. Dropping it removes it.
pub(crate) struct Replacement {
    /// The old image.
    image: PathBuf,
    place: PathBuf,
    /// Keeps other programs of this library away from the old image.
    _lock: Option<Arc<dyn BlockDevice>>,
}

impl Replacement {
    /// For the file `image`, or the file that a link with this name leads to.
    pub(crate) fn of(arguments: &Mkfs, image: &Path) -> Result<Self> {
        let failure = |error| Failure::host(image.display(), "read", &error);
        let is_volume = image.metadata().map_err(failure)?.len() >= SMALLEST_BYTES;
        let old = Target { arguments, image, place: image, is_new: false };
        let lock = is_volume.then(|| open_device(old, None)).transpose()?;
        let image = image.canonicalize().map_err(failure)?;
        let place = incomplete_name(&image);
        // A killed run can have left one.
        let _ = fs::remove_file(&place);
        Ok(Self { image, place, _lock: lock })
    }

    /// The path at which the new image is made.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Give the new image the name, the permissions and the owner of the old one.
    pub(crate) fn complete(self) -> Result<()> {
        let replace = || {
            let old = self.image.metadata()?;
            // Only root can give files away.
            let _ = chown(&self.place, Some(old.uid()), Some(old.gid()));
            fs::set_permissions(&self.place, old.permissions())?;
            File::options().read(true).open(&self.place)?.sync_all()?;
            fs::rename(&self.place, &self.image)
        };
        replace().map_err(|error| Failure::host(self.image.display(), "replace", &error))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // There is none after a rename. The caller reports why it is incomplete.
        let _ = fs::remove_file(&self.place);
    }
}
