//! A device with injected faults: errors and lost writes.
//!
//! Where it sits: around any device. The fault model, per rule: *which* bios (operation, sectors), *when* (after so many
//! matching ones, so many times), *what* ([`Effect`]). A lost write reports success, as a bad drive does.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diorite_block::{Bio, BlockDevice, Geometry, IoCounters, IoError, IoErrorKind, IoQueue, Op};

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The bio fails with this `errno` and moves nothing.
    Error(i32),
    /// The bio moves nothing and reports success.
    Lost,
}

/// A rule: bios, and the effect on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Only this operation, or any.
    pub op: Option<Op>,
    /// Only bios that touch these sectors, or any.
    pub sectors: Option<Range<u64>>,
    /// Number of matching bios without the effect at first.
    pub after: u64,
    /// Number of bios with the effect after that.
    pub times: u64,
    /// The effect.
    pub effect: Effect,
}

impl Fault {
    /// The effect on the first bio of this operation.
    pub fn on(op: Op, effect: Effect) -> Self {
        Self { op: Some(op), sectors: None, after: 0, times: 1, effect }
    }

    /// Only where these sectors are touched.
    #[must_use]
    pub fn at(mut self, sectors: Range<u64>) -> Self {
        self.sectors = Some(sectors);
        self
    }

    /// Spare the first `count`.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.after = count;
        self
    }

    /// Hit `count` of them.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }

    fn matches(&self, bio: &Bio<'_>) -> bool {
        let touches = |range: &Range<u64>| bio.sector.0 < range.end && range.start < bio.end().0;
        self.op.is_none_or(|op| op == bio.op) && self.sectors.as_ref().is_none_or(touches)
    }
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    hits: u64,
}

/// Wraps a device and injects faults.
#[derive(Debug)]
pub struct FaultyDevice {
    lower: Arc<dyn BlockDevice>,
    state: Mutex<State>,
}

impl FaultyDevice {
    /// A device without faults.
    pub fn new(lower: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { lower, state: Mutex::default() })
    }

    /// Add a fault.
    pub fn add(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Remove all faults.
    pub fn clear(&self) {
        self.state().faults.clear();
    }

    /// Number of bios with an effect so far.
    pub fn hit_count(&self) -> u64 {
        self.state().hits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The effect on this bio, if any.
    fn effect(&self, bio: &Bio<'_>) -> Option<Effect> {
        let mut state = self.state();
        let hit = state.faults.iter_mut().find_map(|fault| {
            if fault.times == 0 || !fault.matches(bio) {
                return None;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return None;
            }
            fault.times -= 1;
            Some(fault.effect.clone())
        })?;
        state.hits += 1;
        Some(hit)
    }

    fn suffer(&self, bio: &Bio<'_>, effect: &Effect) -> Result<(), IoError> {
        match effect {
            Effect::Error(errno) => {
                let kind = IoErrorKind::Device(io::Error::from_raw_os_error(*errno));
                Err((self as &dyn BlockDevice).error(bio, kind))
            }
            Effect::Lost => Ok(()),
        }
    }
}

impl BlockDevice for FaultyDevice {
    fn geometry(&self) -> &Geometry {
        self.lower.geometry()
    }

    fn counters(&self) -> &IoCounters {
        self.lower.counters()
    }

    fn name(&self) -> String {
        format!("{} (faulty)", self.lower.name())
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let effects: Vec<_> = bios.iter().map(|bio| self.effect(bio)).collect();
        if effects.iter().all(Option::is_none) {
            return self.lower.execute(bios);
        }
        let mut result = Ok(());
        for (bio, effect) in bios.iter_mut().zip(&effects) {
            let one = match effect {
                Some(effect) => self.suffer(bio, effect),
                None => self.lower.execute(std::slice::from_mut(bio)),
            };
            result = result.and(one);
        }
        result
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{ImageDevice, SparseImage};
    use diorite_block::{BioFlags, Sector};

    fn device() -> (Arc<FaultyDevice>, Arc<ImageDevice>) {
        let lower = ImageDevice::new(SparseImage::new(1 << 20));
        (FaultyDevice::new(Arc::clone(&lower) as _), lower)
    }

    fn write(device: &FaultyDevice, sector: u64, value: u8) -> Result<(), IoError> {
        device.execute(&mut [Bio::write(Sector(sector), &[value; 2048], BioFlags::SYNC)])
    }

    fn byte(lower: &ImageDevice, sector: u64) -> u8 {
        let mut byte = [0];
        lower.image().read(sector * 512, &mut byte);
        byte[0]
    }

    #[test]
    fn the_nth_write_fails_and_only_that() {
        let (device, _) = device();
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
        let (device, lower) = device();
        device.add(Fault::on(Op::Write, Effect::Lost));
        write(&device, 0, 1).unwrap();
        write(&device, 8, 2).unwrap();
        assert_eq!([byte(&lower, 0), byte(&lower, 8)], [0, 2]);
        assert_eq!(device.hit_count(), 1);
    }
}
