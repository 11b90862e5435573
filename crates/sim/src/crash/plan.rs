//! Which states of a recording are tested: the moments, the number of states for each, and their order.
//!
//! Every subset of the unflushed writes is tested if the limit allows. Otherwise likely bugs come first: each write lost alone, each write
//! kept alone, prefixes, suffixes, two neighbours reversed, one write torn; then random subsets.

use std::ops::Range;

use super::recording::{Event, Recording};
use super::states::{CrashPoint, Fate, Tearing};

/// Sectors of a volume's superblock. If one of its sectors is torn, the volume needs `e2fsck` and a backup; most disks write 4 KiB whole.
pub const SUPERBLOCK: Range<u64> = 2..4;

/// Limits and choices of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Most states at one moment.
    pub states_at_once: usize,
    /// Most states together.
    pub states: usize,
    /// Whether writes may be torn.
    pub tearing: Tearing,
    /// Sectors that a tear does not divide.
    pub whole: Range<u64>,
    /// Decides the random states.
    pub seed: u64,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { states_at_once: 100, states: usize::MAX, tearing: Tearing::Never, whole: SUPERBLOCK, seed: 1 }
    }
}

/// A moment of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Number of events before it.
    pub event: usize,
    /// Most states that are tested there.
    pub states: usize,
}

/// The moments to test.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order of time.
    pub moments: Vec<Moment>,
    options: PlanOptions,
}

impl Recording {
    /// Moments that differ in durable writes or in promises: before each flush takes effect, before each FUA write ends, after each mark, and
    /// the end. The states of any other moment are states of one of these.
    fn moments(&self) -> impl Iterator<Item = usize> {
        let events = self.events();
        let is_mark = |at: usize| matches!(events.get(at), Some(Event::Mark(_)));
        let is_moment =
            move |at: &usize| self.makes_durable(*at) || *at > 0 && is_mark(*at - 1) && !is_mark(*at);
        (0..events.len()).filter(is_moment).chain([events.len()])
    }

    /// Divide the states of `options` among the moments. If they do not suffice, moments with many states get fewer.
    pub fn plan(&self, options: PlanOptions) -> Plan {
        let mut replay = self.replay();
        let mut moments: Vec<Moment> = Vec::new();
        for event in self.moments() {
            replay.advance(event);
            let variants = replay.unflushed().into_iter().map(|write| {
                let write = self.write(write);
                2 + tears(write.sector.0, write.sectors(), &options).count()
            });
            let states = variants.fold(1_usize, usize::saturating_mul).min(options.states_at_once);
            moments.push(Moment { event, states });
        }
        limit(&mut moments, options.states);
        Plan { moments, options }
    }
}

/// Lower the limits of moments, the largest first, until all states are at most `states`.
fn limit(moments: &mut Vec<Moment>, states: usize) {
    let mut sizes: Vec<usize> = moments.iter().map(|moment| moment.states).collect();
    sizes.sort_unstable();
    let (mut left, mut cap) = (states, usize::MAX);
    for (index, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index);
        if *size > share {
            cap = share;
            break;
        }
        left -= size;
    }
    if cap == 0 {
        // Fewer states than moments.
        let step = moments.len().div_ceil(states.max(1));
        *moments = moments.iter().rev().step_by(step).copied().collect();
        moments.reverse();
    }
    for moment in moments {
        moment.states = moment.states.min(cap.max(1));
    }
}

impl Plan {
    /// Most states that it tests. Equal ones count each time.
    pub fn len(&self) -> usize {
        self.moments.iter().map(|moment| moment.states).sum()
    }

    /// Whether it tests nothing.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// Its options.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The moments as points of their recording, each with its limit.
    pub fn points<'a>(&self, recording: &'a Recording) -> impl Iterator<Item = (CrashPoint<'a>, usize)> {
        let mut replay = recording.replay();
        self.moments.iter().enumerate().map(move |(number, moment)| {
            replay.advance(moment.event);
            (CrashPoint::new(replay.clone(), number), moment.states)
        })
    }
}

/// Where a write of `sectors` from `start` can be torn: the number of sectors before the tear.
fn tears(start: u64, sectors: u64, options: &PlanOptions) -> impl Iterator<Item = u32> + use<> {
    let unit = options.tearing.unit().unwrap_or(u64::MAX);
    let whole = options.whole.clone();
    let first = (start / unit).saturating_add(1).saturating_mul(unit);
    let places = (first..start + sectors).step_by(usize::try_from(unit).unwrap_or(usize::MAX));
    let is_divided = move |at: &u64| *at > whole.start && *at < whole.end;
    places.filter(move |at| !is_divided(at)).map(move |at| (at - start) as u32)
}

/// A pattern of fates by the index of its one special write.
type Pattern = Box<dyn Fn(usize) -> Vec<Fate> + Send>;

impl CrashPoint<'_> {
    /// Fates to test, at most `limit`, in the order that the module describes. [`SUPERBLOCK`] is not torn.
    pub fn fates(&self, limit: usize, tearing: Tearing, seed: u64) -> Vec<Vec<Fate>> {
        let options = PlanOptions { tearing, seed, ..PlanOptions::default() };
        self.planned(limit, &options).collect()
    }

    /// As [`Self::fates`], one by one; `states_at_once` and `states` of the options have no effect.
    pub fn planned(&self, limit: usize, options: &PlanOptions) -> Box<dyn Iterator<Item = Vec<Fate>> + Send> {
        let variants: Vec<Vec<Fate>> = self
            .writes()
            .map(|write| {
                let torn = tears(write.sector.0, write.sectors(), options);
                let torn = torn.map(|sectors| Fate::Torn { sectors });
                [Fate::Lost, Fate::Whole].into_iter().chain(torn).collect()
            })
            .collect();
        let count = variants.len();
        let all = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(1_usize, usize::saturating_mul);
        if all(&mut variants.iter().map(Vec::len)) <= limit {
            return Box::new(combinations(variants));
        }
        let random = random_fates(variants.clone(), options.seed ^ self.event() as u64);
        if all(&mut (0..count).map(|_| 2)) <= limit {
            let whole = vec![vec![Fate::Lost, Fate::Whole]; count];
            return Box::new(combinations(whole).chain(random).take(limit));
        }
        let ends = [vec![Fate::Lost; count], vec![Fate::Whole; count]];
        Box::new(ends.into_iter().chain(likely(variants, limit / 4 * 3)).chain(random).take(limit))
    }
}

/// All combinations of the variants of each write.
fn combinations(variants: Vec<Vec<Fate>>) -> impl Iterator<Item = Vec<Fate>> {
    let total: usize = variants.iter().map(Vec::len).product();
    (0..total).map(move |mut number| {
        let digit = |variants: &Vec<Fate>| {
            let fate = variants[number % variants.len()];
            number /= variants.len();
            fate
        };
        variants.iter().map(digit).collect()
    })
}

/// Random fates without end; one write in four is torn, if it can be.
fn random_fates(variants: Vec<Vec<Fate>>, seed: u64) -> impl Iterator<Item = Vec<Fate>> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || {
        let fate = |variants: &Vec<Fate>| {
            if variants.len() > 2 && random.u8(..4) == 0 {
                variants[random.usize(2..variants.len())]
            } else {
                variants[random.usize(..2)]
            }
        };
        variants.iter().map(fate).collect()
    })
}

/// About `limit` states of likely bugs, taken in turns from each pattern and spread over all writes.
fn likely(variants: Vec<Vec<Fate>>, limit: usize) -> impl Iterator<Item = Vec<Fate>> + Send {
    let count = variants.len();
    let by = move |is_kept: &dyn Fn(usize) -> bool| -> Vec<Fate> {
        (0..count).map(|index| if is_kept(index) { Fate::Whole } else { Fate::Lost }).collect()
    };
    let torn = move |one: usize| {
        let mut fates = by(&|index| index < one);
        let tears = &variants[one][2..];
        if !tears.is_empty() {
            fates[one] = tears[tears.len() / 2];
        }
        fates
    };
    let patterns: [Pattern; 6] = [
        Box::new(move |one| by(&|index| index != one)),
        Box::new(move |one| by(&|index| index == one)),
        Box::new(move |one| by(&|index| index < one)),
        Box::new(move |one| by(&|index| index > one)),
        Box::new(move |one| by(&|index| index < one || index == one + 1)),
        Box::new(torn),
    ];
    let steps = (limit / patterns.len()).clamp(1, count);
    // From both ends to the middle: the first and the last writes of a group are the likely ones.
    let place = move |step: usize| {
        let from_start = step / 2 * count / steps;
        if step.is_multiple_of(2) { from_start } else { count - 1 - from_start }
    };
    (0..steps).flat_map(move |step| {
        let one = place(step);
        patterns.iter().map(|pattern| pattern(one)).collect::<Vec<_>>()
    })
}
