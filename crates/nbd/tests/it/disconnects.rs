//! NBD over lost connections (in a request, in a reply, between a write and its flush) and over slow connections.
#![allow(clippy::disallowed_methods, reason = "the servers' files are none of ours")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::server::{FLUSH, Loss, Proxy, READ, REPLY, REQUEST, SEND_FLUSH, SEND_FUA, Server, WRITE};
use diorite_block::{Bio, BioFlags, BioMemory, BlockDevice, IoOwner, Op, Sector};
use diorite_device::OpenOptions;
use diorite_nbd::NbdDevice;
use tempfile::TempDir;

const DURABLE: BioFlags = BioFlags::FUA;
const BLOCK: usize = 4096;

/// A server that stays, and loses nothing; a proxy to it.
struct Line {
    _directory: TempDir,
    _server: Server,
    proxy: Proxy,
}

impl Line {
    /// None, with a visible reason, without the server. It is `qemu-nbd`: `nbdkit` may end by itself (an assertion) when a connection is lost.
    fn new(flags: fn(u16) -> u16) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).unwrap();
        let server = Server::qemu(&directory.path().join("server"), &image, &[])?;
        Some(Self::to(server, directory, flags))
    }

    /// To a server that executes one request after the other.
    fn in_turn() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::nbdkit(&directory.path().join("server"), &["-t", "1", "memory", "8M"])?;
        Some(Self::to(server, directory, |flags| flags))
    }

    fn to(server: Server, directory: TempDir, flags: fn(u16) -> u16) -> Self {
        let proxy = Proxy::new(&directory.path().join("proxy"), &server.socket, flags);
        Self { _directory: directory, _server: server, proxy }
    }

    fn open(&self, options: &str) -> Arc<dyn BlockDevice> {
        NbdDevice::open(&format!("{}{options}", self.proxy.uri()), &OpenOptions::read_write()).unwrap()
    }
}

/// Wherever in a write or a read the connection is lost: what had no answer is sent again, once, what had one is not, and each call ends as if nothing had been.
#[test]
fn what_had_no_answer_is_sent_again() {
    let Some(line) = Line::new(|flags| flags) else { return };
    let device = line.open("&connections=1");
    device.write_bytes(0, &[1; BLOCK], BioFlags::SYNC | DURABLE).unwrap();
    let whole = REQUEST + BLOCK as u64;
    let in_writes = [0, 14, REQUEST, REQUEST + 1000, whole].map(Loss::Requests);
    let in_answers = [0, 7].map(Loss::Replies);
    let mut at = 0;
    for (round, loss) in in_writes.into_iter().chain(in_answers).enumerate() {
        at += BLOCK as u64;
        let data = [round as u8 + 2; BLOCK];
        line.proxy.lose_at(loss);
        device.write_bytes(at, &data, BioFlags::SYNC | DURABLE).unwrap();
        assert_eq!(line.proxy.sent(WRITE, at), 2, "{loss:?}");
        let mut back = [0; BLOCK];
        device.read_bytes(at, &mut back).unwrap();
        assert!(back == data, "{loss:?}");
    }
    let in_data = [0, 10, REPLY, REPLY + 1000, REPLY + BLOCK as u64].map(Loss::Replies);
    for (round, loss) in in_data.into_iter().enumerate() {
        let mut back = [0; BLOCK];
        let before = line.proxy.sent(READ, 0);
        line.proxy.lose_at(loss);
        device.read_bytes(0, &mut back).unwrap();
        assert_eq!(back, [1; BLOCK], "{loss:?}");
        // The last one had its answer before the connection was lost.
        assert_eq!(line.proxy.sent(READ, 0) - before, if round < 4 { 2 } else { 1 }, "{loss:?}");
    }
    assert_eq!(line.proxy.sent(WRITE, 0), 1, "it had an answer");
    device.flush().unwrap();
}

/// Of several transfers at once those that had an answer are not sent again.
#[test]
fn a_lost_connection_costs_only_what_was_not_answered() {
    let Some(line) = Line::in_turn() else { return };
    let device = line.open("&connections=1");
    for block in 0..8 {
        device.write_bytes(block * 4096, &[block as u8; BLOCK], BioFlags::SYNC | DURABLE).unwrap();
    }
    line.proxy.lose_at(Loss::Replies(3 * (REPLY + BLOCK as u64) + 50));
    let mut memory = vec![[9; BLOCK]; 8];
    let mut bios: Vec<_> = (0..)
        .zip(&mut memory)
        .map(|(block, memory)| Bio {
            sector: Sector(block * 8),
            memory: BioMemory::Read(vec![std::io::IoSliceMut::new(memory)]),
            op: Op::Read,
            flags: BioFlags::default(),
            owner: IoOwner::default(),
        })
        .collect();
    device.execute(&mut bios).unwrap();
    let sent: Vec<_> = (0..8).map(|block| line.proxy.sent(READ, block * 4096)).collect();
    // Of the last ones the proxy may not have read the first request.
    assert!(
        sent.starts_with(&[1, 1, 1, 2]) && sent[4..].iter().all(|sent| (1..=2).contains(sent)),
        "{sent:?}"
    );
    assert!(memory.iter().enumerate().all(|(block, memory)| *memory == [block as u8; BLOCK]));
}

/// A write that was acknowledged and not flushed may be lost with the connection: no flush says otherwise. What was durable by itself or flushed, and
/// what a server without a cache has, is not.
#[test]
fn a_flush_fails_after_acknowledged_writes_may_be_lost() {
    let Some(line) = Line::new(|flags| flags) else { return };
    let device = line.open("");
    device.write_bytes(0, &[1; BLOCK], BioFlags::SYNC).unwrap();
    device.flush().unwrap();
    device.write_bytes(0, &[2; BLOCK], BioFlags::SYNC | DURABLE).unwrap();
    line.proxy.lose();
    device.flush().unwrap();
    device.write_bytes(0, &[3; BLOCK], BioFlags::SYNC).unwrap();
    line.proxy.lose();
    for _ in 0..2 {
        let error = device.flush().unwrap_err().to_string();
        assert!(error.contains("not flushed"), "{error}");
    }
    // It can be read, and is in order when it was opened again.
    device.read_bytes(0, &mut [0; BLOCK]).unwrap();
    drop(device);
    let device = line.open("");
    device.write_bytes(0, &[4; BLOCK], BioFlags::SYNC).unwrap();
    // The answer to the flush is lost: the one that is sent again cannot speak for what the server had before.
    line.proxy.lose_at(Loss::Requests(REQUEST));
    device.flush().unwrap_err();
    assert!(line.proxy.sent(FLUSH, 0) >= 3);

    let Some(line) = Line::new(|flags| flags & !(SEND_FLUSH | SEND_FUA)) else { return };
    let device = line.open("");
    device.write_bytes(0, &[1; BLOCK], BioFlags::SYNC).unwrap();
    line.proxy.lose();
    device.read_bytes(0, &mut [0; BLOCK]).unwrap();
    device.flush().unwrap();
    assert_eq!(line.proxy.sent(FLUSH, 0), 0);
}

/// A slow request may still be executed: it is not sent again, and the device fails.
#[test]
fn a_write_that_is_only_slow_is_not_sent_again() {
    let Some(line) = Line::new(|flags| flags) else { return };
    let device = line.open("&connections=1&timeout=1&reconnect=5");
    line.proxy.set_delay(Duration::from_millis(20));
    device.write_bytes(0, &[1; BLOCK], BioFlags::SYNC | DURABLE).unwrap();
    line.proxy.set_delay(Duration::from_secs(12));
    let before = Instant::now();
    let error = device.write_bytes(4096, &[2; BLOCK], BioFlags::SYNC).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    assert!(before.elapsed() < Duration::from_secs(9), "{:?}", before.elapsed());
    assert_eq!(line.proxy.sent(WRITE, 4096), 1);
}

/// Threads write durably and compare what they read, on four connections, while one after the other is lost at any byte.
#[test]
fn threads_go_on_over_lost_connections() {
    const LOST: usize = 30;
    let Some(line) = Line::new(|flags| flags) else {
        return;
    };
    let device = line.open("");
    let stop = AtomicBool::new(false);
    let rounds: [AtomicU64; 4] = Default::default();
    std::thread::scope(|scope| {
        let threads = (0_u64..).zip(&rounds).map(|(thread, rounds)| {
            let (device, stop) = (&device, &stop);
            scope.spawn(move || {
                for round in 1_u64.. {
                    let at = (thread * 64 + round % 64) * 4096;
                    let memory: Vec<u8> = (round << 8 | thread).to_le_bytes().repeat(512);
                    device.write_bytes(at, &memory, BioFlags::SYNC | DURABLE).unwrap();
                    let mut back = vec![0; BLOCK];
                    device.read_bytes(at, &mut back).unwrap();
                    assert!(back == memory, "thread {thread}, round {round}");
                    rounds.store(round, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut random = 88_172_645_463_325_252_u64;
        for lost in 1..=LOST {
            if threads.iter().any(ScopedJoinHandle::is_finished) {
                break;
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let bytes = (random >> 8) % 20_000;
            line.proxy.lose_at(if random.is_multiple_of(2) {
                Loss::Requests(bytes)
            } else {
                Loss::Replies(bytes)
            });
            let give_up = Instant::now() + Duration::from_secs(20);
            // A request that loses its connection again and again fails.
            let done = |rounds: &[AtomicU64; 4]| rounds.each_ref().map(|round| round.load(Ordering::Relaxed));
            let mut at_loss = None;
            while Instant::now() < give_up && !threads.iter().any(ScopedJoinHandle::is_finished) {
                std::thread::sleep(Duration::from_millis(1));
                if line.proxy.losses() == lost {
                    let now = done(&rounds);
                    let then = *at_loss.get_or_insert(now);
                    if now.iter().zip(then).all(|(now, then)| *now > then) {
                        break;
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(line.proxy.losses(), LOST);
    device.flush().unwrap();
}
