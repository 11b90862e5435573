//! The write half of the backing store: a write is placed, executed and recorded.
//!
//! The caller holds the range. The order of the steps is that of [`WriteOp`](crate::content::write::WriteOp).

use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{Bio, BioFlags, Sector};

use crate::store::backing::BackingStore;
use crate::store::map::{MappingKind, WriteCommit};
use crate::store::placement::{Placed, PlacedPart, Source, execute, place_write};
use crate::store::reservation::Reservation;
use crate::{Error, Result};

impl BackingStore {
    /// The place of a range on the device, if one bio can move it.
    pub(crate) fn whole_on_device(&self, offset: u64, reach: u64) -> Result<Option<Sector>> {
        if reach > u64::from(self.geometry().max_transfer_bytes) {
            return Ok(None);
        }
        let mapping = self.map.map(offset, reach)?.within(&(offset..offset + reach));
        Ok(match mapping.kind {
            MappingKind::Mapped(first) if mapping.offset == offset && mapping.len == reach => Some(first),
            _ => None,
        })
    }

    /// Reserve blocks for a range of whole logical blocks, and place a write of it.
    pub(crate) fn place(&self, window: Range<u64>, reservation: &mut Reservation<'_>) -> Result<Placed> {
        // Most small random writes are one transfer within the recorded size. After that size, also in the last
        // block, the map must know of the write: a file of the host would stay longer.
        if window.end <= self.map.recorded_size()
            && let Some(sector) = self.whole_on_device(window.start, window.end - window.start)?
        {
            self.map.check_process()?;
            return Ok(Placed::overwrite(&window, sector));
        }
        self.map.check_quota(window.start, window.end - window.start)?;
        place_write(&*self.map, std::slice::from_ref(&window), reservation)
    }

    /// Write a placed write from `memory`, and wait. Returns the number of bios.
    pub(crate) fn execute_placed<'m>(
        &self,
        placed: &Placed,
        memory: impl Iterator<Item = &'m [u8]> + Clone,
        flags: BioFlags,
    ) -> Result<u64> {
        let largest = u64::from(self.geometry().max_transfer_bytes);
        let bios = match (&placed.parts[..], memory.clone().next()) {
            ([PlacedPart { sector, len, source: Source::Data }], Some(first))
                if first.len() as u64 >= *len && *len <= largest =>
            {
                work(Work::Submit(1));
                let mut bio = Bio::write(*sector, &first[..*len as usize], flags);
                self.device().execute(std::slice::from_mut(&mut bio))?;
                1
            }
            _ => {
                let plug = placed.plug(self.geometry(), flags, memory, &self.shared.zeros);
                if flags.contains(BioFlags::ATOMIC) && plug.bios().len() != 1 {
                    return Err(Error::Unsupported(
                        "the memory of an atomic write has too many segments for one transfer",
                    ));
                }
                execute(plug, self.device())?
            }
        };
        self.shared.counters.bios.add(bios);
        Ok(bios)
    }

    /// Record a write that ends at `end`. The caller has its range, and lets the file [grow](BackingStore::grow) when all of the write is
    /// recorded.
    pub(crate) fn commit_written(&self, mut commit: WriteCommit, end: u64) -> Result<()> {
        commit.size_at_least = (end > self.map.recorded_size()).then_some(end);
        self.note_modified();
        self.commit(commit)
    }

    /// Record pages that were written back, and the size up to their `end`. Outside of a sync, which records times
    /// itself, also record the modification time.
    pub(crate) fn commit_written_back(
        &self,
        mut commit: WriteCommit,
        end: u64,
        flags: BioFlags,
    ) -> Result<()> {
        let end = end.min(self.size());
        commit.size_at_least = (end > self.map.recorded_size()).then_some(end);
        self.commit(commit)?;
        if !flags.contains(BioFlags::SYNC) && self.time.get().is_some() {
            // An overwrite records nothing else. The volume latches a failure; the data is on the device all the
            // same.
            let _ = self.record_time();
        }
        Ok(())
    }

    /// Write zeros to a range of whole blocks that the caller has exclusively. The file ends at `end` or after it.
    /// Returns the end of the written bytes; the caller grows the size that readers see.
    pub(crate) fn write_zeros(
        &self,
        window: Range<u64>,
        end: u64,
        reservation: &mut Reservation<'_>,
    ) -> Result<u64> {
        let placed = self.place(window, reservation)?;
        let bios = self.execute_placed(&placed, std::iter::repeat(&self.shared.zeros[..]), BioFlags::SYNC)?;
        self.shared.counters.direct_bios.add(bios);
        let end = placed.end.min(end);
        self.commit_written(placed.commit, end)?;
        Ok(end)
    }
}
