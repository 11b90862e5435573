//! Runs of hand-made traces on a disk of round numbers.

use super::super::{Conditions, Prediction, Predictor, Way};
use crate::group::groups;
use crate::probe::{Buffered, Cost, Curve, Direct, Point, Probes};
use crate::trace::{Action, Event, Span, Trace, TracedFile};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// `fixed` seconds for a call and `per_mib` for each MiB; the CPU works for `cpu` of it.
fn curve(fixed: f64, per_mib: f64, cpu: f64) -> Curve {
    let point = |bytes: u64| {
        let seconds = fixed + per_mib * bytes as f64 / MIB as f64;
        Point { bytes, cost: Cost { seconds, cpu_s: cpu * seconds } }
    };
    Curve::new([4 * KIB, 64 * KIB, MIB].map(point).to_vec())
}

/// 1000 MiB/s in order, 100 µs at random; memory moves 10,000 MiB/s.
fn probes() -> Probes {
    let hit = curve(1e-6, 1e-4, 1.0);
    Probes {
        buffered: Buffered {
            ahead: curve(1e-6, 2e-3, 0.3),
            random: curve(120e-6, 1e-3, 0.2),
            write: curve(2e-6, 3e-4, 1.0),
            overwrite: hit.clone(),
            sync: curve(1e-3, 1e-3, 0.1),
            hit,
        },
        direct: Some(Direct {
            random: curve(100e-6, 1e-3, 0.1),
            in_order: curve(100e-6, 1e-3, 0.1),
            ahead: curve(0.0, 1e-3, 0.05),
            write: curve(100e-6, 1e-3, 0.1),
            write_new: curve(100e-6, 1e-3, 0.1),
            behind: curve(0.0, 1e-3, 0.05),
            sync: curve(1e-3, 0.0, 0.1),
        }),
        copy: curve(0.2e-6, 0.5e-4, 1.0),
        ..Probes::default()
    }
}

/// A trace of one thread: actions with the think time before each.
fn trace(size: u64, actions: &[(u64, Action)]) -> Trace {
    let mut now = 0;
    let mut events = Vec::new();
    for (think_ns, action) in actions {
        now += think_ns;
        events.push(Event {
            start_ns: now,
            duration_ns: 1000,
            file: 0,
            thread: 0,
            action: *action,
            is_direct: false,
            is_timed: true,
        });
        now += 1000;
    }
    let files = vec![TracedFile { path: "/d/a".into(), size, mapped: 0 }];
    Trace { files, events, seconds: now as f64 / 1e9, cpu_s: None, ..Trace::default() }
}

fn predicted(trace: &Trace, cache_bytes: u64, way: Way) -> Prediction {
    let (probes, groups) = (probes(), groups(trace));
    let conditions = Conditions { probes: &probes, cache_bytes, own_bytes: cache_bytes, is_warm: false };
    Predictor::new(trace, &groups, conditions).predict(&[way])
}

fn close(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.06, "{value} instead of {expected}");
}

fn reads(offsets: impl Iterator<Item = u64>, len: u64, think_ns: u64) -> Vec<(u64, Action)> {
    offsets.map(|offset| (think_ns, Action::Read(Span { offset, len }))).collect()
}

#[test]
fn a_scan_takes_the_time_of_the_disk() {
    let scan = trace(200 * MIB, &reads((0..200).map(|n| n * MIB), MIB, 0));
    close(predicted(&scan, 20 * MIB, Way::Buffered).seconds, 0.4);
    close(predicted(&scan, 20 * MIB, Way::Direct).seconds, 0.22);
    close(predicted(&scan, 20 * MIB, Way::DirectAhead).seconds, 0.2);
    let buffered = predicted(&scan, 20 * MIB, Way::Buffered);
    assert!(buffered.groups[0].hit_bytes == 0 && buffered.groups[0].cached_bytes == 20 * MIB);
    assert_eq!(predicted(&scan, 20 * MIB, Way::DirectAhead).groups[0].cached_bytes, 0);
}

/// Readahead hides the disk behind the program's own work, calls one at a time do not.
#[test]
fn think_time_overlaps_with_readahead_only() {
    let scan = trace(200 * MIB, &reads((0..200).map(|n| n * MIB), MIB, 3_000_000));
    close(predicted(&scan, 20 * MIB, Way::DirectAhead).seconds, 0.61);
    close(predicted(&scan, 20 * MIB, Way::Direct).seconds, 0.82);
    close(predicted(&scan, 20 * MIB, Way::Buffered).seconds, 0.72);
}

#[test]
fn a_file_that_fits_is_read_from_the_disk_once() {
    let twice = trace(20 * MIB, &reads((0..640).map(|n| n % 320 * 64 * KIB), 64 * KIB, 0));
    let fits = predicted(&twice, 40 * MIB, Way::Buffered);
    close(fits.groups[0].hit_rate(), 0.5);
    let small = predicted(&twice, 4 * MIB, Way::Buffered);
    assert!(small.groups[0].hit_rate() < 0.2 && small.seconds > 1.5 * fits.seconds);
}

#[test]
fn random_reads_take_a_latency_for_each_miss() {
    let offsets: Vec<u64> = (0..5000).map(|n| n * 7919 % 1000 * 4 * KIB).collect();
    let random = trace(4000 * KIB, &reads(offsets.into_iter(), 4 * KIB, 0));
    close(predicted(&random, 100 * MIB, Way::Buffered).seconds, 1000.0 * 124e-6 + 4000.0 * 1.4e-6);
    close(predicted(&random, 100 * MIB, Way::Direct).seconds, 5000.0 * 104e-6);
    close(predicted(&random, 100 * MIB, Way::OwnCache).seconds, 1000.0 * 104e-6 + 5000.0 * 0.4e-6);
}

#[test]
fn a_warm_run_begins_with_what_the_last_one_left() {
    let scan = trace(50 * MIB, &reads((0..50).map(|n| n * MIB), MIB, 0));
    let (probes, groups) = (probes(), groups(&scan));
    let conditions = Conditions { probes: &probes, cache_bytes: 100 * MIB, own_bytes: 0, is_warm: true };
    let warm = Predictor::new(&scan, &groups, conditions).predict(&[Way::Buffered]);
    close(warm.groups[0].hit_rate(), 1.0);
}

#[test]
fn buffered_writes_wait_at_the_limit_of_dirty_pages_and_syncs_for_the_disk() {
    let write = |count: u64| -> Vec<(u64, Action)> {
        (0..count).map(|n| (0, Action::Write(Span { offset: n * MIB, len: MIB }))).collect()
    };
    let few = trace(0, &write(10));
    close(predicted(&few, 1000 * MIB, Way::Buffered).groups[0].call_s, 10.0 * 0.302e-3);
    let many = trace(0, &write(400));
    let seconds = predicted(&many, 200 * MIB, Way::Buffered).seconds;
    assert!((0.28..0.45).contains(&seconds), "{seconds}");
    close(predicted(&many, 200 * MIB, Way::DirectAhead).seconds, 0.4);
    let synced = [write(10), vec![(0, Action::Sync)]].concat();
    close(predicted(&trace(0, &synced), 1000 * MIB, Way::Buffered).groups[0].call_s, 10.0 * 0.302e-3 + 20e-3);
    close(predicted(&trace(0, &synced), 1000 * MIB, Way::Direct).groups[0].call_s, 10.0 * 1.1e-3 + 1e-3);
}

/// CPU time of the program without its calls is the same in each way.
#[test]
fn cpu_time_is_that_of_the_program_and_its_calls() {
    let scan = trace(200 * MIB, &reads((0..200).map(|n| n * MIB), MIB, 0));
    let scan = Trace { cpu_s: Some(0.3), ..scan };
    let cpu = |way| predicted(&scan, 100 * MIB, way).cpu_s.expect("known");
    close(cpu(Way::Buffered), 0.3);
    close(cpu(Way::DirectAhead), 0.3 - 0.12 + 0.01);
}
