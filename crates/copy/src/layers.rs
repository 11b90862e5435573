//! The sources of the content of a new filesystem, and the tree in memory that they make.
//!
//! Where it sits: above `input/`, `oci/` and `memory/`. A single directory or archive is taken as it is. Several sources, and the layers of an
//! image, are put over each other from the bottom up, and their whiteouts hide files of lower layers.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::input::{Archive, Recording};
use crate::memory::{MemoryTree, Role};
use crate::oci::{Choice, Layout, Platform};
use crate::{Error, HostTree, Watch};

/// Begins the name of a directory with images.
const OCI_DIRECTORY: &[u8] = b"oci:";
/// Begins the name of an archive with images.
const OCI_ARCHIVE: &[u8] = b"oci-archive:";

/// A source of content.
pub enum LayerSource {
    /// A directory of the host.
    Directory(PathBuf),
    /// A tar archive.
    Archive(Archive),
    /// An image of a container.
    Image {
        /// The directory, or the archive that holds it.
        place: ImagePlace,
        /// The path of that in messages.
        path: PathBuf,
        /// The reference of the image.
        tag: Option<String>,
    },
}

/// The place of a container image.
pub enum ImagePlace {
    /// In a directory of the host.
    Directory,
    /// In an archive.
    Archive(Archive),
}

/// Options to read sources.
#[derive(Clone, Copy)]
pub struct Loading<'a> {
    /// The host, with the image that is made.
    pub host: &'a HostTree,
    /// The directory of temporary files.
    pub temporary: &'a Path,
    /// The platform of images. `None` is that of this machine.
    pub platform: Option<&'a Platform>,
    /// Can stop the reading, and gets the attributes that are lost.
    pub watch: &'a dyn Watch,
}

impl LayerSource {
    /// Open a source: a directory, an archive, `-` for standard input, `oci:DIR[:TAG]` or `oci-archive:FILE[:TAG]`.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub fn open(name: &Path, watch: &dyn Watch) -> Result<Self, Error> {
        let bytes = name.as_os_str().as_bytes();
        if let Some(rest) = bytes.strip_prefix(OCI_DIRECTORY) {
            let (path, tag) = path_and_tag(name, rest)?;
            return Ok(Self::Image { place: ImagePlace::Directory, path, tag });
        }
        if let Some(rest) = bytes.strip_prefix(OCI_ARCHIVE) {
            let (path, tag) = path_and_tag(name, rest)?;
            let place = ImagePlace::Archive(Archive::open(&path, watch)?);
            return Ok(Self::Image { place, path, tag });
        }
        if name == Path::new("-") {
            return Archive::standard_input(watch).map(Self::Archive);
        }
        let found = name.metadata().map_err(|error| Error::host(name, "read", error))?;
        if found.is_dir() {
            return Ok(Self::Directory(name.to_owned()));
        }
        Archive::open(name, watch).map(Self::Archive)
    }

    /// The archive, if there is one.
    pub fn archive(&self) -> Option<&Archive> {
        match self {
            Self::Archive(archive) | Self::Image { place: ImagePlace::Archive(archive), .. } => Some(archive),
            Self::Directory(_) | Self::Image { place: ImagePlace::Directory, .. } => None,
        }
    }

    /// The tree in memory of this source alone.
    fn whole(self, loading: &Loading<'_>) -> Result<MemoryTree, Error> {
        if let Self::Image { path, .. } = &self {
            let mut tree = MemoryTree::new(path.display().to_string(), Role::Whole);
            self.apply(&mut tree, loading)?;
            return Ok(tree);
        }
        self.record(Role::Whole, loading)
    }

    /// A directory or an archive.
    fn record(self, role: Role, loading: &Loading<'_>) -> Result<MemoryTree, Error> {
        match self {
            Self::Directory(path) => {
                MemoryTree::of_directory(Rc::new(loading.host.clone()), &path, role, loading.watch)
            }
            Self::Archive(archive) => archive.record(loading.recording(role)),
            Self::Image { path, .. } => {
                Err(Error::not_copied(path.display().to_string(), "an image has several layers"))
            }
        }
    }

    /// Put the layers of this source over a tree.
    fn apply(self, tree: &mut MemoryTree, loading: &Loading<'_>) -> Result<(), Error> {
        let Self::Image { place, path, tag } = self else {
            return tree.apply(self.record(Role::Layer, loading)?);
        };
        let name = path.display().to_string();
        let layout = match place {
            ImagePlace::Directory => Layout::new(Rc::new(loading.host.clone()), path, name),
            ImagePlace::Archive(archive) => {
                let files = archive.record(loading.recording(Role::Whole))?;
                let top = files.top().to_owned();
                Layout::new(Rc::new(files), top, name)
            }
        };
        let choice = Choice { tag: tag.as_deref(), platform: loading.platform };
        for blob in layout.layers(choice)? {
            tree.apply(layout.record(&blob, loading.recording(Role::Layer))?)?;
        }
        Ok(())
    }
}

impl<'a> Loading<'a> {
    fn recording(&self, role: Role) -> Recording<'a> {
        Recording { role, temporary: self.temporary, watch: self.watch }
    }
}

/// The tree in memory of all sources, from the bottom up.
///
/// # Errors
/// A source cannot be read, or is malformed.
pub fn load(mut sources: Vec<LayerSource>, loading: &Loading<'_>) -> Result<MemoryTree, Error> {
    let mut tree = match sources.pop() {
        Some(only) if sources.is_empty() => only.whole(loading)?,
        top => {
            let mut tree = MemoryTree::new("the layers", Role::Whole);
            for source in sources.into_iter().chain(top) {
                source.apply(&mut tree, loading)?;
            }
            tree
        }
    };
    tree.complete_root();
    Ok(tree)
}

/// The longest path of `rest` that exists, and the tag after it.
fn path_and_tag(name: &Path, rest: &[u8]) -> Result<(PathBuf, Option<String>), Error> {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let whole = path(rest);
    if whole.exists() {
        return Ok((whole, None));
    }
    let colons = rest.iter().enumerate().rev().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    for at in colons {
        let (before, tag) = (path(&rest[..at]), &rest[at + 1..]);
        if before.exists() && !tag.is_empty() {
            return Ok((before, Some(String::from_utf8_lossy(tag).into_owned())));
        }
    }
    Err(Error::host(name, "read the image", std::io::Error::from(std::io::ErrorKind::NotFound)))
}
