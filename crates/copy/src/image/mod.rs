//! A tree in an image.

mod file;

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
};
use file::{ImageFile, NewImageFile};

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
        for name in acl_text::inherited(attributes).map(str::as_bytes) {
            if !is_link && node.xattr(name).is_ok() {
                node.remove_xattr(name).map_err(self.error(path, "remove an inherited ACL"))?;
            }
        }
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
        let limit = match self.kept_time(modified).seconds {
            kept if kept == modified.seconds => None,
            ..0 => Some("before 1901"),
            kept if kept == i64::from(i32::MAX) => Some("after 2038"),
            _ => Some("after 2446"),
        };
        lost.extend(limit.map(|limit| LostAttribute {
            attribute: "modification time".to_owned(),
            why: format!("the volume's inodes cannot store a time {limit}"),
        }));
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

    fn kept_time(&self, time: Timestamp) -> Timestamp {
        self.filesystem.stored_time(time)
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

    fn is_empty_directory(&self, path: &Path) -> Result<bool, Error> {
        let mut entries = self.filesystem.read_dir(path).map_err(self.error(path, "list"))?;
        Ok(entries.next().is_none())
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

#[cfg(test)]
mod tests;
