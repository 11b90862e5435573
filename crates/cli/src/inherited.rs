//! What a process inherits from its caller besides arguments and environment: limits on resources, and how signals are handled.
//!
//! Every command gets errors instead of the signal where its files are as large as they may be: it then cleans up and says why. A command keeps the
//! limits of its caller. A process that serves a volume raises them: they are the limits of one program, and others use the volume.

use std::sync::Arc;

use diorite::front_end::host_paths;
use nix::sys::signal::SigSet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGCHLD, SIGXFSZ};

/// Limits that say how much a process may use. The limit on core dumps is not among them: it says what remains of a process.
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

/// Handle signals as a program does that a shell starts. Call it before threads are started: they inherit the mask.
pub(crate) fn reset_signals() {
    // No thread reads the flag. A signal with a handler does not end the process, and a program that it starts has the default action.
    let flag = Arc::default();
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::clone(&flag));
    if is_ignored(SIGCHLD) {
        // The kernel would keep no exit status of `umount` and `fusermount3`.
        let _ = signal_hook::flag::register(SIGCHLD, flag);
    }
    let _ = SigSet::empty().thread_set_mask();
}

/// Whether the program was started with a signal ignored (`SigIgn` of `proc_pid_status(5)`).
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Raise all soft limits to the hard ones. A limit that cannot be raised stays.
pub(crate) fn raise_limits() {
    for resource in LIMITS {
        let limit = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Log if the limit on the size of files ends before the image does.
pub(crate) fn warn_of_file_size(image: &str) {
    let Some(limit) = getrlimit(Resource::Fsize).current else { return };
    let sizes = host_paths(image).into_iter().filter_map(|path| path.metadata().ok());
    if sizes.into_iter().any(|found| found.is_file() && found.len() > limit) {
        log::warn!(
            "{image}: writes after its first {limit} bytes will fail: the hard limit on the size of files is lower than its size; raise it \
             (ulimit -Hf unlimited)"
        );
    }
}
