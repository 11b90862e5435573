//! The contents of a disk after a power cut at one moment.

use std::ops::Range;
use std::sync::Arc;

use diorite_block::{BioFlags, SECTOR_SIZE, Sector};

use super::recording::{Replay, Version, Write};
use crate::image::SparseImage;
use crate::overlay::OverlayDevice;

/// The fate of one unflushed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never reached the medium.
    Lost,
    /// It reached the medium.
    Whole,
    /// Only its first sectors reached the medium.
    Torn {
        /// Their number.
        sectors: u32,
    },
}

/// Whether writes of more than one sector may be torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tearing {
    /// Writes are whole or absent.
    Never,
    /// They may end at any sector.
    Allowed,
    /// They may end at addresses that are multiples of 4096 bytes.
    Pages,
}

impl Tearing {
    /// The unit that the medium writes whole, in sectors.
    pub(super) fn unit(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Allowed => Some(1),
            Self::Pages => Some(8),
        }
    }
}

/// A pattern of lost writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All unflushed writes.
    All,
    /// None.
    None,
    /// Those from one on.
    AfterOne,
    /// All but one.
    AllButOne,
    /// Only one.
    One,
    /// Those without `META`.
    Data,
    /// Those with `META`.
    Metadata,
    /// Each by chance.
    Some,
    /// Each sector by chance, with any of its versions.
    Sectors,
}

impl Loss {
    /// All patterns.
    pub const KINDS: [Self; 9] = [
        Self::All,
        Self::Data,
        Self::Some,
        Self::One,
        Self::AllButOne,
        Self::Sectors,
        Self::AfterOne,
        Self::Metadata,
        Self::None,
    ];
}

/// A moment of a power cut.
#[derive(Clone, Debug)]
pub struct CrashPoint<'a> {
    replay: Replay<'a>,
    /// Writes with a sector that is not durable, in the order of issue.
    unflushed: Vec<usize>,
    number: usize,
}

impl<'a> CrashPoint<'a> {
    pub(super) fn new(replay: Replay<'a>, number: usize) -> Self {
        Self { unflushed: replay.unflushed(), replay, number }
    }

    /// Its number, from 0, in the order of time.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Number of unflushed writes.
    pub fn unflushed_count(&self) -> usize {
        self.unflushed.len()
    }

    /// The promises before this moment, in order ([`super::RecordingDevice::mark`]).
    pub fn marks(&self) -> &[u64] {
        &self.replay.marks
    }

    /// Number of events before this moment.
    pub fn event(&self) -> usize {
        self.replay.at()
    }

    /// Numbers of the unflushed writes in the record, in the order of issue.
    pub fn unflushed_numbers(&self) -> &[usize] {
        &self.unflushed
    }

    pub(super) fn writes(&self) -> impl Iterator<Item = &Write> {
        self.unflushed.iter().map(|write| &self.replay.recording.writes[*write])
    }

    /// Ranges of the unflushed writes, `(first sector, sectors)`, for messages.
    pub fn unflushed(&self) -> Vec<(Sector, u32)> {
        self.writes().map(|write| (write.sector, write.sectors() as u32)).collect()
    }

    /// The last kept version of each unflushed sector, by sector and index of the unflushed write.
    fn kept(&self, mut is_kept: impl FnMut(u64, usize) -> bool) -> impl Iterator<Item = (u64, Version)> {
        self.replay.volatile.iter().filter_map(move |(sector, versions)| {
            let kept = versions.iter().filter(|version| {
                self.unflushed.binary_search(&version.write).is_ok_and(|index| is_kept(*sector, index))
            });
            let last = kept.max_by_key(|version| version.ended.unwrap_or(usize::MAX))?;
            Some((*sector, *last))
        })
    }

    /// The disk with the last version of each sector that is kept.
    fn image_of(&self, is_kept: impl FnMut(u64, usize) -> bool) -> SparseImage {
        let mut image = (*self.replay.durable).clone();
        for (sector, last) in self.kept(is_kept) {
            image.write(sector * SECTOR_SIZE, self.replay.bytes_of(last.write, sector));
        }
        image
    }

    /// Whether a sector of an unflushed write is kept.
    fn by_fate<'b>(&'b self, fates: &'b [Fate]) -> impl Fn(u64, usize) -> bool + use<'a, 'b> {
        assert_eq!(fates.len(), self.unflushed.len(), "one fate for each unflushed write");
        let starts: Vec<u64> = self.writes().map(|write| write.sector.0).collect();
        move |sector, index| match fates[index] {
            Fate::Lost => false,
            Fate::Whole => true,
            Fate::Torn { sectors } => sector - starts[index] < u64::from(sectors),
        }
    }

    /// The disk after a crash at this moment; `fates` has one entry for each unflushed write.
    pub fn image(&self, fates: &[Fate]) -> SparseImage {
        self.image_of(self.by_fate(fates))
    }

    /// As [`Self::image`], as a device. It holds only the unflushed sectors, and pages that are written to it.
    pub fn device(&self, fates: &[Fate]) -> Arc<OverlayDevice> {
        let kept = self.kept(self.by_fate(fates));
        let changes =
            kept.map(|(sector, last)| (sector * SECTOR_SIZE, self.replay.bytes_of(last.write, sector)));
        OverlayDevice::new(Arc::clone(&self.replay.durable), changes)
    }

    /// A hash of the image and of the number of promises. States of one recording with equal fingerprints are equal.
    pub fn fingerprint(&self, fates: &[Fate]) -> u64 {
        let durable = |sector: u64| self.replay.durable_hashes.get(&sector).copied().unwrap_or(0);
        let kept = self.kept(self.by_fate(fates)).map(|(sector, last)| durable(sector) ^ last.hash);
        let promises = (self.replay.marks.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        kept.fold(self.replay.fingerprint ^ promises, |all, hash| all ^ hash)
    }

    /// The disk after a crash that loses writes by a pattern and a seed. With [`Loss::Sectors`] the sectors in `whole` and atomic writes are not
    /// torn.
    pub fn image_after(&self, loss: Loss, whole: &Range<u64>, seed: u64) -> SparseImage {
        let mut random = fastrand::Rng::with_seed(seed);
        let one = random.usize(..self.unflushed.len().max(1));
        let mut choose = |index: usize, is_metadata: bool| match loss {
            Loss::All => false,
            Loss::None => true,
            Loss::AfterOne => index < one,
            Loss::AllButOne => index == one,
            Loss::One => index != one,
            Loss::Data => is_metadata,
            Loss::Metadata => !is_metadata,
            Loss::Some | Loss::Sectors => random.bool(),
        };
        let chosen = self.writes().enumerate();
        let chosen: Vec<(bool, bool)> = chosen
            .map(|(index, Write { flags, .. })| {
                (choose(index, flags.contains(BioFlags::META)), flags.contains(BioFlags::ATOMIC))
            })
            .collect();
        self.image_of(|sector, index| {
            let (is_chosen, is_atomic) = chosen[index];
            if loss == Loss::Sectors && !is_atomic && !whole.contains(&sector) {
                random.bool()
            } else {
                is_chosen
            }
        })
    }
}
