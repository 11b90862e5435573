//! Limits of the queue of a block device, from `/sys/dev/block`.

use std::path::{Path, PathBuf};

/// The limits of the queue of a block device. Missing attributes get safe defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub(crate) struct QueueLimits {
    pub(crate) rotational: bool,
    pub(crate) write_cache: bool,
    pub(crate) fua: bool,
    pub(crate) discard: bool,
    pub(crate) max_segments: u16,
    max_sectors_kb: u32,
    atomic_write_unit_max: u32,
}

impl QueueLimits {
    /// The limits of the device with this number (`st_rdev`).
    pub(crate) fn of_device(device: u64) -> Self {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let directory = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        // A partition has no queue of its own; its disk is the directory above.
        let own = directory.join("queue");
        if own.is_dir() {
            Self::from_directory(&own)
        } else {
            Self::from_directory(&directory.join("../queue"))
        }
    }

    fn from_directory(queue: &Path) -> Self {
        let text = |name| std::fs::read_to_string(queue.join(name)).unwrap_or_default().trim().to_owned();
        let number = |name| text(name).parse::<u64>().ok();
        Self {
            rotational: number("rotational") == Some(1),
            write_cache: text("write_cache") != "write through",
            fua: number("fua") == Some(1),
            discard: number("discard_max_bytes").is_some_and(|bytes| bytes > 0),
            max_segments: number("max_segments").map_or(128, |n| u16::try_from(n).unwrap_or(u16::MAX)),
            max_sectors_kb: number("max_sectors_kb").map_or(512, |n| u32::try_from(n).unwrap_or(u32::MAX)),
            atomic_write_unit_max: number("atomic_write_unit_max_bytes")
                .map_or(0, |n| u32::try_from(n).unwrap_or(0)),
        }
    }

    /// The largest write that is never torn, a power of two and at most `limit`; 0 for none.
    pub(crate) fn atomic_write_bytes(&self, limit: u32) -> u32 {
        self.atomic_write_unit_max.min(limit).checked_ilog2().map_or(0, |bits| 1 << bits)
    }

    /// The largest power of two that one transfer may have, and at most `limit`.
    pub(crate) fn max_transfer_bytes(&self, limit: u32) -> u32 {
        let bytes = self.max_sectors_kb.saturating_mul(1024).clamp(4096, limit);
        1 << bytes.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_device_gets_harmless_limits() {
        let limits = QueueLimits::from_directory(Path::new("/nonexistent"));
        assert!(limits.write_cache && !limits.fua && !limits.discard);
        assert_eq!(limits.max_transfer_bytes(1 << 20), 512 << 10);
        assert_eq!(limits.atomic_write_bytes(1 << 20), 0);
    }

    #[test]
    fn transfers_are_powers_of_two() {
        let limits =
            QueueLimits { max_sectors_kb: 1280, ..QueueLimits::from_directory(Path::new("/nonexistent")) };
        assert_eq!(limits.max_transfer_bytes(4 << 20), 1 << 20);
        assert_eq!(limits.max_transfer_bytes(1 << 18), 1 << 18);
    }
}
