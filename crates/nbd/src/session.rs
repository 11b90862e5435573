//! One connection to an export, shared by threads that wait for their own requests.
//!
//! Where it sits: above the transport, below [`crate::NbdDevice`], which reconnects when a session is lost.
//!
//! A session has no thread of its own. One of the waiting threads receives: it reads the head of a reply. If the reply belongs to
//! another thread, that thread receives next, and reads the data into its own memory.
//!
//! Invariants:
//! 1. A reply counts only while the session is not lost: after [`Session::lose`], no request is acknowledged.
//! 2. No thread sends while it has a read outstanding, except reads sent with it. So when the server waits to send data, the thread of the
//!    request is ready to receive, and sending cannot deadlock.
//! 3. [`Session::is_over`] tells whether the server executes no more requests of a lost session.
//! 4. Nothing is sent after a partially sent request: the server would take it for the rest of that request.
//! 5. A request without an answer for the timeout ends the session, even if others are answered.
//!
//! Locking: `sending` is held while a request is sent; `state` for a moment, also while `sending` is held.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diorite_block::sync::{Condvar, Mutex, MutexGuard, Rank};
use diorite_block::{Bio, BioMemory, IoErrorKind};

use crate::transport::Transport;
use crate::wire::{self, Command, Reply, Request};

/// Most requests of one thread in flight.
pub(crate) const BATCH: usize = 64;

/// A request of the calling thread.
pub(crate) struct Operation<'a, 'b> {
    pub(crate) command: Command,
    pub(crate) fua: bool,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// The bio of a read or a write, with its memory.
    pub(crate) bio: Option<&'a mut Bio<'b>>,
    /// None until the server answers.
    pub(crate) result: Option<Result<(), IoErrorKind>>,
}

/// A connection in the transmission phase.
#[derive(Debug)]
pub(crate) struct Session {
    transport: Transport,
    sending: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    next_cookie: AtomicU64,
    /// Longest time of a request without an answer.
    timeout: Option<Duration>,
}

#[derive(Debug)]
struct State {
    /// Unanswered requests, by cookie.
    pending: HashMap<u64, Pending>,
    /// Whether a thread receives, or is about to.
    receiving: bool,
    /// The read whose data comes next. Its thread receives.
    next_read: Option<u64>,
    /// The reason, if the session is lost.
    lost: Option<Lost>,
    /// Whether the server may still execute a change of a lost session.
    may_act_late: bool,
    /// A reply to a request sent after this time triggers [`Session::end_if_left_out`].
    look_from: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    sent: Instant,
    is_read: bool,
    /// Whether it changes the device.
    is_change: bool,
    /// Whether the acknowledged write may be lost until a flush.
    is_volatile_write: bool,
    error: Option<u32>,
}

/// The session ended with unanswered requests.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) why: String,
    /// Whether unanswered requests can be sent again over another session. A silent server may still execute them later, over newer
    /// writes.
    pub(crate) may_retry: bool,
}

impl Lost {
    pub(crate) fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), may_retry: true }
    }

    fn silent() -> Self {
        Self { why: "the server does not answer (timeout=SECONDS)".to_owned(), may_retry: false }
    }

    fn by(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::silent(),
            _ => Self::because(error.to_string()),
        }
    }
}

impl Session {
    /// `timeout` is the longest time of a request without an answer.
    pub(crate) fn new(transport: Transport, timeout: Option<Duration>) -> Self {
        let state = State {
            pending: HashMap::new(),
            receiving: false,
            next_read: None,
            lost: None,
            may_act_late: false,
            look_from: Instant::now(),
        };
        Self {
            transport,
            sending: Mutex::ranked(Rank::NbdSending, ()),
            state: Mutex::ranked(Rank::NbdState, state),
            changed: Condvar::new(),
            next_cookie: AtomicU64::new(1),
            timeout,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// End the session. Its waiting threads get the reason.
    pub(crate) fn lose(&self, lost: Lost) {
        self.end(&mut self.state(), lost);
    }

    fn end(&self, state: &mut State, lost: Lost) {
        if state.lost.is_none() {
            state.lost = Some(lost);
            state.may_act_late =
                state.pending.values().any(|pending| pending.is_change && pending.error.is_none());
            // The next receiver does not receive any more.
            state.receiving &= state.next_read.take().is_none();
            if state.may_act_late {
                self.transport.shutdown_sending();
            } else {
                self.transport.shutdown();
            }
        }
        self.changed.notify_all();
    }

    /// End the session after a failed call.
    fn fail(&self, state: &mut State, error: &io::Error) {
        let was_lost = state.lost.is_some();
        self.end(state, Lost::by(error));
        let is_closed = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => true,
            // After the loss, our own shutdown of sending causes it.
            ErrorKind::BrokenPipe => !was_lost,
            _ => false,
        };
        state.may_act_late &= !is_closed;
    }

    /// Wait until the server can no longer execute requests: it has read the end of the stream and closed the connection. Returns false at
    /// the deadline. The session must be lost.
    pub(crate) fn is_over(&self, deadline: Instant) -> bool {
        let mut state = self.state();
        while state.may_act_late && state.receiving && Instant::now() < deadline {
            state = self.changed.wait_timeout(state, deadline.saturating_duration_since(Instant::now()));
        }
        let (may_act_late, receiving) = (state.may_act_late, state.receiving);
        drop(state);
        let is_over = !may_act_late || (!receiving && self.transport.is_closed_before(deadline));
        self.transport.shutdown();
        is_over
    }

    /// Disconnect.
    pub(crate) fn disconnect(&self) {
        let bytes =
            Request { command: Command::Disconnect, flags: 0, cookie: 0, offset: 0, len: 0 }.to_bytes();
        self.transport.send_last(&bytes);
    }

    /// Send up to [`BATCH`] transfers of one command and wait for all answers. `acknowledged` counts writes that need a flush.
    pub(crate) fn run(
        &self,
        transfers: &mut [Operation<'_, '_>],
        acknowledged: &AtomicU64,
    ) -> Result<(), Lost> {
        let first = self.next_cookie.fetch_add(transfers.len() as u64, Ordering::Relaxed);
        self.send(first, transfers)?;
        let result = self.wait(first, transfers, acknowledged);
        let mut state = self.state();
        for cookie in first..first + transfers.len() as u64 {
            state.pending.remove(&cookie);
        }
        result
    }

    /// Send requests. An error of the connection ends the session.
    fn send(&self, first: u64, transfers: &[Operation<'_, '_>]) -> Result<(), Lost> {
        let heads: Vec<_> =
            (first..).zip(transfers).map(|(cookie, transfer)| transfer.head(cookie)).collect();
        let mut buffers = Vec::new();
        for (head, transfer) in heads.iter().zip(transfers) {
            buffers.push(IoSlice::new(head));
            if let Some(BioMemory::Write(segments)) = transfer.bio.as_ref().map(|bio| &bio.memory) {
                buffers.extend(segments.iter().map(|segment| IoSlice::new(segment)));
            }
        }
        let _sending = self.sending.lock();
        let began = Instant::now();
        self.expect_answers(first, transfers, began)?;
        match self.transport.send(&mut buffers) {
            Ok(()) => self.all_sent(first, transfers.len(), began),
            // Invariant 4: the session ends before another thread can send.
            Err(error) => self.fail(&mut self.state(), &error),
        }
        Ok(())
    }

    /// Record the requests as pending.
    fn expect_answers(&self, first: u64, transfers: &[Operation<'_, '_>], sent: Instant) -> Result<(), Lost> {
        let mut state = self.state();
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        for (cookie, transfer) in (first..).zip(transfers) {
            let is_change = matches!(transfer.command, Command::Write | Command::WriteZeroes | Command::Trim);
            let is_volatile_write = is_change && !transfer.fua;
            let is_read = transfer.command == Command::Read;
            let pending = Pending { sent, is_read, is_change, is_volatile_write, error: None };
            state.pending.insert(cookie, pending);
        }
        Ok(())
    }

    /// Restart the timeout after a long send: the time of the server begins when it has all of a request.
    fn all_sent(&self, first: u64, count: usize, began: Instant) {
        let now = Instant::now();
        if self.timeout.is_none_or(|timeout| now - began < timeout / 4) {
            return;
        }
        let mut state = self.state();
        for cookie in first..first + count as u64 {
            if let Some(pending) = state.pending.get_mut(&cookie) {
                pending.sent = now;
            }
        }
    }

    /// Receive for this thread and others, until all of `transfers` are answered.
    fn wait(
        &self,
        first: u64,
        transfers: &mut [Operation<'_, '_>],
        acknowledged: &AtomicU64,
    ) -> Result<(), Lost> {
        let count = transfers.len();
        let mine = |cookie: u64| cookie.checked_sub(first).map(|at| at as usize).filter(|at| *at < count);
        let mut left = count;
        let mut state = self.state();
        loop {
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            if let Some((cookie, at)) = state.next_read.and_then(|cookie| Some((cookie, mine(cookie)?))) {
                state.next_read = None;
                drop(state);
                let received = transfers[at].bio.as_mut().map_or(Ok(()), |bio| self.receive_into(bio));
                state = self.state();
                if let Err(error) = received {
                    self.fail(&mut state, &error);
                }
                state.answer(cookie, 0, acknowledged);
                state.receiving = false;
                self.changed.notify_all();
                continue;
            }
            for (at, transfer) in
                transfers.iter_mut().enumerate().filter(|(_, transfer)| transfer.result.is_none())
            {
                if let Some(error) = state.pending.get(&(first + at as u64)).and_then(|pending| pending.error)
                {
                    transfer.result = Some(if error == 0 { Ok(()) } else { Err(wire::error_kind(error)) });
                    left -= 1;
                }
            }
            if left == 0 {
                return Ok(());
            }
            if state.receiving {
                state = self.changed.wait(state);
            } else {
                state.receiving = true;
                drop(state);
                let head = self.receive_head();
                state = self.state();
                match head {
                    Ok(reply) => self.take(&mut state, reply, acknowledged),
                    Err(error) => {
                        state.receiving = false;
                        self.fail(&mut state, &error);
                    }
                }
            }
        }
    }

    fn receive_head(&self) -> io::Result<Reply> {
        let mut bytes = [0; Reply::BYTES];
        self.transport.receive(&mut bytes)?;
        Reply::from_bytes(bytes).ok_or_else(|| io::Error::other("the server sent a malformed reply"))
    }

    /// Record a reply without data. The thread of a reply with data receives next.
    fn take(&self, state: &mut State, reply: Reply, acknowledged: &AtomicU64) {
        match state.pending.get(&reply.cookie) {
            // The session is lost.
            _ if state.lost.is_some() => state.receiving = false,
            Some(&Pending { error: None, is_read, sent, .. }) if reply.error != wire::ESHUTDOWN => {
                if is_read && reply.error == 0 {
                    state.next_read = Some(reply.cookie);
                } else {
                    state.answer(reply.cookie, reply.error, acknowledged);
                    state.receiving = false;
                }
                self.end_if_left_out(state, sent);
            }
            other => {
                let why = if other.is_some() {
                    "the server shuts down"
                } else {
                    "the server answered an unknown request"
                };
                state.receiving = false;
                self.end(state, Lost::because(why));
            }
        }
        self.changed.notify_all();
    }

    /// End the session if a request is unanswered although the server answered requests sent later than it by the timeout. A slow server that
    /// answers in order does not do that.
    fn end_if_left_out(&self, state: &mut State, answered: Instant) {
        let Some(timeout) = self.timeout.filter(|_| answered >= state.look_from) else { return };
        state.look_from = answered + timeout / 4;
        let is_left_out = |pending: &Pending| {
            pending.error.is_none() && answered.saturating_duration_since(pending.sent) >= timeout
        };
        if state.pending.values().any(is_left_out) {
            self.end(state, Lost::silent());
        }
    }

    fn receive_into(&self, bio: &mut Bio<'_>) -> io::Result<()> {
        match &mut bio.memory {
            BioMemory::Read(segments) => {
                segments.iter_mut().try_for_each(|segment| self.transport.receive(segment))
            }
            BioMemory::Write(_) | BioMemory::None(_) => Ok(()),
        }
    }
}

impl State {
    /// Record the answer to a request, unless the session is lost.
    fn answer(&mut self, cookie: u64, error: u32, acknowledged: &AtomicU64) {
        if let (None, Some(pending)) = (&self.lost, self.pending.get_mut(&cookie)) {
            pending.error = Some(error);
            if pending.is_volatile_write && error == 0 {
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

impl Operation<'_, '_> {
    fn head(&self, cookie: u64) -> [u8; Request::BYTES] {
        let flags = if self.fua { wire::COMMAND_FUA } else { 0 };
        Request { command: self.command, flags, cookie, offset: self.offset, len: self.len }.to_bytes()
    }
}
