//! How the requests of a mount come: each part of the suite runs over both.

#![expect(clippy::disallowed_methods, reason = "a parameter of the kernel")]

use std::fs::File;
use std::path::Path;

/// Root may turn it on.
const ENABLE_IO_URING: &str = "/sys/module/fuse/parameters/enable_uring";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    DevFuse,
    IoUring,
}

impl Transport {
    pub(crate) const ALL: [Self; 2] = [Self::DevFuse, Self::IoUring];

    /// The end of the name of a part over it.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::DevFuse => "",
            Self::IoUring => "-uring",
        }
    }

    /// The option of a mount that takes no other.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::DevFuse => "io_uring=off",
            Self::IoUring => "io_uring=on",
        }
    }

    /// Why this machine does not have it.
    pub(crate) fn missing(self) -> Option<&'static str> {
        if !Path::new("/dev/fuse").exists() {
            Some("there is no /dev/fuse")
        } else if self == Self::IoUring && !Path::new(ENABLE_IO_URING).exists() {
            Some("the kernel has no FUSE over io_uring (Linux 6.14)")
        } else {
            None
        }
    }

    /// Let the kernel offer it to new mounts, until what is returned is dropped.
    pub(crate) fn enable(self) -> Result<Option<Enabled>, String> {
        let enabled = (self == Self::IoUring).then(Enabled::new).transpose();
        enabled.map_err(|error| format!("{ENABLE_IO_URING}: {error}"))
    }
}

/// FUSE over `io_uring`, turned on if it was not; as it was when dropped. Programs that do so take turns by a lock on the parameter.
pub(crate) struct Enabled {
    was: Vec<u8>,
    _lock: File,
}

impl Enabled {
    fn new() -> std::io::Result<Self> {
        let lock = File::open(ENABLE_IO_URING)?;
        lock.lock()?;
        let was = std::fs::read(ENABLE_IO_URING)?;
        std::fs::write(ENABLE_IO_URING, "Y")?;
        Ok(Self { was, _lock: lock })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let _ = std::fs::write(ENABLE_IO_URING, &self.was);
    }
}
