//! A volume group: what the text of LVM2's metadata says of its physical and logical volumes.

use std::collections::{BTreeMap, BTreeSet};

use super::Result;
use super::lvm_text::{Section, Value};

/// Bytes of the sectors in which the text counts.
const SECTOR: u64 = 512;

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// Grows with each change.
    pub(super) version: u64,
    pub(super) extent_bytes: u64,
    /// By their names in the text.
    pub(super) physical: BTreeMap<String, Physical>,
    pub(super) logical: BTreeMap<String, Logical>,
    /// Whether hosts share it, under a lock that is not known here.
    pub(super) is_shared: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Physical {
    /// Identity without hyphens.
    pub(super) id: String,
    /// First byte of the first extent.
    pub(super) start: u64,
    pub(super) extents: u64,
    /// Whether it was away when the group changed: what it has may be old.
    pub(super) was_missing: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Logical {
    /// Whether users see it; other volumes are its parts.
    pub(super) is_visible: bool,
    pub(super) is_writable: bool,
    /// In order, without gaps.
    pub(super) segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) extents: u64,
    pub(super) kind: SegmentKind,
}

/// Extents from one on.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// Name of a physical or a logical volume.
    pub(super) volume: String,
    pub(super) extent: u64,
}

#[derive(Clone, Debug)]
pub(super) enum SegmentKind {
    /// In turns of `chunk_bytes`; one area is linear.
    Striped { chunk_bytes: u64, areas: Vec<Area> },
    /// The same on each; the first is the one that others are copied from. Each may have a volume with its state (dm-raid).
    Mirrored { images: Vec<Area>, states: Vec<String> },
    /// Of a volume that no user sees: blocks of `origin` are copied to `store` before they are first written, or, where it is merged, are
    /// on their way back.
    Snapshot { origin: String, store: String, is_merged: bool },
    /// What is not known here, by its name.
    Other(String),
}

impl Group {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let text = Section::parse(text)?;
        let (name, group) = text.sections().next().ok_or("the metadata has no volume group")?;
        let mut physical = BTreeMap::new();
        for (name, volume) in group.section("physical_volumes").into_iter().flat_map(Section::sections) {
            let start = volume.number("pe_start")?.checked_mul(SECTOR).ok_or("pe_start is too large")?;
            let id = volume.text("id")?.replace('-', "");
            let (extents, was_missing) = (volume.number("pe_count")?, has_flag(volume, "flags", "MISSING"));
            physical.insert(name.to_owned(), Physical { id, start, extents, was_missing });
        }
        let mut logical = BTreeMap::new();
        for (name, volume) in group.section("logical_volumes").into_iter().flat_map(Section::sections) {
            let volume = Logical::parse(volume).map_err(|why| format!("volume {name}: {why}"))?;
            logical.insert(name.to_owned(), volume);
        }
        let extent_bytes = group.number("extent_size")?.checked_mul(SECTOR).filter(|bytes| *bytes > 0);
        let has_lock = group.has("lock_type") && group.text("lock_type") != Ok("none");
        Ok(Self {
            name: name.to_owned(),
            version: group.number("seqno")?,
            extent_bytes: extent_bytes.ok_or("the size of an extent makes no sense")?,
            physical,
            logical,
            is_shared: has_lock || has_flag(group, "status", "CLUSTERED"),
        })
    }

    /// Names of the volumes that users see, but for snapshots.
    pub(super) fn visible(&self) -> impl Iterator<Item = &str> {
        let snapshots: BTreeSet<_> =
            self.snapshots().flat_map(|snapshot| [snapshot.store, snapshot.name]).collect();
        let visible =
            self.logical.iter().filter(|(_, volume)| volume.is_visible).map(|(name, _)| name.as_str());
        visible.filter(move |name| !snapshots.contains(name))
    }

    /// The snapshots that are not thin.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = Snapshot<'_>> {
        let segments =
            self.logical.iter().flat_map(|(name, volume)| volume.segments.iter().map(move |it| (name, it)));
        segments.filter_map(|(name, segment)| match &segment.kind {
            SegmentKind::Snapshot { origin, store, is_merged } => {
                Some(Snapshot { name, origin, store, is_merged: *is_merged })
            }
            _ => None,
        })
    }
}

/// A snapshot, by the names of the volumes that it consists of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot<'a> {
    /// The volume that links the others; users do not see it.
    name: &'a str,
    pub(super) origin: &'a str,
    /// What users call the snapshot.
    pub(super) store: &'a str,
    pub(super) is_merged: bool,
}

/// Whether a list of the section has this word.
fn has_flag(section: &Section, list: &str, wanted: &str) -> bool {
    let is_wanted = |value: &Value| matches!(value, Value::Text(flag) if flag == wanted);
    section.list(list).is_ok_and(|flags| flags.iter().any(is_wanted))
}

impl Logical {
    fn parse(volume: &Section) -> Result<Self> {
        let mut segments = Vec::new();
        let mut end = 0_u64;
        for number in 1..=volume.number("segment_count")? {
            let segment = volume.section(&format!("segment{number}"));
            let segment = segment.ok_or_else(|| format!("there is no segment {number}"))?;
            let (start, extents) = (segment.number("start_extent")?, segment.number("extent_count")?);
            if start != end || extents == 0 {
                return Err(format!("segment {number} does not follow the one before it"));
            }
            end = start.checked_add(extents).ok_or("a segment is too large")?;
            segments.push(Segment { extents, kind: SegmentKind::parse(segment)? });
        }
        Ok(Self {
            is_visible: has_flag(volume, "status", "VISIBLE"),
            is_writable: has_flag(volume, "status", "WRITE"),
            segments,
        })
    }
}

impl SegmentKind {
    fn parse(segment: &Section) -> Result<Self> {
        let chunk_bytes = |areas: usize| match segment.number("stripe_size") {
            Ok(sectors) => sectors.checked_mul(SECTOR).ok_or_else(|| "stripe_size is too large".to_owned()),
            Err(_) if areas == 1 => Ok(0),
            Err(why) => Err(why),
        };
        let whole = |volume: &String| Area { volume: volume.clone(), extent: 0 };
        Ok(match segment.text("type")? {
            "striped" => {
                let areas = areas(segment.list("stripes")?)?;
                Self::Striped { chunk_bytes: chunk_bytes(areas.len())?, areas }
            }
            "raid0" => {
                let areas: Vec<_> = names(segment.list("raid0_lvs")?)?.iter().map(whole).collect();
                Self::Striped { chunk_bytes: chunk_bytes(areas.len())?, areas }
            }
            "mirror" => Self::Mirrored { images: areas(segment.list("mirrors")?)?, states: Vec::new() },
            "raid1" => {
                // States and images in turns.
                let (mut images, mut states) = (Vec::new(), Vec::new());
                for pair in names(segment.list("raids")?)?.chunks(2) {
                    let [state, image] = pair else { return Err("a mirror lacks an image".to_owned()) };
                    states.push(state.clone());
                    images.push(whole(image));
                }
                Self::Mirrored { images, states }
            }
            "snapshot" => {
                let is_merged = segment.has("merging_store");
                let store = segment.text(if is_merged { "merging_store" } else { "cow_store" })?;
                Self::Snapshot {
                    origin: segment.text("origin")?.to_owned(),
                    store: store.to_owned(),
                    is_merged,
                }
            }
            other => Self::Other(other.to_owned()),
        })
    }
}

/// Names and numbers in turns.
fn areas(list: &[Value]) -> Result<Vec<Area>> {
    let area = |pair: &[Value]| match pair {
        [Value::Text(volume), Value::Number(extent)] => {
            let extent = u64::try_from(*extent).map_err(|_| "an extent is below zero")?;
            Ok(Area { volume: volume.clone(), extent })
        }
        _ => Err("a list of areas makes no sense".to_owned()),
    };
    list.chunks(2).map(area).collect()
}

fn names(list: &[Value]) -> Result<Vec<String>> {
    let name = |value: &Value| match value {
        Value::Text(name) => Ok(name.clone()),
        _ => Err("a list of volumes makes no sense".to_owned()),
    };
    list.iter().map(name).collect()
}
