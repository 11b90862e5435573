//! A volume group: the physical and logical volumes of the LVM2 metadata.

use std::collections::{BTreeMap, BTreeSet};

use crate::lvm_text::{Section, Value};
use crate::parts::Result;

/// Bytes of a sector of the metadata.
const SECTOR: u64 = 512;

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Grows with each change.
    pub(crate) version: u64,
    pub(crate) extent_bytes: u64,
    /// By their names in the text.
    pub(crate) physical: BTreeMap<String, Physical>,
    pub(crate) logical: BTreeMap<String, Logical>,
    /// Whether hosts share it under a lock manager.
    pub(crate) is_shared: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Physical {
    /// Identity without hyphens.
    pub(crate) id: String,
    /// First byte of the first extent.
    pub(crate) start: u64,
    pub(crate) extents: u64,
    /// Whether it was missing when the group changed, so its data may be stale.
    pub(crate) was_missing: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Logical {
    /// Whether it is visible to users; other volumes are parts of volumes.
    pub(crate) is_visible: bool,
    pub(crate) is_writable: bool,
    /// In order, without gaps.
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) extents: u64,
    pub(crate) kind: SegmentKind,
}

/// Extents of a volume from `extent` on.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    /// Name of a physical or a logical volume.
    pub(crate) volume: String,
    pub(crate) extent: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum SegmentKind {
    /// Striped by `chunk_bytes`; one area is linear.
    Striped { chunk_bytes: u64, areas: Vec<Area> },
    /// The same on each image; the others are copied from the first. Each may have a volume with its state (dm-raid).
    Mirrored { images: Vec<Area>, states: Vec<String> },
    /// The segment of a hidden volume: blocks of `origin` are copied to `store` before their first write, or copied back while the
    /// snapshot is merged.
    Snapshot { origin: String, store: String, is_merged: bool },
    /// An unsupported kind, by its name.
    Other(String),
}

impl Group {
    pub(crate) fn parse(text: &str) -> Result<Self> {
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
            extent_bytes: extent_bytes.ok_or("the size of an extent is invalid")?,
            physical,
            logical,
            is_shared: has_lock || has_flag(group, "status", "CLUSTERED"),
        })
    }

    /// Names of the visible volumes except snapshots.
    pub(crate) fn visible(&self) -> impl Iterator<Item = &str> {
        let snapshots: BTreeSet<_> =
            self.snapshots().flat_map(|snapshot| [snapshot.store, snapshot.name]).collect();
        let visible =
            self.logical.iter().filter(|(_, volume)| volume.is_visible).map(|(name, _)| name.as_str());
        visible.filter(move |name| !snapshots.contains(name))
    }

    /// The snapshots that are not thin.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = Snapshot<'_>> {
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
pub(crate) struct Snapshot<'a> {
    /// The hidden volume that links the others.
    name: &'a str,
    pub(crate) origin: &'a str,
    /// The name of the snapshot for users.
    pub(crate) store: &'a str,
    pub(crate) is_merged: bool,
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
                return Err(format!("segment {number} does not follow the previous segment"));
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
                // A list of pairs: a state and an image.
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

/// A list of pairs: a name and a number.
fn areas(list: &[Value]) -> Result<Vec<Area>> {
    let area = |pair: &[Value]| match pair {
        [Value::Text(volume), Value::Number(extent)] => {
            let extent = u64::try_from(*extent).map_err(|_| "an extent is below zero")?;
            Ok(Area { volume: volume.clone(), extent })
        }
        _ => Err("a list of areas is invalid".to_owned()),
    };
    list.chunks(2).map(area).collect()
}

fn names(list: &[Value]) -> Result<Vec<String>> {
    let name = |value: &Value| match value {
        Value::Text(name) => Ok(name.clone()),
        _ => Err("a list of volumes is invalid".to_owned()),
    };
    list.iter().map(name).collect()
}
