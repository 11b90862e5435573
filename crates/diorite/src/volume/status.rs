//! The state of an open filesystem at one moment, for monitoring.

use diorite_ext::VolumeStatus;

use crate::Filesystem;
use crate::store::PAGE_SIZE;

/// Caches and the volume at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemStatus {
    /// The page cache.
    pub cache: CacheUse,
    /// Transactions, the log and the metadata cache.
    pub volume: VolumeStatus,
}

/// The use of the page cache, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes of the cache.
    pub capacity: u64,
    /// Bytes that hold pages.
    pub used: u64,
    /// Bytes of dirty pages.
    pub dirty: u64,
}

impl Filesystem {
    /// The state of the filesystem now.
    pub fn status(&self) -> FilesystemStatus {
        let cache = &self.nodes().engine.cache;
        let bytes = |frames: usize| frames as u64 * PAGE_SIZE;
        let cache = CacheUse {
            capacity: bytes(cache.frames()),
            used: bytes(cache.used()),
            dirty: bytes(cache.dirty()),
        };
        FilesystemStatus { cache, volume: self.volume().status() }
    }

    /// Call `watch` once with the reason when a failed write makes the volume read-only, or now if one did. It is called by the thread
    /// that met the error, and must not use the filesystem. Only the first watch counts.
    ///
    /// ```no_run
    /// # let filesystem = diorite::Filesystem::open("disk.img")?;
    /// filesystem.watch_abort(|reason| eprintln!("read-only from now on: {reason}"));
    /// # Ok::<(), diorite::Error>(())
    /// ```
    pub fn watch_abort(&self, watch: impl Fn(&str) + Send + Sync + 'static) {
        self.volume().watch_abort(watch);
    }
}
