//! Random operations of every kind against a vector of bytes (ARCHITECTURE invariants 2, 5, 7).

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Content, ReadAhead};
use crate::cache::engine::{Engine, EngineOptions};
use crate::content::write::Position;
use crate::store::map::SyncKind;
use crate::store::toy_map::ToyMap;
use crate::{AlignedBuf, IoFlags};

/// xorshift: a seed gives a sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub(crate) fn engine(cache_bytes: usize) -> Arc<Engine> {
    Engine::new(&EngineOptions {
        cache_bytes,
        read_ahead_bytes: 256 << 10,
        dirty_age: Duration::from_millis(5),
        ..EngineOptions::default()
    })
    .expect("memory")
}

struct Model {
    content: Arc<Content>,
    view: ToyMap,
    bytes: Vec<u8>,
    ahead: ReadAhead,
    random: Random,
    span: u64,
}

impl Model {
    fn new(seed: u64, block: u64, unwritten: bool) -> Self {
        let map = ToyMap::new(block, (8 << 20) / block, unwritten);
        let view = map.reopen();
        let content = Content::new(Box::new(map), engine(256 << 10)).expect("content");
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let span = (block * 24).clamp(100_000, 600_000);
        Self { content, view, bytes: Vec::new(), ahead: ReadAhead::default(), random, span }
    }

    fn range(&mut self) -> (u64, usize) {
        let offset = match self.random.below(4) {
            0 => self.random.below(20_000),
            1 => self.bytes.len() as u64,
            _ => self.random.below(self.span),
        };
        let len = match self.random.below(4) {
            0 => self.random.below(600),
            1 => self.random.below(90_000),
            _ => self.random.below(9_000),
        };
        (offset, len as usize)
    }

    fn data(&mut self, len: usize) -> AlignedBuf {
        let mut data = AlignedBuf::zeroed(len, 512);
        let first = self.random.next() as u8;
        data.iter_mut().enumerate().for_each(|(at, byte)| *byte = first.wrapping_add(at as u8) | 1);
        data
    }

    fn apply(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset as usize + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(data);
    }

    fn write(&mut self, kind: u64) -> String {
        let (offset, len) = self.range();
        let (offset, len) =
            if kind == 1 { (offset / 512 * 512, len.next_multiple_of(512)) } else { (offset, len) };
        let data = self.data(len);
        let slices = [IoSlice::new(&data)];
        let at = Position::At(offset);
        let result = match kind {
            0 => self.content.write_cached(&slices, at),
            1 => self.content.write_direct(&slices, at, None),
            _ => self.content.write_bounced(&slices, at, None),
        };
        let written = result.expect("write");
        assert_eq!((written.offset, written.len), (offset, len));
        self.apply(offset, &data);
        format!("write {kind} of {len} at {offset}")
    }

    fn read(&mut self, kind: u64) -> String {
        let (offset, len) = self.range();
        let (offset, len) =
            if kind == 1 { (offset / 512 * 512, len.next_multiple_of(512)) } else { (offset, len) };
        let mut memory = AlignedBuf::zeroed(len, 512);
        memory.fill(0xee);
        let mut slices = [IoSliceMut::new(&mut memory)];
        let got = match kind {
            0 => self.content.read_cached(&mut slices[0], offset, &self.ahead),
            1 => self.content.read_direct(&mut slices, offset, IoFlags::NONE),
            _ => self.content.read_bounced(&mut slices, offset, IoFlags::NONE),
        };
        let got = got.expect("read");
        let from = (offset as usize).min(self.bytes.len());
        let expected = &self.bytes[from..(from + len).min(self.bytes.len())];
        let what = format!("read {kind} of {len} at {offset}, size {}", self.bytes.len());
        assert_eq!(got, expected.len(), "{what}");
        if let Some(at) = (0..got).find(|at| memory[*at] != expected[*at]) {
            panic!("{what}: byte {} is {:#x} in place of {:#x}", from + at, memory[at], expected[at]);
        }
        what
    }

    fn change(&mut self) -> String {
        let (offset, len) = self.range();
        let end = (offset as usize + len).min(self.bytes.len());
        match self.random.below(5) {
            0 => {
                self.content.set_len(offset).expect("set_len");
                self.bytes.resize(offset as usize, 0);
                format!("set_len {offset}")
            }
            1 | 2 => {
                self.content.punch_hole(offset, len as u64).expect("punch");
                if (offset as usize) < end {
                    self.bytes[offset as usize..end].fill(0);
                }
                format!("punch {len} at {offset}")
            }
            3 => {
                self.content.allocate(offset, len as u64 + 1, super::BeyondEnd::Grow).expect("allocate");
                self.bytes.resize(self.bytes.len().max(offset as usize + len + 1), 0);
                format!("allocate {len} at {offset}")
            }
            _ => {
                self.content.cache.write_back_all().expect("write back");
                "write back".to_owned()
            }
        }
    }

    fn step(&mut self) -> String {
        match self.random.below(16) {
            0..=2 => self.write(0),
            3..=4 => self.write(1),
            5 => self.write(2),
            6..=8 => self.read(0),
            9..=10 => self.read(1),
            11 => self.read(2),
            12..=14 => self.change(),
            _ => {
                self.content.write_back_and_drop(0, u64::MAX / 2).expect("drop");
                "drop".to_owned()
            }
        }
    }

    fn check_reopened(&mut self) {
        self.content.sync(SyncKind::All).expect("sync");
        self.content.cache.pages.check_invariants();
        assert_eq!(self.view.claimed(), 0, "claims are given back");
        let content = Content::new(Box::new(self.view.reopen()), engine(256 << 10)).expect("content");
        let mut memory = AlignedBuf::zeroed(self.bytes.len().next_multiple_of(512), 512);
        let got = content.read_direct(&mut [IoSliceMut::new(&mut memory)], 0, IoFlags::NONE).expect("read");
        assert_eq!(got, self.bytes.len());
        assert!(memory[..got] == self.bytes[..], "what was synced is there");
    }
}

fn run(seed: u64, block: u64, unwritten: bool) {
    let mut model = Model::new(seed, block, unwritten);
    let mut last = std::collections::VecDeque::new();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for step in 0..300 {
            let what = model.step();
            last.push_back(format!("{step}: {what}"));
            if last.len() > 12 {
                last.pop_front();
            }
        }
        model.check_reopened();
    }));
    if let Err(panic) = outcome {
        eprintln!("seed {seed}, blocks of {block}, unwritten {unwritten}; the last steps:\n{last:#?}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn any_order_of_operations_gives_the_bytes_of_the_model() {
    for seed in 1..=12 {
        for (block, unwritten) in
            [(512, false), (1024, true), (4096, false), (4096, true), (16384, true), (65536, false)]
        {
            run(seed, block, unwritten);
        }
    }
}

/// Threads write and read their own stripes, which share pages and blocks, in every way; each sees its own bytes.
#[test]
fn threads_on_one_file_keep_to_their_stripes() {
    const THREADS: u64 = 4;
    const STRIPE: u64 = 1536;
    for (seed, block) in [(1, 1024), (2, 4096), (3, 16384)] {
        let map = ToyMap::new(block, (8 << 20) / block, block > 4096);
        let view = map.reopen();
        let content = Content::new(Box::new(map), engine(256 << 10)).expect("content");
        let finished = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (content, finished) = (&content, &finished);
                scope.spawn(move || {
                    let mut random = Random(seed * 1000 + thread + 1);
                    let ahead = ReadAhead::default();
                    let mut versions = [0_u8; 64];
                    let mut memory = AlignedBuf::zeroed(STRIPE as usize, 512);
                    for _ in 0..400 {
                        let stripe = random.below(64);
                        let offset = (stripe * THREADS + thread) * STRIPE;
                        if random.below(2) == 0 {
                            let version = (random.below(250) + 1) as u8;
                            memory.fill(version);
                            let slices = [IoSlice::new(&memory)];
                            let at = Position::At(offset);
                            match random.below(3) {
                                0 => content.write_cached(&slices, at),
                                1 => content.write_direct(&slices, at, None),
                                _ => content.write_bounced(&slices, at, None),
                            }
                            .expect("write");
                            versions[stripe as usize] = version;
                        } else {
                            memory.fill(0xee);
                            let mut slices = [IoSliceMut::new(&mut memory)];
                            let got = match random.below(3) {
                                0 => content.read_cached(&mut slices[0], offset, &ahead),
                                1 => content.read_direct(&mut slices, offset, IoFlags::NONE),
                                _ => content.read_bounced(&mut slices, offset, IoFlags::NONE),
                            }
                            .expect("read");
                            let version = versions[stripe as usize];
                            assert!(got == STRIPE as usize || version == 0);
                            assert!(
                                memory[..got].iter().all(|byte| *byte == version),
                                "seed {seed} block {block}"
                            );
                        }
                        if random.below(50) == 0 {
                            content.write_back_and_drop(offset, 40_000).expect("drop");
                        }
                    }
                    finished.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(finished.load(Ordering::SeqCst), THREADS);
        content.sync(SyncKind::All).expect("sync");
        content.cache.pages.check_invariants();
        assert_eq!(view.claimed(), 0);
    }
}
