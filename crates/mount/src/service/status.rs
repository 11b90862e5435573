//! The state of a mount or a server, as its daemon reports it: one JSON object.

use std::time::Instant;

use diorite::Filesystem;
use serde::{Deserialize, Serialize};

use super::accounting::Accounting;
pub use super::accounting::{InFlight, Latencies, TaskStatus, Totals};
pub use super::watch::{Location, StatusError, ask, location_of};

/// A mount or a server at one moment. Bytes and requests are totals since it was started, unless the field is the current value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program that serves it.
    pub version: String,
    /// The process that serves it.
    pub daemon: u32,
    /// The target that is mounted or served.
    pub image: String,
    /// The directory of the mount, or the address of the server.
    pub directory: String,
    /// The transport of requests: `/dev/fuse`, `io_uring`, `virtio-fs` or `nfs`.
    pub transport: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// The volume.
    pub volume: VolumeState,
    /// Caches of the daemon; the kernel caches content, too.
    pub cache: CacheState,
    /// Transactions.
    pub journal: JournalState,
    /// I/O of the device.
    pub device: DeviceState,
    /// The I/O scheduler, if there is one.
    pub scheduler: Option<SchedulerState>,
    /// Requests in flight, the oldest first.
    pub in_flight: Vec<InFlight>,
    /// Totals of each process.
    pub tasks: Vec<TaskStatus>,
}

/// The volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeState {
    /// Why it is read-only, if it is.
    pub read_only: Option<String>,
    /// Damage that was found when it was opened.
    pub defects: Vec<String>,
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free ones.
    pub inodes_free: u64,
}

/// Caches, in bytes, now; and their hits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheState {
    /// Content of files.
    pub used: u64,
    /// Dirty content.
    pub dirty: u64,
    /// The limit of content.
    pub capacity: u64,
    /// Pages found.
    pub hits: u64,
    /// Pages not found.
    pub misses: u64,
    /// Metadata.
    pub metadata_used: u64,
    /// The target size of the metadata cache.
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

/// I/O of the device.
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
    /// The limit of those.
    pub depth: u32,
    /// Totals of each owner.
    pub owners: Vec<OwnerState>,
}

/// Totals of an owner.
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
    /// p50 of the wait of its requests, in microseconds.
    pub wait_p50_us: u64,
    /// p99 of the same.
    pub wait_p99_us: u64,
}

/// The target, location and transport of a [`Status`].
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
        let (space, status, stats) = (filesystem.statfs(), filesystem.status(), filesystem.stats());
        let (cache, volume, device) = (status.cache, status.volume, stats.device);
        let transactions = volume.transactions;
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            daemon: std::process::id(),
            image: served.image.to_owned(),
            directory: served.directory.to_owned(),
            transport: served.transport.to_owned(),
            uptime_ms: started.elapsed().as_millis() as u64,
            volume: VolumeState {
                read_only: filesystem.read_only_reason(),
                defects: filesystem.defects().to_vec(),
                block_size: space.block_size,
                blocks: space.blocks,
                blocks_free: space.blocks_free,
                inodes: space.inodes,
                inodes_free: space.inodes_free,
            },
            cache: CacheState {
                used: cache.used,
                dirty: cache.dirty,
                capacity: cache.capacity,
                hits: stats.cache_hits,
                misses: stats.cache_misses,
                metadata_used: volume.metadata_bytes,
                metadata_capacity: volume.metadata_bytes_max,
            },
            journal: JournalState {
                running_transaction: transactions.running_transaction,
                running_blocks: transactions.running_blocks,
                open_handles: transactions.open_handles,
                durable_transaction: transactions.durable_transaction,
                is_committing: transactions.is_committing,
                log_blocks: transactions.log.map(|log| log.blocks),
                log_used: transactions.log.map(|log| log.used),
            },
            device: DeviceState {
                reads: device.reads,
                read_bytes: device.read_bytes,
                writes: device.writes,
                write_bytes: device.write_bytes,
                flushes: device.flushes,
                bytes_copied: stats.bytes_copied,
            },
            scheduler: scheduler_state(filesystem),
            in_flight: accounting.in_flight(),
            tasks: accounting.tasks(),
        }
    }
}

fn scheduler_state(filesystem: &Filesystem) -> Option<SchedulerState> {
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
    Some(SchedulerState {
        name: scheduler.scheduler_name().to_owned(),
        queued: load.queued,
        in_flight: load.in_flight,
        depth: load.depth,
        owners: owners.collect(),
    })
}
