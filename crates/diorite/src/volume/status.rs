//! What an open filesystem is doing at one moment, for people who watch it.

use diorite_ext::VolumeStatus;

use crate::Filesystem;
use crate::cache::arena::PAGE_SIZE;

/// Caches and the volume at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemStatus {
    /// The page cache.
    pub cache: CacheUse,
    /// Transactions, the log and the metadata cache.
    pub volume: VolumeStatus,
}

/// How full the page cache is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// What it may have.
    pub capacity: u64,
    /// What holds pages of files.
    pub used: u64,
    /// What is not written back yet.
    pub dirty: u64,
}

impl Filesystem {
    /// What it is doing now.
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
