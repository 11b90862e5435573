//! The log of a volume that was opened for a mount or a server.

use std::sync::Arc;

use diorite::Filesystem;

use super::log::Log;
use super::options::MountOptions;

/// Log warnings about a volume now, and its failure later.
pub(crate) fn report(filesystem: &Filesystem, target: &str, options: &MountOptions, log: &Log) {
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
    let log = Arc::clone(log);
    filesystem.watch_abort(move |reason| log(&format!("read-only from now on: a write failed: {reason}")));
}
