//! Resource limits and signal actions that a process inherits from its caller.
//!
//! SIGXFSZ is ignored, so a write beyond the limit on file sizes is an error, and the command cleans up and reports it. A command keeps the
//! limits of its caller. A process that serves a volume raises them, because they are limits of one program and not of the volume's users.

use std::sync::Arc;

use diorite::front_end::host_paths;
use nix::sys::signal::SigSet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGCHLD, SIGXFSZ};

/// The limits that a daemon raises. The limit on core dumps stays.
const LIMITS: [Resource; 8] = [
    Resource::As,
    Resource::Cpu,
    Resource::Data,
    Resource::Fsize,
    Resource::Memlock,
    Resource::Nofile,
    Resource::Nproc,
    Resource::Stack,
];

/// Reset the signal mask and the actions that matter here. Call it before threads start, because they inherit the mask.
pub(crate) fn reset_signals() {
    // No thread reads the flag. A handler keeps the signal from ending the process, and child processes get the default action.
    let flag = Arc::default();
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::clone(&flag));
    if is_ignored(SIGCHLD) {
        // With SIGCHLD ignored the kernel discards the exit status of `umount` and `fusermount3`.
        let _ = signal_hook::flag::register(SIGCHLD, flag);
    }
    let _ = SigSet::empty().thread_set_mask();
}

/// Whether a signal was ignored at the start of the program (`SigIgn` of `proc_pid_status(5)`).
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Raise all soft limits to the hard ones. A limit that cannot be raised stays. The limits whose excess the kernel answers with a deadly signal
/// are removed if the process may do so.
pub(crate) fn raise_limits() {
    for resource in LIMITS {
        let limit = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
    for resource in [Resource::Cpu, Resource::Stack] {
        let _ = setrlimit(resource, Rlimit { current: None, maximum: None });
    }
}

/// Log a warning if a limit that could not be raised will stop writes to the image, or end this process.
pub(crate) fn warn_of_file_size(image: &str) {
    if let Some(seconds) = getrlimit(Resource::Cpu).current {
        log::warn!(
            "{image}: the kernel will end this process after {seconds} s of CPU time, and unsynced data will be lost: the hard limit cannot be \
             raised; raise it (ulimit -Ht unlimited)"
        );
    }
    let Some(limit) = getrlimit(Resource::Fsize).current else { return };
    let sizes = host_paths(image).into_iter().filter_map(|path| path.metadata().ok());
    if sizes.into_iter().any(|found| found.is_file() && found.len() > limit) {
        log::warn!(
            "{image}: writes after its first {limit} bytes will fail: the hard limit on file sizes is below its size; raise it \
             (ulimit -Hf unlimited)"
        );
    }
}
