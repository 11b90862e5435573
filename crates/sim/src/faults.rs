//! Faults of a [`RecordingDevice`](crate::crash::RecordingDevice): errors and lost writes.
//!
//! The fault model, per rule: *which* bios (operation, sectors), *when* (after so many matching ones, so many times), *what*
//! ([`Effect`]). A lost write reports success, as a bad drive does.

use std::ops::Range;

use diorite_block::{Bio, Op};

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The bio fails with this `errno` and moves nothing.
    Error(i32),
    /// The write moves nothing and reports success.
    Lost,
}

/// A rule: bios, and the effect on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    op: Option<Op>,
    /// Only bios that touch the sectors from the first up to the second, or any.
    sectors: Option<(u64, u64)>,
    after: u64,
    times: u64,
    spares_reads: bool,
    pub(crate) effect: Effect,
}

impl Fault {
    /// The effect on the first bio.
    pub fn any(effect: Effect) -> Self {
        Self { op: None, sectors: None, after: 0, times: 1, spares_reads: false, effect }
    }

    /// The effect on the first bio of this operation.
    pub fn on(op: Op, effect: Effect) -> Self {
        Self { op: Some(op), ..Self::any(effect) }
    }

    /// Only where these sectors are touched.
    #[must_use]
    pub fn at(self, sectors: Range<u64>) -> Self {
        Self { sectors: Some((sectors.start, sectors.end)), ..self }
    }

    /// Spare the first `count`.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self { after: count, ..self }
    }

    /// Hit `count` of them.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { times: count, ..self }
    }

    /// Count reads, and spare them.
    #[must_use]
    pub fn sparing_reads(self) -> Self {
        Self { spares_reads: true, ..self }
    }

    /// Whether the fault hits one bio only.
    pub fn is_single(&self) -> bool {
        self.times == 1
    }

    /// Count a bio. Returns whether the fault hits it.
    pub(crate) fn hits(&mut self, bio: &Bio<'_>) -> bool {
        let touches = |(start, end): (u64, u64)| bio.sector.0 < end && start < bio.end().0;
        let matches = self.op.is_none_or(|op| op == bio.op) && self.sectors.is_none_or(touches);
        if self.times == 0 || !matches {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        let hits = !(self.spares_reads && bio.op == Op::Read);
        self.times -= u64::from(hits);
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::RecordingDevice;
    use crate::image::SparseImage;
    use diorite_block::{BioFlags, BlockDevice, IoError, Sector};
    use std::sync::Arc;

    fn device() -> Arc<RecordingDevice> {
        RecordingDevice::on_image(SparseImage::new(1 << 20))
    }

    fn write(device: &RecordingDevice, sector: u64, value: u8) -> Result<(), IoError> {
        device.execute(&mut [Bio::write(Sector(sector), &[value; 2048], BioFlags::SYNC)])
    }

    fn byte(device: &RecordingDevice, sector: u64) -> u8 {
        let mut byte = [0];
        device.content().read(sector * 512, &mut byte);
        byte[0]
    }

    #[test]
    fn the_nth_write_fails_and_only_that() {
        let device = device();
        device.add(Fault::on(Op::Write, Effect::Error(5)).after(2));
        let results: Vec<_> = (0..5).map(|sector| write(&device, sector * 4, 1).is_ok()).collect();
        assert_eq!(results, [true, true, false, true, true]);
        let error = {
            device.add(Fault::on(Op::Write, Effect::Error(5)).at(40..41));
            write(&device, 38, 1).unwrap_err()
        };
        assert_eq!((error.kind.errno(), error.sector), (5, Sector(38)));
    }

    #[test]
    fn a_lost_write_reports_success() {
        let device = device();
        device.add(Fault::on(Op::Write, Effect::Lost));
        write(&device, 0, 1).unwrap();
        write(&device, 8, 2).unwrap();
        assert_eq!([byte(&device, 0), byte(&device, 8)], [0, 2]);
        assert_eq!(device.failed(), 1);
    }

    #[test]
    fn spared_reads_count() {
        let device = device();
        device.add(Fault::any(Effect::Error(5)).after(2).times(u64::MAX).sparing_reads());
        write(&device, 0, 1).unwrap();
        let read = || device.execute(&mut [Bio::read(Sector(0), &mut [0; 512])]);
        read().unwrap();
        read().unwrap();
        write(&device, 0, 1).unwrap_err();
        assert_eq!((device.transfers(), device.failed()), (4, 1));
    }
}
