//! The hit rate over the size of a cache.
//!
//! Of a long trace, pages are sampled by a hash of their number, and caches are smaller by the same factor: the hit rate is
//! the same within a few hundredths (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015).

use std::collections::HashSet;

use diorite::front_end::CacheModel;
use serde::{Deserialize, Serialize};

use super::TwoLists;
use crate::trace::{Action, PAGE_BYTES, Trace};

/// Hit rates of reads with a cache of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Size of the cache.
    pub bytes: u64,
    /// Share of the read pages that the kernel's lists hold.
    pub kernel: f64,
    /// Share of the read pages that the library's replacement holds.
    pub own: f64,
}

/// More uses than this are sampled.
const USES_MAX: u64 = 250_000;

/// A use of a page, or the end of pages.
#[derive(Clone, Copy, Debug)]
enum Use {
    Read(u32, u64),
    Write(u32, u64),
    Forget(u32, u64),
}

/// Size of all used pages.
pub fn working_set_bytes(trace: &Trace) -> u64 {
    let (uses, rate) = uses(trace);
    let pages: HashSet<(u32, u64)> = uses
        .iter()
        .filter_map(|part| match *part {
            Use::Read(file, page) | Use::Write(file, page) => Some((file, page)),
            Use::Forget(..) => None,
        })
        .collect();
    pages.len() as u64 * rate * PAGE_BYTES
}

/// The curve, from a 32nd of the used pages to all of them, in steps of a factor of two. Empty without reads.
pub fn hit_curve(trace: &Trace) -> Vec<CurvePoint> {
    let (uses, rate) = uses(trace);
    let all = working_set_bytes(trace) / PAGE_BYTES / rate;
    let reads = uses.iter().filter(|part| matches!(part, Use::Read(..))).count();
    if reads == 0 {
        return Vec::new();
    }
    let sizes = (0..=5).rev().map(|shift| (all >> shift).max(2));
    let mut points: Vec<CurvePoint> = Vec::new();
    for pages in sizes {
        let bytes = pages * rate * PAGE_BYTES;
        if points.last().is_none_or(|last| last.bytes < bytes) {
            let share = |hits: usize| hits as f64 / reads as f64;
            points.push(CurvePoint {
                bytes,
                kernel: share(kernel_hits(&uses, pages)),
                own: share(own_hits(&uses, pages)),
            });
        }
    }
    points
}

fn kernel_hits(uses: &[Use], pages: u64) -> usize {
    let mut cache = TwoLists::new(pages);
    let mut count = 0;
    for part in uses {
        match *part {
            Use::Read(file, page) => count += usize::from(cache.touch(file, page)),
            Use::Write(file, page) => {
                cache.touch(file, page);
            }
            Use::Forget(file, page) => cache.forget(file, page),
        }
    }
    count
}

fn own_hits(uses: &[Use], pages: u64) -> usize {
    let mut cache = CacheModel::new(u32::try_from(pages).unwrap_or(u32::MAX / 4));
    let mut count = 0;
    for part in uses {
        match *part {
            Use::Read(file, page) => count += usize::from(cache.touch(u64::from(file), page)),
            Use::Write(file, page) => {
                cache.touch(u64::from(file), page);
            }
            Use::Forget(file, page) => cache.forget(u64::from(file), page),
        }
    }
    count
}

/// A hash that spreads neighbouring pages.
fn spread(file: u32, page: u64) -> u64 {
    let mixed = (page ^ u64::from(file) << 44).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// A sample of page uses: one page in `rate` is counted. The second value is `rate`.
fn uses(trace: &Trace) -> (Vec<Use>, u64) {
    let pages = trace.events.iter().map(|event| match event.action {
        Action::Read(span) | Action::Write(span) => span.pages().end - span.pages().start,
        _ => 0,
    });
    let rate = (pages.sum::<u64>() / USES_MAX).next_power_of_two().max(1);
    let mut uses = Vec::new();
    let mut sizes: Vec<u64> = trace.files.iter().map(|file| file.size).collect();
    for event in &trace.events {
        let file = event.file;
        let size = &mut sizes[file as usize];
        match event.action {
            Action::Read(span) => {
                let chosen = span.pages().filter(|page| spread(file, *page).is_multiple_of(rate));
                uses.extend(chosen.map(|page| Use::Read(file, page)));
            }
            Action::Write(span) => {
                *size = span.end().max(*size);
                let chosen = span.pages().filter(|page| spread(file, *page).is_multiple_of(rate));
                uses.extend(chosen.map(|page| Use::Write(file, page)));
            }
            Action::Open(len) | Action::Truncate(len) => {
                if len < *size {
                    uses.push(Use::Forget(file, len.div_ceil(PAGE_BYTES)));
                }
                *size = len;
            }
            Action::Sync => {}
        }
    }
    (uses, rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Span, TracedFile};

    fn trace(reads: impl Iterator<Item = (u64, u64)>) -> Trace {
        let event = |(offset, len)| {
            let action = Action::Read(Span { offset, len });
            Event {
                start_ns: 0,
                duration_ns: 0,
                file: 0,
                thread: 0,
                action,
                is_direct: false,
                is_timed: true,
            }
        };
        let files = vec![TracedFile { path: "/a".into(), size: 1 << 40, mapped: 0 }];
        Trace { files, events: reads.map(event).collect(), ..Trace::default() }
    }

    #[test]
    fn one_pass_has_no_hits_and_a_second_one_hits_if_it_fits() {
        let once = hit_curve(&trace((0..300).map(|page| (page * 4096, 4096))));
        assert!(once.iter().all(|point| point.kernel == 0.0 && point.own == 0.0), "{once:?}");
        let twice = hit_curve(&trace((0..600).map(|page| (page % 300 * 4096, 4096))));
        let last = twice.last().expect("points");
        assert_eq!((last.bytes, last.kernel, last.own), (300 * 4096, 0.5, 0.5));
        assert!(hit_curve(&Trace::default()).is_empty());
    }

    /// The sample of a long trace against all of it.
    #[test]
    fn a_sample_has_nearly_the_same_curve() {
        let mut random = fastrand::Rng::with_seed(1);
        let pages: Vec<u64> = (0..520_000)
            .map(|_| if random.bool() { random.u64(0..2000) } else { random.u64(0..40_000) })
            .collect();
        let trace = trace(pages.iter().map(|page| (page * 4096, 4096)));
        let (uses, rate) = uses(&trace);
        assert_eq!(rate, 2);
        assert!(uses.len() < 400_000);
        let point = hit_curve(&trace)[2];
        let mut cache = TwoLists::new(point.bytes / PAGE_BYTES);
        let hits = pages.iter().filter(|page| cache.touch(0, **page)).count() as f64 / pages.len() as f64;
        assert!((point.kernel - hits).abs() < 0.03, "{point:?} {hits}");
    }
}
