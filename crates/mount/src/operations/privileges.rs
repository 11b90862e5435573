//! What a file loses when its content or owner changes: set-user-ID and set-group-ID, which some callers keep, and its capabilities, which
//! none keeps.

use diorite::{NodeRef, Result, SetAttributes};

/// What becomes of set-user-ID and set-group-ID of a file whose content changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetIds {
    /// The caller has the right to keep them.
    Kept,
    Cleared,
}

/// Whether a request changed permission bits that its caller does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Privileges {
    /// They are as they were.
    Kept,
    /// Set-user-ID or set-group-ID is gone.
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

/// Change attributes; the library clears what is to go with them.
pub(super) fn set_attributes(node: &NodeRef, changes: &SetAttributes) -> Result<()> {
    node.set_attributes(changes)
}
