//! Builds a trace: numbers files and threads, and orders the events.

use std::collections::HashMap;

use crate::trace::{Event, Source, Trace, TracedFile, Unseen};

/// What is known of a run without its calls.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The command line, or the process.
    pub program: String,
    /// Begin, by `CLOCK_MONOTONIC` (library) or the time of day (strace).
    pub started_ns: u64,
    /// Elapsed time.
    pub seconds: f64,
    /// CPU time of the program and its children.
    pub cpu_s: Option<f64>,
    /// Memory of the largest process.
    pub memory_bytes: u64,
}

/// A trace in the making.
#[derive(Debug, Default)]
pub(super) struct Builder {
    files: Vec<TracedFile>,
    events: Vec<Event>,
    threads: HashMap<(u32, u32), u32>,
    pub(super) unseen: Unseen,
}

impl Builder {
    /// Add a file, and return its number.
    pub(super) fn add_file(&mut self, path: String, size: u64) -> u32 {
        self.files.push(TracedFile { path, size, mapped: 0 });
        self.files.len() as u32 - 1
    }

    pub(super) fn file(&self, number: u32) -> &TracedFile {
        &self.files[number as usize]
    }

    pub(super) fn map(&mut self, file: u32, len: u64) {
        let mapped = &mut self.files[file as usize].mapped;
        *mapped = mapped.saturating_add(len);
    }

    /// The number of a thread of a process.
    pub(super) fn thread(&mut self, process: u32, thread: u32) -> u32 {
        let next = self.threads.len() as u32;
        *self.threads.entry((process, thread)).or_insert(next)
    }

    pub(super) fn add(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Change the times of all events.
    pub(super) fn set_times(&mut self, set: impl Fn(&mut Event)) {
        self.events.iter_mut().for_each(set);
    }

    pub(super) fn events_len(&self) -> usize {
        self.events.len()
    }

    /// The trace; times begin with the run.
    pub(super) fn build(mut self, run: Run, source: Source, cost_s: f64) -> Trace {
        for event in &mut self.events {
            event.start_ns = event.start_ns.saturating_sub(run.started_ns);
        }
        self.events.sort_by_key(|event| event.start_ns);
        Trace {
            program: run.program,
            source,
            seconds: run.seconds,
            cpu_s: run.cpu_s,
            cost_s,
            memory_bytes: run.memory_bytes,
            files: self.files,
            unseen: self.unseen,
            events: self.events,
        }
    }
}

/// Whether a path is a file whose content is on a disk, as far as its name says.
pub(super) fn is_stored(path: &str) -> bool {
    let is_special = ["/proc/", "/sys/", "/dev/", "/memfd:"].iter().any(|special| path.starts_with(special));
    path.starts_with('/') && (!is_special || path.starts_with("/dev/shm/"))
}
