//! The cleaner: a thread that gets descriptors of files that the programs have closed, writes their pages back and drops them.
//!
//! Pages can be dropped when they are written, and when no processor holds them in a list of new pages. So writeback of a range begins when
//! it arrives, and its pages are dropped after [`WAITING_MAX`] more ranges, or when the programs pause.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use diorite_device::{begin_writeback, write_back};
use diorite_uncached::shared::cleaning::{RANGE_BYTES, Range};
use rustix::fs::{Advice, fadvise, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The most ranges in writeback at a time. This number, with the ranges that arrive meanwhile, stays below the usual limit of descriptors.
const WAITING_MAX: usize = 256;
/// The descriptor of the programs' end of the socket, if it is free. Programs that count descriptors see theirs only.
const SOCKET_FROM: i32 = 900;
/// The time between two looks at the socket while programs send. Waking the thread for each file would cost as much as the file.
const PAUSE: Duration = Duration::from_millis(5);

/// A range of an open file.
struct Dirty {
    file: OwnedFd,
    range: Range,
}

enum Received {
    Dirty(Dirty),
    Nothing,
    End,
}

/// The thread, and the programs' end of its socket.
pub(super) struct Cleaner {
    socket: OwnedFd,
    thread: JoinHandle<()>,
}

impl Cleaner {
    /// Start the thread. Programs that are started later inherit the socket.
    pub(super) fn start() -> io::Result<Self> {
        let (own, programs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let socket = fcntl_dupfd_cloexec(&programs, SOCKET_FROM).unwrap_or(programs);
        fcntl_setfd(&socket, FdFlags::empty())?;
        let thread = std::thread::Builder::new().name("cleaner".to_owned()).spawn(move || run(&own))?;
        Ok(Self { socket, thread })
    }

    /// The value of [`diorite_uncached::shared::CLEANER`].
    pub(super) fn variable(&self) -> io::Result<String> {
        Ok(format!("{} {}", self.socket.as_raw_fd(), fstat(&self.socket)?.st_ino))
    }

    /// Drop all ranges that were sent before, and end.
    pub(super) fn finish(self) {
        let end = [IoSlice::new(&[0])];
        if sendmsg(&self.socket, &end, &mut SendAncillaryBuffer::default(), SendFlags::empty()).is_ok() {
            let _ = self.thread.join();
        }
    }
}

fn run(socket: &OwnedFd) {
    let mut waiting = VecDeque::new();
    let mut next = receive(socket, RecvFlags::empty());
    loop {
        match next {
            Received::Dirty(dirty) => {
                // A failure is the program's, as without this thread: the kernel reports it to the next sync.
                let _ = begin_writeback(dirty.file.as_fd(), dirty.range.start, dirty.range.len);
                waiting.push_back(dirty);
                if waiting.len() > WAITING_MAX {
                    waiting.pop_front().iter().for_each(settle);
                }
                next = receive(socket, RecvFlags::DONTWAIT);
            }
            Received::Nothing if waiting.is_empty() => next = receive(socket, RecvFlags::empty()),
            Received::Nothing => {
                std::thread::sleep(PAUSE);
                next = receive(socket, RecvFlags::DONTWAIT);
                if matches!(next, Received::Nothing) {
                    waiting.drain(..).for_each(|dirty| settle(&dirty));
                }
            }
            Received::End => break,
        }
    }
    waiting.iter().for_each(settle);
}

fn receive(socket: &OwnedFd, flags: RecvFlags) -> Received {
    let mut bytes = [0; RANGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let found = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match (found, file) {
        (Ok(found), Some(file)) if found.bytes == RANGE_BYTES => {
            Received::Dirty(Dirty { file, range: Range::from_bytes(&bytes) })
        }
        (Ok(found), None) if found.bytes < RANGE_BYTES => Received::End,
        // Of a process that sends something else.
        (Ok(_) | Err(Errno::AGAIN | Errno::INTR), _) => Received::Nothing,
        (Err(_), _) => Received::End,
    }
}

/// Wait until a range is written, and drop its pages.
fn settle(dirty: &Dirty) {
    let Dirty { file, range } = dirty;
    let _ = write_back(file.as_fd(), range.start, range.len);
    range.each_cold(|start, len| {
        let _ = fadvise(file, start, NonZeroU64::new(len), Advice::DontNeed);
    });
}
