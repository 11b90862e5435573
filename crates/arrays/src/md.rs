//! MD arrays: linear, RAID-0, RAID-1, with superblocks of version 1 or 0.90.
//!
//! A RAID-1 is writable only with all of its members. The superblocks are marked before the first write: the members may differ. The mark is
//! removed on close, after a flush. After a crash the kernel copies one member to the others.
//!
//! The newest superblock decides which members are up to date, as in the kernel. The superblock of a failed member is stale, and still counts
//! the member as active.
//!
//! Invariants:
//! 1. The mark is durable before the first write.

use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank};
use diorite_block::{BlockDevice, IoError, Sector};

use crate::md_superblock::{IN_SYNC, Superblock};
use crate::mirror::{MirrorDevice, WriteMarks};
use crate::parts::{Problem, Result, in_a_row};
use diorite_device::JoinedDevice;
use diorite_device::OpenError;
use diorite_device::PartitionDevice;

/// Layouts of RAID-0 after the end of the smallest member: chunks are counted from the start of the array (before Linux 3.14), or of the part.
const FROM_START_OF_ARRAY: u32 = 1;
const FROM_START_OF_PART: u32 = 2;

/// A description of the array of a member, for a message; none if the device is no member.
pub(crate) fn describe(device: &dyn BlockDevice) -> Option<String> {
    let superblock = Superblock::read(device).ok()??;
    let level = match superblock.level() {
        -1 => "linear".to_owned(),
        level => format!("RAID-{level}"),
    };
    let (count, name) = (superblock.members(), superblock.name());
    let more = if count > 1 { ",..." } else { "" };
    Some(format!(
        "one of {count} members of the MD array {name} ({level}); open it as md:{}{more} with all members",
        device.name()
    ))
}

/// As [`describe`], if the data of the array begins where the device begins.
pub(crate) fn member_whose_data_is_first(device: &dyn BlockDevice) -> Option<String> {
    let superblock = Superblock::read(device).ok().flatten()?;
    superblock.begins_with_data().then(|| describe(device)).flatten()
}

/// As [`member_whose_data_is_first`], of a RAID-1.
pub(crate) fn member_that_looks_whole(device: &dyn BlockDevice) -> Option<String> {
    let superblock = Superblock::read(device).ok().flatten()?;
    if superblock.level() == 1 { member_whose_data_is_first(device) } else { None }
}

/// A member: its superblock and the device.
struct Member {
    superblock: Superblock,
    device: Arc<dyn BlockDevice>,
}

impl Member {
    /// `len` bytes of its data from `start` on.
    fn data(&self, start: u64, len: u64) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let offset = self.superblock.data_bytes().0 + start;
        let name = format!("{}?offset={offset}", self.device.name());
        Ok(PartitionDevice::window(Arc::clone(&self.device), name, Sector::containing(offset), len)?)
    }

    fn len(&self) -> u64 {
        self.superblock.data_bytes().1
    }
}

/// The array on `devices`, in any order.
///
/// # Errors
/// The array is incomplete, or its level or a feature is not supported.
pub fn open(
    spec: &str,
    devices: Vec<Arc<dyn BlockDevice>>,
    for_writing: bool,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let bad = |why: String| OpenError::BadJoin { spec: spec.to_owned(), why };
    let members = members(devices).map_err(bad)?;
    let Some(first) = members.first().map(|member| &member.superblock) else {
        return Err(bad("no member is up to date".to_owned()));
    };
    let name = format!("md:{}", first.name());
    let is_complete = members.len() == first.members() as usize;
    if first.level() != 1 && !is_complete {
        return Err(bad(missing(&members)));
    }
    let device: Arc<dyn BlockDevice> = match first.level() {
        -1 => linear(&name, &members, first.chunk_bytes())?,
        0 => striped(&members, first.chunk_bytes(), first.layout())
            .map_err(|problem| problem.into_error(bad))?,
        1 => {
            if for_writing && let Some(why) = why_not_written(&members) {
                return Err(bad(format!("{why}, or open it read-only")));
            }
            return mirrored(name, members, for_writing);
        }
        level => {
            return Err(bad(format!("its level is {level}; linear, RAID-0 and RAID-1 are supported")));
        }
    };
    let len = device.geometry().capacity_bytes;
    Ok(PartitionDevice::window(device, name, Sector(0), len)?)
}

/// Why a mirror is read-only, if it is.
fn why_not_written(members: &[Member]) -> Option<String> {
    let first = &members.first()?.superblock;
    let why = if members.len() != first.members() as usize {
        return Some(missing(members));
    } else if members.iter().any(|member| member.superblock.is_old()) {
        "its superblocks of version 0.90 cannot be marked here; convert it \
         (mdadm --assemble --update=metadata)"
    } else if first.has_bitmap() {
        "it has a write-intent bitmap, which Diorite cannot update; remove it (mdadm --grow --bitmap=none)"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Why the array on `devices` is read-only, if it is.
pub fn read_only_reason(devices: Vec<Arc<dyn BlockDevice>>) -> Option<String> {
    let members = members(devices).ok()?;
    let is_mirror = members.first().is_some_and(|member| member.superblock.level() == 1);
    if is_mirror { why_not_written(&members) } else { None }
}

/// The members that are up to date, in the order of the array.
fn members(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Vec<Member>> {
    let mut members: Vec<Member> = Vec::new();
    for device in devices {
        let refused = |why: &str| format!("{}: {why}", device.name());
        let superblock = Superblock::read(&*device).map_err(|why| refused(&why))?;
        let superblock = superblock.ok_or_else(|| refused("it is not a member of an MD array"))?;
        let features = superblock.unknown_features();
        if features != 0 {
            return Err(refused(&format!("the array uses unsupported features ({features:#x})")));
        }
        members.push(Member { superblock, device });
    }
    if let [first, others @ ..] = &members[..]
        && let Some(other) = others.iter().find(|other| other.superblock.array() != first.superblock.array())
    {
        return Err(format!(
            "{} and {} belong to different arrays",
            first.device.name(),
            other.device.name()
        ));
    }
    if let Some((one, other)) = used_apart(&members) {
        return Err(format!(
            "{} and {} were used without each other: each counts the other as failed, and has data of its own; name one alone, read-only, to see which \
             is right, and have mdadm forget the other (mdadm --zero-superblock) and add it again",
            one.device.name(),
            other.device.name()
        ));
    }
    let newest = members.iter().map(|member| &member.superblock).max_by_key(|superblock| superblock.events());
    if let Some(newest) = newest.cloned() {
        members.retain(|member| is_up_to_date(&member.superblock, &newest));
    }
    members.sort_by_key(|member| member.superblock.role());
    let is_twice = |pair: &[Member]| pair[0].superblock.role() == pair[1].superblock.role();
    if members.windows(2).any(is_twice) {
        return Err("a member is named twice".to_owned());
    }
    Ok(members)
}

/// Whether a member is up to date. A crash between the writes of two superblocks leaves one an event older than the other. It is used if the
/// newest counts it as a member.
fn is_up_to_date(superblock: &Superblock, newest: &Superblock) -> bool {
    let role = superblock.role();
    role.is_some()
        && superblock.events().saturating_add(1) >= newest.events()
        && superblock.role_in(newest) == role
}

/// A member that was used without the newest members, which were used without it.
fn used_apart(members: &[Member]) -> Option<(&Member, &Member)> {
    let active = || members.iter().filter(|member| member.superblock.role().is_some());
    let events = active().map(|member| member.superblock.events()).max()?;
    let newest: Vec<_> = active().filter(|member| member.superblock.events() == events).collect();
    active().find_map(|member| {
        let mut others = newest.iter().filter(|other| !std::ptr::eq(**other, member)).peekable();
        let first = **others.peek()?;
        let is_apart = |other: &&Member| {
            !member.superblock.has_role(other.superblock.role())
                && !other.superblock.has_role(member.superblock.role())
        };
        others.all(is_apart).then_some((first, member))
    })
}

fn missing(members: &[Member]) -> String {
    let count = members.first().map_or(0, |member| member.superblock.members());
    let has =
        |role: &u32| members.iter().any(|member| member.superblock.role().map(u32::from) == Some(*role));
    let lost: Vec<_> = (0..count).filter(|role| !has(role)).take(8).map(|role| role.to_string()).collect();
    format!(
        "{} of {count} members are present and up to date; number {} (from 0 on) is missing; name all members",
        members.len(),
        lost.join(", ")
    )
}

fn linear(name: &str, members: &[Member], chunk_bytes: u64) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let part = |member: &Member| {
        let len = if chunk_bytes == 0 { member.len() } else { member.len() - member.len() % chunk_bytes };
        Ok::<_, OpenError>((member.data(0, len)?, len))
    };
    in_a_row(name, members.iter().map(part).collect::<Result<_, _>>()?)
}

/// Stripe all members up to the end of the smallest, then the rest of the others in the same way.
fn striped(members: &[Member], chunk_bytes: u64, layout: u32) -> Result<Arc<dyn BlockDevice>, Problem> {
    let bad = |why: &str| Problem::Metadata(why.to_owned());
    if chunk_bytes == 0 {
        return Err(bad("its chunk has no size"));
    }
    let whole = |member: &&Member| member.len() - member.len() % chunk_bytes;
    let (mut parts, mut start, mut chunks) = (Vec::new(), 0, 0_u64);
    loop {
        let left: Vec<_> = members.iter().filter(|member| whole(member) > start).collect();
        let Some(end) = left.iter().map(whole).min() else { break };
        let mut part =
            left.iter().map(|member| member.data(start, end - start)).collect::<Result<Vec<_>, _>>()?;
        let count = part.len() as u64;
        if start > 0 && count > 1 {
            match layout {
                FROM_START_OF_ARRAY => part.rotate_left((chunks % count) as usize),
                FROM_START_OF_PART => {}
                _ => {
                    return Err(bad(
                        "its members differ in size, and the superblock does not say in which layout; have that written \
                         (mdadm --assemble --update=layout-alternate, or layout-original if made before Linux 3.14)",
                    ));
                }
            }
        }
        chunks += (end - start) / chunk_bytes * count;
        start = end;
        parts.push(match <[_; 1]>::try_from(part) {
            Ok([only]) => only,
            Err(several) => JoinedDevice::striped(several, chunk_bytes)? as Arc<dyn BlockDevice>,
        });
    }
    match <[_; 1]>::try_from(parts) {
        Ok([only]) => Ok(only),
        Err(several) => Ok(JoinedDevice::linear(several)?),
    }
}

fn mirrored(
    name: String,
    mut members: Vec<Member>,
    for_writing: bool,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let len =
        members.iter().map(|member| member.len().min(member.superblock.used_bytes())).min().unwrap_or(0);
    let events = members.iter().map(|member| member.superblock.events()).max().unwrap_or(0);
    let is_newest = |member: &Member| member.superblock.events() == events;
    let is_same = |member: &Member| member.superblock.in_sync_to() == IN_SYNC;
    // If they may differ, the kernel copies the first that is not write-mostly. Otherwise the newest is read.
    let all_same = members.iter().all(is_same);
    members.sort_by_key(|member| (all_same && !is_newest(member), member.superblock.is_write_mostly()));
    let in_sync = members.iter().all(|member| is_newest(member) && is_same(member));
    // A mark of a partial resync does not cover new writes.
    let is_marked = members.iter().all(|member| is_newest(member) && member.superblock.in_sync_to() == 0);
    let data = members.iter().map(|member| member.data(0, len)).collect::<Result<_, _>>()?;
    let marks = SyncMarks { in_sync, members: Mutex::ranked(Rank::ArrayMembers, (members, is_marked)) };
    let marks = for_writing.then(|| Box::new(marks) as Box<dyn WriteMarks>);
    Ok(Arc::new(MirrorDevice::new(name, data, in_sync, marks)?))
}

/// The superblocks of a mirror.
struct SyncMarks {
    /// Whether the members were in sync when it was opened.
    in_sync: bool,
    /// The members, and whether they are marked.
    members: Mutex<(Vec<Member>, bool)>,
}

impl std::fmt::Debug for SyncMarks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncMarks").field("in_sync", &self.in_sync).finish_non_exhaustive()
    }
}

impl SyncMarks {
    /// Mark all members, or remove the mark, if needed.
    fn mark(&self, differ: bool) -> Result<(), IoError> {
        let mut guard = self.members.lock();
        let (members, is_marked) = &mut *guard;
        if *is_marked != differ {
            let newest = members.iter().map(|member| member.superblock.events()).max().unwrap_or(0);
            let events = newest.saturating_add(1);
            for member in members {
                member.superblock.mark(&*member.device, events, if differ { 0 } else { IN_SYNC })?;
                member.device.flush()?;
            }
        }
        *is_marked = differ;
        Ok(())
    }
}

impl WriteMarks for SyncMarks {
    fn before_write(&self) -> Result<(), IoError> {
        self.mark(true)
    }

    fn all_is_the_same(&self) -> Result<(), IoError> {
        // Only the kernel resynchronises members that differed when it was opened.
        if self.in_sync { self.mark(false) } else { Ok(()) }
    }
}
