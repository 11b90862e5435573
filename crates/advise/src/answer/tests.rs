//! Answers for hand-made traces on a disk of round numbers.

use super::*;
use crate::probe::{Buffered, Cost, Curve, Direct, Point};
use crate::trace::{Action, Event, Span, TracedFile};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn curve(fixed: f64, per_mib: f64, cpu: f64) -> Curve {
    let point = |bytes: u64| {
        let seconds = fixed + per_mib * bytes as f64 / MIB as f64;
        Point { bytes, cost: Cost { seconds, cpu_s: cpu * seconds } }
    };
    Curve::new([4 * KIB, 64 * KIB, MIB].map(point).to_vec())
}

/// Buffered scans have half the rate of direct ones; memory is fast.
fn probes(memory_bytes: u64) -> Probes {
    let hit = curve(1e-6, 1e-4, 1.0);
    Probes {
        memory_bytes,
        buffered: Buffered {
            ahead: curve(1e-6, 2e-3, 0.3),
            random: curve(105e-6, 1e-3, 0.2),
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

fn event(file: u32, thread: u32, start_ns: u64, action: Action) -> Event {
    Event { start_ns, duration_ns: 500, file, thread, action, is_direct: false, is_timed: true }
}

fn trace(names: &[&str], events: Vec<Event>) -> Trace {
    let files =
        names.iter().map(|path| TracedFile { path: (*path).to_owned(), size: 1 << 40, mapped: 0 }).collect();
    let seconds = events.iter().map(Event::end_ns).max().unwrap_or(0) as f64 / 1e9;
    Trace { files, events, seconds, cpu_s: None, ..Trace::default() }
}

fn scan(file: u32, thread: u32, count: u64) -> Vec<Event> {
    (0..count)
        .map(|n| event(file, thread, n * 1000, Action::Read(Span { offset: n * MIB, len: MIB })))
        .collect()
}

fn sentences(trace: &Trace, memory_bytes: u64) -> Vec<String> {
    let advice = advise(trace, &probes(memory_bytes), Question::default());
    advice.groups.into_iter().map(|group| group.sentence).collect()
}

#[test]
fn a_scan_uses_direct_io_with_readahead() {
    let found = sentences(&trace(&["/data/a.sst"], scan(0, 0, 60)), 20 * MIB);
    assert_eq!(
        found,
        [
            "`/data/a.sst`: read once, in order. Use direct I/O with readahead: 2.0 times the rate at 0.08 of the CPU, 20 MiB of cache stay free."
        ]
    );
}

#[test]
fn a_hot_file_keeps_the_page_cache_or_gets_one_of_its_own() {
    let events = (0..20_000)
        .map(|n| event(0, 0, n * 1000, Action::Read(Span { offset: n * 7919 % 500 * 4096, len: 4096 })));
    let trace = trace(&["/data/base"], events.collect());
    let advice = advise(&trace, &probes(100 * MIB), Question::default());
    assert_eq!(advice.groups[0].way, Way::OwnCache);
    assert!(advice.groups[0].buffered.hit_rate() > 0.97);
    // Without a cache each read is a latency.
    let point = advice.curve.last().expect("a curve");
    assert!(point.kernel > 0.97 && point.own > 0.97);
}

#[test]
fn a_backup_beside_a_database_leaves_it_its_cache() {
    let mut events = Vec::new();
    let mut random = fastrand::Rng::with_seed(1);
    for n in 0..6000_u64 {
        let page = random.u64(..2000);
        events.push(event(0, 0, n * 100_000, Action::Read(Span { offset: page * 4096, len: 4096 })));
        if n % 20 == 0 {
            events.push(event(1, 1, n * 100_000, Action::Read(Span { offset: n / 20 * MIB, len: MIB })));
        }
    }
    let trace = trace(&["/data/base", "/data/all.tar"], events);
    let advice = advise(&trace, &probes(12 * MIB), Question::default());
    let backup = advice.groups.iter().find(|group| group.group.name == "/data/all.tar").expect("a group");
    assert_eq!(backup.choice, Choice::UseDirect, "{}", backup.sentence);
    assert!(backup.others_rate >= 1.0, "{backup:?}");
}

#[test]
fn what_is_not_seen_has_no_answer() {
    let mut mapped = trace(&["/m/a"], vec![event(0, 0, 0, Action::Open(5))]);
    mapped.files[0].mapped = MIB;
    mapped.unseen.mapped = MIB;
    let advice = advise(&mapped, &probes(MIB), Question::default());
    assert_eq!(
        advice.groups[0].sentence,
        "`/m/a`: mapped. No answer: accesses to mapped memory are not seen."
    );
    assert_eq!(advice.confidence, Confidence::Low);
    assert!(advice.assumptions.iter().any(|line| line.starts_with("1.0 MiB of files were mapped")));
    let nothing = advise(&Trace::default(), &probes(MIB), Question::default());
    assert!(nothing.groups.is_empty() && nothing.curve.is_empty());
}

#[test]
fn without_direct_io_all_stays_as_it_is() {
    let probes = Probes { direct: None, ..probes(MIB) };
    let advice = advise(&trace(&["/t/a"], scan(0, 0, 20)), &probes, Question::default());
    assert_eq!(
        advice.groups[0].sentence,
        "`/t/a`: read once, in order. Leave it as it is: this filesystem has no direct I/O."
    );
}

#[test]
fn a_group_that_takes_little_time_stays_as_it_is() {
    let mut events = scan(0, 0, 2);
    events.push(event(0, 0, 60_000_000_000, Action::Read(Span { offset: 2 * MIB, len: MIB })));
    let found = sentences(&trace(&["/d/x"], events), MIB);
    assert_eq!(
        found,
        ["`/d/x`: read once, in order. Leave it as it is: the ways differ by less than a tenth."]
    );
}

#[test]
fn tables_plots_and_pages_have_each_group() {
    let trace = trace(&["/data/a.sst", "/other/b"], [scan(0, 0, 40), scan(1, 0, 20)].concat());
    let advice = advise(&trace, &probes(4 * MIB), Question::default());
    let lines = table(&advice);
    assert!(
        lines.iter().any(|line| line == "/data/a.sst")
            && lines.iter().any(|line| line.ends_with("direct, ahead"))
    );
    assert_eq!(plot(&advice).len(), advice.curve.len() + 2);
    let html = page("dd & more", &diorite_bench::Machine::default(), &advice).render();
    assert!(html.contains("dd &amp; more") && html.contains("/other/b") && !html.contains("NaN"));
    let report = report("diorite advise".into(), diorite_bench::Machine::default(), &advice);
    assert_eq!((report.rows.len(), report.verdicts.len()), (4, 2));
    assert!(report.advice.expect("an answer").contains("Use direct I/O with readahead"));
}
