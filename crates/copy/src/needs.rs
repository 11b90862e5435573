//! The space and inodes that a tree needs in an image, counted before the copy begins. Files that cannot be read count as nothing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::FileKind;
use diorite::mkfs::{MkfsReport, Needs};

use crate::tree::{Follow, Meta, Source, data_ranges};

/// Targets of symbolic links from this length on take a block.
const FAST_LINK_BYTES: u64 = 60;

/// The needs of the entries of the directory `top` on a volume like `volume`.
pub fn needs(source: &dyn Source, top: &Path, volume: &MkfsReport) -> Needs {
    let mut counting = Counting { source, volume, needs: Needs::default() };
    counting.attributes(top);
    let mut seen = HashSet::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        let names = source.names(&directory).unwrap_or_default().names;
        counting.directory(&names);
        for name in names {
            let path = directory.join(OsStr::from_bytes(&name));
            let Ok(meta) = source.meta(&path, Follow::No) else { continue };
            let is_directory = meta.kind == FileKind::Directory;
            if (is_directory || meta.links > 1) && !seen.insert(meta.identity) {
                continue;
            }
            counting.file(&path, &meta);
            if is_directory {
                waiting.push(path);
            }
        }
    }
    counting.needs
}

/// The needs of the files so far.
struct Counting<'c> {
    source: &'c dyn Source,
    volume: &'c MkfsReport,
    needs: Needs,
}

impl Counting<'_> {
    fn directory(&mut self, names: &[Vec<u8>]) {
        self.needs.bytes += self.volume.directory_bytes(names.iter().map(Vec::len));
        self.needs.bytes_max += self.volume.directory_bytes_max(names.iter().map(Vec::len));
    }

    /// Anything but the names in a directory.
    fn file(&mut self, path: &Path, meta: &Meta) {
        self.needs.inodes += 1;
        self.needs.inodes_max += 1;
        self.attributes(path);
        if meta.kind == FileKind::Symlink && meta.size >= FAST_LINK_BYTES {
            let size = meta.size;
            self.needs.bytes += self.volume.content_bytes(size, std::iter::once(0..size));
            self.needs.bytes_max += self.volume.layout.cluster_bytes();
        }
        if meta.kind == FileKind::Regular
            && let Ok(file) = self.source.open(path, meta)
        {
            let (mut ranges, size) = (0, meta.size);
            let data = data_ranges(file.as_ref(), size).map_while(Result::ok).inspect(|_| ranges += 1);
            // A file in its inode takes no block, or one if it does not fit.
            let bytes = self.volume.content_bytes(size, data);
            let at_least = if ranges > 0 { self.volume.layout.cluster_bytes() } else { 0 };
            self.needs.bytes += bytes;
            self.needs.bytes_max += self.volume.content_bytes_max(bytes.max(at_least), ranges);
        }
    }

    fn attributes(&mut self, path: &Path) {
        let attributes = self.source.attributes(path).unwrap_or_default();
        let lengths = attributes.iter().map(|(name, value)| (name.len(), value.len()));
        let (bytes, inodes) = self.volume.attribute_bytes_max(lengths);
        self.needs.bytes_max += bytes;
        self.needs.inodes_max += inodes;
    }
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
            let needs = needs(&HostTree::new(), top, &preview(&options, 64 << 20, 512).expect("a volume"));
            assert!(needs.bytes_max >= needs.bytes && needs.inodes_max == needs.inodes);
            (needs.inodes, needs.bytes)
        };
        // Content of three blocks, and two directories.
        assert_eq!(of(None, ""), (3, 5 * 4096));
        assert_eq!(of(Some(65536), "bigalloc"), (3, 4 * 65536));
        assert_eq!(of(None, "inline_data"), (3, 3 * 4096));
    }
}
