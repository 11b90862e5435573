//! The queue for work in the background: nothing that it took is lost.

use std::sync::Arc;

use diorite_block::{
    BatchQueue, Bio, BioFlags, BlockDevice, IoOwner, IoQueue, Op, Piece, QueuedIo, QueuedMemory, Sector,
};
use diorite_device::{AlignedBuf, MemoryDevice};

/// Dropping a queue waits for what is in flight: a write that was never reaped is on the device.
#[test]
fn a_dropped_queue_has_written_what_it_took() {
    let device: Arc<dyn BlockDevice> = MemoryDevice::new(1 << 20);
    let mut queue = BatchQueue::new(Arc::clone(&device), 8);
    for number in 0..3_u64 {
        let mut memory = AlignedBuf::zeroed(4096, 4096);
        memory.fill(number as u8 + 1);
        let pieces = vec![Piece { sector: Sector(number * 16), memory: 0..4096 }];
        let memory = QueuedMemory::Owned(Box::new(memory));
        let owner = IoOwner::current();
        let io = QueuedIo { op: Op::Write, pieces, memory, flags: BioFlags::NONE, owner, tag: number };
        queue.submit(io).expect("it is not full");
    }
    drop(queue);
    for number in 0..3_u64 {
        let mut read = vec![0; 4096];
        device.execute(&mut [Bio::read(Sector(number * 16), &mut read)]).expect("read");
        assert!(read.iter().all(|byte| *byte == number as u8 + 1), "transfer {number}");
    }
}
