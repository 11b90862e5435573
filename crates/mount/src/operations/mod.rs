//! The operations of a mounted filesystem: typed requests by inode number, with the caller's credentials and borrowed data.
//!
//! Where it sits: between a front end, which speaks a protocol, and the library. It translates; what it does not find in
//! [`diorite`] belongs there.
//!
//! Interface:
//! - An inode is known by its number and generation. A front end whose clients keep numbers (FUSE) counts them with
//!   [`Operations::retain`] and [`Operations::forget`]: an inode that loses its last name lives until it is forgotten and closed.
//! - Permission bits and access control lists are not checked here: the kernel does it for FUSE.
//! - Errors are the library's; [`diorite::Error::errno`] is what a front end sends.
//!
//! Locking: live settings are one word, so that each operation reads them together. Each table is in shards with a lock of their own, held for a look or a change of the table alone.

mod access_time;
mod directories;
mod files;
mod growing;
mod known;
mod names;
mod nodes;
pub(crate) mod permissions;
mod privileges;
mod ranges;
mod table;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diorite::{Attributes, Error, Filesystem, InodeNumber, NodeRef, Owner, ReservedBlocks, Result};

pub use access_time::AccessTimes;
pub use directories::Listed;
pub use files::{Closed, FileHandle, OpenFlags, Opened, Source, Whence, Written};
pub use growing::GrowingWrite;
pub use names::NewNode;
pub use nodes::FileFlags;
pub(crate) use nodes::XATTR_ACCESS_LIST;
pub use privileges::Privileges;
pub use ranges::{Allocation, IsOver};

use rustix::io::Errno;

use files::OpenFile;
use known::Known;
use privileges::SetIds;
use table::Table;

/// Files that clients may have open: as many as a process of Linux at most.
const OPEN_MAX: usize = 1 << 20;
/// How long a close waits for requests that are under way.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(60);

/// No user and no group has this number: to `chown(2)` it means that the owner stays.
pub const NO_ID: u32 = u32::MAX;

/// `EINVAL` if one of these is no user and no group.
fn must_be_ids(ids: [Option<u32>; 2]) -> Result<()> {
    let is_wrong = ids.contains(&Some(NO_ID));
    if is_wrong { Err(Error::InvalidArgument("4294967295 is no user and no group")) } else { Ok(()) }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, for the I/O scheduler; 0 if it is not known.
    pub pid: u32,
}

impl Caller {
    /// Whether the caller keeps set-user-ID and set-group-ID bits of what it changes (`CAP_FSETID`): the superuser.
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    fn set_ids(&self) -> SetIds {
        if self.is_superuser() { SetIds::Kept } else { SetIds::Cleared }
    }

    /// The owner of what the caller makes.
    ///
    /// # Errors
    /// `EINVAL`: it is no user, or in no group.
    pub(crate) fn owner(&self) -> Result<Owner> {
        must_be_ids([Some(self.uid), Some(self.gid)])?;
        Ok(Owner { uid: self.uid, gid: self.gid })
    }
}

/// An inode and what `stat` returns for it. The inode lives as long as this does, so that a front end can count it
/// ([`Operations::retain`]) before it can go.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The inode.
    pub node: NodeRef,
    /// What `stat` returns.
    pub attributes: Attributes,
}

/// How a volume is shown.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What may change later ([`Operations::set_live`]).
    pub live: LiveSettings,
    /// All files are owned by this user.
    pub uid: Option<u32>,
    /// All files are of this group.
    pub gid: Option<u32>,
    /// Permission bits that no file shows.
    pub umask: u16,
}

/// What of the settings may change while clients use the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub struct LiveSettings {
    /// Which reads record an access time.
    pub access_times: AccessTimes,
    /// Of directories no access time is recorded (`nodiratime`).
    pub no_directory_times: bool,
    /// An access time alone waits in memory.
    pub lazy_times: bool,
    /// A change of content is durable when it returns.
    pub sync: bool,
    /// A change of names is durable when it returns.
    pub dir_sync: bool,
}

impl LiveSettings {
    const ACCESS_TIMES: [AccessTimes; 3] = [AccessTimes::Relative, AccessTimes::Strict, AccessTimes::Never];

    /// All of them in one word: the access times in two bits, then a bit for each switch.
    fn to_bits(self) -> u8 {
        let switches = [self.no_directory_times, self.lazy_times, self.sync, self.dir_sync];
        let bits = switches.into_iter().rev().fold(0, |bits, is_set| bits << 1 | u8::from(is_set));
        bits << 2 | self.access_times as u8
    }

    fn from_bits(bits: u8) -> Self {
        let is_set = |switch: u8| bits >> (2 + switch) & 1 == 1;
        Self {
            access_times: Self::ACCESS_TIMES[usize::from(bits & 3)],
            no_directory_times: is_set(0),
            lazy_times: is_set(1),
            sync: is_set(2),
            dir_sync: is_set(3),
        }
    }
}

/// A volume that a front end serves. See the module's head.
#[derive(Debug)]
pub struct Operations {
    filesystem: Filesystem,
    settings: Settings,
    live: AtomicU8,
    known: Known,
    files: Table<OpenFile>,
    growing: growing::GrowingWrites,
    /// How often capabilities were given to any file, from 1 on.
    capabilities_given: AtomicU64,
}

impl Operations {
    /// Serve this volume.
    pub fn new(filesystem: Filesystem, settings: Settings) -> Self {
        Self {
            filesystem,
            live: AtomicU8::new(settings.live.to_bits()),
            settings,
            known: Known::default(),
            files: Table::new(OPEN_MAX),
            growing: growing::GrowingWrites::default(),
            capabilities_given: AtomicU64::new(1),
        }
    }

    fn capabilities_given(&self) -> u64 {
        self.capabilities_given.load(Ordering::Acquire)
    }

    fn live(&self) -> LiveSettings {
        LiveSettings::from_bits(self.live.load(Ordering::Acquire))
    }

    /// Change what may change. Files that are open stay as durable as they were opened.
    pub fn set_live(&self, live: LiveSettings) {
        self.live.store(live.to_bits(), Ordering::Release);
    }

    /// The volume.
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// The root directory.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn root(&self) -> Result<NodeRef> {
        self.filesystem.root()
    }

    /// The inode of this number.
    ///
    /// # Errors
    /// `ESTALE`: it is not in use, or one of the volume's own; it cannot be read.
    pub fn node(&self, number: InodeNumber) -> Result<NodeRef> {
        if let Some(node) = self.known.held(number) {
            return Ok(node);
        }
        self.filesystem.node(number).map_err(|error| if error.is_not_found() { stale() } else { error })
    }

    /// A client knows the inode once more.
    pub fn retain(&self, entry: &Entry) {
        self.known.retain(entry.node.number());
        // One that was made without a name; or that was found by its number, and forgotten since, with which it was no longer held.
        if entry.attributes.links == 0 {
            self.known.hold_nameless(&entry.node);
        }
    }

    /// A client knows the inode so many times less.
    pub fn forget(&self, number: InodeNumber, times: u64) {
        self.known.forget(number, times);
    }

    /// An inode with its attributes, as they are shown.
    fn entry(&self, node: NodeRef) -> Result<Entry> {
        let attributes = self.shown(node.attributes()?);
        Ok(Entry { node, attributes })
    }

    fn shown(&self, mut attributes: Attributes) -> Attributes {
        let settings = &self.settings;
        attributes.owner.uid = settings.uid.unwrap_or(attributes.owner.uid);
        attributes.owner.gid = settings.gid.unwrap_or(attributes.owner.gid);
        attributes.permissions &= !settings.umask;
        attributes
    }

    /// Whether the caller may use the blocks that are kept for the superuser. A front end enters this right for what it does in the
    /// caller's name. Capabilities and further groups of a caller are not known.
    pub fn reserved_blocks(&self, caller: &Caller) -> ReservedBlocks {
        let owner = self.filesystem.reserved_blocks_owner();
        let is_of_group = owner.gid != 0 && caller.gid == owner.gid;
        let is_usable = caller.is_superuser() || caller.uid == owner.uid || is_of_group;
        if is_usable { ReservedBlocks::Usable } else { ReservedBlocks::Kept }
    }

    /// Tell the device of free space, for the superuser, until the caller wants no more.
    ///
    /// # Errors
    /// `EPERM`; as [`Filesystem::trim_while`].
    pub fn trim(
        &self,
        range: std::ops::Range<u64>,
        shortest: u64,
        caller: &Caller,
        is_over: IsOver<'_>,
    ) -> Result<u64> {
        if !caller.is_superuser() {
            return Err(not_permitted("only the superuser trims"));
        }
        self.filesystem.trim_while(range, shortest, || !is_over())
    }

    /// Make everything durable.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn sync(&self) -> Result<()> {
        self.filesystem.sync()
    }

    /// Its clients are gone: close their files, and know none of their inodes.
    pub fn forget_clients(&self) {
        self.files.clear();
        self.known.clear();
    }

    /// End all use and close the volume. Requests that other threads are about to end are waited for.
    ///
    /// # Errors
    /// As [`Filesystem::close`]; what could be made durable is.
    pub fn close(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.forget_clients();
            match self.filesystem.clone().close() {
                Err(Error::Busy(_)) if start.elapsed() < CLOSE_WAIT_MAX => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error @ Error::Busy(_)) => return self.sync().and(Err(error)),
                result => {
                    // Who waits for the end opens the image at once.
                    self.filesystem.device().release();
                    return result;
                }
            }
        }
    }
}

/// `ENFILE`.
fn too_many_open() -> Error {
    os_error(Errno::NFILE, "too many files of the volume are open")
}

/// `EPERM`.
fn not_permitted(what: &'static str) -> Error {
    os_error(Errno::PERM, what)
}

/// `EINTR`.
fn interrupted() -> Error {
    os_error(Errno::INTR, "the caller wants no more")
}

/// `ESTALE`.
fn stale() -> Error {
    os_error(Errno::STALE, "the inode is gone")
}

fn os_error(errno: Errno, what: &'static str) -> Error {
    Error::Os { what, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_settings_come_back_from_their_word() {
        let words: Vec<u8> = (0..64).filter(|bits| bits & 3 < 3).collect();
        assert!(words.iter().all(|bits| LiveSettings::from_bits(*bits).to_bits() == *bits));
        let settings = LiveSettings {
            access_times: AccessTimes::Never,
            lazy_times: true,
            dir_sync: true,
            ..LiveSettings::default()
        };
        assert_eq!(LiveSettings::from_bits(settings.to_bits()), settings);
        assert_eq!(LiveSettings::from_bits(0), LiveSettings::default());
    }
}
