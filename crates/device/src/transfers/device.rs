//! A file or a block device of the host as a [`BlockDevice`].

use std::sync::Arc;

use diorite_block::{Bio, BlockDevice, Geometry, IoCounters, IoError, IoQueue, SharedQueue};

use super::batch;
use super::queue;
use super::route::Route;
use crate::open::file::FileDevice;

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
        let front: Arc<dyn BlockDevice> = self;
        let route = Route::to_file(&front);
        Ok(queue::open(front, route, depth))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        let front: Arc<dyn BlockDevice> = self;
        let route = Route::to_file(&front);
        queue::open_shared(front, route, depth)
    }
}
