//! Limits of the kernel that the prediction needs.

use crate::trace::PAGE_BYTES;

/// Dirty pages and readahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Above this number of dirty pages the kernel writes in the background.
    pub(crate) background_pages: f64,
    /// Above this number a writer waits.
    pub(crate) dirty_pages: f64,
    /// Bytes that the kernel reads ahead of a reader.
    pub(crate) read_ahead_bytes: f64,
}

impl Limits {
    /// For a page cache of `bytes`, with the settings of this host.
    pub(crate) fn of(bytes: u64) -> Self {
        let ratio = |name: &str, default: f64| {
            let text = std::fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap_or_default();
            text.trim().parse::<f64>().ok().filter(|value| *value > 0.0).unwrap_or(default) / 100.0
        };
        let pages = bytes as f64 / PAGE_BYTES as f64;
        Self {
            background_pages: pages * ratio("dirty_background_ratio", 10.0),
            dirty_pages: pages * ratio("dirty_ratio", 20.0),
            read_ahead_bytes: 2.0 * read_ahead_bytes(),
        }
    }
}

/// The largest window of a disk of this host; that of a disk that is not known is Linux's default.
fn read_ahead_bytes() -> f64 {
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let kib = disks.filter_map(|disk| {
        let name = disk.file_name();
        if ["loop", "ram", "zram"].iter().any(|virtual_disk| name.to_string_lossy().starts_with(virtual_disk))
        {
            return None;
        }
        let text = std::fs::read_to_string(disk.path().join("queue/read_ahead_kb")).ok()?;
        text.trim().parse::<f64>().ok()
    });
    kib.fold(128.0, f64::max) * 1024.0
}
