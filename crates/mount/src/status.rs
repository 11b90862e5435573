//! What a mount or a server is doing, as its daemon says it: one JSON object.

use std::time::Instant;

use diorite::Filesystem;
use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;
pub use crate::accounting::{InFlight, Latencies, TaskStatus, Totals};
pub use crate::watch::{Place, StatusError, ask, place_of};

/// A mount or a server at one moment. Numbers of bytes and requests are totals since it was started, but for what is said to be so now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of the program that serves it.
    pub version: String,
    /// The process that serves it.
    pub daemon: u32,
    /// What is mounted or served.
    pub image: String,
    /// Where it is mounted, or the address that it is served on.
    pub directory: String,
    /// How requests come: `/dev/fuse`, `io_uring`, `virtio-fs` or `nfs`.
    pub transport: String,
    /// Milliseconds since then.
    pub uptime_ms: u64,
    /// The volume.
    pub volume: VolumeState,
    /// What is cached by the daemon; the kernel caches content besides.
    pub cache: CacheState,
    /// Transactions.
    pub journal: JournalState,
    /// What the device was asked to do.
    pub device: DeviceState,
    /// The I/O scheduler, if there is one.
    pub scheduler: Option<SchedulerState>,
    /// Requests that are under way, the oldest first.
    pub in_flight: Vec<InFlight>,
    /// What each process has asked for.
    pub tasks: Vec<TaskStatus>,
}

/// The volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeState {
    /// Why it is read-only, if it is.
    pub read_only: Option<String>,
    /// What was found damaged or missing when it was opened.
    pub defects: Vec<String>,
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks.
    pub blocks: u64,
    /// Those that are free.
    pub blocks_free: u64,
    /// Inodes.
    pub inodes: u64,
    /// Those that are free.
    pub inodes_free: u64,
}

/// Caches, in bytes, now; and what was found in them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheState {
    /// Content of files.
    pub used: u64,
    /// What of it is not written back.
    pub dirty: u64,
    /// The most it may be.
    pub capacity: u64,
    /// Pages that were found.
    pub hits: u64,
    /// Pages that were not.
    pub misses: u64,
    /// Metadata.
    pub metadata_used: u64,
    /// What the metadata cache aims at.
    pub metadata_capacity: u64,
}

/// Transactions and the log, now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalState {
    /// The transaction that changes join.
    pub running_transaction: u64,
    /// Blocks that it changes.
    pub running_blocks: u64,
    /// Operations that are changing metadata.
    pub open_handles: u32,
    /// The newest transaction that is durable.
    pub durable_transaction: u64,
    /// Whether one is being written.
    pub is_committing: bool,
    /// Blocks of the log; `None`: there is no journal.
    pub log_blocks: Option<u64>,
    /// Those in use.
    pub log_used: Option<u64>,
}

/// What the device was asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceState {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of file data that the CPU copied.
    pub bytes_copied: u64,
}

/// The I/O scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SchedulerState {
    /// Its name.
    pub name: String,
    /// Requests that wait for it, now.
    pub queued: u32,
    /// Requests in the device, now.
    pub in_flight: u32,
    /// The most of those.
    pub depth: u32,
    /// What each owner got of the device.
    pub owners: Vec<OwnerState>,
}

/// What an owner got of the device by the scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OwnerState {
    /// The process.
    pub owner: u64,
    /// Requests completed.
    pub completed: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Microseconds for which half of its requests waited at most.
    pub wait_p50_us: u64,
    /// The same for 99 of 100.
    pub wait_p99_us: u64,
}

/// What is served and how, as [`Status`] says it.
pub(crate) struct Served<'a> {
    pub(crate) image: &'a str,
    pub(crate) directory: &'a str,
    pub(crate) transport: &'a str,
}

impl Status {
    pub(crate) fn of(
        filesystem: &Filesystem,
        accounting: &Accounting,
        started: Instant,
        served: &Served<'_>,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            daemon: std::process::id(),
            image: served.image.to_owned(),
            directory: served.directory.to_owned(),
            transport: served.transport.to_owned(),
            uptime_ms: started.elapsed().as_millis() as u64,
            volume: VolumeState::of(filesystem),
            cache: CacheState::of(filesystem),
            journal: JournalState::of(filesystem),
            device: DeviceState::of(filesystem),
            scheduler: SchedulerState::of(filesystem),
            in_flight: accounting.in_flight(),
            tasks: accounting.tasks(),
        }
    }
}

impl VolumeState {
    pub(crate) fn of(filesystem: &Filesystem) -> Self {
        let space = filesystem.statfs();
        Self {
            read_only: filesystem.read_only_reason(),
            defects: filesystem.defects().to_vec(),
            block_size: space.block_size,
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
        }
    }
}

impl CacheState {
    pub(crate) fn of(filesystem: &Filesystem) -> Self {
        let (status, stats) = (filesystem.status(), filesystem.stats());
        Self {
            used: status.cache.used,
            dirty: status.cache.dirty,
            capacity: status.cache.capacity,
            hits: stats.cache_hits,
            misses: stats.cache_misses,
            metadata_used: status.volume.metadata_bytes,
            metadata_capacity: status.volume.metadata_bytes_max,
        }
    }
}

impl JournalState {
    pub(crate) fn of(filesystem: &Filesystem) -> Self {
        let status = filesystem.status().volume;
        Self {
            running_transaction: status.running_transaction,
            running_blocks: status.running_blocks,
            open_handles: status.open_handles,
            durable_transaction: status.durable_transaction,
            is_committing: status.is_committing,
            log_blocks: status.log.map(|log| log.blocks),
            log_used: status.log.map(|log| log.used),
        }
    }
}

impl DeviceState {
    pub(crate) fn of(filesystem: &Filesystem) -> Self {
        let stats = filesystem.stats();
        Self {
            reads: stats.device.reads,
            read_bytes: stats.device.read_bytes,
            writes: stats.device.writes,
            write_bytes: stats.device.write_bytes,
            flushes: stats.device.flushes,
            bytes_copied: stats.bytes_copied,
        }
    }
}

impl SchedulerState {
    pub(crate) fn of(filesystem: &Filesystem) -> Option<Self> {
        let scheduler = filesystem.scheduler()?;
        let load = scheduler.load();
        let statistics = scheduler.statistics();
        let owners = statistics.owners().map(|(task, owner)| OwnerState {
            owner: task.0,
            completed: owner.completed,
            read_bytes: owner.read_bytes,
            write_bytes: owner.write_bytes,
            wait_p50_us: owner.wait.percentile(50.0).as_micros() as u64,
            wait_p99_us: owner.wait.percentile(99.0).as_micros() as u64,
        });
        Some(Self {
            name: scheduler.scheduler_name().to_owned(),
            queued: load.queued,
            in_flight: load.in_flight,
            depth: load.depth,
            owners: owners.collect(),
        })
    }
}
