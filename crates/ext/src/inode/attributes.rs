//! Attributes: those that `stat` shows, and those that `chmod`, `chown`, `utimes` and `chattr` change.

use crate::inode::{Attributes, Inode, InodeState, SetAttributes};
use crate::layout::InodeFlags;
use crate::layout::inode::time_as_stored;
use crate::types::SetTime;
use crate::{Error, FileKind, Result, Timestamp};

/// Where the extra fields of times end, counted from byte 128 of an inode.
const CHANGED_EXTRA_END: u16 = 8;
const MODIFIED_EXTRA_END: u16 = 12;
const ACCESSED_EXTRA_END: u16 = 16;
const CREATED_EXTRA_END: u16 = 24;

/// Permission bits of a mode.
const PERMISSIONS: u16 = 0xfff;

/// Blocks that storing an inode joins: its table block, and the superblock if a flag must be set there.
pub(crate) const STORE_CREDITS: u32 = 2;

impl Inode {
    /// The attributes that `stat` shows.
    pub fn attributes(&self) -> Attributes {
        let state = self.state.read();
        Attributes {
            inode: self.number(),
            kind: self.kind(),
            permissions: state.mode & PERMISSIONS,
            links: state.links.into(),
            owner: state.owner,
            size: state.size,
            sectors: state.sectors,
            accessed: state.accessed,
            modified: state.modified,
            changed: state.changed,
            created: state.created,
            device: device_numbers(self.kind(), &state),
            flags: state.flags.bits(),
            generation: state.generation,
            project: state.project,
        }
    }

    /// The recorded size of the content.
    pub fn size(&self) -> u64 {
        self.state.read().size
    }

    /// A time as the inode can hold it: within its years, and in seconds if it is too small for more.
    pub fn time_as_stored(&self, time: Timestamp) -> Timestamp {
        time_as_stored(time, self.state.read().widened_extra >= MODIFIED_EXTRA_END)
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

/// The largest major and minor number that the block area holds.
const DEVICE_MAX: (u32, u32) = (0xfff, 0xf_ffff);

/// The first eight bytes of the block area for a device node.
pub(crate) fn encode_device((major, minor): (u32, u32)) -> Result<[u8; 8]> {
    if major > DEVICE_MAX.0 || minor > DEVICE_MAX.1 {
        return Err(Error::InvalidArgument(
            "a device has a major number up to 4095 and a minor up to 1048575",
        ));
    }
    let mut bytes = [0; 8];
    if major < 256 && minor < 256 {
        bytes[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
    } else {
        let new = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        bytes[4..].copy_from_slice(&new.to_le_bytes());
    }
    Ok(bytes)
}

impl SetAttributes {
    /// Whether the flags of an inode allow these changes; setting the flags themselves is another matter.
    pub(crate) fn are_allowed(&self, flags: InodeFlags) -> bool {
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
    pub(crate) fn change_what_stays_immutable(&self, state: &InodeState) -> bool {
        let Some(flags) = self.flags.map(InodeFlags::from_bits_retain) else { return false };
        let stays = (state.flags & flags).contains(InodeFlags::IMMUTABLE);
        let others = (state.flags ^ flags).intersects(InodeFlags::USER_SETTABLE);
        stays && (others || self.project.is_some_and(|project| project != state.project))
    }

    /// The permission bits that are left, where a change takes some.
    pub(crate) fn privileges_cleared(&self, inode: &Inode, state: &InodeState) -> Option<u16> {
        if !self.clear_privileges || inode.kind() == FileKind::Directory {
            return None;
        }
        let permissions = state.mode & PERMISSIONS;
        let set_group = if permissions & 0o010 != 0 { 0o2000 } else { 0 };
        let left = permissions & !(0o4000 | set_group);
        (left != permissions).then_some(left)
    }
}

impl InodeState {
    /// Round all times to the resolution of the inode, so that they do not change when it is read again.
    pub(crate) fn round_times(&mut self) {
        let extra_isize = self.extra_isize;
        let has = |end: u16| extra_isize >= end;
        self.changed = time_as_stored(self.changed, has(CHANGED_EXTRA_END));
        self.modified = time_as_stored(self.modified, has(MODIFIED_EXTRA_END));
        self.accessed = time_as_stored(self.accessed, has(ACCESSED_EXTRA_END));
        self.created = self.created.map(|time| time_as_stored(time, has(CREATED_EXTRA_END)));
    }

    /// Make the changes inside the inode, but for its owner and project.
    pub(crate) fn change(&mut self, changes: &SetAttributes, permissions: Option<u16>, now: Timestamp) {
        let time = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::Observed(time) | SetTime::To(time) => time,
        };
        if let Some(permissions) = permissions {
            self.mode = self.mode & !PERMISSIONS | permissions & PERMISSIONS;
        }
        if let Some(accessed) = changes.accessed {
            self.accessed = time(accessed);
        }
        if changes.modified.is_some() || changes.size.is_some() {
            self.modified = changes.modified.map_or(now, time);
        }
        if let Some(flags) = changes.flags {
            let settable = InodeFlags::USER_SETTABLE;
            self.flags = (self.flags - settable) | InodeFlags::from_bits_retain(flags) & settable;
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
