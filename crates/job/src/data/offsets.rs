//! The offset of the next transfer.

use super::random::{Permutation, Random};
use crate::language::spec::Job;

/// fio's random map: each block of a range once in a pass, in random order.
#[derive(Clone, Debug)]
struct Map {
    permutation: Permutation,
    next: u64,
    /// A bit for each block that this pass has used; none if every transfer is one block.
    used: Option<Vec<u64>>,
    passes: u32,
}

impl Map {
    fn new(blocks: u64, seed: u64, is_one_block: bool) -> Self {
        let used = (!is_one_block).then(|| vec![0; blocks.div_ceil(64) as usize]);
        Self { permutation: Permutation::new(blocks, seed), next: 0, used, passes: 0 }
    }

    fn is_used(&self, block: u64) -> bool {
        self.used.as_ref().is_some_and(|used| used[(block / 64) as usize] >> (block % 64) & 1 == 1)
    }

    /// The next unused block. After the last one, the next pass begins.
    fn next(&mut self) -> u64 {
        loop {
            if self.next == self.permutation.count {
                (self.next, self.passes) = (0, self.passes + 1);
                self.used.iter_mut().for_each(|used| used.fill(0));
            }
            let block = self.permutation.at(self.next);
            self.next += 1;
            if !self.is_used(block) {
                return block;
            }
        }
    }

    /// Whether the pass has an unused block.
    fn has_next(&self) -> bool {
        (self.next..self.permutation.count).any(|index| !self.is_used(self.permutation.at(index)))
    }

    /// Use up to `blocks` blocks from `first` on: how many are unused in a row.
    fn take(&mut self, first: u64, blocks: u64) -> u64 {
        let end = (first + blocks).min(self.permutation.count);
        let end = (first + 1..end).find(|block| self.is_used(*block)).unwrap_or(end);
        for block in first..end {
            self.used.iter_mut().for_each(|used| used[(block / 64) as usize] |= 1 << (block % 64));
        }
        end - first
    }
}

/// The order of offsets in a range.
#[derive(Clone, Debug)]
enum Order {
    /// Each transfer begins `step` after the end of the last one.
    Sequential { end: Option<u64>, step: i64, passes: u32 },
    /// Each block once in a pass, in random order.
    Mapped(Map),
    /// Any block, with repetitions.
    Random(Random),
}

/// Offsets of one pass after another over a range of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    order: Order,
    /// Bytes of the range.
    len: u64,
    /// The smallest transfer. Random offsets are multiples of it.
    least: u64,
    /// Sequential transfers at each random offset.
    run_length: u32,
    /// Transfers that the present run still has, and the offset of the next.
    run: (u32, u64),
}

impl Offsets {
    /// Offsets of the job's transfers of one direction (0: reads, 1: writes) in a range of `len` bytes.
    pub(crate) fn new(job: &Job, direction: usize, len: u64, seed: u64) -> Self {
        let least = job.blocks[direction].least();
        let order = if !job.pattern.is_random() {
            Order::Sequential { end: None, step: job.step, passes: 0 }
        } else if job.has_random_map() {
            let is_one_block = job.blocks[direction].is_one() && job.run_length == 1;
            Order::Mapped(Map::new((len / least).max(1), seed, is_one_block))
        } else {
            Order::Random(Random::new(seed))
        };
        Self { order, len, least, run_length: job.run_length, run: (0, 0) }
    }

    /// Offset and length of the next transfer of `wanted` bytes; it may be shorter. Starts over after the last one.
    pub(crate) fn next(&mut self, wanted: u64) -> (u64, u64) {
        let (start, space) = self.next_start();
        let len = if space >= wanted { wanted } else { space - space % self.least };
        let (start, mut len) = if len == 0 { (0, wanted.min(self.len)) } else { (start, len) };
        match &mut self.order {
            Order::Sequential { end, passes, .. } => {
                *end = Some(start + len);
                *passes += u32::from(start + len == self.len);
            }
            // A transfer ends before a block that this pass has used.
            Order::Mapped(map) => {
                len = len.min(map.take(start / self.least, len.div_ceil(self.least)) * self.least);
            }
            Order::Random(_) => {}
        }
        self.run.1 = start + len;
        (start, len)
    }

    /// Whether `passes` passes have ended: by the map, or by transfers at the end of the range.
    pub(crate) fn has_ended(&self, passes: u32) -> bool {
        match &self.order {
            Order::Sequential { passes: ended, .. } => *ended >= passes,
            Order::Mapped(map) => map.passes + u32::from(!map.has_next()) >= passes,
            Order::Random(_) => false,
        }
    }

    /// An offset, and the bytes from there to the end of the range.
    fn next_start(&mut self) -> (u64, u64) {
        let continues = self.run.0 > 0 && self.run.1 + self.least <= self.len;
        if continues && !matches!(&self.order, Order::Mapped(map) if map.is_used(self.run.1 / self.least)) {
            self.run.0 -= 1;
            return (self.run.1, self.len - self.run.1);
        }
        let start = match &mut self.order {
            Order::Sequential { end, step, .. } => {
                let from = end.unwrap_or(if *step < 0 { self.len } else { 0 });
                let step = if end.is_none() && *step >= 0 { 0 } else { *step };
                match from.checked_add_signed(step) {
                    Some(start) if self.len.saturating_sub(start) >= self.least => start,
                    Some(_) => 0,
                    // Backwards past the beginning: from the end again.
                    None => self.len.checked_add_signed(step).unwrap_or(0),
                }
            }
            Order::Mapped(map) => map.next() * self.least,
            Order::Random(random) => random.below((self.len / self.least).max(1)) * self.least,
        };
        self.run.0 = self.run_length - 1;
        (start, self.len.saturating_sub(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets_of(options: &str, len: u64) -> (Job, Offsets) {
        let mut file = crate::parse("x.fio", &format!("[a]\nsize=1g\n{options}")).unwrap();
        let job = file.jobs.remove(0);
        let offsets = Offsets::new(&job, 0, len, 7);
        (job, offsets)
    }

    /// The first offsets of a job in a file of that size, in KiB.
    fn positions<const N: usize>(options: &str, kib: u64) -> [u64; N] {
        let (job, mut offsets) = offsets_of(options, kib << 10);
        [0; N].map(|_: u64| offsets.next(job.blocks[0].least()).0 >> 10)
    }

    #[test]
    fn sequences_start_over_and_step() {
        assert_eq!(positions("rw=read", 12), [0, 4, 8, 0, 4]);
        assert_eq!(
            positions("rw=read:-8k", 16),
            [8, 4, 0, 8],
            "each begins 8 KiB before the end of the last"
        );
        assert_eq!(positions("rw=write:4k", 24), [0, 8, 16, 0]);
        assert_eq!(positions("rw=read", 14), [0, 4, 8, 0], "no transfer is shorter than the smallest block");
    }

    /// With mixed sizes, each start came once: a third of the file was never moved, and other parts several times.
    #[test]
    fn mixed_sizes_cover_each_block_once_in_a_pass() {
        let cases = ["bsrange=4k-64k", "bssplit=4k/20:12k/20:128k/20:1m/40", "rw=randread:8", "bs=12k"];
        for options in cases {
            let len = 12288 * 400;
            let (job, mut offsets) = offsets_of(&format!("rw=randread\n{options}"), len);
            let mut random = Random::new(3);
            for pass in 1..=3 {
                let mut seen = vec![0; (len / 4096) as usize];
                while !offsets.has_ended(pass) {
                    let (start, bytes) = offsets.next(job.blocks[0].pick(random.fraction(), false));
                    assert!(bytes > 0 && bytes % job.blocks[0].least() == 0, "{options}: {bytes}");
                    seen[(start / 4096) as usize..((start + bytes) / 4096) as usize]
                        .iter_mut()
                        .for_each(|count| *count += 1);
                }
                assert!(seen.iter().all(|count| *count == 1), "{options}, pass {pass}: {seen:?}");
            }
        }
    }

    #[test]
    fn random_runs_are_sequential() {
        let runs = positions::<4>("rw=randread:2", 4096);
        assert_eq!(runs.windows(2).filter(|pair| pair[1] == pair[0] + 4).count(), 2);
    }

    /// A pass with steps moved as many bytes as one without, and so went over the file again.
    #[test]
    fn a_pass_with_steps_ends_where_a_transfer_ends_the_range() {
        let (_, mut offsets) = offsets_of("rw=write:8k", 64 << 10);
        let next = || (!offsets.has_ended(1)).then(|| offsets.next(4096).0 >> 10);
        assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), [0, 12, 24, 36, 48, 60]);
    }
}
