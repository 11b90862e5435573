//! skeleton
use crate::node::NodeRef;
use crate::{
    Access, Attributes, BlockDevice, Clock, DirectIo, DirectoryEntry, File, InodeNumber, NodeSpec,
    OpenOptions, RenameMode, Result, SetTime, SpaceUse, Stats, XattrMode,
};
use diorite_device::{Backend, DirectPolicy};
use diorite_ext::Volume;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub(crate) const CACHE_BYTES: usize = 64 << 20;
pub(crate) const READ_AHEAD_BYTES: usize = 2 << 20;
pub(crate) const DIRTY_AGE: std::time::Duration = std::time::Duration::from_secs(5);
/// How to open a filesystem.
#[derive(Clone, Debug, Default)]
pub struct FilesystemOptions {}
#[expect(unused_variables, reason = "skeleton")]
impl FilesystemOptions {
    /// Reads and writes, 64 MiB of page cache.
    pub fn new() -> Self {
        Self {}
    }
    /// Whether the volume may be changed.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        todo!()
    }
    /// Memory for the page cache in bytes.
    #[must_use]
    pub fn cache_bytes(self, bytes: usize) -> Self {
        todo!()
    }
    /// Memory for metadata buffers in bytes.
    #[must_use]
    pub fn metadata_cache_bytes(self, bytes: usize) -> Self {
        todo!()
    }
    /// Largest read-ahead window in bytes; 0 turns read-ahead off.
    #[must_use]
    pub fn read_ahead_bytes(self, bytes: usize) -> Self {
        todo!()
    }
    /// Whether files are opened for direct I/O where their own options do not say.
    #[must_use]
    pub fn direct(self, direct: DirectIo) -> Self {
        todo!()
    }
    /// Whether the image itself is opened past the host's page cache.
    #[must_use]
    pub fn device_direct(self, policy: DirectPolicy) -> Self {
        todo!()
    }
    /// Which system calls move the data.
    #[must_use]
    pub fn backend(self, backend: Backend) -> Self {
        todo!()
    }
    /// Where times come from.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        todo!()
    }
    /// Open an image, a device or a target as `diorite_device::open_target` takes it.
    pub fn open(&self, target: impl AsRef<Path>) -> Result<Filesystem> {
        todo!()
    }
    /// Open the volume on a device.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        todo!()
    }
}
/// An open volume. Clones share it.
#[derive(Clone, Debug)]
pub struct Filesystem {}
#[expect(unused_variables, clippy::unused_self, reason = "skeleton")]
impl Filesystem {
    /// Open for reading and writing with default options.
    pub fn open(target: impl AsRef<Path>) -> Result<Self> {
        todo!()
    }
    /// Options to set before opening.
    pub fn options() -> FilesystemOptions {
        FilesystemOptions::new()
    }
    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        todo!()
    }
    /// The volume beneath.
    pub fn volume(&self) -> &Arc<Volume> {
        todo!()
    }
    /// What was done so far.
    pub fn stats(&self) -> Stats {
        todo!()
    }
    /// Space and inodes.
    pub fn statfs(&self) -> SpaceUse {
        todo!()
    }
    /// Why nothing can be written, if so.
    pub fn read_only_reason(&self) -> Option<String> {
        todo!()
    }
    /// Make everything durable.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// Sync and drop all clean pages.
    pub fn drop_caches(&self) -> Result<()> {
        todo!()
    }
    /// Sync, mark the volume clean and close it. Fails while files are open.
    pub fn close(self) -> Result<()> {
        todo!()
    }
    /// The root directory.
    pub fn root(&self) -> Result<NodeRef> {
        todo!()
    }
    /// The inode of that number.
    pub fn node(&self, number: InodeNumber) -> Result<NodeRef> {
        todo!()
    }
    /// The inode at a path, symbolic links followed.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<NodeRef> {
        todo!()
    }
    /// The inode at a path, a symbolic link itself if it is one.
    pub fn resolve_link(&self, path: impl AsRef<Path>) -> Result<NodeRef> {
        todo!()
    }
    /// Options to set before opening a file.
    pub fn open_options(&self) -> OpenOptions {
        todo!()
    }
    /// Open for reading.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        todo!()
    }
    /// Make or empty a file and open it for reading and writing.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        todo!()
    }
    pub(crate) fn open_with(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        todo!()
    }
    /// Make a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Make a directory and all missing parents.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Make a file, directory or device node.
    pub fn create_node(&self, path: impl AsRef<Path>, spec: &NodeSpec) -> Result<NodeRef> {
        todo!()
    }
    /// Remove a name of anything but a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Remove an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Remove a directory and everything in it.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Rename, replacing what is there as POSIX says.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Rename as `mode` says.
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        todo!()
    }
    /// Give a file another name.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Make a symbolic link.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        todo!()
    }
    /// Where a symbolic link points.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        todo!()
    }
    /// What `stat` tells.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        todo!()
    }
    /// What `lstat` tells.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        todo!()
    }
    /// Whether something is there; errors other than "not found" are errors.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        todo!()
    }
    /// Set permission bits.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        todo!()
    }
    /// Set user and group of a file, or of the link itself if it is one.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        todo!()
    }
    /// Set times of a file, or of the link itself if it is one.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SetTime>,
        modified: Option<SetTime>,
    ) -> Result<()> {
        todo!()
    }
    /// An extended attribute.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }
    /// Names of all extended attributes.
    pub fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        todo!()
    }
    /// Set an extended attribute.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        todo!()
    }
    /// Remove an extended attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<()> {
        todo!()
    }
    /// Entries of a directory without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirectoryEntry>> {
        todo!()
    }
    /// Everything beneath a path, the path itself first, parents before children; links are not followed.
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        todo!()
    }
}
/// An iterator over everything beneath a path.
#[derive(Debug)]
pub struct Walk {}
/// Something that a walk met.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// Its path.
    pub path: PathBuf,
    /// Steps below the start.
    pub depth: usize,
    /// What `lstat` tells.
    pub attributes: Attributes,
}
impl Iterator for Walk {
    type Item = Result<WalkEntry>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
