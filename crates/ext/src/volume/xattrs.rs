//! Setting and removing extended attributes, with the permission bits that go with an access control list.

use crate::base::finish;
use crate::inode::InodeState;
use crate::xattr::{ACL_ACCESS, ACL_DEFAULT, VALUE_MAX, acl, check_may_change, check_name};
use crate::{Error, FileKind, Inode, Result, Volume, XattrMode};

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
                    state.mode = state.mode & !0o777 | permissions;
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
