//! The walk of a copy: one file, or a directory with everything in it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::FileKind;

use crate::copied_names::{Age, CopiedNames};
use crate::new_file::{
    Clobber, Content, CopyOptions, Depth, FileMaker, OnFailure, Sync, cannot_be_replaced, is_special,
};
use crate::tree::{Follow, Item, Meta, Names, ReadStream, Sink, Source};
use crate::{Error, Summary, Watch};

/// The deepest level of a directory below the first one.
const DEPTH_MAX: usize = 2048;

/// A copy in progress: several sources into one destination.
pub struct Copier<'a> {
    files: FileMaker<'a>,
    /// Device numbers of the filesystems that were written, each with a directory there.
    destinations: HashMap<Option<u64>, PathBuf>,
    /// Directories of the source that were entered, and the depth of the current one.
    directories: HashSet<(u64, u64)>,
    depth: usize,
}

impl std::fmt::Debug for Copier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copier")
            .field("options", &self.files.options)
            .field("summary", &self.files.summary)
            .finish_non_exhaustive()
    }
}

impl<'a> Copier<'a> {
    /// Copies into `sink` as `options` say.
    pub fn new(sink: &'a dyn Sink, options: CopyOptions, watch: &'a dyn Watch) -> Self {
        let files = FileMaker::new(sink, options, watch);
        Self { files, destinations: HashMap::new(), directories: HashSet::new(), depth: 0 }
    }

    /// Summary so far.
    pub fn summary(&self) -> Summary {
        self.files.summary
    }

    /// Copy `from` to exactly `to`. The caller has decided that `to` is not a directory to copy into.
    pub fn copy(&mut self, source: &dyn Source, from: &Path, to: &Path) -> Result<(), Error> {
        (self.directories, self.depth) = (HashSet::new(), 0);
        let follow = match self.files.options.depth {
            Depth::File => Follow::Yes,
            Depth::Tree => Follow::No,
        };
        let meta = source.meta(from, follow)?;
        let item = Item { source, path: from, meta: &meta };
        self.refuse_directory(item)?;
        self.note_destination(to.parent().unwrap_or(to));
        let is_stream = self.files.options.depth == Depth::File && is_special(meta.kind);
        let special = self.files.special_target(to)?;
        if !is_stream && special.is_none() {
            return self.copy_known(item, to);
        }
        FileMaker::refuse_own_image(item)?;
        if !is_stream {
            let reader = source.open(from, &meta)?;
            return self.files.put(&mut Content::File(item, &*reader), special, to);
        }
        // The bytes of the stream become a file with the time of the copy.
        let mut stream = source.open_stream(from)?;
        let now = crate::host_stream::now();
        let meta = Meta { kind: FileKind::Regular, size: 0, links: 1, accessed: now, modified: now, ..meta };
        self.files.put(&mut Content::Stream { stream: &mut *stream, name: from, meta: &meta }, special, to)
    }

    /// Make a regular file at exactly `to` of the bytes of `stream`, which messages call `name`.
    pub fn copy_stream(
        &mut self,
        stream: &mut dyn ReadStream,
        name: &Path,
        meta: &Meta,
        to: &Path,
    ) -> Result<(), Error> {
        self.note_destination(to.parent().unwrap_or(to));
        let special = self.files.special_target(to)?;
        self.files.put(&mut Content::Stream { stream, name, meta }, special, to)
    }

    /// Copy the entries of the directory `from` into the existing directory `to`, and give `to` the attributes of `from`. `to` can be a link
    /// to a directory.
    pub fn copy_content(&mut self, source: &dyn Source, from: &Path, to: &Path) -> Result<(), Error> {
        let meta = source.meta(from, Follow::Yes)?;
        let item = Item { source, path: from, meta: &meta };
        self.refuse_directory(item)?;
        self.note_destination(to);
        // If `to` is a link, its directory gets the attributes, too.
        let is_link =
            self.files.sink.existing(to, Follow::No)?.is_some_and(|at| at.kind == FileKind::Symlink);
        let itself = if is_link { to.join(".") } else { to.to_owned() };
        self.copy_into(item, &itself, source.names(from)?, Age::Existing)
    }

    /// Only a copy of trees takes directories.
    fn refuse_directory(&self, item: Item<'_>) -> Result<(), Error> {
        if item.meta.kind == FileKind::Directory && self.files.options.depth == Depth::File {
            return Err(Error::not_copied(item.source.name_of(item.path), "it is a directory; use -r"));
        }
        Ok(())
    }

    /// End the copy, and make it durable if [`CopyOptions::sync`] says so.
    pub fn finish(mut self) -> Result<Summary, Error> {
        self.files.set_flags();
        if self.files.options.sync == Sync::AtEnd {
            self.destinations.values().try_for_each(|directory| self.files.sink.sync(directory))?;
        }
        Ok(self.files.summary)
    }

    /// [`Self::finish`] syncs the filesystem of this directory.
    fn note_destination(&mut self, directory: &Path) {
        // The parent of a plain name is the empty path.
        let at = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let meta = self.files.sink.existing(at, Follow::Yes).ok().flatten();
        let device = meta.map(|meta| meta.identity.0);
        self.destinations.entry(device).or_insert_with(|| directory.to_owned());
    }

    /// Copy the entries of these names.
    fn copy_entries(
        &mut self,
        directory: Item<'_>,
        to: &Path,
        names: &[Vec<u8>],
        age: Age,
    ) -> Result<(), Error> {
        let source = directory.source;
        let mut copied_names = self.files.sink.may_fold_names(to)?.then(|| CopiedNames::new(age));
        for name in names {
            let (path, to) = (directory.path.join(OsStr::from_bytes(name)), to.join(OsStr::from_bytes(name)));
            let meta = source.meta(&path, Follow::No);
            let copied = meta.and_then(|meta| {
                let item = Item { source, path: &path, meta: &meta };
                match &mut copied_names {
                    Some(names) => self.copy_unless_folded(item, &to, names),
                    None => self.copy_known(item, &to),
                }
            });
            match copied {
                Err(error)
                    if self.files.options.on_failure == OnFailure::GoOn
                        && !error.is_final(&source.name_of(&path)) =>
                {
                    self.files.summary.failed += 1;
                    self.files.watch.failed(error);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Copy an entry, unless its name means an entry that was copied before.
    fn copy_unless_folded(
        &mut self,
        item: Item<'_>,
        to: &Path,
        names: &mut CopiedNames,
    ) -> Result<(), Error> {
        names.check(self.files.sink, || item.source.name_of(item.path), to)?;
        let before = self.files.sink.existing(to, Follow::No)?;
        let copied = self.copy_known(item, to);
        // An unchanged file is a hard link that existed before, which can have other names here.
        let is_directory = item.meta.kind == FileKind::Directory;
        let after = self.files.sink.existing(to, Follow::No)?;
        if is_directory || before.map(|meta| meta.identity) != after.map(|meta| meta.identity) {
            names.note(self.files.sink, to)?;
        }
        copied
    }

    fn copy_known(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        let meta = item.meta;
        if self.files.watch.is_cancelled() {
            return Err(Error::Interrupted);
        }
        if meta.kind == FileKind::Directory {
            return self.copy_directory(item, to);
        }
        self.files.copy(item, to)
    }

    /// Rejects a tree without end: a damaged image can have a directory below itself.
    fn enter(&mut self, item: Item<'_>) -> Result<(), Error> {
        let is_new = self.directories.insert(item.meta.identity) || item.source.may_repeat_directories();
        let why = if !is_new {
            "it was copied already under another name, so the image is damaged"
        } else if self.depth == DEPTH_MAX {
            "directories are nested too deep"
        } else {
            self.depth += 1;
            return Ok(());
        };
        Err(Error::not_copied(item.source.name_of(item.path), why))
    }

    fn copy_directory(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        self.enter(item)?;
        let copied = self.copy_below(item, to);
        self.depth -= 1;
        copied
    }

    fn copy_below(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        // Before the directory is made, so that an unreadable one leaves nothing.
        let names = item.source.names(item.path)?;
        // A link is not followed: it can lead out of the destination.
        let age = match self.files.sink.existing(to, Follow::No)? {
            // It can be the root of another filesystem.
            Some(existing) if existing.kind == FileKind::Directory => {
                self.note_destination(to);
                Age::Existing
            }
            Some(existing) => {
                let why = match existing.kind {
                    FileKind::Symlink => "it is a symbolic link, and the source is a directory",
                    _ => "it is not a directory, and the source is",
                };
                return Err(cannot_be_replaced(self.files.sink.name_of(to), why));
            }
            None => {
                self.files.sink.make_directory(to)?;
                self.files.summary.directories += 1;
                self.files.watch.copied(item.source, item.path, self.files.sink, to);
                Age::New
            }
        };
        self.copy_into(item, to, names, age)
    }

    /// Copy the entries of a directory, and then its attributes, even if an entry failed (invariant 3).
    fn copy_into(&mut self, directory: Item<'_>, to: &Path, names: Names, age: Age) -> Result<(), Error> {
        // Before the entries change its time.
        if age == Age::Existing
            && self.files.options.clobber == Clobber::KeepSame
            && let Some(existing) = self.files.sink.existing(to, Follow::No)?
        {
            self.files.remove_outdated(directory, to, &existing)?;
        }
        let copied = self.copy_entries(directory, to, &names.names, age);
        let finished = self.files.finish_attributes(directory, to, to);
        let finished = finished.and_then(|()| self.files.note_flags(directory, to));
        copied.and(finished).and(names.damage.map_or(Ok(()), Err))
    }
}

/// Whether the directory `at` of a sink is, or is below, the directory with that identity. Links and `..` in `at` are followed.
pub fn is_within(sink: &dyn Sink, at: &Path, directory: (u64, u64)) -> bool {
    let identity = |path: &Path| sink.existing(path, Follow::Yes).ok().flatten().map(|meta| meta.identity);
    let top = identity(Path::new("/"));
    let mut above = at.to_owned();
    for _ in 0..DEPTH_MAX {
        match identity(&above) {
            Some(here) if here == directory => return true,
            here if here.is_none() || here == top => return false,
            _ => above.push(".."),
        }
    }
    false
}

/// Bytes that a copy of `path` will move, for a progress bar. Files that cannot be read or copied count as 0. Counting ends when
/// `is_cancelled` returns `true`.
pub fn data_bytes(source: &dyn Source, path: &Path, depth: Depth, is_cancelled: &dyn Fn() -> bool) -> u64 {
    let follow = if depth == Depth::File { Follow::Yes } else { Follow::No };
    let mut waiting = vec![(path.to_owned(), 0)];
    let mut seen = HashSet::new();
    let mut bytes = 0u64;
    while let Some((path, level)) = waiting.pop()
        && !is_cancelled()
    {
        let Ok(meta) = source.meta(&path, follow) else { continue };
        let is_entered = depth == Depth::Tree && level < DEPTH_MAX;
        match meta.kind {
            FileKind::Regular => bytes = bytes.saturating_add(meta.size),
            FileKind::Directory if is_entered && seen.insert(meta.identity) => {
                let names = source.names(&path).unwrap_or_default().names;
                waiting.extend(names.iter().map(|name| (path.join(OsStr::from_bytes(name)), level + 1)));
            }
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
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
            assert!(self.0.get() < 2 * DEPTH_MAX, "counted deeper than a copy goes");
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
        assert_eq!(count(&deep, &|| false), DEPTH_MAX as u64);
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
        let file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(from.join("sparse"))
            .unwrap();
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

    /// What was cut off while it was copied was zeros in the copy.
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
}
