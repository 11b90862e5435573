//! How a file or a block device is opened.

pub use diorite_block::Access;

/// Whether data bypasses a page cache: the host's, for a device; the library's, for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Through the page cache.
    Off,
    /// Directly where that is possible, through the page cache otherwise. Of a device [`crate::FileDevice::is_direct`] says which;
    /// of a file it depends on the alignment of each transfer.
    Preferred,
    /// Directly, or an error that says why not.
    Required,
}

/// Which system calls move the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `io_uring`, or threads where the system refuses it or `DIORITE_IO_BACKEND=threads` is set.
    #[default]
    Auto,
    /// `io_uring`, or an error. What is a thread's only transfer may be a call of its own all the same.
    IoUring,
    /// `preadv2` and `pwritev2`, from a pool of threads where several run at once.
    Threads,
}

/// Whether a thread that waits for one small transfer polls for its completion before it sleeps. A fast device then completes
/// more of them per second (up to a third more in a virtual machine), and the thread keeps a CPU busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Poll if recent transfers completed soon and no other thread wants the CPU; never if
    /// `DIORITE_IO_POLLING=never` is set.
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
    /// It is a disk: beyond its end is out of range.
    #[default]
    Fixed,
    /// It is a file: a write beyond its end makes it longer, a read leaves the memory beyond its end as it is, and `Create` sets no
    /// size.
    Free,
}

/// Who else may have the file open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// No other process.
    #[default]
    Exclusive,
    /// Others that open it in this way as well, and agree with each other on what each writes: the processes of a buffer pool. They hold a
    /// shared lock, which keeps everyone else from writing.
    Cooperating,
}

/// How to open a device: [`OpenOptions::read_only`] or [`OpenOptions::read_write`], and what differs from that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading it is shared with other readers; for writing no other process may have it open.
    pub access: Access,
    /// Whether the host's page cache is bypassed.
    pub direct: DirectIo,
    /// Which system calls move the data.
    pub backend: Backend,
    /// How small transfers are waited for.
    pub polling: Polling,
    /// Whether the file is made.
    pub create: Create,
    /// Whether it may change its size.
    pub growth: Growth,
    /// Who else may write it.
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

    /// The same for a file that other processes write as well.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// The same, but the file is made.
    #[must_use]
    pub fn create(self, create: Create) -> Self {
        Self { create, ..self }
    }
}
