//! How the files of two volumes differ, in words.

use std::collections::BTreeMap;
use std::path::PathBuf;

use diorite::{FileKind, Filesystem};

/// Larger files are compared by their size only.
const COMPARED_BYTES_MAX: u64 = 256 << 20;

/// The kind and the size of each file.
type Tree = BTreeMap<PathBuf, (FileKind, u64)>;

fn tree_of(filesystem: &Filesystem) -> Tree {
    let size = |entry: &diorite::WalkEntry| entry.metadata().map_or(0, |found| found.size);
    let entries = filesystem.walk("/").flatten();
    entries.map(|entry| (entry.path.clone(), (entry.kind, size(&entry)))).collect()
}

/// What `state` has less, or more, than `whole`.
pub(super) fn differences(state: &Filesystem, whole: &Filesystem) -> Vec<String> {
    let (old, new) = (tree_of(state), tree_of(whole));
    let mut found = Vec::new();
    for (path, (kind, size)) in &new {
        let shown = path.display();
        match old.get(path) {
            None => found.push(format!("`{shown}` does not exist")),
            Some((other, _)) if other != kind => found.push(format!("`{shown}` is another kind of file")),
            Some((FileKind::Regular, before)) if before != size => {
                found.push(format!("`{shown}` is {before} bytes long, not {size}"));
            }
            Some((FileKind::Regular, _)) if *size <= COMPARED_BYTES_MAX => {
                if let (Ok(old), Ok(new)) = (state.read(path), whole.read(path))
                    && let Some(words) = difference(&old, &new)
                {
                    found.push(format!("{words} of `{shown}`"));
                }
            }
            Some(_) => {}
        }
    }
    let extra = old.keys().filter(|path| !new.contains_key(*path));
    found.extend(extra.map(|path| format!("`{}` still exists", path.display())));
    found
}

/// The range in which two contents of one length differ, and what is there.
fn difference(old: &[u8], new: &[u8]) -> Option<String> {
    let start = old.iter().zip(new).position(|(old, new)| old != new)?;
    let end = old.len() - old.iter().rev().zip(new.iter().rev()).position(|(old, new)| old != new)?;
    let is_zero = old[start..end].iter().all(|byte| *byte == 0);
    let what = if is_zero { "zeros instead of data" } else { "old data" };
    Some(format!("{what} in bytes {start}..{end}"))
}
