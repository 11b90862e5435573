//! Open files of volumes, of the host, and of devices; queues and streams.
//!
//! Where it sits: over the content of a file, which all its handles share.

pub(crate) mod async_queue;
pub(crate) mod file;
pub(crate) mod host;
pub(crate) mod options;
mod position;
pub(crate) mod queue;
pub(crate) mod raw;
pub(crate) mod read_write;
pub(crate) mod stream;
