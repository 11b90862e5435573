//! Options to open a file or a block device.

pub use diorite_block::Access;

/// Whether data bypasses a page cache: the host's, for a device; the library's, for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Through the page cache.
    Off,
    /// Directly if possible, otherwise through the page cache. For a device, [`crate::FileDevice::is_direct`] tells which;
    /// for a file, it depends on the alignment of each transfer.
    Preferred,
    /// Directly, or an error with the reason.
    Required,
}

/// The system calls that transfer data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `io_uring`; threads if the system refuses it or `DIORITE_IO_BACKEND=threads` is set.
    #[default]
    Auto,
    /// `io_uring`, or an error. A thread's only transfer may still be a plain call.
    IoUring,
    /// `preadv2` and `pwritev2`, by several threads if several run at once.
    Threads,
}

/// Whether a thread that waits for one small transfer polls for its completion before it sleeps. Polling raises the rate of a fast device
/// (by up to a third in a virtual machine) and keeps a CPU busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Poll if the mean latency of recent transfers is short and few threads poll; never if `DIORITE_IO_POLLING=never` is set.
    #[default]
    Auto,
    /// Sleep at once.
    Never,
}

/// Whether a file is created, and with which size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The file must exist and keeps its size.
    #[default]
    Never,
    /// The file is created if missing, and gets this size in bytes. A block device must have at least this size.
    Sized(u64),
    /// The file must not exist, and is created with this size in bytes.
    NewSized(u64),
}

/// Whether a file may change its size while it is open. Block devices never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// The file is a disk: offsets beyond its end are out of range.
    #[default]
    Fixed,
    /// A write beyond the end extends the file, a read zeroes the memory beyond the end, and `Create` sets no size.
    Free,
}

/// Whether other processes may have the file open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// No other process.
    #[default]
    Exclusive,
    /// Processes that open it with the same option and coordinate their writes, such as those of a buffer pool. They hold a shared lock,
    /// which excludes all other writers.
    Cooperating,
}

/// Options to open a device, from [`OpenOptions::read_only`] or [`OpenOptions::read_write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Readers share the file; a writer excludes all other processes.
    pub access: Access,
    /// Whether the host's page cache is bypassed.
    pub direct: DirectIo,
    /// The system calls that transfer data.
    pub backend: Backend,
    /// The kind of wait for small transfers.
    pub polling: Polling,
    /// Whether the file is created.
    pub create: Create,
    /// Whether the file may change its size.
    pub growth: Growth,
    /// Whether other processes may write the file.
    pub sharing: Sharing,
}

impl OpenOptions {
    /// Read-only, direct where possible.
    pub fn read_only() -> Self {
        Self {
            access: Access::ReadOnly,
            direct: DirectIo::Preferred,
            backend: Backend::Auto,
            polling: Polling::Auto,
            create: Create::Never,
            growth: Growth::Fixed,
            sharing: Sharing::Exclusive,
        }
    }

    /// Reads and writes, direct where possible.
    pub fn read_write() -> Self {
        Self { access: Access::ReadWrite, ..Self::read_only() }
    }

    /// The same with another policy for direct I/O.
    #[must_use]
    pub fn direct(self, direct: DirectIo) -> Self {
        Self { direct, ..self }
    }

    /// The same with another back end.
    #[must_use]
    pub fn backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// The same with another policy for waits.
    #[must_use]
    pub fn polling(self, polling: Polling) -> Self {
        Self { polling, ..self }
    }

    /// The same for a file that may change its size.
    #[must_use]
    pub fn growth(self, growth: Growth) -> Self {
        Self { growth, ..self }
    }

    /// The same for a file that other processes write as well.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// The same, and the file is created.
    #[must_use]
    pub fn create(self, create: Create) -> Self {
        Self { create, ..self }
    }
}
