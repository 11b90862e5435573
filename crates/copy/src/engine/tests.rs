//! Copies of trees of the host, of trees that change during the copy, and of endless trees.

use super::*;
use crate::new_file::{NAME_BYTES_MAX, temporary_name};
use crate::tree::{Attributes, FileTree, ReadFile};
use crate::{HostTree, Unwatched};

#[test]
fn temporary_names_are_never_too_long() {
    let long = "x".repeat(255);
    let name = temporary_name(&Path::new("/a").join(&long), ".diorite-4194304");
    assert_eq!(name.parent(), Some(Path::new("/a")));
    assert!(name.file_name().unwrap().len() <= NAME_BYTES_MAX);
    assert_ne!(name.file_name().unwrap(), OsStr::new(&long));
}

/// A directory in a directory, without end, with a file of one byte in each. Panics when asked for more than a copy would copy.
struct Deep(std::cell::Cell<usize>);

impl FileTree for Deep {
    fn name_of(&self, path: &Path) -> String {
        path.display().to_string()
    }
    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        Err(Error::not_copied(self.name_of(path), "no file"))
    }
}

impl Source for Deep {
    fn meta(&self, path: &Path, _: Follow) -> Result<Meta, Error> {
        let kind = if path.ends_with("file") { FileKind::Regular } else { FileKind::Directory };
        let meta = crate::StandardInput::meta();
        Ok(Meta { kind, size: 1, identity: (0, path.as_os_str().len() as u64), ..meta })
    }
    fn names(&self, _: &Path) -> Result<Names, Error> {
        self.0.set(self.0.get() + 1);
        assert!(self.0.get() < 2 * Entered::DEPTH_MAX, "counted deeper than a copy goes");
        Ok(Names { names: vec![b"d".to_vec(), b"file".to_vec()], damage: None })
    }
    fn attributes(&self, _: &Path) -> Result<Attributes, Error> {
        Ok(Attributes::new())
    }
    fn open(&self, path: &Path, _: &Meta) -> Result<Box<dyn ReadFile>, Error> {
        Err(Error::not_copied(self.name_of(path), "no file"))
    }
}

/// Paths of a hostile image, each looked up from its root, took hours to count before anything was copied, and no signal ended it.
#[test]
fn bytes_are_counted_no_deeper_than_a_copy_goes_and_until_it_is_cancelled() {
    let count = |source: &Deep, is_cancelled: &dyn Fn() -> bool| {
        data_bytes(source, Path::new("/"), Depth::Tree, is_cancelled)
    };
    let deep = Deep(std::cell::Cell::new(0));
    assert_eq!(count(&deep, &|| false), Entered::DEPTH_MAX as u64);
    let deep = Deep(std::cell::Cell::new(0));
    assert_eq!(count(&deep, &|| deep.0.get() == 3), 2);
}

/// Holes, hard links, symbolic links, permissions and times, from host to host.
#[test]
fn tree_is_copied_with_everything() {
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("from");
    std::fs::create_dir_all(from.join("sub")).unwrap();
    let file =
        std::fs::File::options().create(true).truncate(true).write(true).open(from.join("sparse")).unwrap();
    file.write_all_at(b"head", 0).unwrap();
    file.write_all_at(b"tail", 8 << 20).unwrap();
    file.set_len(9_000_001).unwrap();
    std::fs::hard_link(from.join("sparse"), from.join("sub/again")).unwrap();
    symlink("nowhere", from.join("link")).unwrap();
    std::fs::set_permissions(from.join("sparse"), std::fs::Permissions::from_mode(0o640)).unwrap();

    let (tree, to) = (HostTree::new(), directory.path().join("to"));
    let options = CopyOptions { depth: Depth::Tree, ..CopyOptions::default() };
    let mut copier = Copier::new(&tree, options, &Unwatched);
    copier.copy(&tree, &from, &to).unwrap();
    let summary = copier.finish().unwrap();
    assert_eq!((summary.files, summary.directories, summary.others), (1, 2, 2));
    let (a, b) = (from.join("sparse").metadata().unwrap(), to.join("sparse").metadata().unwrap());
    assert_eq!((a.len(), a.mode(), a.mtime_nsec()), (b.len(), b.mode(), b.mtime_nsec()));
    assert!(b.blocks() < 100, "{} blocks of a sparse file", b.blocks());
    assert_eq!(b.ino(), to.join("sub/again").metadata().unwrap().ino());
    assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
    let copied = std::fs::File::options().read(true).open(to.join("sparse")).unwrap();
    let mut tail = [0; 4];
    copied.read_exact_at(&mut tail, 8 << 20).unwrap();
    assert_eq!(&tail, b"tail");
}

/// A tree of the host with a file that its owner replaces by something else as soon as it was looked at.
struct Swapped<'a>(HostTree, &'a dyn Fn(&Path));

impl FileTree for Swapped<'_> {
    fn name_of(&self, path: &Path) -> String {
        self.0.name_of(path)
    }
    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        self.0.link_target(path)
    }
}

impl Source for Swapped<'_> {
    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error> {
        let meta = self.0.meta(path, follow);
        if path.ends_with("swapped") {
            std::fs::remove_file(path).unwrap();
            (self.1)(path);
        }
        meta
    }
    fn names(&self, path: &Path) -> Result<Names, Error> {
        self.0.names(path)
    }
    fn attributes(&self, path: &Path) -> Result<Attributes, Error> {
        self.0.attributes(path)
    }
    fn open(&self, path: &Path, meta: &Meta) -> Result<Box<dyn ReadFile>, Error> {
        self.0.open(path, meta)
    }
}

/// The content of a file that only root may read went into a copy that belongs to the owner of the link.
#[test]
fn a_file_that_becomes_another_is_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to, secret] = ["from", "to", "secret"].map(|name| directory.path().join(name));
    let write = |path: &Path, content: &[u8]| {
        let file = std::fs::File::options().create_new(true).write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, content, 0).unwrap();
    };
    write(&secret, b"secret");
    std::fs::create_dir(&from).unwrap();
    let link = |path: &Path| std::os::unix::fs::symlink("../secret", path).unwrap();
    let other = |path: &Path| std::fs::hard_link(&secret, path).unwrap();
    for swap in [&link as &dyn Fn(&Path), &other] {
        write(&from.join("swapped"), b"harmless");
        let options = CopyOptions { depth: Depth::Tree, ..CopyOptions::default() };
        let sink = HostTree::new();
        let mut copier = Copier::new(&sink, options, &Unwatched);
        let copied = copier.copy(&Swapped(HostTree::new(), swap), &from, &to);
        assert!(!to.join("swapped").exists());
        assert!(copied.unwrap_err().to_string().contains("another file"));
        std::fs::remove_file(from.join("swapped")).unwrap();
    }
}

/// The content went through the link, and the attributes onto it.
#[test]
fn tree_is_not_copied_through_a_link() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let [from, to, outside] = ["from", "to", "outside"].map(|name| directory.path().join(name));
    std::fs::create_dir_all(from.join("d")).unwrap();
    std::fs::set_permissions(from.join("d"), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::copy("/proc/self/stat", from.join("d/file")).unwrap();
    std::fs::create_dir(&to).unwrap();
    std::fs::create_dir(&outside).unwrap();
    symlink("../outside", to.join("d")).unwrap();
    let tree = HostTree::new();
    let options = CopyOptions { depth: Depth::Tree, ..CopyOptions::default() };
    for copy in [(from.join("d"), to.join("d")), (from.clone(), to.clone())] {
        let mut copier = Copier::new(&tree, options, &Unwatched);
        let error = copier.copy(&tree, &copy.0, &copy.1).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(std::fs::read_dir(&outside).unwrap().next().is_none());
    }
    // A link that the user names as the destination is meant.
    let mut copier = Copier::new(&tree, options, &Unwatched);
    copier.copy_content(&tree, &from.join("d"), &to.join("d")).unwrap();
    assert!(outside.join("file").exists());
    assert_eq!(outside.metadata().unwrap().mode() & 0o777, 0o700);
}

/// Data truncated during the copy became zeros in the copy.
#[test]
fn a_file_that_is_cut_meanwhile_is_copied_as_it_is_then() {
    /// Cuts the file when its copy begins.
    struct Cut(u64);
    impl Watch for Cut {
        fn begin(&self, name: &Path, _: u64) {
            std::fs::File::options().write(true).open(name).unwrap().set_len(self.0).unwrap();
        }
        fn advance(&self, _: u64) {}
        fn is_cancelled(&self) -> bool {
            false
        }
    }
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    // Within its data, within the hole at its end, and before all of that.
    for len in [5000, 2 << 20, 0] {
        let file = std::fs::File::options().create(true).truncate(true).write(true).open(&from).unwrap();
        file.write_all_at(&[1; 10_000], 0).unwrap();
        file.set_len(9 << 20).unwrap();
        let (tree, watch) = (HostTree::new(), Cut(len));
        let mut copier = Copier::new(&tree, CopyOptions::default(), &watch);
        copier.copy(&tree, &from, &to).unwrap();
        copier.finish().unwrap();
        assert_eq!(to.metadata().unwrap().len(), len);
    }
}

/// Copies of the same names from two trees into one: `y` of the second became a link to what had taken the place of its original, and
/// names of unchanged files stayed a second time.
#[test]
fn originals_of_links_are_replaced_by_a_later_tree() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let [a, b, to] = ["a", "b", "to"].map(|name| directory.path().join(name));
    for path in [&a, &b, &to] {
        std::fs::create_dir(path).unwrap();
    }
    let write = |path: PathBuf, content: &str| {
        let file = std::fs::File::options().create_new(true).write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, content.as_bytes(), 0).unwrap();
    };
    write(a.join("x"), "one");
    write(a.join("same"), "same");
    std::fs::hard_link(a.join("x"), b.join("y")).unwrap();
    std::fs::hard_link(a.join("same"), a.join("same2")).unwrap();
    std::fs::hard_link(a.join("same"), b.join("same")).unwrap();
    std::fs::hard_link(a.join("same"), b.join("same2")).unwrap();
    write(b.join("x"), "two");
    let (tree, options) = (HostTree::new(), CopyOptions { depth: Depth::Tree, ..CopyOptions::default() });
    let mut copier = Copier::new(&tree, options, &Unwatched);
    copier.copy_content(&tree, &a, &to).unwrap();
    copier.copy_content(&tree, &b, &to).unwrap();
    copier.finish().unwrap();
    let mut names: Vec<_> = to.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["same", "same2", "x", "y"]);
    let content = |name| std::fs::read_to_string(to.join(name)).unwrap();
    assert_eq!(["x", "y", "same"].map(content), ["two", "one", "same"]);
    let inode = |name| to.join(name).metadata().unwrap().ino();
    assert_eq!(inode("same"), inode("same2"));
    assert_ne!(inode("x"), inode("y"));
}

/// Invariant 2.
#[test]
fn interrupted_copy_leaves_no_temporary_file() {
    struct Stop(std::sync::atomic::AtomicU32);
    impl Watch for Stop {
        fn begin(&self, _: &Path, _: u64) {}
        fn advance(&self, _: u64) {}
        fn is_cancelled(&self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 2
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let file = std::fs::File::options().create(true).truncate(true).write(true).open(&from).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 9 << 20], 0).unwrap();
    let tree = HostTree::new();
    let watch = Stop(std::sync::atomic::AtomicU32::new(0));
    let mut copier = Copier::new(&tree, CopyOptions::default(), &watch);
    assert!(matches!(copier.copy(&tree, &from, &to), Err(Error::Interrupted)));
    let names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["from"]);
}
