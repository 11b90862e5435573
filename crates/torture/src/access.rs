//! Ways to open a file under test, volumes that are nearly full, and worlds that a seed decides.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use diorite::{DirectIo, ErrorKind, Filesystem, HostCache, HostFile, OpenOptions, Unaligned};
use diorite_block::sync;
use diorite_sim::{Order, Simulation, WorldOptions};

/// The result of a step; an error is a sentence.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The result of a call of the library as an outcome.
pub(crate) fn tell<T>(result: diorite::Result<T>, what: impl Display) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error} (errno {})", error.errno()))
}

/// How a handle was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Cached,
    Direct,
    Bounced,
    /// A host file without a cache: with readahead and write-behind at its position.
    Streamed,
}

impl Access {
    /// For reading and writing.
    pub(crate) fn options<P>(self, options: OpenOptions<P>) -> OpenOptions<P> {
        options
            .read(true)
            .write(true)
            .direct(if self == Self::Cached { DirectIo::Off } else { DirectIo::Required })
            .unaligned(if self == Self::Bounced { Unaligned::Bounce } else { Unaligned::Error })
    }

    /// The same for a file of a filesystem that may have no direct I/O.
    pub(crate) fn host_options(self) -> OpenOptions<HostFile> {
        let options = self.options(HostFile::options()).create(true);
        match self {
            Self::Cached => options.cache(HostCache::Pages),
            Self::Streamed => options.direct(DirectIo::Off).cache(HostCache::None),
            Self::Direct | Self::Bounced => options.direct(DirectIo::Preferred),
        }
    }
}

/// Leave few blocks free.
pub(crate) fn fill(filesystem: &Filesystem, leave: u64) -> Outcome {
    let file = tell(filesystem.create_file("/filler"), "create")?;
    let space = filesystem.statfs();
    let mut blocks = space.blocks_available.saturating_sub(leave);
    // The file also needs blocks for its mapping. A failed allocation frees the blocks that it took.
    while blocks > 0 {
        match file.allocate(0, blocks * space.block_size) {
            Err(error) if error.kind() == ErrorKind::StorageFull => blocks -= 1 + blocks / 256,
            done => return tell(done, "fill"),
        }
    }
    Ok(())
}

/// Run `body` in a simulation whose order the seed decides.
pub(crate) fn simulate<T: Send + 'static>(
    seed: u64,
    body: impl FnOnce() -> T + Send + 'static,
) -> Outcome<T> {
    let world = WorldOptions { seed, order: Order::Shuffled, ..WorldOptions::default() };
    let (value, _) = Simulation::run_one(world, body).map_err(|deadlock| deadlock.to_string())?;
    Ok(value)
}

/// Run bodies in threads with these names. Returns their results in the order of their ends.
pub(crate) fn in_threads<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    bodies: impl IntoIterator<Item = (&'static str, F)>,
) -> Outcome<Vec<T>> {
    let results: Arc<Mutex<Vec<T>>> = Arc::default();
    let mut running = Vec::new();
    for (name, body) in bodies {
        let results = Arc::clone(&results);
        let body = move || {
            let done = body();
            results.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        };
        running.push(sync::spawn(name, body).map_err(|error| error.to_string())?);
    }
    let count = running.len();
    running.into_iter().for_each(sync::JoinHandle::join);
    let results = std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner));
    if results.len() < count { Err("a thread panicked".to_owned()) } else { Ok(results) }
}
