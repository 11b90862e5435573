//! Transfers of files: through `io_uring`, by calls of the thread, or by a pool of threads.

pub(crate) mod batch;
mod device;
pub(crate) mod layout;
mod merged;
mod method;
mod polling;
pub(crate) mod queue;
mod raw;
pub(crate) mod route;
pub(crate) mod thread_queue;
pub(crate) mod thread_ring;
mod uring;
pub(crate) mod workers;
