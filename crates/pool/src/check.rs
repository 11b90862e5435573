//! The invariants of a pool that only its own threads in this process use at this moment.

use std::collections::HashSet;

use crate::core::Core;
use crate::memory::{NO_PAGE, Undo};
use crate::table;

/// Return the first violation.
pub(crate) fn check(core: &Core) -> Result<(), String> {
    let mapping = &core.mapping;
    let mut pages = HashSet::new();
    for (index, frame) in mapping.frames().iter().enumerate() {
        let page = frame.page();
        let wrong = |what: &str| Err(format!("frame {index} with page {page:#x} {what}: {frame:?}"));
        if page == NO_PAGE {
            if frame.is_dirty() {
                return wrong("is dirty");
            }
            continue;
        }
        if frame.latch.owner().is_some() || !frame.holders.is_unused_by_others(core.me) {
            return wrong("is held");
        }
        if frame.undo() != Undo::Nothing || frame.has_begun_change() {
            return wrong("is in the middle of a change");
        }
        if !pages.insert(page) {
            return wrong("is one of two");
        }
        if table::find_locked(mapping, page, core.me) != Some(index as u32) {
            return wrong("is not found");
        }
    }
    Ok(())
}
