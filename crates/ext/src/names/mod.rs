//! Operations on names: look up, make, remove, rename, list.
//!
//! Where it sits: between the library and [`crate::directory`]; it holds the locks and the transaction, and keeps
//! links, times and flags.
//!
//! Interface:
//! - Every check comes before the first change. The remaining errors in the middle (no
//!   space) leave consistent metadata, which is committed with the error ([`finish`]).
//!
//! Locking: directories by number, then other inodes by number ([`Locked`]). An operation that needs more than one
//! directory looks without locks, locks, and looks again. So no directory loop on a damaged volume can make two
//! threads wait for each other.

mod access;
mod create;
mod inline;
mod link;
mod list;
mod locked;
mod remove;
mod rename;
mod symlink;

use std::sync::Arc;
use std::time::Duration;

use diorite_block::sync::{Mutex, Rank};

use crate::base::Core;
use crate::base::{Handle, finish};
use crate::dentry_cache::DentryCache;
use crate::directory::{
    DirectoryFormat, DirectoryRules, EntryLocation, HashRules, Lookup, NAME_MAX, NameForm,
};
use crate::file::Files;
use crate::inode::InodeState;
use crate::inodes::InodeStore;
use crate::layout::hash::Characters;
use crate::layout::htree::RootInfo;
use crate::layout::{Compat, Incompat, InodeFlags, RoCompat, Superblock};
use crate::lifecycle::Lifecycle;
use crate::map::Mappings;
use crate::quota::Quotas;
use crate::xattr::Xattrs;
use crate::{Corrupt, Error, FileKind, Inode, InodeNumber, Result};

pub(crate) use create::ADD_NAME_CREDITS;
use locked::Locked;

/// Links that anything on ext4 can have.
const LINKS_MAX_EXT4: u16 = 65_000;
/// The same on ext2 and ext3.
const LINKS_MAX: u16 = 32_000;
/// How long a directory keeps the time of a change when others follow: the kernel's tick where it is shortest.
const TICK: Duration = Duration::from_millis(1);

/// The names of a volume: operations on directories, with the dentry cache.
pub struct Names {
    core: Arc<Core>,
    maps: Arc<Mappings>,
    inodes: Arc<InodeStore>,
    files: Arc<Files>,
    quotas: Arc<Quotas>,
    xattrs: Arc<Xattrs>,
    lifecycle: Arc<Lifecycle>,
    /// The dentry cache.
    dentries: Arc<DentryCache>,
    rules: NameRules,
    /// Serialises renames of directories.
    rename_lock: Mutex<()>,
}

diorite_block::short_debug!(Names);

/// Rules for names, from the volume's features.
#[derive(Clone, Copy, Debug)]
struct NameRules {
    directory: DirectoryRules,
    links_max: u16,
    /// Directories with more links than that have the count 1 (`dir_nlink`).
    directory_links_unbounded: bool,
}

impl NameRules {
    fn new(superblock: &Superblock) -> Self {
        let features = superblock.features();
        let block_size = superblock.block_size().bytes();
        let large = features.has_incompat(Incompat::LARGE_DIR);
        let version = superblock.default_hash_version();
        let format = DirectoryFormat {
            block_size: block_size as usize,
            kinds: features.has_incompat(Incompat::FILETYPE),
            tail: features.metadata_csum(),
            inodes: superblock.inodes_count(),
        };
        let ext4_only = RoCompat::DIR_NLINK.union(RoCompat::HUGE_FILE).union(RoCompat::EXTRA_ISIZE);
        let is_ext4 = features.ro_compat.intersects(ext4_only) || features.has_incompat(Incompat::EXTENTS);
        Self {
            directory: DirectoryRules {
                format,
                make_index: features.has_compat(Compat::DIR_INDEX),
                levels_max: RootInfo::levels_max(features),
                hash: HashRules {
                    version: if version <= 2 { version } else { 1 },
                    characters: if superblock.unsigned_hash() {
                        Characters::Unsigned
                    } else {
                        Characters::Signed
                    },
                    seed: superblock.hash_seed(),
                },
                // The size of a directory has 31 bits without `large_dir`.
                blocks_max: if large { 1 << 28 } else { ((1_u64 << 31) / block_size) as u32 - 1 },
            },
            links_max: if is_ext4 { LINKS_MAX_EXT4 } else { LINKS_MAX },
            directory_links_unbounded: features.has_ro_compat(RoCompat::DIR_NLINK),
        }
    }
}

/// Whether an inode has a flag.
pub(crate) fn has(state: &InodeState, flag: InodeFlags) -> bool {
    state.flags.intersects(flag)
}

pub(crate) fn is_directory(inode: &Inode) -> bool {
    inode.kind() == FileKind::Directory
}

/// Check a name before a look-up.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX { Err(Error::NameTooLong) } else { Ok(()) }
}

/// Check a name before it is created.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => {
            Err(Error::InvalidArgument("a name cannot contain a slash or a zero byte"))
        }
        _ => Ok(()),
    }
}

impl Names {
    pub(crate) fn new(lifecycle: Arc<Lifecycle>, dentries: Arc<DentryCache>) -> Self {
        let Lifecycle { core, inodes, files, xattrs } = &*lifecycle;
        Self {
            core: core.clone(),
            maps: files.maps.clone(),
            inodes: inodes.clone(),
            files: files.clone(),
            quotas: files.quotas.clone(),
            xattrs: xattrs.clone(),
            dentries,
            rules: NameRules::new(&core.format),
            rename_lock: Mutex::ranked(Rank::Rename, ()),
            lifecycle,
        }
    }

    /// The form of names in this directory.
    fn name_form(&self, state: &InodeState) -> NameForm {
        let rules = &self.rules.directory;
        if has(state, InodeFlags::ENCRYPTED) {
            NameForm::Encrypted(rules.make_index.then_some(rules.hash))
        } else if has(state, InodeFlags::CASEFOLD) {
            NameForm::Folded
        } else {
            NameForm::Plain
        }
    }

    /// Look up a name. The directory is locked.
    pub(crate) fn find(
        &self,
        directory: &Inode,
        state: &InodeState,
        name: &[u8],
    ) -> Result<Option<EntryLocation>> {
        self.find_or_space(directory, state, name).map(Lookup::found)
    }

    /// Look up a name that is made if it is absent. The directory is locked until then.
    fn find_or_space(&self, directory: &Inode, state: &InodeState, name: &[u8]) -> Result<Lookup> {
        check_name(name)?;
        if !is_directory(directory) {
            return Err(Error::NotADirectory);
        }
        if state.freed {
            return Err(Error::NotFound);
        }
        self.with_directory(directory, state, |entries| entries.find_or_space(name))
    }

    /// As [`Self::find`], for a name that must be there.
    fn find_existing(&self, directory: &Inode, state: &InodeState, name: &[u8]) -> Result<EntryLocation> {
        self.find(directory, state, name)?.ok_or(Error::NotFound)
    }

    /// The inode of an entry. The directory is locked, so that the inode cannot go away meanwhile.
    fn inode_of(&self, directory: &Inode, found: &EntryLocation) -> Result<Arc<Inode>> {
        if found.inode != InodeNumber::ROOT && self.core.format.is_own_inode(found.inode) {
            return bad_entry(directory, found, "an entry points to an inode that is the volume's own");
        }
        match self.inodes.get(found.inode) {
            Err(Error::NotFound) => bad_entry(
                directory,
                found,
                "an entry points to a free inode, or to the value of an attribute",
            ),
            result => result,
        }
    }

    /// The inode of an entry that is not one of the dots.
    fn child(&self, directory: &Inode, found: &EntryLocation) -> Result<Arc<Inode>> {
        if found.inode == directory.number() || found.inode == InodeNumber::ROOT {
            return bad_entry(directory, found, "an entry points to its own directory or to the root");
        }
        self.inode_of(directory, found)
    }

    /// The inode of `name` in `directory`; `.` and `..` are entries like others.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        if let Some(inode) = self.dentries.find(directory, name) {
            return Ok(inode);
        }
        let state = directory.state.read();
        let found = self.find_existing(directory, &state, name)?;
        let inode = self.inode_of(directory, &found)?;
        if name != b"." && name != b".." {
            self.cache_dentry(directory, &state, name, &inode);
        }
        Ok(inode)
    }

    /// Cache the inode of a name. Where case is ignored, an entry has more names than it could be forgotten by.
    fn cache_dentry(&self, directory: &Inode, state: &InodeState, name: &[u8], inode: &Arc<Inode>) {
        if self.name_form(state) != NameForm::Folded {
            self.dentries.insert(directory, name, inode);
        }
    }

    /// Refuse a new name where the directory's flags forbid it.
    fn check_may_add(&self, directory: &Inode, state: &InodeState, name: &[u8]) -> Result<()> {
        Self::check_may_change(directory, state)?;
        if has(state, InodeFlags::ENCRYPTED) {
            return Err(Error::Encrypted { inode: directory.number() });
        }
        let strict = has(state, InodeFlags::CASEFOLD) && self.core.format.strict_encoding();
        if strict && std::str::from_utf8(name).is_err() {
            return Err(Error::InvalidArgument("a name in this directory must be valid UTF-8"));
        }
        Ok(())
    }

    /// Refuse any change of names where the directory's flags forbid it.
    fn check_may_change(directory: &Inode, state: &InodeState) -> Result<()> {
        if !is_directory(directory) {
            return Err(Error::NotADirectory);
        }
        if state.links == 0 {
            return Err(Error::NotFound);
        }
        if has(state, InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted("immutable"));
        }
        Ok(())
    }

    /// Refuse to take a name from a directory where its flags forbid it.
    fn check_may_remove(directory: &Inode, state: &InodeState) -> Result<()> {
        Self::check_may_change(directory, state)?;
        if has(state, InodeFlags::APPEND) { Err(Error::NotPermitted("append-only")) } else { Ok(()) }
    }

    /// Refuse to take a name from an inode that its flags protect.
    fn check_may_drop_name(state: &InodeState) -> Result<()> {
        if has(state, InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted("immutable"));
        }
        if has(state, InodeFlags::APPEND) { Err(Error::NotPermitted("append-only")) } else { Ok(()) }
    }

    /// Refuse to bring an inode into a directory that hands its project on, if it is of another.
    fn check_same_project(directory: &InodeState, project: u32) -> Result<()> {
        let hands_on = has(directory, InodeFlags::PROJECT_INHERIT);
        if hands_on && directory.project != project { Err(Error::OtherProject) } else { Ok(()) }
    }

    /// Count a link more: a name, or for a directory a subdirectory.
    pub(crate) fn add_link(&self, inode: &Inode, state: &mut InodeState) {
        let rules = self.rules;
        // Once a directory had more links than can be counted, its count is 1 and stays so.
        let uncounted = is_directory(inode) && (state.links == 1 || state.links >= rules.links_max - 1);
        state.links =
            if uncounted && rules.directory_links_unbounded { 1 } else { state.links.saturating_add(1) };
    }

    /// Count a link less.
    fn drop_link(inode: &Inode, state: &mut InodeState) {
        if !is_directory(inode) || state.links > 2 {
            state.links = state.links.saturating_sub(1);
        }
        if state.links == 0 {
            inode.note_nameless();
        }
    }

    /// Refuse a link more than the format can count.
    fn check_link_count(&self, inode: &Inode, state: &InodeState) -> Result<()> {
        let rules = self.rules;
        let unbounded =
            is_directory(inode) && rules.directory_links_unbounded && has(state, InodeFlags::INDEX);
        if state.links >= rules.links_max && !unbounded { Err(Error::TooManyLinks) } else { Ok(()) }
    }

    /// The entries of a directory changed, and maybe more of it: note when, and store it.
    pub(crate) fn store_touched(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        let now = self.core.now();
        (state.modified, state.changed) = (now, now);
        self.files.store(handle, inode, state)
    }

    /// As [`Self::store_touched`], where nothing of the directory has changed but its entries since it was stored. A time that was
    /// stored in this transaction stays for a tick, as in the kernel: of many changes in a moment, few store the inode.
    fn store_times(&self, handle: &mut Handle<'_>, inode: &Inode, state: &mut InodeState) -> Result<()> {
        let since = self.core.now().since(state.changed);
        let is_recent = state.modified == state.changed && since.is_some_and(|since| since < TICK);
        if is_recent && inode.last_any_change() == handle.transaction() {
            return Ok(());
        }
        self.store_touched(handle, inode, state)
    }
}

fn bad_entry<T>(directory: &Inode, found: &EntryLocation, what: &'static str) -> Result<T> {
    let (inode, offset) = (directory.number(), found.offset as u32);
    Err(Corrupt::Directory { inode, block: u64::from(found.block), offset, what }.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use diorite_sim::image::ImageDevice;

    use super::*;
    use crate::{Clock, NodeSpec, Owner, SetAttributes, SetTime, Timestamp, Volume, VolumeOptions};
    use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};

    /// A clock that stands still until it is set.
    #[derive(Debug, Default)]
    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            let microseconds = self.0.load(Ordering::Relaxed);
            Timestamp { seconds: 1000, nanoseconds: microseconds as u32 * 1000 }
        }
    }

    /// A directory's times follow its changes to the tick, in memory and on the disk; a time set by the user is not kept.
    #[test]
    fn times_of_a_directory_follow_its_changes_to_the_tick() {
        for flavor in [Flavor::Ext2, Flavor::Ext4] {
            let device = ImageDevice::zeroed(16 << 20);
            mkfs(&*device, &MkfsOptions { flavor, ..MkfsOptions::default() }).unwrap();
            let clock = Arc::new(SetClock::default());
            let options = VolumeOptions { clock: clock.clone(), ..VolumeOptions::default() };
            let volume = Volume::open(device.clone(), options).unwrap();
            let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
            let owner = Owner { uid: 0, gid: 0 };
            let spec =
                NodeSpec { kind: FileKind::Regular, permissions: 0o644, umask: 0, owner, device: (0, 0) };
            let modified = |volume: &Volume| {
                let attributes = volume.inodes.get(InodeNumber::ROOT).unwrap().attributes();
                assert_eq!(attributes.modified, attributes.changed);
                attributes.modified.nanoseconds / 1000
            };
            for (now, want) in [(100, 100), (900, 100), (1200, 1200), (1300, 1200), (9000, 9000)] {
                clock.0.store(now, Ordering::Relaxed);
                volume.names.create(&root, format!("at {now}").as_bytes(), &spec).unwrap();
                assert_eq!(modified(&volume), want, "{flavor:?} created at {now}");
            }
            clock.0.store(20_000, Ordering::Relaxed);
            volume.names.unlink(&root, b"at 100").unwrap();
            clock.0.store(20_400, Ordering::Relaxed);
            volume.names.unlink(&root, b"at 900").unwrap();
            assert_eq!(modified(&volume), 20_000);
            let by_hand = SetTime::To(Timestamp { seconds: 999, nanoseconds: 0 });
            let changes = SetAttributes { modified: Some(by_hand), ..SetAttributes::default() };
            volume.set_attributes(&root, &changes).unwrap();
            volume.names.unlink(&root, b"at 1200").unwrap();
            assert_eq!(modified(&volume), 20_400);
            volume.close().unwrap();
            assert_eq!(modified(&Volume::open(device, VolumeOptions::default()).unwrap()), 20_400);
        }
    }
}
