//! Trees between the host and a filesystem in one call.
//!
//! Where it sits: above the copier. A method of [`Filesystem`] itself would need the copier below the library, and the copier uses the
//! library; so these are methods of a trait.

use std::path::Path;

use diorite::Filesystem;
use diorite::front_end::host_paths;

use crate::{Copier, CopyOptions, Depth, Error, HostTree, ImageTree, Sink, Source, Summary, Unwatched};

/// Copies of whole trees, as methods of [`Filesystem`].
///
/// ```
/// use diorite::{Filesystem, mkfs::{Flavor, MkfsOptions}};
/// use diorite_copy::CopyTree;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let (image, back) = (directory.path().join("disk.img"), directory.path().join("back"));
/// let filesystem = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4))?;
/// filesystem.copy_tree_in("src", "/src")?;
/// let summary = filesystem.copy_tree_out("/src", &back)?;
/// assert_eq!(summary.attributes_lost, 0);
/// # filesystem.close()?;
/// # Ok(())
/// # }
/// ```
pub trait CopyTree {
    /// Copy the file or directory `from` of the host, with everything in it, to exactly `to`, and make it durable. A directory that exists
    /// is merged, a file that exists is replaced. Symbolic links stay links.
    ///
    /// # Errors
    /// The first file that cannot be copied. Complete files stay. An attribute that `to` cannot hold is no error; the summary counts it.
    fn copy_tree_in(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Summary, Error>;

    /// The same from the path `from` of the filesystem to `to` on the host.
    ///
    /// # Errors
    /// As [`Self::copy_tree_in`].
    fn copy_tree_out(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Summary, Error>;
}

impl CopyTree for Filesystem {
    fn copy_tree_in(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Summary, Error> {
        let (host, image) = sides(self);
        copy(&host, from.as_ref(), &image, to.as_ref())
    }

    fn copy_tree_out(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Summary, Error> {
        let (host, image) = sides(self);
        copy(&image, from.as_ref(), &host, to.as_ref())
    }
}

fn sides(filesystem: &Filesystem) -> (HostTree, ImageTree) {
    let name = filesystem.device().name();
    let host = HostTree::new().beside_images(host_paths(&name));
    (host, ImageTree::new(filesystem.clone(), name, None))
}

fn copy(source: &dyn Source, from: &Path, sink: &dyn Sink, to: &Path) -> Result<Summary, Error> {
    let options = CopyOptions { depth: Depth::Tree, ..CopyOptions::default() };
    let mut copier = Copier::new(sink, options, &Unwatched);
    copier.copy(source, from, to)?;
    copier.finish()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use diorite::mkfs::{Flavor, MkfsOptions};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the host is the other side")]
    fn a_tree_goes_in_and_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(path("from/sub")).unwrap();
        std::fs::write(path("from/sub/file"), "content").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 5);
        std::fs::File::options().write(true).open(path("from/sub/file")).unwrap().set_modified(time).unwrap();
        let options = MkfsOptions::new(Flavor::Ext4);
        let filesystem = Filesystem::create(path("disk.img"), 32 << 20, &options).unwrap();
        let summary = filesystem.copy_tree_in(path("from"), "/to").unwrap();
        assert_eq!((summary.files, summary.directories), (1, 2));
        let attributes = filesystem.metadata("/to/sub/file").unwrap();
        assert!(attributes.is_file() && !attributes.is_dir());
        assert_eq!((attributes.len(), attributes.modified()), (7, time));
        let entry = filesystem.read_dir("/to").unwrap().next().unwrap().unwrap();
        assert_eq!(
            (entry.path().as_path(), entry.metadata().unwrap().is_dir()),
            (Path::new("/to/sub"), true)
        );
        assert_eq!(entry.file_type().unwrap(), diorite::FileKind::Directory);
        let walked: Vec<_> = filesystem.walk("/to").map(|entry| entry.unwrap().path().to_owned()).collect();
        assert_eq!(walked, ["/to", "/to/sub", "/to/sub/file"].map(std::path::PathBuf::from));
        filesystem.copy_tree_out("/to", path("back")).unwrap();
        assert_eq!(std::fs::read_to_string(path("back/sub/file")).unwrap(), "content");
        // The image is in the directory that is copied.
        assert!(matches!(filesystem.copy_tree_in(directory.path(), "/all"), Err(Error::Refused { .. })));
    }
}
