//! What a program did with its files: the data between recording and analysis.

mod store;

use serde::{Deserialize, Serialize};

pub use store::{StoreError, load, store};

/// How calls were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// By the preloaded library.
    #[default]
    Library,
    /// By `strace`, which slows each call.
    Strace,
}

/// A recorded run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The command line, or the process.
    pub program: String,
    /// How it was recorded.
    pub source: Source,
    /// Elapsed time of the run.
    pub seconds: f64,
    /// CPU time of the program and its children, in user and kernel mode; `None` if it is unknown.
    pub cpu_s: Option<f64>,
    /// Elapsed time that the recording itself took, as far as it is known.
    pub cost_s: f64,
    /// Memory of the largest process, without the page cache.
    pub memory_bytes: u64,
    /// Files in the order of their first use.
    pub files: Vec<TracedFile>,
    /// What the recording did not see.
    pub unseen: Unseen,
    /// Calls in the order of their begin; stored apart.
    #[serde(skip)]
    pub events: Vec<Event>,
}

/// A regular file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedFile {
    /// Its absolute path at the first use.
    pub path: String,
    /// Its size at the first use.
    pub size: u64,
    /// Bytes of it that the program mapped.
    pub mapped: u64,
}

/// Input and output that no event describes, in bytes unless a field says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// Read by system calls that were not recorded; pipes and terminals are included.
    pub read: u64,
    /// Written, likewise.
    pub written: u64,
    /// Mapped files.
    pub mapped: u64,
    /// Number of `io_uring` rings and AIO contexts.
    pub rings: u64,
    /// Number of records that had no space, or could not be understood.
    pub lost: u64,
}

/// A call on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Begin, since the begin of the recording.
    pub start_ns: u64,
    /// Elapsed time of the call.
    pub duration_ns: u64,
    /// Index of the file in [`Trace::files`].
    pub file: u32,
    /// Number of the thread, unique in the trace.
    pub thread: u32,
    /// What it did.
    pub action: Action,
    /// The file was open with `O_DIRECT`.
    pub is_direct: bool,
    /// The begin and the duration of the call. For calls of streams, which are recorded together, both are estimates.
    pub is_timed: bool,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// First use after an open, with the size of the file.
    Open(u64),
    /// Read bytes.
    Read(Span),
    /// Written bytes.
    Write(Span),
    /// Data made durable.
    Sync,
    /// A new size.
    Truncate(u64),
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    /// The byte after the last one.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Numbers of its pages.
    pub fn pages(self) -> std::ops::Range<u64> {
        if self.len == 0 { 0..0 } else { self.offset / PAGE_BYTES..(self.end() - 1) / PAGE_BYTES + 1 }
    }
}

/// Size of a page of the cache.
pub const PAGE_BYTES: u64 = 4096;

impl Event {
    /// The end, since the begin of the recording.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// Bytes that the call moved.
    pub fn bytes(&self) -> u64 {
        match self.action {
            Action::Read(span) | Action::Write(span) => span.len,
            Action::Open(_) | Action::Sync | Action::Truncate(_) => 0,
        }
    }
}

impl Trace {
    /// Bytes of all calls.
    pub fn bytes(&self) -> u64 {
        self.events.iter().map(Event::bytes).sum()
    }
}
