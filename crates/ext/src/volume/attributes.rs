//! Changes of attributes: `chmod`, `chown`, `utimes` and `chattr`.

use crate::base::finish;
use crate::file::RESIZE_CREDITS;
use crate::inode::{Inode, InodeState, STORE_CREDITS, SetAttributes};
use crate::layout::{InodeFlags, RoCompat};
use crate::{Error, FileKind, Owner, Result, Volume};

/// Where the project ends, counted from byte 128 of an inode.
const PROJECT_END: usize = 32;

impl Volume {
    /// Change attributes. All changes are in the first transaction; only giving up the blocks of a file that gets shorter may take more.
    pub fn set_attributes(&self, inode: &Inode, changes: &SetAttributes) -> Result<()> {
        if let Some(size) = changes.size {
            self.files.prepare_resize(inode, size)?;
        }
        let mut state = inode.write_in_use()?;
        let permissions = changes.permissions.or_else(|| changes.privileges_cleared(inode, &state));
        self.check_changes(inode, &state, changes)?;
        let owner = Owner {
            uid: changes.uid.unwrap_or(state.owner.uid),
            gid: changes.gid.unwrap_or(state.owner.gid),
        };
        let project = changes.project.unwrap_or(state.project);
        if let Some(charged) = state.charged {
            self.quotas.check_moved(charged, owner, project)?;
        }
        self.quotas.prepare(owner, project)?;
        let list = match permissions {
            Some(permissions) => self.xattrs.plan_chmod(inode, &state, permissions)?,
            None => None,
        };
        let resizes = if changes.size.is_some() { RESIZE_CREDITS } else { 0 };
        let credits = STORE_CREDITS + resizes + list.as_ref().map_or(0, |list| list.credits);
        let mut handle = self.core.begin(credits)?;
        let mut unused = Vec::new();
        let result = match list {
            Some(list) => self.xattrs.apply_attribute(&mut handle.on(inode, &mut state), list, &mut unused),
            None => Ok(()),
        };
        let result = match (result, changes.size) {
            (Ok(()), Some(size)) => {
                (state.owner, state.project) = (owner, project);
                state.change(changes, permissions, self.core.now());
                self.files.resize(&mut handle, inode, &mut state, size)?;
                handle.commit().map(drop)
            }
            (Ok(()), None) => {
                (state.owner, state.project) = (owner, project);
                state.change(changes, permissions, self.core.now());
                let stored = self.files.store(&mut handle, inode, &mut state);
                finish(handle, stored)
            }
            (Err(error), _) => finish(handle, Err(error)),
        };
        drop(state);
        unused.iter().try_for_each(|inode| self.lifecycle.release_if_unused(inode))?;
        result
    }

    /// Refuse changes that the inode's flags, its kind or the volume do not allow.
    fn check_changes(&self, inode: &Inode, state: &InodeState, changes: &SetAttributes) -> Result<()> {
        let flags = state.flags;
        if let Some(wanted) = changes.flags {
            check_flags(inode.kind(), flags, InodeFlags::from_bits_retain(wanted))?;
        }
        if changes.flags.is_none() && !changes.are_allowed(flags) {
            return Err(Error::NotPermitted("immutable or append-only"));
        }
        if changes.change_what_stays_immutable(state) {
            return Err(Error::NotPermitted("immutable"));
        }
        if let Some(size) = changes.size {
            self.files.check_resize(inode, state, size)?;
        }
        self.check_project(state, changes.project)?;
        self.check_folding(inode, state, changes.flags)
    }

    /// Record that the content was read now. Flags of the inode do not matter, and its change time stays.
    pub fn note_access(&self, inode: &Inode) -> Result<()> {
        self.core.check_writable()?;
        let mut state = inode.write_in_use()?;
        let mut handle = self.core.begin(STORE_CREDITS)?;
        state.accessed = self.core.now();
        let result = self.files.store(&mut handle, inode, &mut state);
        finish(handle, result)
    }

    /// Whether names ignore case is changed in empty directories only, of volumes that know of it.
    fn check_folding(&self, inode: &Inode, state: &InodeState, flags: Option<u32>) -> Result<()> {
        let changes = flags.is_some_and(|flags| {
            (InodeFlags::from_bits_retain(flags) ^ state.flags).contains(InodeFlags::CASEFOLD)
        });
        if !changes {
            return Ok(());
        }
        if self.core.format.encoding().is_none() {
            return Err(Error::Unsupported("the volume has no names that ignore case (feature `casefold`)"));
        }
        if self.names.is_empty_directory(inode, state)? { Ok(()) } else { Err(Error::NotEmpty) }
    }

    /// Refuse a project that the volume or the inode cannot hold.
    fn check_project(&self, state: &InodeState, project: Option<u32>) -> Result<()> {
        if project.is_none_or(|project| project == state.project) {
            return Ok(());
        }
        if !self.core.features().has_ro_compat(RoCompat::PROJECT) {
            return Err(Error::Unsupported("the volume has no projects (feature `project`)"));
        }
        if usize::from(state.extra_isize) < PROJECT_END {
            return Err(Error::Unsupported(
                "this inode is too small to belong to a project: copy the file, or make the volume with -I 256",
            ));
        }
        Ok(())
    }
}

/// Refuse flags that an inode of this kind cannot have, as ext4 does. Flags that it already has are accepted.
fn check_flags(kind: FileKind, now: InodeFlags, wanted: InodeFlags) -> Result<()> {
    let added = wanted - now;
    let is_possible = match kind {
        FileKind::Directory => true,
        FileKind::Regular => !added.intersects(InodeFlags::OF_DIRECTORIES),
        _ => {
            let others = added & InodeFlags::USER_SETTABLE;
            (others - (InodeFlags::NO_DUMP | InodeFlags::NO_ATIME)).is_empty()
        }
    };
    if !is_possible || !(added - InodeFlags::USER_KNOWN).is_empty() {
        return Err(Error::Unsupported("an inode of this kind cannot have these flags"));
    }
    let inline = if kind == FileKind::Directory { InodeFlags::INLINE_DATA } else { InodeFlags::empty() };
    let is_used_elsewhere = |flags: InodeFlags| flags.intersects(InodeFlags::NOT_IN_PLACE - inline);
    let has_dax = |flags: InodeFlags| flags.contains(InodeFlags::DAX);
    if has_dax(wanted) && is_used_elsewhere(now) || has_dax(now) && is_used_elsewhere(wanted) {
        return Err(Error::Unsupported("content of this file cannot be used in place (DAX)"));
    }
    Ok(())
}
