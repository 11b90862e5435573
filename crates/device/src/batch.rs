//! Running the bios of one call.
#![allow(unsafe_code)]

use diorite_block::{Bio, BioFlags, BlockDevice, IoError, IoErrorKind, Op};

use crate::file::FileDevice;
use crate::transfer::Transfer;

/// Run all bios; the first error, after all have ended.
pub(crate) fn execute(device: &FileDevice, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
    let mut first_error = Ok(());
    for bio in bios {
        if let Err(kind) = run(device, bio)
            && first_error.is_ok()
        {
            first_error = Err((device as &dyn BlockDevice).error(bio, kind));
        }
    }
    first_error
}

fn run(device: &FileDevice, bio: &mut Bio<'_>) -> Result<(), IoErrorKind> {
    device.geometry().check(bio)?;
    device.counters().count(bio.op, bio.len());
    if bio.flags.contains(BioFlags::PREFLUSH) {
        device.flush_now()?;
    }
    match bio.op {
        Op::Flush => device.flush_now(),
        Op::Discard | Op::WriteZeroes => device.without_memory_now(bio.op, bio.sector.to_bytes(), bio.len()),
        Op::Read | Op::Write => {
            // SAFETY: the bio is borrowed until the transfer has ended, in this very call.
            let transfer = unsafe { Transfer::from_bio(bio, device.granularity()) };
            transfer.map_or(Ok(()), |transfer| transfer.run(device.raw_fd()))
        }
    }
}
