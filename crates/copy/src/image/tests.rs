//! Copies into images: a file under its name is complete, also if it replaces another file, and after an interrupt.

use std::sync::atomic::{AtomicU32, Ordering};

use diorite::mkfs::{Flavor, MkfsOptions};

use super::*;
use crate::{Copier, CopyOptions, HostTree, Unwatched, Watch};

const SIZES: [usize; 3] = [0, 5000, DIRECT_FROM_BYTES as usize * 2 + 1];

struct Fixture {
    directory: tempfile::TempDir,
    tree: ImageTree,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = MkfsOptions::new(Flavor::Ext4);
        let filesystem = Filesystem::create(directory.path().join("disk.img"), 32 << 20, &options).unwrap();
        filesystem.create_dir("/to").unwrap();
        Self { directory, tree: ImageTree::new(filesystem, "disk.img", None) }
    }

    fn copy(&self, size: usize, byte: u8, watch: &dyn Watch) -> Result<(), Error> {
        let from = self.directory.path().join("from");
        #[expect(clippy::disallowed_methods, reason = "what is copied")]
        std::fs::write(&from, vec![byte; size]).unwrap();
        let mut copier = Copier::new(&self.tree, CopyOptions::default(), watch);
        copier.copy(&HostTree::new(), &from, Path::new("/to/file"))?;
        copier.finish().map(drop)
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.tree.names(Path::new("/to")).unwrap().names
    }
}

/// Files of every size, new ones and in place of others, also where a killed run has left its temporary file.
#[test]
fn a_copy_is_whole_under_its_name_and_leaves_no_other() {
    for size in SIZES {
        let fixture = Fixture::new();
        for (is_first, byte) in [(true, 1), (false, 2)] {
            let left = incomplete_name(Path::new("/to/file"));
            if !is_first {
                fixture.tree.filesystem.write(left, "left by a killed run").unwrap();
            }
            fixture.copy(size, byte, &Unwatched).unwrap();
            assert_eq!(fixture.names(), [b"file".to_vec()], "{size} bytes");
            assert!(fixture.tree.filesystem.read("/to/file").unwrap() == vec![byte; size]);
        }
    }
}

/// Files of different images have equal inode numbers, and one became a hard link of the other.
#[test]
fn files_of_two_images_are_not_taken_for_one() {
    let (a, b, to) = (Fixture::new(), Fixture::new(), Fixture::new());
    let options = CopyOptions { depth: crate::Depth::Tree, ..CopyOptions::default() };
    let mut copier = Copier::new(&to.tree, options, &Unwatched);
    for (fixture, name) in [(&a, "a"), (&b, "b")] {
        let filesystem = &fixture.tree.filesystem;
        filesystem.write("/file", name).unwrap();
        filesystem.hard_link("/file", "/to/linked").unwrap();
        // As the program has it: a tree for each of its arguments.
        for from in ["/file", "/to/linked"] {
            let tree = ImageTree::new(filesystem.clone(), name, None);
            let to = PathBuf::from(format!("/to/{name}{}", from.replace('/', "-")));
            copier.copy(&tree, Path::new(from), &to).unwrap();
        }
    }
    copier.finish().unwrap();
    let copied = |name: &str| {
        let (file, linked) = (format!("/to/{name}-file"), format!("/to/{name}-to-linked"));
        let filesystem = &to.tree.filesystem;
        let inode = |path: &str| filesystem.metadata(path).unwrap().inode;
        assert_eq!(inode(&file), inode(&linked), "hard links within an image are kept");
        filesystem.read(&file).unwrap()
    };
    assert_eq!([copied("a"), copied("b")], [b"a".to_vec(), b"b".to_vec()]);
}

/// Invariant 2: an interrupted copy leaves what was there before.
#[test]
fn an_interrupted_copy_leaves_what_was_there() {
    struct Stop(AtomicU32);
    impl Watch for Stop {
        fn begin(&self, _: &Path, _: u64) {}
        fn advance(&self, _: u64) {}
        fn is_cancelled(&self) -> bool {
            // Not before the file is made.
            self.0.fetch_add(1, Ordering::Relaxed) >= 1
        }
    }
    for size in &SIZES[1..] {
        let fixture = Fixture::new();
        assert!(matches!(fixture.copy(*size, 1, &Stop(AtomicU32::new(0))), Err(Error::Interrupted)));
        assert!(fixture.names().is_empty(), "{size} bytes");
        fixture.copy(*size, 1, &Unwatched).unwrap();
        assert!(fixture.copy(*size, 2, &Stop(AtomicU32::new(0))).is_err());
        assert_eq!(fixture.names(), [b"file".to_vec()], "{size} bytes");
        assert!(fixture.tree.filesystem.read("/to/file").unwrap() == vec![1; *size]);
    }
}
