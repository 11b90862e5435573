//! Extended attributes; names with their prefix, as in `user.comment`.
//!
//! Attributes are in the inode where they fit, then in one block, which several inodes may share; a large value can
//! be in an inode of its own (`ea_inode`). Every change writes the areas that it touches anew from the list of what
//! they hold.
//!
//! - `areas`: the lists, their space, and their bytes
//! - `acl`: access control lists in their two forms
//! - `values`: values in inodes of their own
//! - `store`: what a change does to inode, block and shared block

mod acl;
mod areas;
mod store;
mod values;

use std::sync::Arc;

use crate::file::Files;
use crate::inode::{InodeState, InodeStore};
use crate::layout::xattr::{full_name, split_name};
use crate::layout::{Incompat, InodeFlags};
use crate::map::Mappings;
use crate::transaction::{Handle, finish};
use crate::volume::Core;
use crate::{Corrupt, Error, FileKind, Inode, Result, Volume, XattrMode};

pub(crate) use store::{AttributeChange, CHANGE_CREDITS};

use areas::{Areas, Attribute};
pub(crate) use values::value_inodes;

/// Bytes of the longest value.
const VALUE_MAX: usize = 65536;
/// Namespace `user.`.
const USER: u8 = 1;
/// Access control lists of the inode, and of what is made in a directory.
const ACL_ACCESS: u8 = 2;
const ACL_DEFAULT: u8 = 3;
/// Namespaces `trusted.` and `security.`.
const TRUSTED: u8 = 4;
const SECURITY: u8 = 6;

/// The error for an attribute area of an inode that does not fit together.
fn corrupt(inode: &Inode, what: &'static str) -> Error {
    Corrupt::Xattr { inode: inode.number(), what }.into()
}

/// Split a name that users may use.
fn check_name(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.len() > 255 {
        return Err(Error::NameTooLong);
    }
    if name.contains(&0) {
        return Err(Error::InvalidArgument("the name of an attribute cannot have a zero byte in it"));
    }
    let (index, rest) = split_name(name);
    match index {
        USER | ACL_ACCESS | ACL_DEFAULT | TRUSTED | SECURITY => Ok((index, rest)),
        _ if matches!(name, b"user." | b"trusted." | b"security.") => {
            Err(Error::InvalidArgument("the name of an attribute is more than its prefix"))
        }
        _ => {
            Err(Error::Unsupported("attributes are called user., trusted., security. or system.posix_acl_*"))
        }
    }
}

/// The attributes of a volume's inodes.
#[derive(Debug)]
pub struct Xattrs {
    core: Arc<Core>,
    maps: Arc<Mappings>,
    inodes: Arc<InodeStore>,
    files: Arc<Files>,
}

impl Volume {
    /// Set an attribute.
    pub fn set_xattr(&self, inode: &Inode, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (index, rest) = check_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Error::AttributeTooLarge);
        }
        self.core.check_writable()?;
        let mut state = inode.write_in_use()?;
        check_may_change(inode, &state, index)?;
        let mut permissions = None;
        let acl;
        let value = match index {
            ACL_DEFAULT if inode.kind() != FileKind::Directory => {
                return Err(Error::InvalidArgument("only a directory has a default access control list"));
            }
            ACL_ACCESS | ACL_DEFAULT if acl::is_empty_in_linux(value) => {
                return self.change_attribute(inode, &mut state, (index, rest), None, XattrMode::Set, None);
            }
            ACL_ACCESS | ACL_DEFAULT => {
                let list = acl::Acl::from_linux(value).map_err(Error::InvalidArgument)?;
                if index == ACL_ACCESS {
                    permissions = Some(list.permissions());
                }
                acl = (index == ACL_DEFAULT || !list.is_minimal()).then(|| list.to_disk());
                acl.as_deref()
            }
            _ => Some(value),
        };
        self.change_attribute(inode, &mut state, (index, rest), value, mode, permissions)
    }

    /// Remove an attribute.
    pub fn remove_xattr(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        let (index, rest) = check_name(name)?;
        self.core.check_writable()?;
        let mut state = inode.write_in_use()?;
        check_may_change(inode, &state, index)?;
        // As on Linux, a list that is not there can be removed.
        let is_list = matches!(index, ACL_ACCESS | ACL_DEFAULT);
        let mode = if is_list { XattrMode::Set } else { XattrMode::Replace };
        self.change_attribute(inode, &mut state, (index, rest), None, mode, None)
    }

    /// Set an attribute, or remove it (`value` is `None`), and set the permission bits that go with it.
    fn change_attribute(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        (index, name): (u8, &[u8]),
        value: Option<&[u8]>,
        mode: XattrMode,
        permissions: Option<u16>,
    ) -> Result<()> {
        let change = self.xattrs.plan_attribute(inode, state, (index, name), value, mode)?;
        let mut handle = self.core.begin(change.credits)?;
        let mut unused = Vec::new();
        let result =
            self.xattrs.apply_attribute(&mut handle.on(inode, state), change, &mut unused).and_then(|()| {
                if let Some(permissions) = permissions {
                    state.permissions = state.permissions & !0o777 | permissions;
                }
                state.changed = self.core.now();
                self.files.store(&mut handle, inode, state)
            });
        let result = finish(handle, result);
        for inode in unused {
            self.lifecycle.release_if_unused(&inode)?;
        }
        result
    }
}

impl Xattrs {
    pub(crate) fn new(files: Arc<Files>) -> Self {
        Self { core: files.core.clone(), maps: files.maps.clone(), inodes: files.inodes.clone(), files }
    }

    /// An attribute's value.
    pub fn get(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = check_name(name)?;
        let state = inode.read_in_use()?;
        let areas = Areas::load(&self.inodes, inode, &state)?;
        let attribute = areas.find(index, rest).ok_or(Error::NoAttribute)?;
        let value = self.value_of(inode, attribute)?;
        if matches!(index, ACL_ACCESS | ACL_DEFAULT) {
            return acl::to_linux(&value).map_err(|what| corrupt(inode, what));
        }
        Ok(value)
    }

    /// All names.
    pub fn names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let state = inode.read_in_use()?;
        let areas = Areas::load(&self.inodes, inode, &state)?;
        let shown = |attribute: &&Attribute| {
            matches!(attribute.index, USER | ACL_ACCESS | ACL_DEFAULT | TRUSTED | SECURITY)
        };
        Ok(areas.all().filter(shown).filter_map(|a| full_name(a.index, &a.name)).collect())
    }

    /// The change of the access control list that belongs to a change of the permission bits; `None` where there is no list.
    pub(crate) fn plan_chmod(
        &self,
        inode: &Inode,
        state: &InodeState,
        permissions: u16,
    ) -> Result<Option<AttributeChange>> {
        let areas = Areas::load(&self.inodes, inode, state)?;
        let Some(access) = areas.find(ACL_ACCESS, b"") else { return Ok(None) };
        let bytes = self.value_of(inode, access)?;
        let list = acl::Acl::from_disk(&bytes).map_err(|what| corrupt(inode, what))?;
        let changed = list.with_permissions(permissions).to_disk();
        if changed == bytes {
            return Ok(None);
        }
        self.plan_attribute(inode, state, (ACL_ACCESS, b""), Some(&changed), XattrMode::Replace).map(Some)
    }

    /// Give a new inode the access control lists that its directory has for what is made in it, or where there is none, take `umask`
    /// from its permissions. Both are locked; the caller stores the new inode.
    pub(crate) fn inherit_acl(
        &self,
        handle: &mut Handle<'_>,
        directory: (&Inode, &InodeState),
        inode: &Inode,
        state: &mut InodeState,
        umask: u16,
    ) -> Result<()> {
        if inode.kind() == FileKind::Symlink {
            return Ok(());
        }
        let areas = Areas::load(&self.inodes, directory.0, directory.1)?;
        let Some(default) = areas.find(ACL_DEFAULT, b"") else {
            state.permissions &= !(umask & 0o777);
            return Ok(());
        };
        let bytes = self.value_of(directory.0, default)?;
        let default = acl::Acl::from_disk(&bytes).map_err(|what| corrupt(directory.0, what))?;
        let access = default.inherited(state.permissions);
        let before = Areas::load(&self.inodes, inode, state)?;
        let mut after = before.clone();
        let mut add = |index, list: &acl::Acl| {
            let value = areas::Value::Bytes(list.to_disk());
            let fits = after.insert(Attribute { index, name: Vec::new(), value });
            if fits { Ok(()) } else { Err(Error::AttributeTooLarge) }
        };
        if inode.kind() == FileKind::Directory {
            add(ACL_DEFAULT, &default)?;
        }
        if !access.is_minimal() {
            add(ACL_ACCESS, &access)?;
        }
        state.permissions = state.permissions & !0o777 | access.permissions();
        self.store_areas(&mut handle.on(inode, state), &before, &after).map(drop)
    }

    /// Whether values may be in inodes of their own.
    pub(crate) fn has_value_inodes(&self) -> bool {
        self.core.features().has_incompat(Incompat::EA_INODE)
    }
}

fn check_may_change(inode: &Inode, state: &InodeState, index: u8) -> Result<()> {
    let flags = InodeFlags::from_bits_retain(state.flags);
    if flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted("immutable"));
    }
    if flags.contains(InodeFlags::APPEND) {
        return Err(Error::NotPermitted("append-only"));
    }
    if index == USER && !matches!(inode.kind(), FileKind::Regular | FileKind::Directory) {
        return Err(Error::NotPermitted("as neither file nor directory, which alone have user attributes"));
    }
    if matches!(index, ACL_ACCESS | ACL_DEFAULT) && inode.kind() == FileKind::Symlink {
        return Err(Error::Unsupported("a symbolic link has no access control list"));
    }
    Ok(())
}
