//! Inodes: attributes, extended attributes, flags.

use diorite::{Attributes, InodeNumber, Result, SetAttributes, SetTime, Timestamp, XattrMode};

use super::files::is_written_through;
use super::{Caller, Entry, Operations, must_be_ids, not_permitted};

/// The extended attribute that is the access control list of a file or directory.
pub(crate) const XATTR_ACCESS_LIST: &[u8] = b"system.posix_acl_access";

const XATTR_CAPABILITY: &[u8] = b"security.capability";

impl Operations {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// As [`Operations::node`].
    pub fn attributes(&self, number: InodeNumber) -> Result<Attributes> {
        Ok(self.found(number)?.attributes)
    }

    /// The inode of that number with its attributes. Its number is given to no other inode while the entry is kept.
    ///
    /// # Errors
    /// As [`Operations::node`].
    pub fn found(&self, number: InodeNumber) -> Result<Entry> {
        self.view.entry(self.node(number)?)
    }

    /// Change attributes, all or none. Returns the new attributes. A change of owner clears the privileges of a file.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::set_attributes`]; `EINVAL` for an owner that is no user or no group.
    pub fn set_attributes(&self, number: InodeNumber, changes: &SetAttributes) -> Result<Attributes> {
        must_be_ids([changes.uid, changes.gid])?;
        let node = self.node(number)?;
        let now = node.attributes()?;
        if is_end_of_inode(&now, changes) {
            return Ok(self.view.entry(node)?.attributes);
        }
        if *changes != SetAttributes::default() {
            node.set_attributes(&not_older(&now, changes))?;
        }
        self.view.inode_changed(&node)?;
        Ok(self.view.entry(node)?.attributes)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::read_link`].
    pub fn read_link(&self, number: InodeNumber) -> Result<Vec<u8>> {
        let node = self.node(number)?;
        self.view.note_access(&node)?;
        node.read_link()
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::xattr`].
    pub fn xattr(&self, number: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.node(number)?.xattr(name)
    }

    /// Names of the extended attributes that the caller may see: `trusted.` is for the superuser.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::xattr_names`].
    pub fn xattr_names(&self, number: InodeNumber, caller: &Caller) -> Result<Vec<Vec<u8>>> {
        let mut names = self.node(number)?.xattr_names()?;
        names.retain(|name| caller.is_superuser() || !name.starts_with(b"trusted."));
        Ok(names)
    }

    /// Set an extended attribute. `clear_group_id`: the caller of an access control list is not in the file's group.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::set_xattr`].
    pub fn set_xattr(
        &self,
        number: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        clear_group_id: bool,
    ) -> Result<()> {
        let node = self.node(number)?;
        node.set_xattr(name, value, mode)?;
        if name == XATTR_CAPABILITY {
            self.view.note_capabilities();
        }
        if clear_group_id && name == XATTR_ACCESS_LIST {
            let permissions = node.attributes()?.permissions;
            let changes = SetAttributes { permissions: Some(permissions & !0o2000), ..Default::default() };
            node.set_attributes(&changes)?;
        }
        self.view.inode_changed(&node)
    }

    /// Remove an extended attribute.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::remove_xattr`].
    pub fn remove_xattr(&self, number: InodeNumber, name: &[u8]) -> Result<()> {
        let node = self.node(number)?;
        node.remove_xattr(name)?;
        self.view.inode_changed(&node)
    }

    /// Set the flags that users set, and the project.
    ///
    /// # Errors
    /// `EPERM`: only the superuser changes whether data goes through the log. As [`diorite::NodeRef::set_attributes`].
    pub fn set_flags(
        &self,
        number: InodeNumber,
        flags: Option<u32>,
        project: Option<u32>,
        caller: &Caller,
    ) -> Result<()> {
        const JOURNAL_DATA: u32 = 0x4000;
        let node = self.node(number)?;
        let now = node.attributes()?;
        let changes_journaling = flags.is_some_and(|flags| (flags ^ now.flags) & JOURNAL_DATA != 0);
        if changes_journaling && !caller.is_superuser() {
            return Err(not_permitted("only root can journal the data of a file (chattr +j)"));
        }
        let project = project.filter(|project| now.project != *project);
        node.set_attributes(&SetAttributes { flags, project, ..SetAttributes::default() })?;
        self.view.inode_changed(&node)
    }

    /// Make a file or directory durable.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::sync`].
    pub fn sync_node(&self, number: InodeNumber) -> Result<()> {
        self.node(number)?.sync()
    }
}

/// The changes, if a client keeps the times of a file: no time before the last write that it does not know ([`is_written_through`]).
fn not_older(now: &Attributes, changes: &SetAttributes) -> SetAttributes {
    if !is_written_through(now) {
        return *changes;
    }
    let newer = |set: Option<SetTime>, now: Timestamp| match set {
        Some(SetTime::Observed(time)) => Some(SetTime::Observed(time.max(now))),
        set => set,
    };
    let (modified, changed) = (newer(changes.modified, now.modified), newer(changes.changed, now.changed));
    SetAttributes { modified, changed, ..*changes }
}

/// Whether only the change time of an inode without names is set: that of the removal of its last name, which goes with the inode.
fn is_end_of_inode(now: &Attributes, changes: &SetAttributes) -> bool {
    let has_time = |set| matches!(set, SetTime::To(time) | SetTime::Observed(time) if time == now.modified);
    let is_only_time =
        SetAttributes { modified: None, changed: None, ..*changes } == SetAttributes::default();
    now.links == 0 && is_only_time && changes.changed.is_some() && changes.modified.is_none_or(has_time)
}
