//! Buffered reads and writes: through the page cache.

mod read;
mod write;
