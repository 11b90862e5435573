//! What `stat` shows and `chmod`, `chown`, `utimes` and `chattr` change.

use crate::file::RESIZE_CREDITS;
use crate::inode::{Attributes, Inode, InodeState, SetAttributes, SetTime};
use crate::layout::inode::time_as_stored;
use crate::layout::{InodeFlags, RoCompat};
use crate::transaction::finish;
use crate::{Error, FileKind, Owner, Result, Timestamp, Volume};

/// Where the extra fields of times end, counted from byte 128 of an inode.
const CHANGED_EXTRA_END: u16 = 8;
const MODIFIED_EXTRA_END: u16 = 12;
const ACCESSED_EXTRA_END: u16 = 16;
const CREATED_EXTRA_END: u16 = 24;
/// Where the project ends, counted from byte 128 of an inode.
const PROJECT_END: usize = 32;

/// Blocks that storing an inode joins: its table block, and the superblock if a flag must be set there.
pub(crate) const STORE_CREDITS: u32 = 2;

impl Inode {
    /// The attributes that `stat` shows.
    pub fn attributes(&self) -> Attributes {
        let state = self.state.read();
        Attributes {
            inode: self.number(),
            kind: self.kind(),
            permissions: state.permissions,
            links: state.links,
            owner: state.owner,
            size: state.size,
            sectors: state.sectors,
            accessed: state.accessed,
            modified: state.modified,
            changed: state.changed,
            created: state.created,
            device: device_numbers(self.kind(), &state),
            flags: state.flags,
            generation: state.generation,
            project: state.project,
        }
    }

    /// The recorded size of the content.
    pub fn size(&self) -> u64 {
        self.state.read().size
    }

    /// A time as the inode can hold it: within its years, and in seconds where it is too small for more.
    pub fn time_as_stored(&self, time: Timestamp) -> Timestamp {
        time_as_stored(time, self.state.read().widened_extra >= MODIFIED_EXTRA_END)
    }
}

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

    /// Refuse what the flags of the inode, its kind or the volume do not allow.
    fn check_changes(&self, inode: &Inode, state: &InodeState, changes: &SetAttributes) -> Result<()> {
        let flags = InodeFlags::from_bits_retain(state.flags);
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

    /// Record that the content was read now. Neither flags of the inode nor its change time have to do with that.
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
        let changes = flags.is_some_and(|flags| (flags ^ state.flags) & InodeFlags::CASEFOLD.bits() != 0);
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

/// Refuse flags that an inode of this kind cannot have, as ext4 does. What it has already is no matter.
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

/// Major and minor number, which a device node has in place of a mapping: in the old form of 16 bits or the new of 32.
fn device_numbers(kind: FileKind, state: &InodeState) -> (u32, u32) {
    if !matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
        return (0, 0);
    }
    let old = crate::layout::le32(&state.block, 0);
    if old != 0 {
        return (old >> 8 & 0xff, old & 0xff);
    }
    let new = crate::layout::le32(&state.block, 4);
    ((new >> 8) & 0xfff, new & 0xff | (new >> 12) & 0xf_ff00)
}

/// The first eight bytes of the block area for a device node.
pub(super) fn encode_device(device: (u32, u32)) -> [u8; 8] {
    let (major, minor) = device;
    let mut bytes = [0; 8];
    if major < 256 && minor < 256 {
        bytes[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
    } else {
        let new = minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12;
        bytes[4..].copy_from_slice(&new.to_le_bytes());
    }
    bytes
}

impl SetAttributes {
    /// Whether the flags of an inode allow these changes; setting the flags themselves is another matter.
    fn are_allowed(&self, flags: InodeFlags) -> bool {
        let is_now = |time| matches!(time, Some(SetTime::Now | SetTime::Observed(_)));
        let rest = Self { accessed: None, modified: None, changed: None, clear_privileges: false, ..*self };
        let is_set = |time: Option<SetTime>| !matches!(time, None | Some(SetTime::Observed(_)));
        if rest != Self::default() || is_set(self.changed) {
            return !flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        }
        // As in the kernel: an append-only file can be touched. What happened is recorded on any.
        let is_touch = is_now(self.accessed) && is_now(self.modified);
        let is_record = !is_set(self.accessed) && !is_set(self.modified);
        is_record
            || !flags.contains(InodeFlags::IMMUTABLE) && (is_touch || !flags.contains(InodeFlags::APPEND))
    }

    /// Whether other flags or the project of an inode would change that is immutable and stays so.
    fn change_what_stays_immutable(&self, state: &InodeState) -> bool {
        let Some(flags) = self.flags else { return false };
        let stays = state.flags & flags & InodeFlags::IMMUTABLE.bits() != 0;
        let others = (state.flags ^ flags) & InodeFlags::USER_SETTABLE.bits() != 0;
        stays && (others || self.project.is_some_and(|project| project != state.project))
    }

    /// The permission bits that are left, where a change takes some.
    fn privileges_cleared(&self, inode: &Inode, state: &InodeState) -> Option<u16> {
        if !self.clear_privileges || inode.kind() == FileKind::Directory {
            return None;
        }
        let set_group = if state.permissions & 0o010 != 0 { 0o2000 } else { 0 };
        let left = state.permissions & !(0o4000 | set_group);
        (left != state.permissions).then_some(left)
    }
}

impl InodeState {
    /// Round all times to what the inode can hold, so that they do not change when it is read again.
    pub(super) fn round_times(&mut self) {
        let has = |end: u16| self.extra_isize >= end;
        self.changed = time_as_stored(self.changed, has(CHANGED_EXTRA_END));
        self.modified = time_as_stored(self.modified, has(MODIFIED_EXTRA_END));
        self.accessed = time_as_stored(self.accessed, has(ACCESSED_EXTRA_END));
        self.created = self.created.map(|time| time_as_stored(time, has(CREATED_EXTRA_END)));
    }

    /// Make the changes that are of the inode alone, but for its owner and project.
    fn change(&mut self, changes: &SetAttributes, permissions: Option<u16>, now: Timestamp) {
        let time = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::Observed(time) | SetTime::To(time) => time,
        };
        if let Some(permissions) = permissions {
            self.permissions = permissions & 0xfff;
        }
        if let Some(accessed) = changes.accessed {
            self.accessed = time(accessed);
        }
        if changes.modified.is_some() || changes.size.is_some() {
            self.modified = changes.modified.map_or(now, time);
        }
        if let Some(flags) = changes.flags {
            let settable = InodeFlags::USER_SETTABLE.bits();
            self.flags = self.flags & !settable | flags & settable;
        }
        self.changed = changes.changed.map_or(now, time);
    }

    /// Set the change time, and the modification time too if the content changed.
    pub(crate) fn touch(&mut self, now: Timestamp, modified: bool) {
        self.changed = now;
        if modified {
            self.modified = now;
        }
    }
}
