//! A client's connection: its stream, and the replies that the stream does not take yet.
//!
//! The threads that carry out calls serve all clients, so none may wait for a client that does not read. The stream takes as much of a reply
//! as it can at once; the rest is kept here, and a thread of the connection sends it. While more than [`KEPT_MAX`] is kept, no further
//! calls of this client are read. If a call or a reply takes longer than the [`Limits`], the connection is closed.
//!
//! Locking: `outbox` is held for a look, a change, or a send that does not wait; no other lock is taken under it.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::net::{SendFlags, send};

use super::rpc::{ReadLimits, is_not_yet};
use crate::service::accounting::Client;

/// Bytes of replies from which on no calls are read.
const KEPT_MAX: usize = 1 << 20;

/// Time limits of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For its calls.
    pub(super) read: ReadLimits,
    /// For a reply, from its first byte to its last.
    pub(super) reply: Duration,
    /// The interval of the checks of that limit.
    tick: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The kernel's server gives up idle connections after this; clients open another.
            read: ReadLimits { idle: Duration::from_secs(6 * 60), record: Duration::from_secs(60) },
            reply: Duration::from_secs(60),
            tick: Duration::from_secs(5),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) limits: Limits,
    pub(super) stream: TcpStream,
    pub(super) client: Client,
    outbox: Mutex<Outbox>,
    changed: Condvar,
}

/// Replies that are not sent yet.
#[derive(Debug)]
struct Outbox {
    /// Calls that were read and are not answered.
    calls: usize,
    replies: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A thread sends them, and is perhaps in the middle of one.
    has_sender: bool,
    /// The stream has failed, perhaps in the middle of a reply: nothing more is sent.
    has_failed: bool,
    /// When the client last took a kept reply.
    taken_at: Instant,
    /// When its last whole call came, or it connected.
    called_at: Instant,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, client: Client, limits: Limits) -> Self {
        let _ = stream.set_read_timeout(Some(limits.tick));
        let _ = stream.set_write_timeout(Some(limits.tick));
        let outbox = Outbox {
            calls: 0,
            replies: VecDeque::new(),
            bytes: 0,
            has_sender: false,
            has_failed: false,
            taken_at: Instant::now(),
            called_at: Instant::now(),
        };
        Self { limits, stream, client, outbox: Mutex::new(outbox), changed: Condvar::new() }
    }

    /// A call was read; [`Self::end_call`] follows.
    pub(super) fn begin_call(&self) {
        let mut outbox = self.lock();
        (outbox.calls, outbox.called_at) = (outbox.calls + 1, Instant::now());
    }

    /// The client's host, by its address.
    pub(super) fn host(&self) -> &str {
        self.client.name.rsplit_once(':').map_or(&self.client.name, |(host, _port)| host)
    }

    /// When its last whole call came; `None` while calls are carried out.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let outbox = self.lock();
        (outbox.calls == 0).then_some(outbox.called_at)
    }

    /// It was carried out, and what [`Self::send`] had to send is on its way.
    pub(super) fn end_call(&self) {
        self.lock().calls -= 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Send a reply after the earlier ones. Does not wait for the client.
    pub(super) fn send(self: &Arc<Self>, reply: &[u8]) {
        let mut outbox = self.lock();
        if outbox.has_failed {
            return;
        }
        let mut sent = 0;
        if !outbox.has_sender {
            match self.send_at_once(reply) {
                Ok(len) if len == reply.len() => return,
                Ok(len) => sent = len,
                Err(_) => return self.fail(&mut outbox),
            }
        }
        outbox.bytes += reply.len() - sent;
        outbox.replies.push_back(reply[sent..].to_vec());
        if outbox.has_sender {
            return;
        }
        (outbox.has_sender, outbox.taken_at) = (true, Instant::now());
        let connection = Arc::clone(self);
        let started =
            thread::Builder::new().name("nfs-send".to_owned()).spawn(move || connection.send_kept());
        if started.is_err() {
            self.fail(&mut outbox);
        }
    }

    /// As much of a reply as the stream takes without waiting.
    fn send_at_once(&self, reply: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < reply.len() {
            match send(&self.stream, &reply[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) => sent += len,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// Send the kept replies.
    fn send_kept(&self) {
        let mut outbox = self.lock();
        while let Some(reply) = outbox.replies.pop_front() {
            drop(outbox);
            let result = self.send_whole(&reply);
            outbox = self.lock();
            outbox.bytes = outbox.bytes.saturating_sub(reply.len());
            outbox.taken_at = Instant::now();
            self.changed.notify_all();
            if result.is_err() {
                self.fail(&mut outbox);
            }
        }
        outbox.has_sender = false;
        self.changed.notify_all();
    }

    /// Send a reply, which the client must take within its time.
    fn send_whole(&self, mut reply: &[u8]) -> io::Result<()> {
        let began = Instant::now();
        while !reply.is_empty() {
            if began.elapsed() > self.limits.reply {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match (&self.stream).write(reply) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => reply = &reply[len..],
                Err(error) if is_not_yet(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fail(&self, outbox: &mut Outbox) {
        (outbox.has_failed, outbox.bytes) = (true, 0);
        outbox.replies.clear();
        let _ = self.stream.shutdown(Shutdown::Both);
        self.changed.notify_all();
    }

    /// Wait until the client has taken enough of its replies. Returns whether it is worth reading on.
    pub(super) fn wait_for_space(&self) -> bool {
        let mut outbox = self.lock();
        while outbox.bytes > KEPT_MAX {
            outbox = self.changed.wait(outbox).unwrap_or_else(PoisonError::into_inner);
        }
        !outbox.has_failed
    }

    /// End it if the client has not taken a kept reply for so long.
    pub(super) fn end_if_stalled(&self, limit: Duration) {
        let mut outbox = self.lock();
        if outbox.has_sender && outbox.taken_at.elapsed() > limit {
            self.fail(&mut outbox);
        }
    }

    /// Wait until all calls are answered, and the answers sent.
    pub(super) fn wait_until_sent(&self) {
        let mut outbox = self.lock();
        while outbox.has_sender || outbox.calls > 0 {
            outbox = self.changed.wait(outbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn replies_come_whole_and_in_order_to_a_client_that_reads_late() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (stream, _) = listener.accept().expect("a connection");
        let client_of = Client { number: 1, name: "test".to_owned() };
        let connection = Arc::new(Connection::new(stream, client_of, Limits::default()));
        let mut all = Vec::new();
        for nth in 0..40_u8 {
            let reply = vec![nth; 100_000 + usize::from(nth) * 1000];
            connection.send(&reply);
            all.extend(reply);
        }
        assert!(connection.lock().bytes > 0, "more than the stream takes at once");
        let reader = thread::spawn(move || {
            let mut received = vec![0; all.len()];
            client.read_exact(&mut received).expect("all of it");
            assert!(received == all);
        });
        assert!(connection.wait_for_space());
        connection.wait_until_sent();
        reader.join().expect("what was sent is what came");
        assert_eq!(connection.lock().bytes, 0);
    }

    #[test]
    fn a_client_that_is_gone_keeps_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (stream, _) = listener.accept().expect("a connection");
        let client_of = Client { number: 1, name: "test".to_owned() };
        let connection = Arc::new(Connection::new(stream, client_of, Limits::default()));
        let reply = vec![1; 1 << 20];
        (0..64).for_each(|_| connection.send(&reply));
        drop(client);
        connection.wait_until_sent();
        assert!(!connection.wait_for_space() && connection.lock().bytes == 0);
    }

    /// It took a byte now and then, and kept a thread and its replies.
    #[test]
    fn a_client_that_takes_a_reply_slowly_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (stream, _) = listener.accept().expect("a connection");
        let client_of = Client { number: 1, name: "test".to_owned() };
        let limits = Limits {
            reply: Duration::from_millis(300),
            tick: Duration::from_millis(20),
            ..Limits::default()
        };
        let connection = Arc::new(Connection::new(stream, client_of, limits));
        let reply = vec![1; 1 << 20];
        (0..64).for_each(|_| connection.send(&reply));
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let slow = thread::spawn(move || {
            while end.recv_timeout(Duration::from_millis(10)).is_err() {
                let _ = client.read(&mut [0; 4096]);
            }
        });
        let waiting = Arc::clone(&connection);
        let (sent, is_sent) = std::sync::mpsc::channel();
        thread::spawn(move || {
            waiting.wait_until_sent();
            sent.send(())
        });
        let is_ended = is_sent.recv_timeout(Duration::from_secs(10)).is_ok();
        ended.send(()).expect("it runs");
        slow.join().expect("it ends");
        assert!(is_ended && !connection.wait_for_space() && connection.lock().bytes == 0);
    }
}
