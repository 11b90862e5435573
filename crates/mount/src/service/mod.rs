//! Common parts of all front ends besides the operations: options, the log, accounting, the status and its socket.
//!
//! - `options`, `ext4_options`: the words of `-o`
//! - `opened`, `log`: messages about a volume in use
//! - `accounting`: requests in flight, and totals by process
//! - [`status`], `watch`: the state of a mount or a server, and the socket that it is asked for on
//! - [`mounted`], `users`: mounts of this host, and the processes that use one
//! - `threads`: threads that are waited for
//! - `idle_polling`: CPUs that do not halt between requests

pub(crate) mod accounting;
mod ext4_options;
pub(crate) mod idle_polling;
pub(crate) mod log;
pub mod mounted;
pub(crate) mod observer;
pub(crate) mod opened;
pub(crate) mod options;
pub mod status;
pub(crate) mod threads;
pub(crate) mod users;
pub(crate) mod watch;

/// Why a volume cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The volume cannot be opened, or failed when it was closed.
    #[error(transparent)]
    Volume(#[from] diorite::Error),
    /// The address or the socket cannot be listened on.
    #[error("{address}: cannot listen: {source}")]
    Listen {
        /// The address, or the path of the socket.
        address: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The system has no thread left.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
}
