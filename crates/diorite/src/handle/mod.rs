//! Open files, as callers hold them: of a volume, of the host, and devices; with flags, queues and streams.
//!
//! Where it sits: over the content of a file, which all its handles share.

pub(crate) mod async_queue;
pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod host;
pub(crate) mod options;
pub(crate) mod queue;
pub(crate) mod raw;
pub(crate) mod stream;
