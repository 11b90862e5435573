//! Has the kernel forget inodes whose times or size it does not know.
//!
//! Where the kernel caches what is written it keeps the times of files, and believes no others while it knows an inode. It does not count
//! direct writes, which go past its cache, nor other changes of the daemon's; and a size that it has given a file stays, also where what was
//! to be there cannot be written. So the kernel is to drop such an inode when it is not in use: it asks for it again at the next use. Before
//! Linux 6.18 it has no such message, and what it shows is old until it drops the inode by itself.
//!
//! The kernel reports a close before it has given up the file, and drops nothing that is in use: so it is asked more than once, by a thread of its
//! own, which may wait for the kernel.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::IoSlice;
use zerocopy::IntoBytes;

use super::abi::{NOTIFY_PRUNE, NotifyPrune, OutHeader};

/// Between two rounds. The kernel is asked in those after a close whose number is a power of two, up to the last.
const ROUND: Duration = Duration::from_millis(2);
const LAST_ROUND: u32 = 64;

/// See the module's head.
#[derive(Debug)]
pub(super) struct ForgetInodes {
    device: Arc<OwnedFd>,
    thread: Mutex<Option<Sender<u64>>>,
}

impl ForgetInodes {
    /// With the kernel that has this session.
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device, thread: Mutex::default() }
    }

    /// The kernel is to forget an inode, by its number in the protocol. Without a thread it does not.
    pub(super) fn of(&self, node: u64) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, receiver) = channel();
            let device = Arc::clone(&self.device);
            let body = move || serve(&device, &receiver);
            let started = std::thread::Builder::new().name("fuse-forget".to_owned()).spawn(body);
            *thread = started.is_ok().then_some(sender);
        }
        if let Some(thread) = &*thread {
            let _ = thread.send(node);
        }
    }
}

fn serve(device: &OwnedFd, closed: &Receiver<u64>) {
    let mut rounds: BTreeMap<u64, u32> = BTreeMap::new();
    loop {
        if rounds.is_empty() {
            let Ok(node) = closed.recv() else { return };
            rounds.insert(node, 0);
        }
        rounds.extend(closed.try_iter().map(|node| (node, 0)));
        std::thread::sleep(ROUND);
        rounds.retain(|node, round| {
            *round += 1;
            if round.is_power_of_two() {
                ask(device, *node);
            }
            *round < LAST_ROUND
        });
    }
}

/// An error says that the kernel has no such message, or that all is over.
fn ask(device: &OwnedFd, node: u64) {
    let message = NotifyPrune { count: 1, node, ..NotifyPrune::default() };
    let len = (size_of::<OutHeader>() + size_of::<NotifyPrune>()) as u32;
    let header = OutHeader { len, error: NOTIFY_PRUNE, unique: 0 };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(message.as_bytes())];
    let _ = rustix::io::writev(device, &parts);
}
