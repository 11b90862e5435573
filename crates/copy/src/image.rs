//! A tree in an image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite::front_end::InodeFlags;
use diorite::{
    DirectIo, Error as DioriteError, ErrorKind, File, FileKind, Filesystem, NodeRef, NodeSpec, Owner,
    SetAttributes, SetTime, Timestamp, Unaligned, XattrMode,
};

use crate::Error;
use crate::acl_text;
use crate::new_file::temporary_name;
use crate::tree::{
    Attributes, FileTree, Follow, LostAttribute, Meta, Names, NewFile, ReadFile, Sink, Source, Target,
    WriteFile,
};

/// The suffix of incomplete files. It is constant, because the layout of a directory depends on every name that it had, and equal trees must
/// make equal images. No other process has the image open.
const MARK_OF_INCOMPLETE: &str = ".diorite-incomplete";

/// The name of an incomplete file in an image that replaces `path` later: hidden, in the same directory.
pub fn incomplete_name(path: &Path) -> PathBuf {
    temporary_name(path, MARK_OF_INCOMPLETE)
}

/// Files smaller than this go through the cache, which writes many of them together.
const DIRECT_FROM_BYTES: u64 = 1 << 20;

/// An open filesystem as one side of a copy.
#[derive(Clone, Debug)]
pub struct ImageTree {
    filesystem: Filesystem,
    name: String,
    direct: Option<DirectIo>,
    newest: Option<Timestamp>,
}

impl ImageTree {
    /// The files of `filesystem`, which messages call `name`. `direct` selects direct I/O; with `None`, large files are
    /// written directly and small ones through the cache.
    pub fn new(filesystem: Filesystem, name: impl Into<String>, direct: Option<DirectIo>) -> Self {
        Self { filesystem, name: name.into(), direct, newest: None }
    }

    /// The same, but no file gets a time after `newest`, and access times equal modification times, so that equal sources make equal images.
    #[must_use]
    pub fn not_after(self, newest: Timestamp) -> Self {
        Self { newest: Some(newest), ..self }
    }

    fn error(&self, path: &Path, what: &'static str) -> impl FnOnce(DioriteError) -> Error + use<> {
        let (image, path) = (self.name.clone(), path.to_owned());
        move |source| Error::Image { image, path, what, source: Box::new(source) }
    }

    fn direct(&self, size: u64) -> DirectIo {
        let chosen = if size >= DIRECT_FROM_BYTES { DirectIo::Preferred } else { DirectIo::Off };
        self.direct.unwrap_or(chosen)
    }

    fn options(&self, size: u64) -> diorite::OpenOptions<Filesystem> {
        self.filesystem.open_options().direct(self.direct(size)).unaligned(Unaligned::Bounce)
    }

    fn set_node_meta(
        &self,
        node: &NodeRef,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
    ) -> Result<Vec<LostAttribute>, Error> {
        let is_link = meta.kind == FileKind::Symlink;
        let (accessed, modified) = match self.newest {
            Some(newest) => (meta.modified.min(newest), meta.modified.min(newest)),
            None => (meta.accessed, meta.modified),
        };
        let changes = SetAttributes {
            permissions: (!is_link).then_some(meta.permissions),
            uid: Some(meta.uid),
            gid: Some(meta.gid),
            accessed: Some(SetTime::To(accessed)),
            modified: Some(SetTime::To(modified)),
            ..SetAttributes::default()
        };
        // First, because setting an owner removes capabilities.
        node.set_attributes(&changes).map_err(self.error(path, "set the attributes"))?;
        let (mut lost, mut failed) = (Vec::new(), Ok(()));
        let mut permissions = meta.permissions;
        for (name, value) in attributes {
            match node.set_xattr(name, value, XattrMode::Set) {
                Err(error) if error.is_about_attribute() => {
                    let more = match error.kind() {
                        ErrorKind::StorageFull => {
                            "; larger blocks (mkfs -b), or inodes for large values (mkfs -O ea_inode), hold more"
                        }
                        _ => "",
                    };
                    let why = format!("{}{more}", error.without_path());
                    lost.push(LostAttribute::extended(name, why));
                    permissions = acl_text::permissions_without(name, value, permissions);
                }
                Err(error) => failed = failed.and(Err(self.error(path, "set an extended attribute")(error))),
                Ok(()) => {}
            }
        }
        if permissions != meta.permissions {
            let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
            node.set_attributes(&changes).map_err(self.error(path, "set the attributes"))?;
        }
        // Inodes of 128 bytes have 32 bits for a time, larger ones 34.
        if i32::try_from(modified.seconds).is_err() {
            let kept = node.attributes().map_err(self.error(path, "read"))?.modified.seconds;
            let limit = match kept {
                _ if kept == modified.seconds => None,
                ..0 => Some("before 1901"),
                _ if kept == i64::from(i32::MAX) => Some("after 2038"),
                _ => Some("after 2446"),
            };
            lost.extend(limit.map(|limit| LostAttribute {
                attribute: "modification time".to_owned(),
                why: format!("the volume's inodes hold no time {limit}"),
            }));
        }
        failed.map(|()| lost)
    }

    /// The number of this open filesystem, as `st_dev`: inode numbers of different images are equal.
    fn filesystem_number(&self) -> u64 {
        Arc::as_ptr(self.filesystem.device()).addr() as u64
    }

    fn meta_of(&self, attributes: &diorite::Attributes) -> Meta {
        Meta {
            kind: attributes.kind,
            permissions: attributes.permissions,
            uid: attributes.owner.uid,
            gid: attributes.owner.gid,
            has_unknown_owner: false,
            size: attributes.size,
            accessed: attributes.accessed,
            modified: attributes.modified,
            links: u64::from(attributes.links),
            identity: (self.filesystem_number(), u64::from(attributes.inode.0)),
            device: attributes.device,
        }
    }

    fn look(&self, path: &Path, follow: Follow) -> diorite::Result<Meta> {
        let attributes = match follow {
            Follow::Yes => self.filesystem.metadata(path),
            Follow::No => self.filesystem.symlink_metadata(path),
        }?;
        Ok(self.meta_of(&attributes))
    }

    fn file(&self, file: File, path: &Path) -> ImageFile {
        ImageFile { file, tree: self.clone(), path: path.to_owned() }
    }
}

/// A new inode that belongs to root until its attributes are set.
fn private(kind: FileKind, permissions: u16) -> NodeSpec {
    NodeSpec { kind, permissions, umask: 0, owner: Owner::default(), device: (0, 0) }
}

impl FileTree for ImageTree {
    fn name_of(&self, path: &Path) -> String {
        format!("{}:{}", self.name, path.display())
    }

    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let target = self.filesystem.read_link(path).map_err(self.error(path, "read the link"))?;
        Ok(OsString::from(target).into_vec())
    }
}

impl Source for ImageTree {
    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error> {
        self.look(path, follow).map_err(self.error(path, "read"))
    }

    fn names(&self, path: &Path) -> Result<Names, Error> {
        let mut found = Names::default();
        for entry in self.filesystem.read_dir(path).map_err(self.error(path, "list"))? {
            match entry {
                Ok(entry) => found.names.push(entry.name),
                Err(error) => found.damage = Some(self.error(path, "list")(error)),
            }
        }
        found.names.sort_unstable();
        Ok(found)
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, Error> {
        let read = || -> diorite::Result<Attributes> {
            let node = self.filesystem.resolve_link(path)?;
            let names = node.xattr_names()?;
            names.into_iter().map(|name| node.xattr(&name).map(|value| (name, value))).collect()
        };
        read().map_err(self.error(path, "read the attributes"))
    }

    /// No other process has the image open.
    fn open(&self, path: &Path, meta: &Meta) -> Result<Box<dyn ReadFile>, Error> {
        let opened = self.options(meta.size).read(true).open(path);
        Ok(Box::new(self.file(opened.map_err(self.error(path, "open"))?, path)))
    }
}

impl Sink for ImageTree {
    fn mark_of_incomplete(&self) -> String {
        MARK_OF_INCOMPLETE.to_owned()
    }

    fn existing(&self, path: &Path, follow: Follow) -> Result<Option<Meta>, Error> {
        match self.look(path, follow) {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(self.error(path, "look up")(error)),
        }
    }

    fn may_fold_names(&self, directory: &Path) -> Result<bool, Error> {
        let attributes = self.filesystem.metadata(directory).map_err(self.error(directory, "look up"))?;
        Ok(InodeFlags::from_bits_retain(attributes.flags).contains(InodeFlags::CASEFOLD))
    }

    fn make_directory(&self, path: &Path) -> Result<(), Error> {
        self.filesystem
            .create_node(path, &private(FileKind::Directory, 0o700))
            .map_err(self.error(path, "make the directory"))?;
        Ok(())
    }

    fn make_link(&self, path: &Path, target: &[u8]) -> Result<(), Error> {
        let target = PathBuf::from(OsString::from_vec(target.to_vec()));
        self.filesystem.symlink(target, path).map_err(self.error(path, "make the link"))
    }

    fn make_hard_link(&self, original: &Path, path: &Path) -> Result<(), Error> {
        self.filesystem.hard_link(original, path).map_err(self.error(path, "make the link"))
    }

    fn make_node(&self, path: &Path, meta: &Meta) -> Result<(), Error> {
        let owner = Owner { uid: meta.uid, gid: meta.gid };
        let spec = NodeSpec { owner, device: meta.device, ..private(meta.kind, meta.permissions) };
        self.filesystem.create_node(path, &spec).map_err(self.error(path, "make the node"))?;
        Ok(())
    }

    fn create_new(&self, target: &Target<'_>, size: Option<u64>) -> Result<Box<dyn NewFile>, Error> {
        let direct = self.direct(size.unwrap_or(0));
        // The data of a small cached file is written back later in any case.
        let is_small = size.is_some_and(|size| size < DIRECT_FROM_BYTES) && direct == DirectIo::Off;
        let has_name = is_small && !target.is_taken;
        let name = if has_name { target.to.to_owned() } else { target.temporary.clone() };
        let spec = private(FileKind::Regular, 0o600);
        let error = || self.error(target.to, "create");
        let node = match self.filesystem.create_node(&name, &spec) {
            Err(there) if there.kind() == ErrorKind::AlreadyExists && !has_name => {
                // A killed run has left it.
                self.filesystem.remove_file(&name).map_err(error())?;
                self.filesystem.create_node(&name, &spec)
            }
            made => made,
        };
        let node = node.map_err(error())?;
        let options = node.open_options().write(true).direct(direct).unaligned(Unaligned::Bounce);
        match options.open() {
            Ok(file) => {
                let file = self.file(file, target.to);
                Ok(Box::new(NewImageFile { file, node, name: Some(name) }))
            }
            Err(refused) => {
                let _ = self.filesystem.remove_file(&name);
                Err(error()(refused))
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.filesystem.rename(from, to).map_err(self.error(to, "rename to"))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.filesystem.remove_file(path).map_err(self.error(path, "remove"))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        self.filesystem.remove_dir(path).map_err(self.error(path, "remove the directory"))
    }

    fn set_meta(
        &self,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
    ) -> Result<Vec<LostAttribute>, Error> {
        let node = self.filesystem.resolve_link(path).map_err(self.error(path, "set the attributes"))?;
        self.set_node_meta(&node, path, meta, attributes)
    }

    fn existing_attributes(&self, path: &Path) -> Result<Attributes, Error> {
        self.attributes(path)
    }

    fn remove_attributes(&self, path: &Path, names: &[Vec<u8>]) -> Result<(), Error> {
        let remove = || {
            let node = self.filesystem.resolve_link(path)?;
            names.iter().try_for_each(|name| node.remove_xattr(name))
        };
        remove().map_err(self.error(path, "remove an extended attribute"))
    }

    fn add_flags(&self, path: &Path, flags: InodeFlags) -> Result<(), String> {
        let add = || {
            let node = self.filesystem.resolve_link(path)?;
            let flags = Some(node.attributes()?.flags | flags.bits());
            node.set_attributes(&SetAttributes { flags, ..SetAttributes::default() })
        };
        add().map_err(|error: DioriteError| error.without_path().to_string())
    }

    fn sync(&self, _: &Path) -> Result<(), Error> {
        self.filesystem.sync().map_err(self.error(Path::new("/"), "sync"))
    }
}

/// An open file of an image.
struct ImageFile {
    file: File,
    tree: ImageTree,
    path: PathBuf,
}

impl ReadFile for ImageFile {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.file.read_at(memory, offset).map_err(self.tree.error(&self.path, "read"))
    }

    fn size(&self) -> Result<u64, Error> {
        Ok(self.file.size())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
        let start = match self.file.seek_data(offset) {
            Ok(start) => start,
            Err(error) if matches!(error.without_path(), DioriteError::BeyondEnd) => return Ok(None),
            Err(error) => return Err(self.tree.error(&self.path, "read")(error)),
        };
        let end = self.file.seek_hole(start).map_err(self.tree.error(&self.path, "read"))?;
        Ok(Some((start, end)))
    }
}

impl WriteFile for ImageFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        // Only the end of a file can be part of a block. It is written separately, so that only this part is bounced.
        let whole = data.len() - data.len() % self.file.alignment().offset as usize;
        let at = if self.file.direct_io() == DirectIo::Off { data.len() } else { whole };
        let (head, tail) = data.split_at(at);
        let parts = [(head, offset), (tail, offset + at as u64)];
        parts
            .into_iter()
            .filter(|(part, _)| !part.is_empty())
            .try_for_each(|(part, offset)| self.file.write_all_at(part, offset))
            .map_err(self.tree.error(&self.path, "write"))
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        self.file.set_len(size).map_err(self.tree.error(&self.path, "set the size"))
    }

    fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(self.tree.error(&self.path, "sync"))
    }
}

/// An incomplete file.
struct NewImageFile {
    file: ImageFile,
    node: NodeRef,
    /// Its temporary name; none when it is complete.
    name: Option<PathBuf>,
}

impl NewFile for NewImageFile {
    fn content(&self) -> &dyn WriteFile {
        &self.file
    }

    fn set_meta(&self, meta: &Meta, attributes: &Attributes) -> Result<Vec<LostAttribute>, Error> {
        self.file.tree.set_node_meta(&self.node, &self.file.path, meta, attributes)
    }

    fn complete(mut self: Box<Self>) -> Result<(), Error> {
        let to = &self.file.path;
        if let Some(name) = self.name.as_deref().filter(|name| name != to) {
            self.file.tree.rename(name, to)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for NewImageFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller reports why it is incomplete.
            let _ = self.file.tree.filesystem.remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
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
            let filesystem =
                Filesystem::create(directory.path().join("disk.img"), 32 << 20, &options).unwrap();
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
}
