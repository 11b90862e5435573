//! A file or a block device of the host as a [`BlockDevice`]: where its transfers go.

use std::sync::Arc;

use diorite_block::{Bio, BlockDevice, Geometry, IoCounters, IoError, IoQueue, SharedQueue};

use crate::batch;
use crate::file::FileDevice;
use crate::layout::Layout;
use crate::ring_queue;
use crate::route::Target;
use crate::thread_queue;

impl BlockDevice for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        batch::execute(self, bios)
    }

    fn release(&self) {
        self.unlock();
    }

    fn table_sector_bytes(&self) -> u32 {
        self.disk_sector_bytes()
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        let device = self as Arc<dyn BlockDevice>;
        let ring = Target::of(&device)
            .and_then(|target| ring_queue::open(Arc::clone(&device), Layout::Single, vec![target], depth));
        Ok(ring.unwrap_or_else(|| Box::new(thread_queue::open(device, depth))))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        let device = self as Arc<dyn BlockDevice>;
        let ring = Target::of(&device).and_then(|target| {
            ring_queue::open_shared(Arc::clone(&device), Layout::Single, vec![target], depth)
        });
        Some(ring.unwrap_or_else(|| Box::new(thread_queue::open(device, depth))))
    }
}
