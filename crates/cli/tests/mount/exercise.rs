//! All kinds of random use of a file, compared with a vector of bytes.
#![allow(unsafe_code, reason = "mapped files")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::common::pattern;

const SIZE_MAX: u64 = 1 << 20;
const LEN_MAX: u64 = 128 << 10;
const PAGE: u64 = 4096;

struct Exercise {
    file: File,
    direct: File,
    model: Vec<u8>,
    random: u64,
}

/// `steps` random operations from `seed`.
pub(crate) fn exercise(path: &Path, seed: u64, steps: u64) {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = options.clone().create(true).truncate(true).open(path).expect("create");
    let direct = options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(path).expect("open");
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut run = Exercise { file, direct, model: Vec::new(), random };
    for step in 0..steps {
        run.step(step);
        assert_eq!(
            run.file.metadata().expect("stat").len(),
            run.model.len() as u64,
            "seed {seed}, step {step}"
        );
    }
    run.read(0, SIZE_MAX + LEN_MAX, "all, at the end");
}

impl Exercise {
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn step(&mut self, step: u64) {
        let (kind, offset, len) = (self.below(12), self.below(SIZE_MAX), 1 + self.below(LEN_MAX));
        let what = format!("step {step}: {kind}, {offset}, {len}");
        let data = pattern(len as usize, self.random);
        match kind {
            0 | 1 => {
                self.file.write_all_at(&data, offset).expect(&what);
                self.note(offset, &data);
            }
            2 => self.read(offset, len, &what),
            3 => self.write_directly(offset / PAGE * PAGE, len.next_multiple_of(PAGE), &what),
            4 => self.read_directly(offset / PAGE * PAGE, len.next_multiple_of(PAGE), &what),
            5 => self.map(offset, Some(&data), &what),
            6 => self.map(offset, None, &what),
            7 => {
                self.file.set_len(offset).expect(&what);
                self.model.resize(offset as usize, 0);
            }
            8 => self.zero(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len, &what),
            9 => self.zero(FallocateFlags::ZERO_RANGE, offset, len, &what),
            10 => {
                rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len).expect(&what);
                self.grow(offset + len);
            }
            _ => self.file.sync_data().expect(&what),
        }
    }

    fn grow(&mut self, len: u64) {
        let len = self.model.len().max(len as usize);
        self.model.resize(len, 0);
    }

    fn note(&mut self, offset: u64, data: &[u8]) {
        self.grow(offset + data.len() as u64);
        self.model[offset as usize..][..data.len()].copy_from_slice(data);
    }

    fn expected(&self, offset: u64, len: u64) -> &[u8] {
        let end = (offset + len).min(self.model.len() as u64);
        &self.model[offset.min(end) as usize..end as usize]
    }

    fn read(&self, offset: u64, len: u64, what: &str) {
        let mut memory = vec![0; len as usize];
        let got = read_full(&self.file, &mut memory, offset);
        assert!(&memory[..got] == self.expected(offset, len), "{what}: other bytes");
    }

    fn write_directly(&mut self, offset: u64, len: u64, what: &str) {
        let mut memory = Aligned::new(len as usize);
        memory.bytes().copy_from_slice(&pattern(len as usize, self.random));
        self.direct.write_all_at(memory.bytes(), offset).expect(what);
        self.note(offset, &pattern(len as usize, self.random));
    }

    fn read_directly(&self, offset: u64, len: u64, what: &str) {
        let mut memory = Aligned::new(len as usize);
        let got = read_full(&self.direct, memory.bytes(), offset);
        assert!(&memory.bytes()[..got] == self.expected(offset, len), "{what}: other bytes");
    }

    /// Read, or write, through a mapping of the whole file.
    fn map(&mut self, offset: u64, data: Option<&[u8]>, what: &str) {
        let len = self.model.len();
        if len == 0 {
            return;
        }
        let start = offset as usize % len;
        // SAFETY: a new mapping; the file is not made shorter while it is there.
        let at = unsafe {
            let both = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, &self.file, 0).expect(what)
        };
        // SAFETY: the mapping has `len` bytes, and no other thread uses it.
        let memory = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) };
        match data {
            Some(data) => {
                let data = &data[..data.len().min(len - start)];
                memory[start..start + data.len()].copy_from_slice(data);
                self.model[start..start + data.len()].copy_from_slice(data);
            }
            None => assert!(memory == &self.model[..], "{what}: other bytes"),
        }
        // SAFETY: the mapping, which is not used after this.
        unsafe {
            msync(at, len, MsyncFlags::ASYNC).expect(what);
            munmap(at, len).expect(what);
        }
    }

    fn zero(&mut self, flags: FallocateFlags, offset: u64, len: u64, what: &str) {
        rustix::fs::fallocate(&self.file, flags, offset, len).expect(what);
        if !flags.contains(FallocateFlags::KEEP_SIZE) {
            self.grow(offset + len);
        }
        let end = (offset + len).min(self.model.len() as u64) as usize;
        self.model[(offset as usize).min(end)..end].fill(0);
    }
}

/// Store a byte through a mapping of the whole file, and call a function while the mapping exists.
pub(crate) fn store_mapped(file: &File, offset: usize, then: impl FnOnce()) {
    let len = file.metadata().expect("stat").len() as usize;
    assert!(offset < len);
    // SAFETY: a new mapping of `len` bytes; the file is not made shorter while it is there, and no other thread uses it.
    unsafe {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, file, 0).expect("a mapping");
        at.cast::<u8>().add(offset).write_volatile(1);
        then();
        munmap(at, len).expect("munmap");
    }
}

/// Up to the end of the file.
fn read_full(file: &File, memory: &mut [u8], offset: u64) -> usize {
    let mut got = 0;
    while got < memory.len() {
        match file.read_at(&mut memory[got..], offset + got as u64).expect("read") {
            0 => break,
            more => got += more,
        }
        if got % PAGE as usize != 0 {
            // Direct I/O must begin on a block.
            break;
        }
    }
    got
}

/// Memory that begins on a page.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0u8; len + PAGE as usize];
        let start = bytes.as_ptr().align_offset(PAGE as usize);
        Self { bytes, start, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
