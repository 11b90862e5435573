//! Memory that panics when a queue requests its bytes: the panic reaches the caller, and the queue still works.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::common::panicking::Panicking;
use common::image;
use diorite_block::{BioFlags, BlockDevice, IoOwner, Op, Piece, QueuedIo, QueuedMemory, Sector};
use diorite_device::{Backend, FileDevice, OpenOptions};

fn io(op: Op, calls: u32) -> QueuedIo {
    let memory = Panicking::new(&Arc::new(AtomicU32::new(calls)));
    QueuedIo {
        op,
        pieces: vec![Piece { sector: Sector(0), memory: 0..4096 }],
        memory: QueuedMemory::Owned(Box::new(memory)),
        flags: BioFlags::SYNC,
        owner: IoOwner::default(),
        tag: 0,
    }
}

/// Such a transfer counted as in flight; a queue that was dropped later waited for it for ever.
#[test]
fn a_transfer_whose_memory_panics_is_not_waited_for() {
    let (sender, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (_directory, path) = image(1 << 20);
        for (backend, op, calls) in [Backend::Auto, Backend::Threads].into_iter().flat_map(|backend| {
            [Op::Read, Op::Write]
                .into_iter()
                .flat_map(move |op| (0..4).map(move |calls| (backend, op, calls)))
        }) {
            let options = OpenOptions::read_write().backend(backend);
            let device: Arc<dyn BlockDevice> = FileDevice::open(&path, &options).unwrap();
            let mut queue = device.open_queue(8).unwrap();
            let mut done = Vec::new();
            let submitted = catch_unwind(AssertUnwindSafe(|| queue.submit(io(op, calls)).unwrap()));
            assert_eq!(queue.in_flight(), u32::from(submitted.is_ok()), "{backend:?} {op:?} {calls}");
            queue.submit(io(op, u32::MAX)).unwrap();
            while queue.in_flight() > 0 {
                queue.reap(1, &mut done).unwrap();
            }
            assert!(done.last().is_some_and(|completed| completed.io.tag == 0));
        }
        sender.send(()).unwrap();
    });
    has_ended.recv_timeout(Duration::from_secs(60)).expect("all queues go on");
}
