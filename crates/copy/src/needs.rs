//! The space and inodes that a tree needs in an image, counted before the copy begins. Files that cannot be read count as nothing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::FileKind;
use diorite::mkfs::{MkfsReport, Needs};

use crate::tree::{Follow, ReadFile, Source};

/// The needs of the entries of the directory `top` on a volume like `volume`.
pub fn needs(source: &dyn Source, top: &Path, volume: &MkfsReport) -> Needs {
    let mut needs = Needs::default();
    let mut seen = HashSet::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        let names = source.names(&directory).unwrap_or_default().names;
        needs.bytes += volume.directory_bytes(names.iter().map(Vec::len));
        for name in names {
            let path = directory.join(OsStr::from_bytes(&name));
            let Ok(meta) = source.meta(&path, Follow::No) else { continue };
            let is_directory = meta.kind == FileKind::Directory;
            if (is_directory || meta.links > 1) && !seen.insert(meta.identity) {
                continue;
            }
            needs.inodes += 1;
            if is_directory {
                waiting.push(path);
            } else if meta.kind == FileKind::Regular
                && let Ok(file) = source.open(&path, &meta)
            {
                needs.bytes += volume.content_bytes(meta.size, data_ranges(file.as_ref(), meta.size));
            }
        }
    }
    needs
}

/// The data ranges of a file of `size` bytes.
fn data_ranges(file: &dyn ReadFile, size: u64) -> impl Iterator<Item = Range<u64>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let (start, end) = if offset < size { file.next_data(offset).ok()?? } else { return None };
        offset = end.min(size);
        (start < size).then_some(start..offset)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use diorite::mkfs::{Flavor, MkfsOptions, preview};

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
        let of = |cluster_size, features: &str| {
            let options = MkfsOptions {
                flavor: Flavor::Ext4,
                block_size: Some(4096),
                cluster_size,
                features: features.to_owned(),
                ..MkfsOptions::default()
            };
            needs(&HostTree::new(), top, &preview(&options, 64 << 20, 512).expect("a volume"))
        };
        // Content of three blocks, and two directories.
        assert_eq!(of(None, ""), Needs { inodes: 3, bytes: 5 * 4096 });
        assert_eq!(of(Some(65536), "bigalloc"), Needs { inodes: 3, bytes: 4 * 65536 });
        assert_eq!(of(None, "inline_data"), Needs { inodes: 3, bytes: 3 * 4096 });
    }
}
