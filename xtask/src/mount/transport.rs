//! The transports of a mount.

#![expect(clippy::disallowed_methods, reason = "a parameter of the kernel")]

use std::fs::File;
use std::path::Path;

/// The kernel's switch, which root can set.
const ENABLE_IO_URING: &str = "/sys/module/fuse/parameters/enable_uring";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    DevFuse,
    IoUring,
}

impl Transport {
    pub(crate) const ALL: [Self; 2] = [Self::DevFuse, Self::IoUring];

    /// The transports that the kernel offers now.
    pub(crate) fn enabled() -> &'static [Self] {
        let is_on = |text: String| text.starts_with('Y');
        let has_both = std::fs::read_to_string(ENABLE_IO_URING).is_ok_and(is_on);
        if !has_both {
            println!("SKIPPED: diorite-uring: {ENABLE_IO_URING} is not Y");
        }
        if has_both { &Self::ALL } else { &Self::ALL[..1] }
    }

    /// The name of a runner of the benchmarks.
    pub(crate) fn runner(self) -> &'static str {
        if self == Self::IoUring { "diorite-uring" } else { "diorite" }
    }

    /// The suffix of the names of parts.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::DevFuse => "",
            Self::IoUring => "-uring",
        }
    }

    /// The mount option that selects only this transport.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::DevFuse => "io_uring=off",
            Self::IoUring => "io_uring=on",
        }
    }

    /// The reason why this machine does not support it.
    pub(crate) fn missing(self) -> Option<&'static str> {
        if !Path::new("/dev/fuse").exists() {
            Some("there is no /dev/fuse")
        } else if self == Self::IoUring && !Path::new(ENABLE_IO_URING).exists() {
            Some("the kernel has no FUSE over io_uring (Linux 6.14)")
        } else {
            None
        }
    }

    /// Enable it for new mounts until the result is dropped.
    pub(crate) fn enable(self) -> Result<Option<Enabled>, String> {
        let enabled = (self == Self::IoUring).then(Enabled::new).transpose();
        enabled.map_err(|error| format!("{ENABLE_IO_URING}: {error}"))
    }
}

/// Enables FUSE over `io_uring`; the drop restores the previous value. A lock on the parameter serializes such programs.
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
