//! Operations on inodes, without paths, for mounts.
//!
//! Where it sits: between the path API (`filesystem.rs`) and the table of nodes (`nodes.rs`).
//!
//! Interface: a [`NodeRef`] keeps its inode alive: it outlives its last name until the last `NodeRef` and [`File`](crate::File) of it is
//! dropped, as a mount's `forget` requires.

use std::sync::Arc;

use diorite_ext::{EntryBatch, Inode, NamesVersion, Volume};

use crate::content::Content;
use crate::handle::file::FileOwner;
use crate::store::map::SyncKind;
use crate::volume::ext_map::ExtMap;
use crate::volume::nodes::{NodeRef, while_stale};
use crate::{
    Attributes, DirectIo, Error, ErrorKind, FileKind, InodeNumber, NodeSpec, Owner, RenameMode, Result,
    SetAttributes, Timestamp, XattrMode,
};
use diorite_ext::DirectoryEntry;

impl NodeRef {
    pub(super) fn volume(&self) -> &Volume {
        &self.nodes.volume
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.node.inode
    }

    /// The number of the inode.
    pub fn number(&self) -> InodeNumber {
        self.inode().number()
    }

    /// The kind of the inode.
    pub fn kind(&self) -> FileKind {
        self.inode().kind()
    }

    /// The content of a regular file.
    pub(crate) fn content(&self) -> Result<Arc<Content>> {
        match self.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(diorite_ext::Error::IsADirectory.into()),
            _ => return Err(Error::Unsupported("only regular files have content that can be opened")),
        }
        if let Some(content) = self.node.content() {
            return Ok(content);
        }
        // Another thread may do the same; the first content is kept.
        let map = ExtMap::new(Arc::clone(&self.nodes.volume), Arc::clone(self.inode()));
        let new = Content::new(Box::new(map), Arc::clone(&self.nodes.engine))?;
        Ok(Arc::clone(self.node.content.get_or_init(|| new)))
    }

    /// The attributes, with the sizes and times of cached data.
    ///
    /// # Errors
    /// None at present.
    pub fn attributes(&self) -> Result<Attributes> {
        let mut attributes = self.inode().attributes();
        if let Some(content) = self.node.content() {
            attributes.size = content.store.size();
            // A mapping that cannot be read is the error of the read or the write that needs it.
            let blocks = content.cache.blocks_to_allocate().unwrap_or(0);
            attributes.sectors += blocks * (content.store.map.block_size() / 512);
            if let Some(modified) = content.store.time.get() {
                // As writeback will record it: an operation on the inode since the write has changed it later.
                attributes.modified = self.inode().time_as_stored(modified);
                attributes.changed = attributes.changed.max(attributes.modified);
            }
        }
        Ok(attributes)
    }

    /// A time as the inode can hold it: within its years, and in seconds if the inode is too small for more.
    pub fn time_as_stored(&self, time: Timestamp) -> Timestamp {
        self.inode().time_as_stored(time)
    }

    /// Change attributes: all of them, or none if that fails, also through a crash.
    ///
    /// As in Linux, a regular file whose owner is set loses set-user-ID, set-group-ID if the group may execute (unless `permissions` are set) and
    /// its capabilities; one whose size is set loses its capabilities. Capabilities go first, also if the rest fails.
    ///
    /// # Errors
    /// The volume is read-only or full, the inode is immutable or append-only, or a quota is reached; a size as in [`Self::set_len`]; the
    /// device failed.
    pub fn set_attributes(&self, changes: &SetAttributes) -> Result<()> {
        let sets_owner = changes.uid.is_some() || changes.gid.is_some();
        let clear_privileges = changes.clear_privileges || sets_owner;
        if (clear_privileges || changes.size.is_some()) && self.kind() == FileKind::Regular {
            self.clear_capabilities()?;
        }
        let changes = &SetAttributes { clear_privileges, ..*changes };
        let set = || Ok(self.volume().set_attributes(self.inode(), changes)?);
        let sets_modified = changes.modified.is_some();
        if let Some(size) = changes.size {
            return self.content()?.set_len_with(size, sets_modified, set);
        }
        match self.node.content() {
            Some(content) => content.set_attributes(sets_modified, set),
            None => self.nodes.with_space(|volume| volume.set_attributes(self.inode(), changes)),
        }
    }

    /// The content of a regular file is about to change, and the caller of [`ContentTimes::ByCaller`](crate::front_end::ContentTimes) does not keep the time
    /// of this change: it is now.
    ///
    /// # Errors
    /// It is no regular file.
    pub fn note_modified(&self) -> Result<()> {
        let store = &self.content()?.store;
        store.time.set(store.shared.clock.now());
        Ok(())
    }

    /// Record that the content was read now. The change time stays.
    ///
    /// # Errors
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn note_access(&self) -> Result<()> {
        Ok(self.volume().note_access(self.inode())?)
    }

    /// As [`Self::note_access`], but the time waits in memory (`lazytime`): for another change of the inode, a sync, the end of the volume, or
    /// a day. A crash loses it.
    ///
    /// # Errors
    /// As [`Self::note_access`].
    pub fn note_access_lazily(&self) -> Result<()> {
        Ok(self.volume().note_access_lazily(self.inode())?)
    }

    /// Clear set-user-ID, and set-group-ID if the group may execute, of a regular file, and its capabilities: its content or owner
    /// changes. Returns whether permission bits changed.
    ///
    /// # Errors
    /// As [`Self::set_attributes`].
    pub fn clear_privileges(&self) -> Result<bool> {
        if self.kind() != FileKind::Regular {
            return Ok(false);
        }
        let permissions = self.attributes()?.permissions;
        let has_any = permissions & 0o4000 != 0 || permissions & 0o2010 == 0o2010;
        if has_any {
            self.set_attributes(&SetAttributes { clear_privileges: true, ..SetAttributes::default() })?;
        } else {
            self.clear_capabilities()?;
        }
        Ok(has_any)
    }

    /// Remove the capabilities of a file (`security.capability`), which no write leaves.
    ///
    /// # Errors
    /// As [`Self::remove_xattr`]; none if there are none.
    pub fn clear_capabilities(&self) -> Result<()> {
        const CAPABILITY: &[u8] = b"security.capability";
        // Read first: an append-only file, whose attributes cannot be removed, usually has none.
        match self.xattr(CAPABILITY).and_then(|_| self.remove_xattr(CAPABILITY)) {
            Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
            result => result,
        }
    }

    /// Set the size of a regular file.
    ///
    /// # Errors
    /// It is no regular file; the size is larger than a file can be; the device or the volume failed.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.content()?.set_len(size)
    }

    /// The inode of a name in this directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`NotADirectory`](crate::ErrorKind::NotADirectory); the device or the volume failed.
    pub fn lookup(&self, name: &[u8]) -> Result<NodeRef> {
        while_stale(|| self.nodes.acquire(self.volume().names.lookup(self.inode(), name)?))
    }

    /// The attributes of a name in this directory, and the node if it is a directory. A symbolic link is not
    /// followed.
    pub(crate) fn lookup_attributes(&self, name: &[u8]) -> Result<(Option<NodeRef>, Attributes)> {
        let inode = self.volume().names.lookup(self.inode(), name)?;
        let attributes = self.nodes.attributes(&inode)?;
        let is_directory = inode.kind() == FileKind::Directory;
        let node = if is_directory { Some(self.nodes.acquire(inode)?) } else { None };
        Ok((node, attributes))
    }

    /// Make a file, directory or node in this directory.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists), [`StorageFull`](crate::ErrorKind::StorageFull),
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn create(&self, name: &[u8], spec: &NodeSpec) -> Result<NodeRef> {
        self.nodes.create(self.inode(), name, spec)
    }

    /// Make a regular file without a name, beside the files of this directory (`O_TMPFILE`). [`Self::link`] may give it a name; it goes
    /// with its last use otherwise, or in recovery after a crash.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_nameless(&self, spec: &NodeSpec) -> Result<NodeRef> {
        self.nodes.create_nameless(self.inode(), spec)
    }

    /// Make a symbolic link in this directory.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<NodeRef> {
        let make = |volume: &Volume| volume.names.symlink(self.inode(), name, target, owner);
        self.nodes.acquire(self.nodes.with_space(make)?)
    }

    /// The target of this symbolic link.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is no symbolic link; the device or the volume failed.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind() != FileKind::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        Ok(self.volume().names.read_link(self.inode())?)
    }

    /// Give `original` another name, in this directory.
    ///
    /// # Errors
    /// As [`Self::create`]; [`PermissionDenied`](crate::ErrorKind::PermissionDenied) if `original` is a directory.
    pub fn link(&self, original: &NodeRef, name: &[u8]) -> Result<()> {
        self.nodes.with_space(|volume| volume.names.link(original.inode(), self.inode(), name))
    }

    /// Remove a name of anything but a directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`IsADirectory`](crate::ErrorKind::IsADirectory),
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.nodes.unlink(self.inode(), name)
    }

    /// Remove an empty directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`NotADirectory`](crate::ErrorKind::NotADirectory),
    /// [`DirectoryNotEmpty`](crate::ErrorKind::DirectoryNotEmpty), [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn remove_directory(&self, name: &[u8]) -> Result<()> {
        Ok(self.volume().names.remove_directory(self.inode(), name)?)
    }

    /// Rename from this directory to another.
    ///
    /// # Errors
    /// As [`Filesystem::rename_with`](crate::Filesystem::rename_with).
    pub fn rename(&self, name: &[u8], to: &NodeRef, to_name: &[u8], mode: RenameMode) -> Result<()> {
        self.nodes.rename((self.inode(), name), (to.inode(), to_name), mode)
    }

    /// Entries from `cursor` on (0: the first), `.` and `..` included, until `each` returns `false`.
    ///
    /// # Errors
    /// [`NotADirectory`](crate::ErrorKind::NotADirectory); the device or the volume failed.
    pub fn read_directory(&self, cursor: u64, each: &mut dyn FnMut(&DirectoryEntry) -> bool) -> Result<()> {
        if self.kind() != FileKind::Directory {
            return Err(diorite_ext::Error::NotADirectory.into());
        }
        Ok(self.volume().names.read_directory(self.inode(), cursor, each)?)
    }

    /// The version of this directory's names. While it is the same, an earlier listing is valid.
    pub fn names_version(&self) -> NamesVersion {
        self.inode().names_version()
    }

    /// Fill `batch` with entries from `cursor` on; it is empty at the end.
    pub(crate) fn list_batch(&self, cursor: u64, batch: &mut EntryBatch) -> Result<()> {
        Ok(self.volume().names.list_directory(self.inode(), cursor, batch)?)
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`NoAttribute`](crate::ErrorKind::NoAttribute); the device or the volume failed.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.volume().xattrs.get(self.inode(), name)?)
    }

    /// Names of all extended attributes.
    ///
    /// # Errors
    /// The device or the volume failed.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.volume().xattrs.names(self.inode())?)
    }

    /// Set an extended attribute.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists) or [`NoAttribute`](crate::ErrorKind::NoAttribute) as `mode` says; the volume cannot
    /// hold the attribute, is full or read-only; the device failed.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.nodes.with_space(|volume| volume.set_xattr(self.inode(), name, value, mode))
    }

    /// Remove an extended attribute.
    ///
    /// # Errors
    /// [`NoAttribute`](crate::ErrorKind::NoAttribute), [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.nodes.with_space(|volume| volume.remove_xattr(self.inode(), name))
    }

    /// Make a file or directory durable.
    ///
    /// # Errors
    /// As [`File::sync_all`](crate::File::sync_all).
    pub fn sync(&self) -> Result<()> {
        match self.node.content() {
            Some(content) => content.sync(SyncKind::All),
            None => Ok(self.volume().sync_inode(self.inode(), diorite_ext::SyncKind::All)?),
        }
    }
}

impl FileOwner for NodeRef {
    fn attributes(&self) -> Result<Attributes> {
        NodeRef::attributes(self)
    }

    fn is_append_only(&self) -> bool {
        self.inode().attributes().is_append_only()
    }

    fn check_range_change(&self) -> Result<()> {
        Ok(self.volume().check_range_change(self.inode())?)
    }

    fn direct_io(&self, wanted: DirectIo) -> Result<DirectIo> {
        // Not on a file whose data goes through the journal.
        if wanted == DirectIo::Off || !self.volume().files.wants_journalled_data(self.inode()) {
            return Ok(wanted);
        }
        if wanted == DirectIo::Preferred {
            return Ok(DirectIo::Off);
        }
        Err(Error::DirectRefused(
            "the file's data goes through the journal (data=journal, or chattr +j)".to_owned(),
        ))
    }
}
