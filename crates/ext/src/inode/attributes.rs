//! What `stat` shows and `chmod`, `chown`, `utimes` and `chattr` change.

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

    /// A time as the inode can hold it: within its years, and in seconds where it is too small for more.
    pub fn time_as_stored(&self, time: Timestamp) -> Timestamp {
        time_as_stored(time, self.state.read().extra_isize >= MODIFIED_EXTRA_END)
    }
}

impl Volume {
    /// Change attributes.
    pub fn set_attributes(&self, inode: &Inode, changes: &SetAttributes) -> Result<()> {
        let mut state = inode.write_in_use()?;
        let flags = InodeFlags::from_bits_retain(state.flags);
        // As in the kernel: an append-only file can be touched.
        let is_frozen = flags.contains(InodeFlags::IMMUTABLE)
            || flags.contains(InodeFlags::APPEND) && !changes.is_touch();
        if changes.flags.is_none() && is_frozen {
            return Err(Error::NotPermitted("immutable or append-only"));
        }
        self.check_project(&state, changes.project)?;
        self.check_folding(inode, &state, changes.flags)?;
        let owner = Owner {
            uid: changes.uid.unwrap_or(state.owner.uid),
            gid: changes.gid.unwrap_or(state.owner.gid),
        };
        let project = changes.project.unwrap_or(state.project);
        if let Some(charged) = state.charged {
            self.quotas.check_moved(charged, owner, project)?;
        }
        self.quotas.prepare(owner, project)?;
        let now = self.core.now();
        let time = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        let list = match changes.permissions {
            Some(permissions) => self.xattrs.plan_chmod(inode, &state, permissions)?,
            None => None,
        };
        let mut handle = self.core.begin(STORE_CREDITS + list.as_ref().map_or(0, |list| list.credits))?;
        let mut unused = Vec::new();
        let changed = match list {
            Some(list) => self.xattrs.apply_attribute(&mut handle.on(inode, &mut state), list, &mut unused),
            None => Ok(()),
        };
        let result = changed.and_then(|()| {
            (state.owner, state.project) = (owner, project);
            if let Some(permissions) = changes.permissions {
                state.permissions = permissions & 0xfff;
            }
            if let Some(accessed) = changes.accessed {
                state.accessed = time(accessed);
            }
            if let Some(modified) = changes.modified {
                state.modified = time(modified);
            }
            if let Some(flags) = changes.flags {
                let settable = InodeFlags::USER_SETTABLE.bits();
                state.flags = state.flags & !settable | flags & settable;
            }
            state.changed = changes.changed.map_or(now, time);
            self.files.store(&mut handle, inode, &mut state)
        });
        let result = finish(handle, result);
        unused.iter().try_for_each(|inode| self.lifecycle.release_if_unused(inode))?;
        result
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
        if inode.kind() != FileKind::Directory {
            return Err(Error::NotADirectory);
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
    /// Whether both times are set to now, and nothing else.
    fn is_touch(&self) -> bool {
        let now = Some(SetTime::Now);
        *self == Self { accessed: now, modified: now, ..Self::default() }
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

    /// Set the change time, and the modification time too if the content changed.
    pub(crate) fn touch(&mut self, now: Timestamp, modified: bool) {
        self.changed = now;
        if modified {
            self.modified = now;
        }
    }
}
