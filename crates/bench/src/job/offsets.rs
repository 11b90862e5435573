//! Which block comes next.

use std::convert::Infallible;

use rand_core::TryRng;
use rand_distr::{Distribution as _, Zipf};

use super::Job;
use super::spec::{Distribution, Strides};

/// A small generator of random numbers, repeatable by seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for every bound that a file has.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// An order in which each of `count` numbers comes exactly once, without remembering which have come: a Feistel
/// network over the next even power of two, walked until it lands inside.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The number at position `index`, which is below `count`.
    pub(crate) fn at(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = self.step(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn step(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let mixed = mix(right ^ self.seed.wrapping_add(round)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

/// How random positions are chosen where they may repeat.
#[derive(Clone, Debug)]
pub(crate) enum Spread {
    Uniform,
    /// By popularity: each rank has a place of its own.
    Ranked(Ranked),
    /// Around the middle, with this deviation as a share of the range.
    Normal(f64),
    /// Up to this share of the accesses: from, and so many bytes.
    Zones(Vec<(f64, u64, u64)>),
}

/// Laws of popularity.
#[derive(Clone, Debug)]
pub(crate) enum Ranked {
    Zipf(Zipf<f64>),
    Pareto(f64),
}

impl Spread {
    /// For a range of so many blocks of `unit` bytes.
    fn of(distribution: &Distribution, slots: u64, unit: u64) -> Self {
        let len = slots * unit;
        let zones = |zones: Vec<(f64, u64)>| {
            let (mut share, mut from) = (0.0, 0u64);
            let sum = |(accesses, bytes): (f64, u64)| {
                let start = from;
                from = start.saturating_add(bytes).min(len);
                share += accesses / 100.0;
                (share, start, from - start)
            };
            Self::Zones(zones.into_iter().map(sum).collect())
        };
        match distribution {
            Distribution::Uniform => Self::Uniform,
            Distribution::Zipf(theta) => {
                Zipf::new(slots as f64, *theta).map_or(Self::Uniform, |zipf| Self::Ranked(Ranked::Zipf(zipf)))
            }
            Distribution::Pareto(skew) => Self::Ranked(Ranked::Pareto(skew.ln() / (1.0 - skew).ln())),
            Distribution::Normal(percent) => Self::Normal(percent / 100.0),
            Distribution::Zoned(parts) => zones(
                parts.iter().map(|(share, size)| (*share, (len as f64 * size / 100.0) as u64)).collect(),
            ),
            Distribution::ZonedAbsolute(parts) => zones(parts.clone()),
        }
    }

    /// One of so many blocks of `unit` bytes.
    fn slot(&self, slots: u64, unit: u64, random: &mut Random) -> u64 {
        match self {
            Self::Uniform => random.below(slots),
            Self::Ranked(law) => {
                let rank = match law {
                    Ranked::Zipf(zipf) => zipf.sample(random) as u64 - 1,
                    Ranked::Pareto(power) => (slots as f64 * random.fraction().powf(*power)) as u64,
                };
                // Popular blocks lie anywhere, and are the same in each job.
                mix(rank) % slots
            }
            Self::Normal(deviation) => loop {
                // A sum of twelve is normal enough, and has no tail that never lands.
                let sum: f64 = (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0;
                let at = 0.5 + sum * deviation;
                if (0.0..1.0).contains(&at) {
                    return (at * slots as f64) as u64;
                }
            },
            Self::Zones(zones) => {
                let fraction = random.fraction();
                let zone = zones.iter().find(|(share, ..)| fraction < *share).or(zones.last());
                let (_, from, bytes) = zone.copied().unwrap_or((1.0, 0, slots * unit));
                // Zones are cut to whole blocks, and one that is smaller than a block is its first.
                let first = (from / unit).min(slots - 1);
                let count = (bytes / unit).clamp(1, slots - first);
                first + random.below(count)
            }
        }
    }
}

/// The order of positions in a range.
#[derive(Clone, Debug)]
enum Order {
    /// Each begins `step` after the end of the one before it.
    Sequential { end: Option<u64>, step: i64 },
    /// Each block once per pass, in random order.
    Shuffled { permutation: Permutation, next: u64 },
    /// Any, again and again.
    Random { spread: Spread, random: Random },
    /// Any of one zone, until so much was moved in it; then of the next one.
    InZones { random: Random, zone: Zone },
}

/// A zone of random transfers.
#[derive(Clone, Copy, Debug)]
struct Zone {
    strides: Strides,
    start: u64,
    moved: u64,
}

impl Zone {
    /// Where the next transfer of `wanted` bytes begins in a file of `len`, and its bytes.
    fn next(&mut self, len: u64, wanted: u64, unit: u64, random: &mut Random) -> (u64, u64) {
        if self.moved >= self.strides.used {
            let next = self.start + self.strides.pitch;
            (self.start, self.moved) = (if len.saturating_sub(next) >= wanted { next } else { 0 }, 0);
        }
        let end = len.min(self.start.saturating_add(self.strides.range));
        let slots = ((end - self.start) / unit).max(1);
        let offset = self.start + random.below(slots) * unit;
        let bytes = wanted.min(end - offset);
        self.moved += bytes;
        (offset, bytes)
    }
}

/// Positions of one pass after another over a range of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    order: Order,
    /// Bytes that are used, without the gaps of strides.
    len: u64,
    /// Random positions are multiples of it.
    unit: u64,
    /// No transfer is smaller.
    least: u64,
    /// So many transfers in sequence at each random place.
    run_length: u32,
    /// How many are still to come, and where the next one begins.
    run: (u32, u64),
    strides: Option<Strides>,
}

impl Offsets {
    /// Positions of the job's transfers of one direction (0: reads, 1: writes, 2: holes) in a range of `len` bytes.
    pub(crate) fn new(job: &Job, direction: usize, len: u64, seed: u64) -> Self {
        let least = job.blocks[direction].least();
        let unit = job.block_align.unwrap_or(least).max(1);
        let used = job.strides.map_or(len, |strides| {
            let rest = len % strides.pitch.max(1);
            len / strides.pitch.max(1) * strides.used + rest.min(strides.used)
        });
        let slots = (used / unit).max(1);
        let order = if !job.pattern.is_random() {
            Order::Sequential { end: None, step: job.step }
        } else if let Some(strides) = job.strides {
            let zone = Zone { strides, start: 0, moved: 0 };
            let order = Order::InZones { random: Random::new(seed), zone };
            return Self { order, len, unit, least, run_length: 1, run: (0, 0), strides: None };
        } else if job.random_may_repeat || job.distribution != Distribution::Uniform {
            Order::Random { spread: Spread::of(&job.distribution, slots, unit), random: Random::new(seed) }
        } else {
            Order::Shuffled { permutation: Permutation::new(slots, seed), next: 0 }
        };
        Self { order, len: used, unit, least, run_length: job.run_length, run: (0, 0), strides: job.strides }
    }

    /// Where the next transfer of `wanted` bytes begins, and how many bytes it has at most. Starts over after the last.
    pub(crate) fn next(&mut self, wanted: u64) -> (u64, u64) {
        if let Order::InZones { random, zone } = &mut self.order {
            return zone.next(self.len, wanted, self.unit, random);
        }
        let (start, space) = self.place();
        let len = if space >= wanted { wanted } else { space - space % self.least };
        let (start, len) = if len == 0 { (0, wanted.min(self.len)) } else { (start, len) };
        if let Order::Sequential { end, .. } = &mut self.order {
            *end = Some(start + len);
        }
        self.run.1 = start + len;
        match self.strides {
            None => (start, len),
            Some(Strides { used, pitch, .. }) => {
                // A transfer does not leave its zone.
                let in_zone = start % used;
                (start / used * pitch + in_zone, len.min(used - in_zone))
            }
        }
    }

    /// A position, and how many bytes there are from there.
    fn place(&mut self) -> (u64, u64) {
        let slots = (self.len / self.unit).max(1);
        if self.run.0 > 0 && self.run.1 + self.least <= self.len {
            self.run.0 -= 1;
            return (self.run.1, self.len - self.run.1);
        }
        let start = match &mut self.order {
            Order::Sequential { end, step } => {
                let from = end.unwrap_or(if *step < 0 { self.len } else { 0 });
                let step = if end.is_none() && *step >= 0 { 0 } else { *step };
                match from.checked_add_signed(step) {
                    Some(start) if self.len.saturating_sub(start) >= self.least => start,
                    Some(_) => 0,
                    // Backwards past the beginning: from the end again.
                    None => self.len.checked_add_signed(step).unwrap_or(0),
                }
            }
            Order::Shuffled { permutation, next } => {
                let index = *next % permutation.count;
                *next = index + 1;
                permutation.at(index) * self.unit
            }
            Order::Random { spread, random } => spread.slot(slots, self.unit, random) * self.unit,
            Order::InZones { .. } => unreachable!("a zone has its own way"),
        };
        self.run.0 = self.run_length - 1;
        (start, self.len.saturating_sub(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_visits_every_block_once() {
        for count in [1, 2, 3, 7, 64, 1000, 4097] {
            let permutation = Permutation::new(count, 42);
            let mut seen: Vec<_> = (0..count).map(|index| permutation.at(index)).collect();
            if count > 100 {
                assert!(seen.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < count as usize / 50);
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sequences_repeat_by_seed_and_stay_in_range() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            let value = a.below(10);
            assert!(value < 10);
            assert_eq!(value, b.below(10));
        }
    }

    /// The first positions, in KiB, of a job over so many of them.
    fn positions<const N: usize>(options: &str, kib: u64) -> [u64; N] {
        let file = crate::job::parse("x.fio", &format!("[a]\nsize=1g\n{options}")).unwrap();
        let mut offsets = Offsets::new(&file.jobs[0], 0, kib << 10, 7);
        [0; N].map(|_: u64| offsets.next(file.jobs[0].blocks[0].least()).0 >> 10)
    }

    #[test]
    fn sequences_start_over_step_and_stride() {
        assert_eq!(positions("rw=read", 12), [0, 4, 8, 0, 4]);
        assert_eq!(
            positions("rw=read:-8k", 16),
            [8, 4, 0, 8],
            "each begins 8 KiB before the end of the last"
        );
        assert_eq!(positions("rw=write:4k", 24), [0, 8, 16, 0]);
        assert_eq!(positions("rw=read\nzonemode=strided\nzonesize=8k\nzoneskip=24k", 64), [0, 4, 32, 36, 0]);
        assert_eq!(positions("rw=read", 14), [0, 4, 8, 0], "no transfer is shorter than the smallest block");
    }

    #[test]
    fn random_transfers_stay_in_their_zone() {
        let options = "rw=randread\nzonemode=strided\nzonesize=16k\nzonerange=64k\nzoneskip=64k";
        let zones = positions::<40>(options, 512).map(|kib| (kib / 128, kib % 128));
        assert!(zones.iter().all(|(_, within)| *within < 64), "{zones:?}");
        let order: Vec<Vec<u64>> =
            zones.chunks(4).map(|four| four.iter().map(|(zone, _)| *zone).collect()).collect();
        assert_eq!(order, (0..10).map(|zone| vec![zone % 4; 4]).collect::<Vec<_>>());
        assert!(zones.iter().any(|(_, within)| *within >= 16), "anywhere in the range");
    }

    #[test]
    fn zones_and_ranks_draw_as_they_say() {
        let count = 20_000;
        let draw = |options: &str| -> Vec<u64> {
            let file = crate::job::parse("x.fio", &format!("[a]\nsize=1g\nrw=randread\n{options}")).unwrap();
            let mut offsets = Offsets::new(&file.jobs[0], 0, 4096 * 1000, 7);
            (0..count).map(|_| offsets.next(4096).0 / 4096).collect()
        };
        let zoned = draw("random_distribution=zoned:50/5:30/15:20/");
        let share = |from: u64, to: u64| {
            zoned.iter().filter(|at| (from..to).contains(at)).count() as f64 / f64::from(count)
        };
        for (from, to, expected) in [(0, 50, 0.5), (50, 200, 0.3), (200, 1000, 0.2)] {
            assert!((share(from, to) - expected).abs() < 0.02, "{from}..{to}: {}", share(from, to));
        }
        for law in ["zipf:1.2", "pareto:0.1"] {
            let mut counts = std::collections::BTreeMap::<u64, u32>::new();
            for at in draw(&format!("random_distribution={law}")) {
                *counts.entry(at).or_default() += 1;
            }
            assert!(counts.values().max().unwrap() > &1000, "{law}: the favourite is drawn often");
            assert!(counts.keys().all(|at| *at < 1000));
        }
        let normal = draw("random_distribution=normal:10");
        let near = normal.iter().filter(|at| (400..600).contains(*at)).count() as f64 / f64::from(count);
        assert!((near - 0.68).abs() < 0.02, "{near}");
        assert_eq!(
            positions::<4>("rw=randread:2", 4096).windows(2).filter(|pair| pair[1] == pair[0] + 4).count(),
            2
        );
    }
}
