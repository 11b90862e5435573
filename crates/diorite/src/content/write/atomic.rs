//! Atomic writes: all or nothing after a power failure (`IoFlags::ATOMIC`).
//!
//! The device promises it for one aligned transfer. So the range is an overwrite of one piece of the device: holes and unwritten blocks
//! become zeros first, which read as before.

use crate::content::write::WriteRange;
use crate::store::backing::BackingStore;
use crate::store::map::MappingKind;
use crate::store::reservation::Reservation;
use crate::{Error, Result};

impl BackingStore {
    /// Make sure that a write of this range is one atomic transfer, or say why it cannot be. The caller has it exclusively.
    pub(super) fn prepare_atomic(&self, range: &WriteRange) -> Result<()> {
        let (offset, len) = (range.offset, range.end - range.offset);
        let most = self.geometry().atomic_write_bytes.min(self.geometry().max_transfer_bytes);
        if most == 0 {
            return Err(Error::Unsupported("the device promises no atomic writes"));
        }
        if !len.is_power_of_two() || len > u64::from(most) || !offset.is_multiple_of(len) {
            return Err(Error::InvalidArgument(
                "an atomic write has a power of two as its length, at most that of File::alignment, and an offset that is a multiple of it",
            ));
        }
        if range.end > self.size() {
            return Err(Error::Unsupported(
                "an atomic write does not make the file longer; allocate or set_len comes first",
            ));
        }
        self.fill_with_zeros(range)?;
        let mapping = self.map.map(offset, len)?.within(&(offset..range.end));
        match mapping.kind {
            MappingKind::Mapped(sector) if mapping.len == len => {
                self.geometry().check_atomic(sector, len).map_err(|_| {
                    Error::Unsupported("the range is not aligned on the device as an atomic write needs it")
                })
            }
            _ => Err(Error::Unsupported("the range is not contiguous on the device")),
        }
    }

    /// Holes and unwritten blocks of the range become written zeros.
    fn fill_with_zeros(&self, range: &WriteRange) -> Result<()> {
        let block = self.map.block_size();
        let whole = range.offset / block * block..range.end.next_multiple_of(block);
        let mut reservation = Reservation::new(&self.engine);
        for mapping in self.map.mappings(whole) {
            let mapping = mapping?;
            if matches!(mapping.kind, MappingKind::Mapped(_)) {
                continue;
            }
            let window = mapping.offset..mapping.end();
            let stop = window.end.min(self.size());
            reservation.retry(|reservation| {
                let done = self.write_zeros(window.clone(), stop, reservation)?;
                if done < stop { Err(diorite_ext::Error::NoSpace.into()) } else { Ok(()) }
            })?;
        }
        Ok(())
    }
}
