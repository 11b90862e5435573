//! The cache of replies to calls that must not be carried out twice.
//!
//! A client that has lost its connection sends calls without a reply again, over the next connection. The second removal of a name would
//! fail, or remove a newer file. So replies to such calls are kept, and a repeated call gets the first reply.
//!
//! A repeated call has the same bytes, with its number, and comes from the same address and port. Linux's client keeps its port for that, and
//! Linux's server compares the same.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::xdr::Writer;

/// Calls whose replies are kept.
const CALLS_MAX: usize = 1024;
/// Longer ones are carried out each time: names and targets of links are shorter.
const CALL_LEN_MAX: usize = 16 << 10;
/// Age of a reply: a client that restarts may use its numbers again.
const KEPT_FOR: Duration = Duration::from_secs(120);

/// A client, by its address and port, and the call.
type Key = (Arc<str>, Arc<[u8]>);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    table: Mutex<Table>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// `None` while the call is being carried out.
    replies: HashMap<Key, Option<Vec<u8>>>,
    /// The calls that have ended, and when, the oldest first.
    order: VecDeque<(Instant, Key)>,
}

impl Table {
    /// Drop old replies, down to [`CALLS_MAX`].
    fn drop_old(&mut self) {
        while let Some((ended, _)) = self.order.front()
            && (self.order.len() > CALLS_MAX || ended.elapsed() > KEPT_FOR)
            && let Some((_, key)) = self.order.pop_front()
        {
            self.replies.remove(&key);
        }
    }
}

impl Repeated {
    /// Carry out a call, if it was not already; its reply is in `reply` then. One that is being carried out is waited for.
    pub(super) fn once(
        &self,
        client: &str,
        call: &[u8],
        reply: &mut Writer,
        carry_out: impl FnOnce(&mut Writer),
    ) {
        if call.len() > CALL_LEN_MAX {
            return carry_out(reply);
        }
        let key = (Arc::from(client), Arc::from(call));
        let mut table = self.lock();
        table.drop_old();
        while let Some(kept) = table.replies.get(&key) {
            if let Some(kept) = kept {
                reply.bytes.clear();
                reply.bytes.extend_from_slice(kept);
                return;
            }
            table = self.ended.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        table.replies.insert(key.clone(), None);
        drop(table);
        carry_out(reply);
        let mut table = self.lock();
        table.replies.insert(key.clone(), Some(reply.bytes.clone()));
        table.order.push_back((Instant::now(), key));
        table.drop_old();
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_carried_out_once_and_the_newest_are_known() {
        let repeated = Repeated::default();
        let mut count = 0;
        let mut call = |from: &str, call: &[u8]| {
            let mut reply = Writer::default();
            repeated.once(from, call, &mut reply, |reply| {
                count += 1;
                reply.u32(count);
            });
            u32::from_be_bytes(reply.bytes.try_into().expect("four bytes"))
        };
        assert_eq!([call("one", b"one"), call("one", b"one"), call("one", b"two")], [1, 1, 2]);
        assert_eq!(call("two", b"one"), 3, "of another client");
        for number in 0..CALLS_MAX as u32 {
            call("one", &number.to_be_bytes());
        }
        assert_eq!(call("one", b"one"), 4 + CALLS_MAX as u32, "it is forgotten");
        assert_eq!(call("one", &7_u32.to_be_bytes()), 4 + 7);
    }

    #[test]
    fn a_call_that_comes_again_meanwhile_gets_the_reply_of_the_first() {
        let repeated = Repeated::default();
        std::thread::scope(|scope| {
            let (started, has_started) = std::sync::mpsc::channel();
            let repeated = &repeated;
            scope.spawn(move || {
                repeated.once("one", b"call", &mut Writer::default(), |reply| {
                    started.send(()).expect("it is waited for");
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    reply.u32(7);
                });
            });
            has_started.recv().expect("it starts");
            let mut reply = Writer::default();
            repeated.once("one", b"call", &mut reply, |_| panic!("it is carried out twice"));
            assert_eq!(reply.bytes, 7_u32.to_be_bytes());
        });
    }
}
