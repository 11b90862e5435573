//! The contents of a disk after a power cut at one moment.

use std::ops::Range;

use diorite_block::{BioFlags, SECTOR_SIZE, Sector};

use super::recording::{Replay, Write};
use crate::image::SparseImage;

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
        let versions = replay.volatile.values().flatten();
        let mut unflushed: Vec<usize> = versions.map(|version| version.write).collect();
        unflushed.sort_unstable();
        unflushed.dedup();
        Self { replay, unflushed, number }
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

    fn writes(&self) -> impl Iterator<Item = &Write> {
        self.unflushed.iter().map(|write| &self.replay.recording.writes[*write])
    }

    /// Ranges of the unflushed writes, `(first sector, sectors)`, for messages.
    pub fn unflushed(&self) -> Vec<(Sector, u32)> {
        self.writes().map(|write| (write.sector, write.sectors() as u32)).collect()
    }

    /// The disk with the last version of each sector that is kept, by sector and index of the unflushed write.
    fn image_of(&self, mut is_kept: impl FnMut(u64, usize) -> bool) -> SparseImage {
        let mut image = self.replay.durable.clone();
        for (sector, versions) in &self.replay.volatile {
            let kept = versions.iter().filter(|version| {
                self.unflushed.binary_search(&version.write).is_ok_and(|index| is_kept(*sector, index))
            });
            if let Some(last) = kept.max_by_key(|version| version.ended.unwrap_or(usize::MAX)) {
                image.write(sector * SECTOR_SIZE, self.replay.bytes_of(last.write, *sector));
            }
        }
        image
    }

    /// The disk after a crash at this moment; `fates` has one entry for each unflushed write.
    pub fn image(&self, fates: &[Fate]) -> SparseImage {
        assert_eq!(fates.len(), self.unflushed.len(), "one fate for each unflushed write");
        let starts: Vec<u64> = self.writes().map(|write| write.sector.0).collect();
        self.image_of(|sector, index| match fates[index] {
            Fate::Lost => false,
            Fate::Whole => true,
            Fate::Torn { sectors } => sector - starts[index] < u64::from(sectors),
        })
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

    /// Fates to test: all combinations if there are at most `limit`. Otherwise none, all, each prefix, each write alone, all but each write (as
    /// many as fit), and random ones by `seed` up to `limit`. With `Tearing::Allowed`, random ones also tear writes.
    pub fn fates(&self, limit: usize, tearing: Tearing, seed: u64) -> Vec<Vec<Fate>> {
        let count = self.unflushed.len();
        let of = |present: bool| if present { Fate::Whole } else { Fate::Lost };
        let by = |present: &dyn Fn(usize) -> bool| (0..count).map(|i| of(present(i))).collect::<Vec<_>>();
        let combinations = u32::try_from(count).ok().and_then(|bits| 1usize.checked_shl(bits)).unwrap_or(0);
        let mut list = Vec::new();
        if combinations > 0 && combinations <= limit && tearing == Tearing::Never {
            list.extend((0..combinations).map(|bits| by(&|i| bits >> i & 1 == 1)));
            return list;
        }
        let quarter = (limit / 4).max(1);
        list.push(by(&|_| false));
        list.push(by(&|_| true));
        let step = count.div_ceil(quarter).max(1);
        list.extend((1..count).step_by(step).map(|end| by(&|i| i < end)));
        list.extend((0..count).step_by(step).map(|one| by(&|i| i == one)));
        list.extend((0..count).step_by(step).map(|one| by(&|i| i != one)));
        let mut random = fastrand::Rng::with_seed(seed ^ self.number as u64);
        while list.len() < limit && count > 0 {
            let fates = self.writes().map(|write| match random.u8(..8) {
                0 if tearing == Tearing::Allowed && write.sectors() > 1 => {
                    Fate::Torn { sectors: random.u32(1..write.sectors() as u32) }
                }
                draw => of(draw % 2 == 1),
            });
            list.push(fates.collect());
        }
        list.truncate(limit.max(2));
        list
    }
}
