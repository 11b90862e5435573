//! Privileges that a file loses when its content changes: set-user-ID and set-group-ID, which some callers keep, and its capabilities.

use diorite::{NodeRef, Result};

/// Set-user-ID and set-group-ID of a file whose content changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetIds {
    /// The caller has the right to keep them.
    Kept,
    Cleared,
}

/// Whether a request changed permission bits without the client's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Privileges {
    /// Unchanged.
    Kept,
    /// Set-user-ID or set-group-ID was cleared.
    Cleared,
}

/// The content of a file is about to change.
pub(super) fn clear_for_content(node: &NodeRef, set_ids: SetIds) -> Result<Privileges> {
    let changed = match set_ids {
        SetIds::Kept => node.clear_capabilities().map(|()| false)?,
        SetIds::Cleared => node.clear_privileges()?,
    };
    Ok(if changed { Privileges::Cleared } else { Privileges::Kept })
}
