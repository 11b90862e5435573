//! Transactions over a store that writes nothing.

use std::sync::OnceLock;

use diorite_sim::image::ImageDevice;

use super::*;
use crate::BlockSize;
use crate::buffer::NoChecksums;

/// A store whose first commit fails after it was made, once the next one is being closed.
#[derive(Debug, Default)]
struct FailsAfterCommit {
    transactions: OnceLock<Arc<Transactions>>,
}

impl CommitStore for FailsAfterCommit {
    fn blocks_max(&self) -> u64 {
        100
    }

    fn write(&self, _closed: &Closed) -> Result<()> {
        Ok(())
    }

    fn after_commit(&self) -> Result<()> {
        let transactions = self.transactions.get().unwrap();
        while transactions.state.lock().commit != Commit::Closing {
            std::thread::yield_now();
        }
        Err(Error::TooLarge)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

impl ReleaseFreed for FailsAfterCommit {
    fn release_freed(&self, _freed: &Freed) {}
}

/// A checkpoint that fails after one commit leaves another one alone, which waits for a handle: that one ends with an error. It once
/// was never woken.
#[test]
fn a_failed_checkpoint_does_not_hide_a_commit_that_waits_for_handles() {
    let size = BlockSize::new(1024).unwrap();
    let store = Arc::new(FailsAfterCommit::default());
    let buffers = Arc::new(BufferCache::new(ImageDevice::zeroed(64 << 10), size, 64, 1 << 20));
    buffers.set_checksums(Arc::new(NoChecksums));
    let latch = Arc::new(AbortLatch::default());
    let transactions = Arc::new(Transactions::new(
        store.clone(),
        buffers,
        latch,
        store.clone(),
        Duration::from_secs(5),
        TransactionId(1),
    ));
    store.transactions.set(transactions.clone()).unwrap();
    let change = |block| {
        let id = transactions.begin(1).unwrap();
        transactions.forget(id, FsBlock(block));
        id
    };
    let first = change(1);
    transactions.end(first, 1, Freed::default());
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| transactions.commit_through(first));
        while transactions.running() == first {
            std::thread::yield_now();
        }
        let (opened, is_opened) = std::sync::mpsc::channel();
        let (ends, may_end) = std::sync::mpsc::channel();
        let handle = scope.spawn(move || {
            let second = change(2);
            opened.send(second).unwrap();
            may_end.recv().unwrap();
            second
        });
        let second = is_opened.recv().unwrap();
        let waiting = scope.spawn({
            let transactions = transactions.clone();
            move || transactions.commit_through(second)
        });
        let failed = failing.join();
        ends.send(()).unwrap();
        // The handle is ended here: no thread has it open any more.
        handle.join().unwrap();
        transactions.end(second, 1, Freed::default());
        assert!(failed.unwrap().is_err());
        assert!(matches!(waiting.join().unwrap(), Err(Error::Aborted)));
    });
}
