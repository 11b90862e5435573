//! Names: looked up, made, removed, renamed.

use diorite::{InodeNumber, NodeRef, NodeSpec, RenameMode, Result};

use super::{Caller, Entry, LiveSettings, Operations};

impl Operations {
    /// The inode of a name.
    ///
    /// # Errors
    /// As [`NodeRef::lookup`].
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Entry> {
        let directory = self.node(directory)?;
        // An NFS server finds an inode, and its directory, so.
        let node = if name == b"." { directory } else { directory.lookup(name)? };
        self.view.entry(node)
    }

    /// Make a file, directory or node.
    ///
    /// # Errors
    /// As [`NodeRef::create`].
    pub fn create(&self, directory: InodeNumber, name: &[u8], new: &NodeSpec) -> Result<Entry> {
        let directory = self.node(directory)?;
        let node = directory.create(name, new)?;
        self.names_changed(&[&directory])?;
        self.view.entry(node)
    }

    /// Make a file without a name (`O_TMPFILE`): [`Self::link`] may give it one, otherwise it goes when it is closed and forgotten.
    ///
    /// # Errors
    /// As [`NodeRef::create_nameless`].
    pub fn create_nameless(&self, directory: InodeNumber, new: &NodeSpec) -> Result<Entry> {
        self.view.entry(self.node(directory)?.create_nameless(new)?)
    }

    /// Make a symbolic link.
    ///
    /// # Errors
    /// As [`NodeRef::symlink`].
    pub fn symlink(
        &self,
        directory: InodeNumber,
        name: &[u8],
        target: &[u8],
        caller: &Caller,
    ) -> Result<Entry> {
        let directory = self.node(directory)?;
        let node = directory.symlink(name, target, caller.owner()?)?;
        self.names_changed(&[&directory])?;
        self.view.entry(node)
    }

    /// Give a file another name.
    ///
    /// # Errors
    /// As [`NodeRef::link`].
    pub fn link(&self, original: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<Entry> {
        let (original, directory) = (self.node(original)?, self.node(directory)?);
        directory.link(&original, name)?;
        self.view.clients.release_named(original.number());
        self.names_changed(&[&directory])?;
        self.view.entry(original)
    }

    /// Remove a name of anything but a directory.
    ///
    /// # Errors
    /// As [`NodeRef::unlink`].
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let directory = self.node(directory)?;
        let removed = directory.lookup(name)?;
        let done = directory.unlink(name);
        self.names_removed(done, Some(&removed), &[&directory])
    }

    /// Remove an empty directory.
    ///
    /// # Errors
    /// As [`NodeRef::remove_directory`].
    pub fn remove_directory(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let directory = self.node(directory)?;
        let removed = match name {
            b"." | b".." => None,
            name => Some(directory.lookup(name)?),
        };
        let done = directory.remove_directory(name);
        self.names_removed(done, removed.as_ref(), &[&directory])
    }

    /// Rename.
    ///
    /// # Errors
    /// As [`NodeRef::rename`].
    pub fn rename(
        &self,
        (from, name): (InodeNumber, &[u8]),
        (to, to_name): (InodeNumber, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let replaced = match to.lookup(to_name) {
            Ok(node) => Some(node),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let done = from.rename(name, &to, to_name, mode);
        self.names_removed(done, replaced.as_ref(), &[&from, &to])
    }

    /// A name was removed from directories, perhaps the last of its inode. If that failed, it may have failed late, after the removal.
    fn names_removed(
        &self,
        done: Result<()>,
        removed: Option<&NodeRef>,
        directories: &[&NodeRef],
    ) -> Result<()> {
        if let Some(node) = removed
            && node.attributes()?.links == 0
        {
            self.view.clients.hold_nameless(node);
        }
        done.and_then(|()| self.names_changed(directories))
    }

    /// Names of directories have changed: durable before the reply if the volume is mounted so, or a directory has that flag.
    fn names_changed(&self, directories: &[&NodeRef]) -> Result<()> {
        let LiveSettings { sync, dir_sync, .. } = self.view.live();
        let is_synchronous = sync || dir_sync;
        for directory in directories {
            if is_synchronous || directory.attributes()?.has_synchronous_names() {
                directory.sync()?;
            }
        }
        Ok(())
    }
}
