//! What a tree needs in an image, counted before it is copied, so that a copy that cannot end is not begun.
//!
//! It is the least that is needed: what depends on how the copy goes (mappings, attributes, indexes of directories) is not
//! counted, and what cannot be read counts as nothing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::FileKind;

use crate::tree::{Follow, Meta, Source};

/// Bytes of a directory entry besides its name; it ends at a multiple of four.
const ENTRY_BYTES: u64 = 8;

/// What a tree needs in an image at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, directories and everything else, hard links counted once; the directory at the top is there already.
    pub inodes: u64,
    /// Space for content and names.
    pub bytes: u64,
}

/// How the image takes space.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Bytes of an allocation unit.
    pub cluster: u64,
    /// Files and directories below this size may lie in their inodes.
    pub inline_below: u64,
}

impl Needs {
    /// Of the content of the directory `top`.
    pub fn of(source: &dyn Source, top: &Path, units: Units) -> Self {
        let mut needs = Self::default();
        let mut seen = HashSet::new();
        let mut waiting = vec![top.to_owned()];
        while let Some(directory) = waiting.pop() {
            let mut entries = 0;
            for name in source.names(&directory).unwrap_or_default() {
                entries += (ENTRY_BYTES + name.len() as u64).next_multiple_of(4);
                let path = directory.join(OsStr::from_bytes(&name));
                let Ok(meta) = source.meta(&path, Follow::No) else { continue };
                let is_directory = meta.kind == FileKind::Directory;
                if (is_directory || meta.links > 1) && !seen.insert(meta.identity) {
                    continue;
                }
                needs.inodes += 1;
                if is_directory {
                    waiting.push(path);
                } else {
                    needs.bytes += content_bytes(source, &path, &meta, units);
                }
            }
            if entries >= units.inline_below {
                needs.bytes += entries.next_multiple_of(units.cluster);
            }
        }
        needs
    }
}

/// Bytes of whole clusters that the content of a file takes.
fn content_bytes(source: &dyn Source, path: &Path, meta: &Meta, units: Units) -> u64 {
    if meta.kind != FileKind::Regular || meta.size < units.inline_below {
        return 0;
    }
    let Ok(file) = source.open(path) else { return 0 };
    // Clusters before this one were counted.
    let (mut bytes, mut counted, mut offset) = (0, 0, 0);
    while let Ok(Some((start, end))) = file.next_data(offset)
        && start < meta.size
    {
        offset = end.min(meta.size);
        let first = (start / units.cluster).max(counted);
        counted = offset.div_ceil(units.cluster).max(first);
        bytes += (counted - first) * units.cluster;
        if end >= meta.size {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::HostTree;

    /// Holes and second names cost nothing, and every data range whole clusters, once.
    #[test]
    fn content_is_counted_in_clusters_and_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path();
        std::fs::create_dir(top.join("sub")).expect("a directory");
        let file = std::fs::File::create_new(top.join("sparse")).expect("a file");
        file.write_all_at(&[1; 100], 0).expect("space");
        file.write_all_at(&[1; 5000], 40 << 20).expect("space");
        file.set_len(80 << 20).expect("a size");
        std::fs::hard_link(top.join("sparse"), top.join("sub/again")).expect("a link");
        std::os::unix::fs::symlink("sparse", top.join("link")).expect("a link");
        let of = |cluster, inline_below| Needs::of(&HostTree::new(), top, Units { cluster, inline_below });
        // Content of three blocks, and two directories.
        assert_eq!(of(4096, 0), Needs { inodes: 3, bytes: 5 * 4096 });
        assert_eq!(of(65536, 0), Needs { inodes: 3, bytes: 4 * 65536 });
        assert_eq!(of(4096, 128), Needs { inodes: 3, bytes: 3 * 4096 });
    }
}
