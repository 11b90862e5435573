//! Differences between the attributes of an existing file and of its source.
//!
//! Where it sits: below the copier, which updates files and directories that are up to date otherwise.

use std::path::Path;

use diorite::FileKind;

use crate::Error;
use crate::tree::{Attributes, Item, Meta, Sink};

/// The label that the policy of the destination gives to a file without one.
const POLICY_LABEL: &[u8] = b"security.selinux";

/// Attributes that a copy has to set or remove.
#[derive(Debug, Default)]
pub(crate) struct Outdated {
    /// The differences in words.
    pub(crate) what: Vec<&'static str>,
    /// Names of extended attributes that the source does not have.
    pub(crate) extra: Vec<Vec<u8>>,
}

impl Outdated {
    /// The differences of the file at `to`, which is `existing`, that this user can remove.
    pub(crate) fn of(item: Item<'_>, sink: &dyn Sink, to: &Path, existing: &Meta) -> Result<Self, Error> {
        let (ours, takes_all) = (item.meta.safe(), sink.takes_all_attributes());
        let is_link = ours.kind == FileKind::Symlink;
        let of_user = |name: &[u8]| !name.starts_with(b"trusted.") && !name.starts_with(b"security.");
        let sorted = |mut list: Attributes| {
            list.retain(|(name, _)| takes_all || of_user(name));
            list.sort();
            list
        };
        let wanted = sorted(item.source.attributes(item.path)?);
        let mut present = sorted(sink.existing_attributes(to)?);
        let has = |name: &[u8]| wanted.iter().any(|(wanted, _)| wanted == name);
        present.retain(|(name, _)| name != POLICY_LABEL || has(name));
        let is_changed = |what, differs: bool| differs.then_some(what);
        let what = [
            is_changed("permissions", !is_link && ours.permissions != existing.permissions),
            is_changed("owner", takes_all && (ours.uid, ours.gid) != (existing.uid, existing.gid)),
            is_changed("time", !is_link && sink.kept_time(ours.modified) != existing.modified),
            is_changed("extended attributes", wanted != present),
        ];
        let extra = present.into_iter().map(|(name, _)| name).filter(|name| !has(name)).collect();
        Ok(Self { what: what.into_iter().flatten().collect(), extra })
    }
}
