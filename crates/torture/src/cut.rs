//! Power cuts: the legal contents of a drive with a volatile cache when power returns.
//!
//! The model, sector by sector (512 bytes):
//! 1. A flush makes all that had ended before it was issued durable, once it has ended. So is a FUA write that has ended.
//! 2. Of later writes, each sector keeps any one of its versions, the durable one included: subsets, orders and tears.
//! 3. The primary superblock (1 KiB) is torn only on request: a volume of one group has no other one.
//! 4. A version is lost for good when a version that ended later is durable.

use std::collections::BTreeMap;

use crate::disk::{Event, Record, SECTOR};
use crate::image::Image;
use crate::random::Random;

/// Where the primary superblock is, in sectors.
const SUPERBLOCK: std::ops::Range<u64> = 2..4;

/// A version of a sector that is not known to be durable.
#[derive(Clone, Copy, Debug)]
struct Version {
    write: usize,
    /// When the write ended; `None` while it is under way.
    ended: Option<usize>,
}

/// Walks through a record and stands at one moment of it.
#[derive(Debug)]
pub struct Replay<'a> {
    record: &'a Record,
    durable: Image,
    volatile: BTreeMap<u64, Vec<Version>>,
    flush_issued: BTreeMap<usize, usize>,
    at: usize,
    /// Whether the primary superblock may be torn, too.
    pub tear_superblock: bool,
}

/// Fate of writes that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All are lost.
    All,
    /// All are there.
    None,
    /// Those from one on are lost.
    AfterOne,
    /// Only one is present.
    AllButOne,
    /// Only one is lost.
    One,
    /// Metadata is there, data is not.
    Data,
    /// Data is there, metadata is not.
    Metadata,
    /// Each write by chance.
    Some,
    /// Each sector by chance, any of its versions.
    Sectors,
}

impl Loss {
    /// All kinds.
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

impl<'a> Replay<'a> {
    /// At the beginning.
    pub fn new(record: &'a Record) -> Self {
        let durable = record.base.clone();
        let (volatile, flush_issued) = (BTreeMap::new(), BTreeMap::new());
        Self { record, durable, volatile, flush_issued, at: 0, tear_superblock: false }
    }

    fn sectors_of(&self, write: usize) -> impl Iterator<Item = u64> + use<> {
        let write = &self.record.writes[write];
        let first = write.at / SECTOR as u64;
        first..first + (write.bytes.len() / SECTOR) as u64
    }

    fn bytes_of(&self, write: usize, sector: u64) -> &'a [u8] {
        let write = &self.record.writes[write];
        let start = (sector * SECTOR as u64 - write.at) as usize;
        &write.bytes[start..start + SECTOR]
    }

    /// Go on until `events` events have happened.
    pub fn advance(&mut self, events: usize) {
        while self.at < events {
            let now = self.at;
            match self.record.events[now] {
                Event::Issued(write) => {
                    for sector in self.sectors_of(write) {
                        self.volatile.entry(sector).or_default().push(Version { write, ended: None });
                    }
                }
                Event::Ended(write) => {
                    for sector in self.sectors_of(write) {
                        let versions = self.volatile.entry(sector).or_default();
                        for version in versions.iter_mut().filter(|version| version.write == write) {
                            version.ended = Some(now);
                        }
                        if self.record.writes[write].fua {
                            self.settle(sector, now);
                        }
                    }
                }
                Event::FlushIssued(flush) => {
                    self.flush_issued.insert(flush, now);
                }
                Event::FlushEnded(flush) => {
                    let issued = self.flush_issued.remove(&flush).expect("a flush is issued first");
                    let sectors: Vec<u64> = self.volatile.keys().copied().collect();
                    for sector in sectors {
                        self.settle(sector, issued);
                    }
                }
                Event::Mark => {}
            }
            self.at += 1;
        }
    }

    /// The last version of a sector that ended at or before `moment` is durable.
    fn settle(&mut self, sector: u64, moment: usize) {
        let Some(versions) = self.volatile.get_mut(&sector) else { return };
        let is_covered = |version: &Version| version.ended.is_some_and(|ended| ended <= moment);
        let last = versions.iter().copied().filter(is_covered).max_by_key(|version| version.ended);
        let Some(last) = last else { return };
        versions.retain(|version| !is_covered(version));
        if versions.is_empty() {
            self.volatile.remove(&sector);
        }
        let bytes = self.bytes_of(last.write, sector);
        self.durable.write(sector * SECTOR as u64, bytes);
    }

    /// Writes with at least one sector that is not durable.
    fn volatile_writes(&self) -> Vec<usize> {
        let mut writes: Vec<usize> = self
            .volatile
            .values()
            .flat_map(|versions| versions.iter().map(|version| version.write))
            .collect();
        writes.sort_unstable();
        writes.dedup();
        writes
    }

    /// Whether a sector of a torn write is there.
    fn is_kept(&self, sector: u64, write: usize, salt: u64, random: &mut Random) -> bool {
        let is_whole = self.record.writes[write].atomic;
        if is_whole || SUPERBLOCK.contains(&sector) && !self.tear_superblock {
            return Random::new(salt ^ write as u64).one_in(2);
        }
        random.one_in(2)
    }

    /// The legal contents after a cut at this moment.
    pub fn image(&self, loss: Loss, random: &mut Random) -> Image {
        let mut image = self.durable.clone();
        let writes = self.volatile_writes();
        if writes.is_empty() {
            return image;
        }
        let (one, salt) = (random.index(writes.len()), random.number());
        let is_there: Vec<bool> = writes
            .iter()
            .enumerate()
            .map(|(index, write)| match loss {
                Loss::All => false,
                Loss::None | Loss::Sectors => true,
                Loss::AfterOne => index < one,
                Loss::AllButOne => index == one,
                Loss::One => index != one,
                Loss::Data => self.record.writes[*write].meta,
                Loss::Metadata => !self.record.writes[*write].meta,
                Loss::Some => random.one_in(2),
            })
            .collect();
        for (sector, versions) in &self.volatile {
            let mut kept: Vec<Version> = versions
                .iter()
                .copied()
                .filter(|version| {
                    writes.binary_search(&version.write).is_ok_and(|index| is_there[index])
                        && (loss != Loss::Sectors || self.is_kept(*sector, version.write, salt, random))
                })
                .collect();
            kept.sort_by_key(|version| version.ended.unwrap_or(usize::MAX));
            if let Some(last) = kept.last() {
                image.write(sector * SECTOR as u64, self.bytes_of(last.write, *sector));
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use diorite_block::{Bio, BioFlags, BlockDevice, Sector};

    use super::*;
    use crate::disk::Disk;
    use crate::image::PIECE;

    fn write(disk: &Disk, sector: u64, value: u8, flags: BioFlags) {
        disk.execute(&mut [Bio::write(Sector(sector), &[value; SECTOR], flags)]).unwrap();
    }

    /// Every set of values of the first two sectors that cuts at the end may leave.
    fn outcomes(disk: &Disk) -> Vec<(u8, u8)> {
        let record = disk.record();
        let mut replay = Replay::new(&record);
        replay.advance(record.events.len());
        let mut random = Random::new(1);
        let mut seen = Vec::new();
        for round in 0..300 {
            let image = replay.image(Loss::KINDS[round % Loss::KINDS.len()], &mut random);
            let mut bytes = [0; 2 * SECTOR];
            image.read(0, &mut bytes);
            seen.push((bytes[0], bytes[SECTOR]));
        }
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    fn disk() -> std::sync::Arc<Disk> {
        Disk::new(Image::of_marker(PIECE as u64), true, 1)
    }

    #[test]
    fn what_is_not_flushed_may_be_there_or_not() {
        let disk = disk();
        write(&disk, 0, 1, BioFlags::NONE);
        disk.execute(&mut [Bio::flush()]).unwrap();
        write(&disk, 0, 2, BioFlags::NONE);
        write(&disk, 1, 3, BioFlags::NONE);
        assert_eq!(outcomes(&disk), [(1, 3), (1, 0xa5), (2, 3), (2, 0xa5)]);
    }

    #[test]
    fn fua_is_durable_and_hides_what_ended_before() {
        let disk = disk();
        write(&disk, 0, 1, BioFlags::NONE);
        write(&disk, 0, 2, BioFlags::FUA);
        write(&disk, 1, 3, BioFlags::NONE);
        assert_eq!(outcomes(&disk), [(2, 3), (2, 0xa5)]);
    }

    #[test]
    fn older_versions_show_when_newer_ones_are_lost() {
        let disk = disk();
        write(&disk, 0, 1, BioFlags::NONE);
        write(&disk, 0, 2, BioFlags::NONE);
        assert_eq!(outcomes(&disk), [(1, 0xa5), (2, 0xa5), (0xa5, 0xa5)]);
    }
}
