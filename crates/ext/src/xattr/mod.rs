//! Extended attributes; names with their prefix, as in `user.comment`.
//!
//! Attributes are in the inode where they fit, then in one block, which several inodes may share; a large value can
//! be in an inode of its own (`ea_inode`). Every change writes the areas that it touches anew from the list of what
//! they hold.
//!
//! - `areas`: the lists, their space, and their bytes
//! - `acl`: access control lists in their two forms
//! - `values`: values in inodes of their own
//! - `store`: effects of a change on inode, block and shared block

pub(crate) mod acl;
mod store;
mod values;

use std::sync::Arc;

use crate::attribute_areas::{Areas, Attribute, Value, corrupt};
use crate::base::{Core, Handle};
use crate::file::Files;
use crate::inode::InodeState;
use crate::inodes::InodeStore;
use crate::layout::xattr::{full_name, split_name};
use crate::layout::{Incompat, InodeFlags};
use crate::map::Mappings;
use crate::{Error, FileKind, Inode, Result, XattrMode};

pub(crate) use store::{AttributeChange, CHANGE_CREDITS};

/// Bytes of the longest value.
pub(crate) const VALUE_MAX: usize = 65536;
/// Namespace `user.`.
const USER: u8 = 1;
/// Access control lists of an inode, and the default one of a directory.
pub(crate) const ACL_ACCESS: u8 = 2;
pub(crate) const ACL_DEFAULT: u8 = 3;
/// Namespaces `trusted.` and `security.`.
const TRUSTED: u8 = 4;
const SECURITY: u8 = 6;

/// Split a name that users may use.
pub(crate) fn check_name(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.len() > 255 {
        return Err(Error::NameTooLong);
    }
    if name.contains(&0) {
        return Err(Error::InvalidArgument("the name of an attribute cannot contain a zero byte"));
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

    /// The change of the access control list that belongs to a change of the permission bits; `None` if there is no list.
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

    /// Give a new inode the access control lists that its directory has for what is made in it, or if there is none, take `umask`
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
            state.mode &= !(umask & 0o777);
            return Ok(());
        };
        let bytes = self.value_of(directory.0, default)?;
        let default = acl::Acl::from_disk(&bytes).map_err(|what| corrupt(directory.0, what))?;
        let access = default.inherited(state.mode);
        let before = Areas::load(&self.inodes, inode, state)?;
        let mut after = before.clone();
        let mut add = |index, list: &acl::Acl| {
            let value = Value::Bytes(list.to_disk());
            let fits = after.insert(Attribute { index, name: Vec::new(), value });
            if fits { Ok(()) } else { Err(Error::AttributeTooLarge) }
        };
        if inode.kind() == FileKind::Directory {
            add(ACL_DEFAULT, &default)?;
        }
        if !access.is_minimal() {
            add(ACL_ACCESS, &access)?;
        }
        state.mode = state.mode & !0o777 | access.permissions();
        self.store_areas(&mut handle.on(inode, state), &before, &after).map(drop)
    }

    /// Whether values may be in inodes of their own.
    pub(crate) fn has_value_inodes(&self) -> bool {
        self.core.features().has_incompat(Incompat::EA_INODE)
    }
}

pub(crate) fn check_may_change(inode: &Inode, state: &InodeState, index: u8) -> Result<()> {
    let flags = state.flags;
    if flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted("immutable"));
    }
    if flags.contains(InodeFlags::APPEND) {
        return Err(Error::NotPermitted("append-only"));
    }
    if index == USER && !matches!(inode.kind(), FileKind::Regular | FileKind::Directory) {
        return Err(Error::NotPermitted(
            "neither a regular file nor a directory, and no other kind has user attributes",
        ));
    }
    if matches!(index, ACL_ACCESS | ACL_DEFAULT) && inode.kind() == FileKind::Symlink {
        return Err(Error::Unsupported("a symbolic link has no access control list"));
    }
    Ok(())
}
