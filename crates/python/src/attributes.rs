//! What `stat`, `statvfs` and `stats` return.

use diorite::{Attributes, FileKind, SpaceUse, Stats, Timestamp};
use pyo3::prelude::*;

const NANOSECONDS: i128 = 1_000_000_000;

pub(crate) fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds)
}

pub(crate) fn timestamp(nanoseconds: i128) -> PyResult<Timestamp> {
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOSECONDS))?;
    Ok(Timestamp { seconds, nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32 })
}

fn seconds(time: Timestamp) -> f64 {
    nanoseconds(time) as f64 / NANOSECONDS as f64
}

/// The type of a file in its mode (`S_IFMT`).
pub(crate) fn type_bits(kind: FileKind) -> u32 {
    kind.mode_bits().into()
}

/// What ``stat`` returns: the attributes of ``os.stat_result``, and the time of creation.
#[pyclass(frozen, module = "diorite", name = "Stat")]
pub(crate) struct Stat {
    attributes: Attributes,
    block_size: u64,
}

impl Stat {
    pub(crate) fn new(attributes: Attributes, block_size: u64) -> Self {
        Self { attributes, block_size }
    }
}

#[pymethods]
impl Stat {
    /// Type and permission bits.
    #[getter]
    fn st_mode(&self) -> u32 {
        type_bits(self.attributes.kind) | u32::from(self.attributes.permissions)
    }

    /// Inode number.
    #[getter]
    fn st_ino(&self) -> u64 {
        u64::from(self.attributes.inode.0)
    }

    /// Always 0: a volume in an image has no device number.
    #[getter]
    #[expect(clippy::unused_self, reason = "an attribute of Python")]
    fn st_dev(&self) -> u64 {
        0
    }

    /// Number of hard links.
    #[getter]
    fn st_nlink(&self) -> u32 {
        self.attributes.links
    }

    /// User of the file.
    #[getter]
    fn st_uid(&self) -> u32 {
        self.attributes.owner.uid
    }

    /// Group of the file.
    #[getter]
    fn st_gid(&self) -> u32 {
        self.attributes.owner.gid
    }

    /// Size in bytes.
    #[getter]
    fn st_size(&self) -> u64 {
        self.attributes.size
    }

    /// Number of allocated blocks of 512 bytes.
    #[getter]
    fn st_blocks(&self) -> u64 {
        self.attributes.sectors
    }

    /// Block size of the filesystem in bytes.
    #[getter]
    fn st_blksize(&self) -> u64 {
        self.block_size
    }

    /// Device number of a device node, as ``os.major`` and ``os.minor`` take it.
    #[getter]
    fn st_rdev(&self) -> u64 {
        let (major, minor) = self.attributes.device;
        rustix::fs::makedev(major, minor)
    }

    /// Inode flags as ``lsattr`` shows them.
    #[getter]
    fn st_flags(&self) -> u32 {
        self.attributes.flags
    }

    /// Generation of the inode.
    #[getter]
    fn st_gen(&self) -> u32 {
        self.attributes.generation
    }

    /// Last access, in seconds.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.attributes.accessed)
    }

    /// Last change of the content, in seconds.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.attributes.modified)
    }

    /// Last change of the inode, in seconds.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.attributes.changed)
    }

    /// Creation, in seconds; ``None`` where the inode has no place for it.
    #[getter]
    fn st_birthtime(&self) -> Option<f64> {
        self.attributes.created.map(seconds)
    }

    /// Last access, in nanoseconds.
    #[getter]
    fn st_atime_ns(&self) -> i128 {
        nanoseconds(self.attributes.accessed)
    }

    /// Last change of the content, in nanoseconds.
    #[getter]
    fn st_mtime_ns(&self) -> i128 {
        nanoseconds(self.attributes.modified)
    }

    /// Last change of the inode, in nanoseconds.
    #[getter]
    fn st_ctime_ns(&self) -> i128 {
        nanoseconds(self.attributes.changed)
    }

    /// Creation, in nanoseconds; ``None`` where the inode has no place for it.
    #[getter]
    fn st_birthtime_ns(&self) -> Option<i128> {
        self.attributes.created.map(nanoseconds)
    }

    fn __repr__(&self) -> String {
        format!(
            "diorite.Stat(st_mode=0o{:o}, st_ino={}, st_nlink={}, st_uid={}, st_gid={}, st_size={})",
            self.st_mode(),
            self.st_ino(),
            self.st_nlink(),
            self.st_uid(),
            self.st_gid(),
            self.st_size()
        )
    }
}

/// What ``statvfs`` returns: the attributes of ``os.statvfs_result``.
#[pyclass(frozen, get_all, module = "diorite", name = "StatVfs")]
#[expect(clippy::struct_field_names, reason = "the names of `os`")]
pub(crate) struct StatVfs {
    /// Block size in bytes.
    f_bsize: u64,
    /// Unit of the numbers of blocks in bytes.
    f_frsize: u64,
    /// Blocks for files.
    f_blocks: u64,
    /// Free blocks.
    f_bfree: u64,
    /// Free blocks that any user may use.
    f_bavail: u64,
    /// Inodes.
    f_files: u64,
    /// Free inodes.
    f_ffree: u64,
    /// Free inodes that any user may use.
    f_favail: u64,
    /// Longest name in bytes.
    f_namemax: u64,
}

impl From<SpaceUse> for StatVfs {
    fn from(space: SpaceUse) -> Self {
        Self {
            f_bsize: space.block_size,
            f_frsize: space.block_size,
            f_blocks: space.blocks,
            f_bfree: space.blocks_free,
            f_bavail: space.blocks_available,
            f_files: space.inodes,
            f_ffree: space.inodes_free,
            f_favail: space.inodes_free,
            f_namemax: 255,
        }
    }
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident),* ; $($(#[$device_doc:meta])* $device_name:ident = $device_field:ident),* $(,)?) => {
        /// What was done so far on a volume or device.
        #[pyclass(frozen, get_all, module = "diorite", name = "Stats")]
        pub(crate) struct Totals {
            $($(#[$doc])* $name: u64,)*
            $($(#[$device_doc])* $device_name: u64,)*
        }

        impl From<Stats> for Totals {
            fn from(stats: Stats) -> Self {
                Self {
                    $($name: stats.$name,)*
                    $($device_name: stats.device.$device_field,)*
                }
            }
        }

        impl Totals {
            fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)* $((stringify!($device_name), self.$device_name),)*]
            }
        }
    };
}

totals! {
    /// Bytes of file data that the CPU copied; stays as it is for direct I/O.
    bytes_copied,
    /// Transfers of file data.
    bios,
    /// Transfers of direct I/O among those.
    direct_bios,
    /// Bytes read directly.
    direct_read_bytes,
    /// Bytes written directly.
    direct_write_bytes,
    /// Pages that cached reads and writes found.
    cache_hits,
    /// Pages that they had to read or make.
    cache_misses,
    /// Pages that were evicted.
    evictions,
    /// Pages read ahead.
    readahead_pages,
    /// Pages written back.
    writeback_pages,
    /// Transfers of write-back.
    writeback_bios,
    /// Pages dropped because their range was written directly, cut off or punched.
    invalidated_pages,
    /// Cached pages looked at by write-back and invalidation.
    pages_scanned,
    /// Transfers copied through aligned memory.
    bounces,
    /// Flushes that file data needed.
    flushes
    ;
    /// Reads of the device.
    device_reads = reads,
    /// Bytes of those.
    device_read_bytes = read_bytes,
    /// Writes of the device.
    device_writes = writes,
    /// Bytes of those.
    device_write_bytes = write_bytes,
    /// Flushes of the device.
    device_flushes = flushes,
    /// Discards of the device.
    device_discards = discards,
}

#[pymethods]
impl Totals {
    fn __repr__(&self) -> String {
        let rows: Vec<_> = self.rows().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("diorite.Stats({})", rows.join(", "))
    }
}
