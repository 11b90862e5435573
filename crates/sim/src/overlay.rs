//! A device over a shared image: it holds only the pages that differ.
//!
//! Where it sits: a state after a power cut is such a device, so that thousands of states share one image.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diorite_block::{Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op};

use crate::image::{SparseImage, execute_each, plain_geometry};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Pages that differ from the base, by their number.
type Pages = HashMap<u64, Box<[u8; PAGE]>>;

/// A device of 512-byte sectors that reads an image and keeps writes for itself.
#[derive(Debug)]
pub struct OverlayDevice {
    base: Arc<SparseImage>,
    pages: Mutex<Pages>,
    geometry: Geometry,
    counters: IoCounters,
}

impl OverlayDevice {
    /// A device over `base` with these changes: offsets in bytes, and their content.
    pub fn new<'a>(base: Arc<SparseImage>, changes: impl IntoIterator<Item = (u64, &'a [u8])>) -> Arc<Self> {
        let geometry = Geometry { capacity_bytes: base.len() / 512 * 512, ..plain_geometry() };
        let mut pages = Pages::new();
        for (offset, bytes) in changes {
            write(&base, &mut pages, offset, bytes);
        }
        Arc::new(Self { base, pages: Mutex::new(pages), geometry, counters: IoCounters::default() })
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present content.
    pub fn image(&self) -> SparseImage {
        let mut image = (*self.base).clone();
        for (page, bytes) in &*self.pages() {
            image.write(page * PAGE as u64, &bytes[..]);
        }
        image
    }

    /// Bytes of memory that this device does not share.
    pub fn memory_bytes(&self) -> usize {
        self.pages().len() * PAGE
    }

    fn apply(&self, bio: &mut Bio<'_>) {
        let mut pages = self.pages();
        let mut at = bio.sector.to_bytes();
        match &mut bio.memory {
            BioMemory::Read(segments) => {
                for segment in segments {
                    read(&self.base, &pages, at, segment);
                    at += segment.len() as u64;
                }
            }
            BioMemory::Write(segments) => {
                for segment in segments {
                    write(&self.base, &mut pages, at, segment);
                    at += segment.len() as u64;
                }
            }
            BioMemory::None(len) if matches!(bio.op, Op::Discard | Op::WriteZeroes) => {
                let end = at + *len;
                while at < end {
                    let step = (end - at).min(PAGE as u64 - at % PAGE as u64);
                    write(&self.base, &mut pages, at, &[0; PAGE][..step as usize]);
                    at += step;
                }
            }
            BioMemory::None(_) => {}
        }
    }
}

/// The parts of a range by page: the page, the offset in it, and the length.
fn parts(mut offset: u64, mut len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    std::iter::from_fn(move || {
        let within = (offset % PAGE as u64) as usize;
        let step = len.min(PAGE - within);
        let page = offset / PAGE as u64;
        (offset, len) = (offset + step as u64, len - step);
        (step > 0).then_some((page, within, step))
    })
}

fn read(base: &SparseImage, pages: &Pages, offset: u64, memory: &mut [u8]) {
    let mut done = 0;
    for (page, within, step) in parts(offset, memory.len()) {
        let to = &mut memory[done..done + step];
        match pages.get(&page) {
            Some(bytes) => to.copy_from_slice(&bytes[within..within + step]),
            None => base.read(page * PAGE as u64 + within as u64, to),
        }
        done += step;
    }
}

fn write(base: &SparseImage, pages: &mut Pages, offset: u64, memory: &[u8]) {
    let mut done = 0;
    for (page, within, step) in parts(offset, memory.len()) {
        let bytes = pages.entry(page).or_insert_with(|| {
            let mut bytes = Box::new([0; PAGE]);
            if step < PAGE {
                base.read(page * PAGE as u64, &mut bytes[..]);
            }
            bytes
        });
        bytes[within..within + step].copy_from_slice(&memory[done..done + step]);
        done += step;
    }
}

impl BlockDevice for OverlayDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        "state after a power cut".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        execute_each(self, bios, |bio| self.apply(bio))
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

#[cfg(test)]
mod tests {
    use diorite_block::{BioFlags, Sector};

    use super::*;

    /// Random writes, zeros and reads against a vector of bytes; the base does not change.
    #[test]
    fn an_overlay_reads_as_a_vector_of_bytes() {
        const LEN: usize = 256 << 10;
        let mut random = fastrand::Rng::with_seed(3);
        let mut base = SparseImage::new(LEN as u64);
        base.write(100_000, &vec![7; 50_000]);
        let base = Arc::new(base);
        let mut model = vec![0; LEN];
        base.read(0, &mut model);
        let first = vec![9; 1024];
        model[3072..4096].fill(9);
        let device = OverlayDevice::new(Arc::clone(&base), [(3072, &first[..])]);
        for round in 0..500 {
            let sectors = random.usize(1..20);
            let sector = random.usize(..LEN / 512 - sectors);
            let range = sector * 512..(sector + sectors) * 512;
            if random.u8(..4) == 0 {
                let (at, len) = (Sector(sector as u64), range.len() as u64);
                let mut bio = Bio::without_memory(Op::WriteZeroes, at, len);
                device.execute(std::slice::from_mut(&mut bio)).unwrap();
                model[range].fill(0);
            } else {
                let bytes = vec![round as u8; range.len()];
                device.execute(&mut [Bio::write(Sector(sector as u64), &bytes, BioFlags::NONE)]).unwrap();
                model[range].copy_from_slice(&bytes);
            }
        }
        let (mut read, mut image) = (vec![0; LEN], vec![0; LEN]);
        (&*device as &dyn BlockDevice).read_bytes(0, &mut read).unwrap();
        device.image().read(0, &mut image);
        assert!(read == model && image == model);
        base.read(0, &mut image);
        assert!(image[3072..4096].iter().all(|byte| *byte == 0), "the base has changed");
    }
}
