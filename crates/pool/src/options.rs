//! Options of a pool.

/// Options to set before a pool is made: [`BufferPool::options`](crate::BufferPool::options).
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `create`"]
pub struct PoolOptions {
    pub(crate) page_bytes: usize,
    pub(crate) pages: usize,
    pub(crate) is_shared: bool,
    pub(crate) has_writer: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { page_bytes: 4096, pages: 4096, is_shared: false, has_writer: true }
    }
}

impl PoolOptions {
    /// Bytes of a page: 4096 (the default), 8192, 16384, 32768 or 65536.
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Number of pages in memory; 4096 by default. All memory is allocated at once.
    pub fn pages(mut self, pages: usize) -> Self {
        self.pages = pages;
        self
    }

    /// Whether other processes may attach.
    pub fn shared(mut self, shared: bool) -> Self {
        self.is_shared = shared;
        self
    }

    /// Whether a thread of the pool writes dirty pages back (the default). Without it, a thread that needs a frame writes pages back.
    pub fn background_writer(mut self, writer: bool) -> Self {
        self.has_writer = writer;
        self
    }
}
