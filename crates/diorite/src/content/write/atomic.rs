//! Atomic writes: all or nothing after a power failure (`IoFlags::ATOMIC`).
//!
//! The device guarantees this for one aligned transfer. The range must be an overwrite of one contiguous range of the
//! device, so holes and unwritten blocks are filled with zeros first.

use crate::content::Content;
use crate::content::write::WriteRange;
use crate::store::map::MappingKind;
use crate::store::reservation::Reservation;
use crate::{Error, Result};

/// Make sure that a write of this range is one atomic transfer, or say why it cannot be. The caller has it exclusively.
pub(super) fn prepare_atomic(content: &Content, range: &WriteRange) -> Result<()> {
    let (offset, len) = (range.offset, range.end - range.offset);
    let most = content.store.geometry().atomic_write_bytes.min(content.store.geometry().max_transfer_bytes);
    if most == 0 {
        return Err(Error::Unsupported("the device does not support atomic writes"));
    }
    if !len.is_power_of_two() || len > u64::from(most) || !offset.is_multiple_of(len) {
        return Err(Error::InvalidArgument(
            "an atomic write has a power of two as its length, at most that of File::alignment, and an offset that is a multiple of it",
        ));
    }
    if range.end > content.store.size() {
        return Err(Error::Unsupported(
            "an atomic write cannot extend the file; call allocate or set_len first",
        ));
    }
    // Holes and unwritten blocks of the range become written zeros.
    let (store, block) = (&content.store, content.store.map.block_size());
    let whole = range.offset / block * block..range.end.next_multiple_of(block);
    let is_unwritten = |kind: MappingKind| !matches!(kind, MappingKind::Mapped(_));
    content.engine.retry(&mut Reservation::new(&store.shared), |reservation| {
        store.zero_where(whole.clone(), whole.end.min(store.size()), is_unwritten, reservation)
    })?;
    let mapping = content.store.map.map(offset, len)?.within(&(offset..range.end));
    match mapping.kind {
        MappingKind::Mapped(sector) if mapping.len == len => {
            content.store.geometry().check_atomic(sector, len).map_err(|_| {
                Error::Unsupported(
                    "the range does not have the alignment on the device that an atomic write needs",
                )
            })
        }
        _ => Err(Error::Unsupported("the range is not contiguous on the device")),
    }
}
