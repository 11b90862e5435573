//! Access times: which reads record one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use diorite::{Attributes, FileKind, NodeRef, Result, Timestamp};

use super::LiveSettings;
use super::view::View;

/// Under `relatime` an access time that is older than this is renewed.
const RELATIVE_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// `chattr +A`: no access time.
const NO_ATIME: u32 = 0x80;

/// The reads that record an access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// The first read after a change, and one a day (`relatime`).
    #[default]
    Relative,
    /// Each opening (`strictatime`).
    Strict,
    /// None (`noatime`).
    Never,
}

impl AccessTimes {
    fn are_due(self, attributes: &Attributes, now: SystemTime) -> bool {
        if attributes.flags & NO_ATIME != 0 {
            return false;
        }
        let order = |time: Timestamp| (time.seconds, time.nanoseconds);
        let accessed = order(attributes.accessed);
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        match self {
            Self::Never => false,
            Self::Strict => true,
            Self::Relative => {
                accessed <= order(attributes.modified)
                    || accessed <= order(attributes.changed)
                    || seconds.saturating_sub(accessed.0) >= RELATIVE_AGE.as_secs() as i64
            }
        }
    }
}

impl View {
    /// Record that content is read, if the settings ask for it. Reads from a client's cache are not seen here, so this is called when a file
    /// is opened for reading. Returns whether a time was recorded.
    pub(super) fn note_access(&self, node: &NodeRef) -> Result<bool> {
        let LiveSettings { access_times: policy, no_directory_times, lazy_times, .. } = self.live();
        let has_none = no_directory_times && node.kind() == FileKind::Directory;
        if has_none || policy == AccessTimes::Never || self.filesystem.read_only_reason().is_some() {
            return Ok(false);
        }
        if !policy.are_due(&node.attributes()?, SystemTime::now()) {
            return Ok(false);
        }
        if lazy_times { node.note_access_lazily() } else { node.note_access() }.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite::{InodeNumber, Owner};

    #[test]
    fn relatime_records_the_first_read_after_a_change_and_one_a_day() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let attributes = |accessed, changed, flags| Attributes {
            inode: InodeNumber(12),
            kind: FileKind::Regular,
            permissions: 0o644,
            links: 1,
            owner: Owner::default(),
            size: 0,
            sectors: 0,
            accessed: at(accessed),
            modified: at(10),
            changed: at(changed),
            created: None,
            device: (0, 0),
            flags,
            generation: 0,
            project: 0,
        };
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let due = |policy: AccessTimes, accessed, changed, flags| {
            policy.are_due(&attributes(accessed, changed, flags), now)
        };
        assert!(due(AccessTimes::Relative, 10, 10, 0) && due(AccessTimes::Relative, 11, 20, 0));
        assert!(!due(AccessTimes::Relative, 11, 10, 0) && due(AccessTimes::Strict, 11, 10, 0));
        assert!(due(AccessTimes::Relative, 1000 - 86_400, 10 - 86_400, 0));
        assert!(!due(AccessTimes::Strict, 11, 10, NO_ATIME) && !due(AccessTimes::Never, 0, 10, 0));
    }
}
