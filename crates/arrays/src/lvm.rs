//! Logical volumes of LVM2: linear, striped, mirrored.
//!
//! A mirrored volume is read-only, because only the kernel's driver writes the log of its valid images. The origin of a snapshot is read-only,
//! because that driver copies old blocks to the snapshot before they are overwritten.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use diorite_block::{BlockDevice, Sector};

use crate::lvm_group::{Area, Group, Physical, Segment, SegmentKind};
use crate::lvm_label::{Label, has_label, label};
use crate::lvm_raid::ImageState;
use crate::md;
use crate::mirror::MirrorDevice;
use crate::parts::{Problem, Result, in_a_row};
use diorite_device::JoinedDevice;
use diorite_device::OpenError;
use diorite_device::PartitionDevice;

/// Deepest nesting of logical volumes: a mirror of images is two levels.
const DEPTH_MAX: u32 = 8;
/// Most areas of a volume and its parts.
const AREAS_MAX: u32 = 100_000;
/// The state of an image counts as this number of areas, because of the time to read it.
const STATE_AREAS: u32 = 64;

/// A description of the group of a physical volume, for a message; `None` if the device is not a physical volume.
pub(crate) fn describe(device: &dyn BlockDevice) -> Option<String> {
    let label = match label(device) {
        Ok(found) => found?,
        Err(why) if has_label(device) => {
            return Some(format!(
                "a physical volume of LVM2, which is damaged ({why}); repair it with pvck or vgcfgrestore, or remove the label (wipefs -a)"
            ));
        }
        Err(_) => return None,
    };
    let Ok(Some(group)) = newest(&label.texts) else {
        return Some("a physical volume of LVM2; open it as lvm:A,B with all of its group".to_owned());
    };
    let volumes: Vec<_> = group.visible().collect();
    let others =
        if group.physical.len() > 1 { format!(" of {}", group.physical.len()) } else { String::new() };
    let name = device.name();
    let more = if group.physical.len() > 1 { ",..." } else { "" };
    Some(format!(
        "a physical volume{others} of the LVM2 group {} with the volumes {}; open one as lvm:{name}{more}?volume={}",
        group.name,
        listed(&volumes),
        volumes.first().unwrap_or(&"NAME")
    ))
}

/// The group of the newest text.
fn newest<'t>(texts: impl IntoIterator<Item = &'t String>) -> Result<Option<Group>> {
    let groups = texts.into_iter().map(|text| Group::parse(text)).collect::<Result<Vec<_>>>()?;
    if let [first, others @ ..] = &groups[..]
        && let Some(other) = others.iter().find(|other| other.name != first.name)
    {
        return Err(format!("the devices belong to two groups, {} and {}", first.name, other.name));
    }
    Ok(groups.into_iter().max_by_key(|group| group.version))
}

/// Names for a message, shortened if there are many.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 20;
    match names.len().checked_sub(MOST) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MOST].join(", ")),
    }
}

/// The logical volume `name`, or the only one, of the group on `devices`.
///
/// # Errors
/// The group is incomplete, the kind of volume is unknown, or a read-only kind is opened for writing.
pub fn open(
    spec: &str,
    devices: Vec<Arc<dyn BlockDevice>>,
    name: Option<&str>,
    for_writing: bool,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let bad = |why: String| OpenError::BadJoin { spec: spec.to_owned(), why };
    let mut labels = Vec::new();
    for device in devices {
        if for_writing && let Some(array) = md::member_whose_data_is_first(&*device) {
            return Err(bad(format!(
                "{} is {array}; the physical volume is that array, whose other members would not get what is written here: name it in place of its \
                 members (/dev/mdN, or a name for it: diorite raw NAME md:A,B), or open it read-only; if the array is no more, remove its superblock \
                 (mdadm --zero-superblock)",
                device.name()
            )));
        }
        let found = label(&*device).map_err(|why| bad(format!("{}: {why}", device.name())))?;
        let found =
            found.ok_or_else(|| bad(format!("{} is not a physical volume of LVM2", device.name())))?;
        labels.push((found, device));
    }
    let whole = Whole::of(labels).map_err(bad)?;
    let name = whole.choose(name).map_err(bad)?;
    let device = whole
        .volume(&name, 0)
        .map_err(|problem| problem.into_error(|why| bad(format!("volume {name}: {why}"))))?;
    if for_writing && device.geometry().read_only {
        let mirrored = || "Diorite cannot write the log of a mirror".to_owned();
        let why = whole.read_only_reason(&name).unwrap_or_else(mirrored);
        return Err(OpenError::ReadOnly { path: spec.into(), why: format!("{why}; open it read-only") });
    }
    Ok(device)
}

/// A group and the devices of its physical volumes.
struct Whole {
    group: Group,
    devices: Vec<(Label, Arc<dyn BlockDevice>)>,
    /// Snapshots by the name of the origin: the name of the snapshot, and whether it is being merged into the origin.
    origins: BTreeMap<String, (String, bool)>,
    /// Areas that may still be opened.
    areas_left: Cell<u32>,
}

/// The names of two devices with the same identity.
fn same_volume(devices: &[(Label, Arc<dyn BlockDevice>)]) -> Option<(String, String)> {
    let mut known = BTreeMap::new();
    devices.iter().find_map(|(label, device)| Some((known.insert(&label.id, device)?.name(), device.name())))
}

impl Whole {
    fn of(devices: Vec<(Label, Arc<dyn BlockDevice>)>) -> Result<Self> {
        let group = newest(devices.iter().flat_map(|(label, _)| &label.texts))?;
        let group = group.ok_or("none of the devices has a copy of the group's metadata")?;
        if let Some((one, other)) = same_volume(&devices) {
            return Err(format!(
                "{one} and {other} are one physical volume: one is a copy of the other, or both are members of a mirror; name only one, or the mirror \
                 (/dev/mdN, or a name for it: diorite raw NAME md:A,B)"
            ));
        }
        let known: BTreeSet<_> = group.physical.values().map(|volume| &volume.id).collect();
        for (label, device) in &devices {
            if !known.contains(&label.id) {
                return Err(format!("{} is no longer in the group {}", device.name(), group.name));
            }
        }
        Ok(Self::new(group, devices))
    }

    fn new(group: Group, devices: Vec<(Label, Arc<dyn BlockDevice>)>) -> Self {
        let mut origins: BTreeMap<String, (String, bool)> = BTreeMap::new();
        for snapshot in group.snapshots() {
            let of_origin = origins.entry(snapshot.origin.to_owned()).or_default();
            if of_origin.0.is_empty() || snapshot.is_merged {
                *of_origin = (snapshot.store.to_owned(), snapshot.is_merged);
            }
        }
        Self { group, devices, origins, areas_left: Cell::new(AREAS_MAX) }
    }

    fn choose(&self, name: Option<&str>) -> Result<String> {
        let all: Vec<_> = self.group.visible().collect();
        let list = || match &all[..] {
            [] => format!("the group {} has no volumes", self.group.name),
            _ => format!("the group {} has {}: add ?volume=NAME", self.group.name, listed(&all)),
        };
        match name {
            Some(name) if all.contains(&name) => Ok(name.to_owned()),
            Some(name) => match self.group.snapshots().find(|snapshot| snapshot.store == name) {
                Some(snapshot) => Err(format!(
                    "{name} is a snapshot, which is not supported; open its origin, ?volume={}, read-only",
                    snapshot.origin
                )),
                None => Err(format!("there is no volume {name}: {}", list())),
            },
            None => match &all[..] {
                [only] => Ok((*only).to_owned()),
                _ => Err(list()),
            },
        }
    }

    /// Why a volume is read-only, apart from its parts.
    fn read_only_reason(&self, name: &str) -> Option<String> {
        if let Some((snapshot, _)) = self.origins.get(name) {
            return Some(format!(
                "{name} is the origin of the snapshot {snapshot}, and Diorite cannot copy old blocks to it"
            ));
        }
        let is_writable = self.group.logical.get(name).is_none_or(|volume| volume.is_writable);
        if !is_writable {
            return Some(format!("{name} is marked read-only (lvchange -p rw makes it writable)"));
        }
        let shared = || {
            format!(
                "the group {} is shared by hosts, under a lock manager that is not supported",
                self.group.name
            )
        };
        self.group.is_shared.then(shared)
    }

    fn volume(&self, name: &str, depth: u32) -> Result<Arc<dyn BlockDevice>, Problem> {
        let group = &self.group;
        let volume = group.logical.get(name).ok_or_else(|| format!("there is no volume {name}"))?;
        if depth > DEPTH_MAX {
            return Err("volumes contain each other".to_owned().into());
        }
        if let Some((snapshot, true)) = self.origins.get(name) {
            return Err(format!(
                "the snapshot {snapshot} is being merged into it; let the kernel's driver finish the merge"
            )
            .into());
        }
        let part =
            |segment| Ok::<_, Problem>((self.segment(segment, depth)?, self.bytes_of(segment.extents)?));
        let parts = volume.segments.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let (own_name, name) = (name, format!("lvm:{}/{name}", group.name));
        let device = in_a_row(&name, parts)?;
        // The window gives it its own name.
        let len = device.geometry().capacity_bytes;
        let window = PartitionDevice::window(device, name, Sector(0), len)?;
        let is_read_only = self.read_only_reason(own_name).is_some();
        Ok(if is_read_only { PartitionDevice::read_only(&window) } else { window })
    }

    fn segment(&self, segment: &Segment, depth: u32) -> Result<Arc<dyn BlockDevice>, Problem> {
        match &segment.kind {
            SegmentKind::Striped { chunk_bytes, areas } => {
                let count = areas.len() as u64;
                if count == 0 || !segment.extents.is_multiple_of(count) {
                    return Err(format!("{} extents cannot be divided into {count} stripes", segment.extents).into());
                }
                let area = |area| self.area(area, segment.extents / count, depth);
                let parts = areas.iter().map(area).collect::<Result<Vec<_>, _>>()?;
                match <[_; 1]>::try_from(parts) {
                    Ok([part]) => Ok(part),
                    Err(parts) => Ok(JoinedDevice::striped(parts, *chunk_bytes)?),
                }
            }
            SegmentKind::Mirrored { images, states } => {
                let sound = self.complete_images(images, states, depth)?;
                let area = |area: &&Area| self.area(area, segment.extents, depth);
                let images = sound.iter().map(area).collect::<Result<Vec<_>, _>>()?;
                Ok(MirrorDevice::read_only(images)?)
            }
            SegmentKind::Snapshot { origin, .. } => Err(format!("it is a snapshot of {origin}").into()),
            SegmentKind::Other(kind) => Err(format!(
                "it is of the kind {kind}, which is not supported; linear, striped, raid0, mirror and raid1 are"
            )
            .into()),
        }
    }

    fn count_areas(&self, count: u32) -> Result<()> {
        let left = self.areas_left.get().checked_sub(count).ok_or("it has too many areas")?;
        self.areas_left.set(left);
        Ok(())
    }

    fn bytes_of(&self, extents: u64) -> Result<u64> {
        extents.checked_mul(self.group.extent_bytes).ok_or_else(|| format!("{extents} extents are too many"))
    }

    /// Extents of a physical or a logical volume.
    fn area(&self, area: &Area, extents: u64, depth: u32) -> Result<Arc<dyn BlockDevice>, Problem> {
        self.count_areas(1)?;
        let outside = || format!("extents {} of {} are not within it", area.extent, area.volume);
        let (device, start, available) = if let Some(physical) = self.group.physical.get(&area.volume) {
            (self.device_of(&area.volume, physical)?, physical.start, physical.extents)
        } else {
            let device = self.volume(&area.volume, depth + 1)?;
            let available = device.geometry().capacity_bytes / self.group.extent_bytes;
            (device, 0, available)
        };
        if area.extent.checked_add(extents).is_none_or(|end| end > available) {
            return Err(outside().into());
        }
        let offset = self.bytes_of(area.extent)?.checked_add(start).ok_or_else(outside)?;
        let len = self.bytes_of(extents)?;
        let name = format!("{}?offset={offset}", device.name());
        Ok(PartitionDevice::window(device, name, Sector::containing(offset), len)?)
    }

    fn device_of(&self, name: &str, physical: &Physical) -> Result<Arc<dyn BlockDevice>> {
        if physical.was_missing {
            return Err(format!(
                "the physical volume {name} ({}) was missing when the group {} changed, so its data may be stale; restore it with vgextend --restoremissing",
                physical.id, self.group.name
            ));
        }
        let device = self.devices.iter().find(|(label, _)| label.id == physical.id);
        let missing =
            || format!("the physical volume {name} ({}) is not among the devices; name it too", physical.id);
        device.map(|(_, device)| Arc::clone(device)).ok_or_else(missing)
    }

    /// The images of a mirror that are complete.
    fn complete_images<'a>(
        &self,
        images: &'a [Area],
        states: &[String],
        depth: u32,
    ) -> Result<Vec<&'a Area>, Problem> {
        let first = images.first().ok_or_else(|| "a mirror has no images".to_owned())?;
        if states.is_empty() {
            // The others are copied from the first.
            return Ok(vec![first]);
        }
        let mut found = Vec::new();
        for (image, state) in images.iter().zip(states) {
            self.count_areas(STATE_AREAS)?;
            let device = self.volume(state, depth + 1)?;
            found.push((image, ImageState::read(&*device).map_err(OpenError::Io)?));
        }
        let known = || found.iter().filter_map(|(_, state)| state.as_ref());
        let newest = known()
            .max_by_key(|state| state.events)
            .ok_or_else(|| "no image of the mirror has a state".to_owned())?;
        let is_sound = |index: usize, state: &ImageState| {
            state.events == newest.events && state.is_recovered && (newest.failed >> index.min(63)) & 1 == 0
        };
        let sound = found.iter().enumerate().filter_map(|(index, (image, state))| {
            let state = state.as_ref().filter(|state| is_sound(index, state))?;
            Some((*image, state))
        });
        let sound: Vec<_> = sound.collect();
        // The kernel copies the first of them to the others if they may differ.
        let is_same = newest.is_in_sync && sound.iter().all(|(_, state)| state.is_clean);
        let count = if is_same { sound.len() } else { 1 };
        let sound: Vec<_> = sound.into_iter().take(count).map(|(image, _)| image).collect();
        if sound.is_empty() { Err("no image of the mirror is whole".to_owned().into()) } else { Ok(sound) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm_group::Logical;
    use diorite_sim::image::ImageDevice;

    /// The list of a group's volumes was empty in the message.
    #[test]
    fn a_group_without_volumes_is_said_to_have_none() {
        let group = Group {
            name: "vg".to_owned(),
            version: 1,
            extent_bytes: 4 << 20,
            physical: BTreeMap::new(),
            logical: BTreeMap::new(),
            is_shared: false,
        };
        let whole = Whole::new(group, Vec::new());
        assert_eq!(whole.choose(None).expect_err("none"), "the group vg has no volumes");
        let named = whole.choose(Some("lin")).expect_err("none");
        assert_eq!(named, "there is no volume lin: the group vg has no volumes");
    }

    /// Extents of 1 KiB on a device with blocks of 4 KiB: each segment was rounded down, and the next ones were shifted.
    #[test]
    fn segments_that_are_not_of_whole_blocks_are_refused() {
        let volume = |logical_block_size, extents: [u64; 2]| {
            let geometry =
                diorite_block::Geometry { logical_block_size, ..ImageDevice::geometry_for(1 << 20) };
            let device: Arc<dyn BlockDevice> = ImageDevice::zeroed_with(geometry);
            let mut content = diorite_device::AlignedBuf::zeroed(1 << 20, 4096);
            content.chunks_mut(1024).zip(0..).for_each(|(extent, number)| extent.fill(number as u8));
            device.write_bytes(0, &content, diorite_block::BioFlags::SYNC).expect("written");
            let segment = |(extents, extent)| {
                let areas = vec![Area { volume: "pv0".to_owned(), extent }];
                Segment { extents, kind: SegmentKind::Striped { chunk_bytes: 0, areas } }
            };
            let segments = extents.into_iter().zip([0, 100]).map(segment).collect();
            let physical = Physical { id: "id".to_owned(), start: 0, extents: 1024, was_missing: false };
            let group = Group {
                name: "vg".to_owned(),
                version: 1,
                extent_bytes: 1024,
                physical: [("pv0".to_owned(), physical)].into(),
                logical: [("lin".to_owned(), Logical { is_visible: true, is_writable: true, segments })]
                    .into(),
                is_shared: false,
            };
            let label = Label { id: "id".to_owned(), texts: Vec::new() };
            Whole::new(group, vec![(label, device)]).volume("lin", 0)
        };
        assert!(volume(4096, [5, 8]).is_err());
        for (block, extents) in [(512, [5, 8]), (4096, [8, 8])] {
            let device = volume(block, extents).ok().expect("whole blocks");
            let mut memory = diorite_device::AlignedBuf::zeroed(12 << 10, 4096);
            device.read_bytes(0, &mut memory).expect("read");
            let first_of_second = extents[0] as usize * 1024;
            assert_eq!(
                (memory[first_of_second - 1024], memory[first_of_second]),
                (extents[0] as u8 - 1, 100)
            );
        }
    }

    /// The time to list the volumes of a group grew with their number times the number of snapshots, and so did the message.
    #[test]
    fn a_group_with_many_volumes_and_snapshots_is_listed_soon() {
        const COUNT: u32 = 40_000;
        let volume = |kind| Logical {
            is_visible: true,
            is_writable: true,
            segments: vec![Segment { extents: 1, kind }],
        };
        let snapshot = |number| SegmentKind::Snapshot {
            origin: format!("origin{number}"),
            store: format!("store{number}"),
            is_merged: false,
        };
        let pair = |number| {
            let plain = volume(SegmentKind::Other("plain".to_owned()));
            [(format!("origin{number}"), plain), (format!("snap{number}"), volume(snapshot(number)))]
        };
        let group = Group {
            name: "vg".to_owned(),
            version: 1,
            extent_bytes: 4 << 20,
            physical: BTreeMap::new(),
            logical: (0..COUNT).flat_map(pair).collect(),
            is_shared: false,
        };
        let before = std::time::Instant::now();
        let whole = Whole::new(group, Vec::new());
        let message = whole.choose(None).expect_err("there are many");
        assert!(message.contains("origin10,") && message.contains("and 39980 more"), "{message}");
        assert!((0..1000).all(|number| whole.read_only_reason(&format!("origin{number}")).is_some()));
        assert!(before.elapsed() < std::time::Duration::from_secs(3), "{:?}", before.elapsed());
    }
}
