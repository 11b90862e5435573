//! The volume of a mount or a server, with its log.

use std::sync::Arc;

use diorite::{Filesystem, FilesystemOptions};

use super::log::{LimitedLog, Log};
use super::options::MountOptions;

/// Open the volume of `target`. Warnings are logged now, and its failure later.
///
/// # Errors
/// As [`FilesystemOptions::open`].
pub(crate) fn open(
    target: &str,
    options: &MountOptions,
    how: &FilesystemOptions,
) -> diorite::Result<(Filesystem, LimitedLog)> {
    let filesystem = how.open(options.target(target))?;
    let log = log_of(target, options, &filesystem);
    Ok((filesystem, log))
}

/// The log of an open volume. Its warnings are logged now, and its failure later.
pub(crate) fn log_of(target: &str, options: &MountOptions, filesystem: &Filesystem) -> LimitedLog {
    for note in &options.ignored {
        log::warn!("{target}: {note}");
    }
    let read_only = filesystem.read_only_reason().filter(|_| !options.read_only);
    if let Some(reason) = &read_only {
        log::warn!("{target}: read-only: {reason}");
    }
    for defect in filesystem.defects().iter().filter(|defect| Some(*defect) != read_only.as_ref()) {
        log::warn!("{target}: {defect}");
    }
    if let Some(advice) = filesystem.check_advice() {
        log::warn!("{target}: {advice}");
    }
    let name = target.to_owned();
    let log: Log = Arc::new(move |said: &str| log::error!("{name}: {said}"));
    let abort_log = Arc::clone(&log);
    filesystem.watch_abort(move |why| abort_log(&format!("read-only from now on: a write failed: {why}")));
    LimitedLog::new(log)
}
