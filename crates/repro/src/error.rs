//! Why a table could not be reproduced.

use diorite_sim::Deadlock;

/// Why a table could not be reproduced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReproError {
    /// The simulated processes wait for each other: a bug of the stack.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// The library failed.
    #[error("{what}: {source}")]
    Diorite {
        /// The failed action.
        what: &'static str,
        /// The error.
        source: Box<diorite::Error>,
    },
    /// A volume could not be made.
    #[error("making the volume: {0}")]
    Mkfs(#[from] diorite::mkfs::MkfsError),
    /// A simulated disk could not be made.
    #[error(transparent)]
    Disk(#[from] diorite_sim::disk::ParameterError),
    /// The device failed.
    #[error(transparent)]
    Io(#[from] diorite_block::IoError),
    /// The disk test failed.
    #[error(transparent)]
    DiskPerf(#[from] diorite_bench::diskperf::DiskPerfError),
    /// A job on a simulated disk failed.
    #[error(transparent)]
    Simulated(#[from] diorite_job::SimulatedError),
}

impl ReproError {
    pub(crate) fn diorite(what: &'static str) -> impl Fn(diorite::Error) -> Self {
        move |source| Self::Diorite { what, source: Box::new(source) }
    }
}
