//! A file's content: one per inode, shared by all its handles.
//!
//! Where it sits: above, the handles (`handle/`). A [`Content`] has one concern: the order of calls. It locks the range of each read,
//! write and change, and calls the file's cached pages ([`FileCache`]) and their backing store ([`BackingStore`]), which do the work.
//!
//! | calls | where |
//! | --- | --- |
//! | buffered | `cached/` |
//! | direct | `direct/`; what all writes share: `write/` |
//! | without waiting, without leaving pages | `no_wait.rs` |
//! | sizes, holes, moved ranges | `resize.rs`, `shift.rs`, `seek.rs` |
//!
//! Locking: in the order of [`Rank`]. Ranges are locked in units of [`BackingStore::unit`]: whole pages and whole blocks. No thread that
//! holds a range waits for a range of another file.

mod cached;
pub(crate) mod direct;
pub(crate) mod io_flags;
#[cfg(test)]
pub(crate) mod model_tests;
pub(crate) mod no_wait;
mod resize;
pub(crate) mod seek;
pub(crate) mod shift;
pub(crate) mod write;

use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank};

use crate::Result;
use crate::cache::engine::Engine;
use crate::cache::file_cache::FileCache;
pub(crate) use crate::cache::pages_of;
pub(crate) use crate::cache::read_ahead::ReadAhead;
use crate::store::backing::BackingStore;
use crate::store::map::{MapBlocks, SyncKind};
pub(crate) use resize::BeyondEnd;

/// See the module's head.
pub(crate) struct Content {
    pub(crate) store: Arc<BackingStore>,
    pub(crate) cache: Arc<FileCache>,
    pub(crate) engine: Arc<Engine>,
    /// Held while the end of the file is chosen as the offset of a write, and locked.
    pub(crate) append: Mutex<()>,
}

diorite_block::short_debug!(Content);

impl Content {
    /// The content of a file as it is recorded now.
    pub(crate) fn new(map: Box<dyn MapBlocks>, engine: Arc<Engine>) -> Result<Arc<Self>> {
        let store = Arc::new(BackingStore::new(map, Arc::clone(&engine.shared))?);
        Ok(Arc::new(Self {
            cache: FileCache::new(Arc::clone(&store), Arc::clone(&engine)),
            store,
            engine,
            append: Mutex::ranked(Rank::Append, ()),
        }))
    }

    /// Drop all cached pages without writing them back.
    pub(crate) fn discard(&self) {
        let _range = self.store.ranges.exclusive(0..u64::MAX);
        self.cache.discard();
        self.engine.forget_if_clean(&self.cache);
    }

    /// Write back the dirty pages of a range of bytes and drop its pages.
    pub(crate) fn write_back_and_drop(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let range = self.store.locked_range(offset, offset.saturating_add(len));
        let _range = self.store.ranges.exclusive(range.clone());
        self.cache.settle(&range)
    }

    /// Drop the clean pages.
    pub(crate) fn drop_clean(&self) {
        let _range = self.store.ranges.exclusive(0..u64::MAX);
        self.cache.drop_clean();
    }

    /// Drop the clean pages, which another program may have changed. Pages in use at this moment stay where a range of the file is locked.
    pub(crate) fn drop_clean_if_free(&self) {
        if let Some(_range) = self.store.ranges.try_exclusive(0..u64::MAX) {
            self.cache.drop_clean();
        } else {
            self.cache.evict_clean();
        }
    }

    /// Move content that is stored in the inode (`inline_data`) to blocks, before it is written. The caller has the range exclusively.
    fn move_out_of_inode(&self) -> Result<()> {
        if self.store.may_be_inline() {
            if self.store.is_inline()? {
                self.engine.with_space(|| self.store.map.make_not_inline())?;
            }
            self.store.set_not_inline();
        }
        Ok(())
    }

    /// Set attributes with `set`. A modification time that is pending is recorded before, or forgotten where `set` sets one itself.
    ///
    /// Blocks are reserved before the times are locked: a writeback that makes space records times as well.
    pub(crate) fn set_attributes(
        &self,
        sets_modified: bool,
        mut set: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        if sets_modified {
            return self.engine.with_space(|| self.store.time.record(|_| set()));
        }
        self.store.record_metadata(SyncKind::All)?;
        self.engine.with_space(set)
    }

    /// Write back everything and make it durable.
    pub(crate) fn sync(&self, kind: SyncKind) -> Result<()> {
        let written = self.cache.write_back_all();
        self.store.record_metadata(kind)?;
        self.store.sync(kind)?;
        written
    }
}
