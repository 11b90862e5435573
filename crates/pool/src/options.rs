//! Options of a pool.

use std::sync::Arc;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::memory::{FRAMES_MIN, Layout, Mapping};
use crate::pool::BufferPool;

/// Whether huge pages are tried for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Reserved ones, transparent ones, or else small pages.
    #[default]
    Try,
    /// Small pages.
    Never,
}

/// Options to set before a pool is made: [`BufferPool::options`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `create`"]
pub struct PoolOptions {
    page_bytes: usize,
    pages: usize,
    is_shared: bool,
    huge_pages: HugePages,
    has_writer: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { page_bytes: 4096, pages: 4096, is_shared: false, huge_pages: HugePages::Try, has_writer: true }
    }
}

impl PoolOptions {
    /// Bytes of a page: 4096 (the default), 8192, 16384, 32768 or 65536.
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Pages that the pool keeps in memory; 4096 by default. Its memory is taken at once.
    pub fn pages(mut self, pages: usize) -> Self {
        self.pages = pages;
        self
    }

    /// Whether other processes may attach.
    pub fn shared(mut self, shared: bool) -> Self {
        self.is_shared = shared;
        self
    }

    /// Whether the memory lies on huge pages where they can be had; it does by default.
    pub fn huge_pages(mut self, huge: HugePages) -> Self {
        self.huge_pages = huge;
        self
    }

    /// Whether a thread of the pool writes dirty pages back; one does by default. Without it, a thread that needs a frame does.
    pub fn background_writer(mut self, writer: bool) -> Self {
        self.has_writer = writer;
        self
    }

    /// Make the pool.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a size that cannot be; [`Error::Os`] where there is no memory.
    pub fn create(&self) -> Result<BufferPool> {
        let layout = Layout::new(self.page_bytes, self.pages).ok_or_else(|| {
            Error::InvalidArgument(match self.pages {
                _ if !Layout::can_have_pages_of(self.page_bytes) => {
                    "the pages of a pool have 4096, 8192, 16384, 32768 or 65536 bytes"
                }
                ..FRAMES_MIN => "a pool has at least 8 pages",
                _ => "a pool has at most 1073741823 pages",
            })
        })?;
        let mapping = Mapping::create(layout, self.huge_pages, self.is_shared)
            .map_err(|source| Error::Os { what: "cannot get the memory of a pool", source })?;
        BufferPool::new(Core::new(Arc::new(mapping))?, self.has_writer)
    }
}
