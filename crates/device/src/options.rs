//! How a file or a block device is to be opened.

/// What will be done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reads only; shared with other readers.
    #[default]
    ReadOnly,
    /// Reads and writes; no other process may have it open.
    ReadWrite,
}

/// Whether the host's page cache is bypassed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectPolicy {
    /// Opening fails where direct I/O is refused.
    Required,
    /// Direct where it can be, through the page cache otherwise; [`crate::FileDevice::is_direct`] tells.
    #[default]
    Preferred,
    /// Through the host's page cache.
    Off,
}

/// Which system calls move the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `io_uring`, or threads where the system refuses it or `DIORITE_IO_BACKEND=threads` is set.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    IoUring,
    /// `preadv2` and `pwritev2`, from a pool of threads where several run at once.
    Threads,
}

/// Whether a thread that waits for one small transfer looks for its end for a while before it sleeps. A fast device then does
/// more of them a second (a third more, in a virtual machine), at half as much more CPU time of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// While those before took up to 150 µs, and no other thread wants the CPU; never where `DIORITE_IO_POLLING=never` is set.
    #[default]
    Auto,
    /// It sleeps at once.
    Never,
}

/// What happens to a file's existence and size before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// It must exist and keeps its size.
    #[default]
    Never,
    /// It is made if it is missing, and gets this size in bytes (a block device must have that much).
    Sized(u64),
    /// It must not exist, and is made with this size in bytes.
    NewSized(u64),
}

/// Whether a file may change its size while it is open. Block devices never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// It is a disk: what is beyond its end is out of range.
    #[default]
    Fixed,
    /// It is a file: a write beyond its end makes it longer, a read leaves the memory beyond its end as it is, and `Create` sets no
    /// size.
    Free,
}

/// How to open a device. The default is read-only, direct where possible, any back end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// What will be done with it.
    pub access: Access,
    /// Whether the host's page cache is bypassed.
    pub direct: DirectPolicy,
    /// Which system calls move the data.
    pub backend: Backend,
    /// How small transfers are waited for.
    pub polling: Polling,
    /// Whether the file is made.
    pub create: Create,
    /// Whether it may change its size.
    pub growth: Growth,
}

impl OpenOptions {
    /// Read-only, direct where possible.
    pub fn read_only() -> Self {
        Self::default()
    }

    /// Reads and writes, direct where possible.
    pub fn read_write() -> Self {
        Self { access: Access::ReadWrite, ..Self::default() }
    }

    /// The same with another policy for direct I/O.
    #[must_use]
    pub fn direct(self, direct: DirectPolicy) -> Self {
        Self { direct, ..self }
    }

    /// The same with another back end.
    #[must_use]
    pub fn backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// The same with another way to wait.
    #[must_use]
    pub fn polling(self, polling: Polling) -> Self {
        Self { polling, ..self }
    }

    /// The same for a file that may change its size.
    #[must_use]
    pub fn growth(self, growth: Growth) -> Self {
        Self { growth, ..self }
    }

    /// The same, but the file is made.
    #[must_use]
    pub fn create(self, create: Create) -> Self {
        Self { create, ..self }
    }
}
