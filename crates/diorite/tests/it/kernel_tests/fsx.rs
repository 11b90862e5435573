//! fsx: random operations on one file against a vector of bytes, in the mixtures of the original tests.

use diorite::{AlignedBuf, DirectQueue, File};
use diorite_ext_tools::mkfs::Flavor;

use super::{PAGE, Volume};
use crate::common::{Random, pattern};

/// Which ways in a run uses, and its granularity.
#[derive(Clone, Copy)]
struct Mixture {
    direct: bool,
    queued: bool,
    /// Offsets and lengths are multiples of this.
    unit: usize,
    operations: usize,
    /// Longest transfer.
    longest: usize,
}

const MIXED: Mixture = Mixture { direct: true, queued: true, unit: 1, operations: 400, longest: 60_000 };

struct Run<'v> {
    mixture: Mixture,
    files: [File; 2],
    volume: &'v Volume,
    random: Random,
    model: Vec<u8>,
    memory: AlignedBuf,
}

impl Run<'_> {
    fn range(&mut self) -> (usize, usize) {
        let Mixture { unit, longest, .. } = self.mixture;
        let offset = self.random.below(200_000) as usize / unit * unit;
        let len = (1 + self.random.below(longest as u64) as usize).next_multiple_of(unit);
        (offset, len)
    }

    fn file(&mut self) -> File {
        let direct = self.mixture.direct && self.random.below(2) == 0;
        self.files[usize::from(direct)].clone()
    }

    fn write(&mut self) {
        let (offset, len) = self.range();
        let data = pattern(len, self.random.next());
        self.model.resize(self.model.len().max(offset + len), 0);
        self.model[offset..offset + len].copy_from_slice(&data);
        self.memory[..len].copy_from_slice(&data);
        if self.mixture.queued && len.is_multiple_of(512) && offset.is_multiple_of(512) {
            let mut queue = DirectQueue::new(1);
            let memory = std::mem::replace(&mut self.memory, AlignedBuf::zeroed(0, 1));
            queue.write(&self.files[1], offset as u64, memory, len, 0).expect("submit");
            let done = queue.next_finished().expect("reap").expect("one");
            self.memory = done.memory;
            assert_eq!(done.result.expect("queued write"), len);
        } else {
            self.file().write_all_at(&self.memory[..len], offset as u64).expect("write");
        }
    }

    fn read(&mut self) {
        let (offset, len) = self.range();
        let got = self.file().read_at(&mut self.memory[..len], offset as u64).expect("read");
        let from = offset.min(self.model.len());
        let expected = &self.model[from..(from + len).min(self.model.len())];
        assert!(self.memory[..got] == *expected, "read of {len} at {offset}");
    }

    fn change(&mut self) {
        let (offset, len) = self.range();
        let (start, end) = (offset.min(self.model.len()), (offset + len).min(self.model.len()));
        let file = self.file();
        match self.random.below(5) {
            0 => {
                file.set_len(offset as u64).expect("set_len");
                self.model.resize(offset, 0);
            }
            1 => {
                file.punch_hole(offset as u64, len as u64).expect("punch");
                self.model[start..end].fill(0);
            }
            2 => {
                file.zero_range(offset as u64, len as u64).expect("zero");
                self.model[start..end].fill(0);
            }
            3 => {
                file.allocate(offset as u64, len as u64).expect("allocate");
                self.model.resize(self.model.len().max(offset + len), 0);
            }
            _ => {
                file.sync_data().expect("sync");
                self.volume.filesystem.drop_caches().expect("drop");
            }
        }
    }
}

fn fsx(mixture: Mixture, registered: bool) {
    for (seed, volume) in (1..).zip(Volume::all()) {
        let memory = if registered {
            volume.direct().buffer(2 << 20).expect("memory")
        } else {
            AlignedBuf::zeroed(mixture.longest.next_multiple_of(PAGE), PAGE)
        };
        let mut run = Run {
            mixture,
            files: [volume.buffered(), volume.direct()],
            volume: &volume,
            random: Random(seed * 7919),
            model: Vec::new(),
            memory,
        };
        for _ in 0..mixture.operations {
            match run.random.below(10) {
                0..4 => run.write(),
                4..7 => run.read(),
                _ => run.change(),
            }
        }
        let model = std::mem::take(&mut run.model);
        drop(run);
        let volume = volume.reopen();
        assert!(volume.filesystem.read("/file").expect("read") == model, "seed {seed}: after it was closed");
        volume.close();
    }
}

/// Direct I/O of parts of blocks beside buffered I/O.
#[test]
fn g091_direct_parts_of_blocks_with_buffered() {
    fsx(Mixture { queued: false, unit: 512, ..MIXED }, false);
}

#[test]
fn g112_queued() {
    fsx(Mixture { unit: 512, ..MIXED }, false);
}

#[test]
fn g263_direct_blocks_beside_buffered_bytes() {
    fsx(Mixture { queued: false, ..MIXED }, false);
}

#[test]
fn g521_g617_everything_for_longer() {
    fsx(Mixture { operations: 1500, unit: 512, ..MIXED }, false);
    fsx(MIXED, false);
}

/// Memory on huge pages.
#[test]
fn g760_huge_pages() {
    fsx(Mixture { unit: PAGE, longest: 1 << 20, operations: 150, ..MIXED }, true);
}

/// Without extents and with blocks as large as a page: what the loops above leave out.
#[test]
fn g091_ext2_with_large_blocks() {
    let volume = Volume::new(Flavor::Ext2, 4096);
    let file = volume.direct();
    file.write_all_at(&pattern(50_000, 1), 100).expect("write");
    volume.buffered().write_all_at(&pattern(5000, 2), 20_000).expect("write");
    let mut expected = [vec![0; 100], pattern(50_000, 1)].concat();
    expected[20_000..25_000].copy_from_slice(&pattern(5000, 2));
    assert!(super::content(&file) == expected);
    drop(file);
    volume.close();
}
