//! Notifications: messages to the kernel that no request asked for.
//!
//! The kernel caches names, attributes and content for long, because every change goes through it. A change that it cannot foresee is
//! reported to it here. A guest takes no notifications.
//!
//! Locking: `pruning` is held while a thread is started or a number is sent, and no other lock is taken under it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use diorite::InodeNumber;
use rustix::io::{Errno, IoSlice};
use zerocopy::{Immutable, IntoBytes};

use super::abi::{
    NOTIFY_INC_EPOCH, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, NotifyInvalInode, NotifyPrune, OutHeader,
};
use super::reply::node_of;
use super::session::{BACKGROUND_MAX, Transport};
use crate::service::log::LimitedLog;

/// Requests that wait at a time until the kernel has dropped cached pages. The kernel waits there for reads, which need background
/// requests and threads.
const DROPPING_MAX: usize = BACKGROUND_MAX as usize / 4;
/// A request beyond [`DROPPING_MAX`] waits at most so long.
const DROP_WAIT_MAX: Duration = Duration::from_millis(250);
/// Between two rounds of [`prune`]. The kernel is asked in the rounds 1, 2, 4, up to the last.
const ROUND: Duration = Duration::from_millis(2);
const LAST_ROUND: u32 = 64;

/// Sends notifications to the kernel that has this session.
pub(crate) struct Notifier {
    device: Arc<OwnedFd>,
    log: Arc<LimitedLog>,
    /// Requests in [`Self::drop_pages`].
    dropping: AtomicUsize,
    /// The thread of [`Self::forget_inode`].
    pruning: Mutex<Option<Sender<u64>>>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>, log: Arc<LimitedLog>) -> Self {
        Self { device, log, dropping: AtomicUsize::new(0), pruning: Mutex::default() }
    }

    /// The attributes of an inode have changed.
    pub(crate) fn forget_attributes(&self, inode: InodeNumber) {
        self.invalidate(&NotifyInvalInode { node: node_of(inode), offset: -1, len: 0 });
    }

    /// The kernel writes back the cached pages of a range, and drops them. A length of 0 goes to the end of the file.
    pub(crate) fn forget_pages(&self, inode: InodeNumber, offset: u64, len: u64) {
        self.invalidate(&pages(inode, offset, len));
    }

    /// As [`Self::forget_pages`], before the reply to the request that has changed the range. The kernel drops pages itself before a direct
    /// write, and after one for which the program waits; not after an asynchronous one, nor after a call that has failed. Pages that a
    /// reader has filled in between would stay.
    ///
    /// The kernel waits for reads of the range, which other threads serve. If many requests wait for that already, those reads may need the
    /// background requests of the waiting ones. So the wait of a further request has a limit: a new thread has the pages dropped.
    pub(crate) fn drop_pages(&self, inode: InodeNumber, offset: u64, len: u64, transport: &dyn Transport) {
        let message = pages(inode, offset, len);
        let is_dropped = self.dropping.fetch_add(1, Ordering::AcqRel) < DROPPING_MAX
            && transport.while_briefly_waiting(&mut || self.invalidate(&message));
        self.dropping.fetch_sub(1, Ordering::AcqRel);
        if !is_dropped {
            let device = Arc::clone(&self.device);
            let (sender, is_sent) = channel::<()>();
            let body = move || {
                let _ = send(&device, NOTIFY_INVAL_INODE, &message);
                drop(sender);
            };
            match thread::Builder::new().name("fuse-drop".to_owned()).spawn(body) {
                Err(error) => self.log.say(&format!("cannot notify the kernel of a change: {error}")),
                Ok(_) => {
                    transport.while_others_serve(&mut || {
                        let _ = is_sent.recv_timeout(DROP_WAIT_MAX);
                    });
                }
            }
        }
    }

    /// The kernel looks up all names again (Linux 6.16). An error says that the kernel is older, or that the session has ended.
    pub(crate) fn forget_names(&self) {
        let _ = send(&self.device, NOTIFY_INC_EPOCH, &[0_u8; 0]);
    }

    /// The kernel keeps stale times or a stale size of an inode. While it caches writes it takes no others as long as it knows
    /// the inode. It does not count direct writes, and keeps a size whose data could not be written. So it must drop the inode when
    /// that is not in use (Linux 6.18).
    ///
    /// The kernel reports a close before it has given up the file, and drops no inode in use. So a thread asks more than once.
    pub(crate) fn forget_inode(&self, inode: InodeNumber) {
        let mut pruning = self.pruning.lock().unwrap_or_else(PoisonError::into_inner);
        if pruning.is_none() {
            let (sender, receiver) = channel();
            let device = Arc::clone(&self.device);
            let started = thread::Builder::new()
                .name("fuse-forget".to_owned())
                .spawn(move || prune(&device, &receiver));
            *pruning = started.is_ok().then_some(sender);
        }
        if let Some(thread) = &*pruning {
            let _ = thread.send(node_of(inode));
        }
    }

    fn invalidate(&self, message: &NotifyInvalInode) {
        match send(&self.device, NOTIFY_INVAL_INODE, message) {
            // The kernel does not know the inode, or the session has ended.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => self.log.say(&format!("cannot notify the kernel of a change: {error}")),
        }
    }
}

fn pages(inode: InodeNumber, offset: u64, len: u64) -> NotifyInvalInode {
    let start = offset.min(i64::MAX as u64);
    let len = len.min(i64::MAX as u64 - start);
    NotifyInvalInode { node: node_of(inode), offset: start as i64, len: len as i64 }
}

fn prune(device: &OwnedFd, closed: &Receiver<u64>) {
    let mut rounds: BTreeMap<u64, u32> = BTreeMap::new();
    loop {
        if rounds.is_empty() {
            let Ok(node) = closed.recv() else { return };
            rounds.insert(node, 0);
        }
        rounds.extend(closed.try_iter().map(|node| (node, 0)));
        thread::sleep(ROUND);
        rounds.retain(|node, round| {
            *round += 1;
            if round.is_power_of_two() {
                // An error says that the kernel is older, or that the session has ended.
                let _ = send(
                    device,
                    NOTIFY_PRUNE,
                    &NotifyPrune { count: 1, node: *node, ..NotifyPrune::default() },
                );
            }
            *round < LAST_ROUND
        });
    }
}

fn send<T: IntoBytes + Immutable + ?Sized>(device: &OwnedFd, kind: i32, body: &T) -> Result<(), Errno> {
    let len = (size_of::<OutHeader>() + size_of_val(body)) as u32;
    let header = OutHeader { len, error: kind, unique: 0 };
    rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())]).map(drop)
}
