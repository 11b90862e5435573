//! Threads of the recording: think times, and how many threads ran at the same time.

use crate::trace::Trace;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Elapsed time of the recorded run without the cost of recording.
    recorded_s: f64,
    /// Mean number of threads between their first and last calls, while there is one.
    concurrency: f64,
}

impl Timeline {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for event in &trace.events {
            let thread = event.thread as usize;
            if spans.len() <= thread {
                spans.resize(thread + 1, (u64::MAX, 0));
            }
            let span = &mut spans[thread];
            *span = (span.0.min(event.start_ns), span.1.max(event.end_ns()));
        }
        spans.retain(|(start, end)| start < end);
        spans.sort_unstable();
        let sum: u64 = spans.iter().map(|(start, end)| end - start).sum();
        let (mut covered, mut until) = (0, 0);
        for (start, end) in spans {
            covered += end.saturating_sub(start.max(until));
            until = until.max(end);
        }
        let concurrency = if covered > 0 { (sum as f64 / covered as f64).max(1.0) } else { 1.0 };
        Self { recorded_s: (trace.seconds - trace.cost_s / concurrency).max(0.0), concurrency }
    }

    /// The elapsed time if all calls together take `delta_s` more.
    pub(super) fn seconds(&self, delta_s: f64) -> f64 {
        (self.recorded_s + delta_s / self.concurrency).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Action, Event};

    fn timeline(spans: &[(u32, u64, u64)]) -> Timeline {
        let event = |(thread, start, end): &(u32, u64, u64)| Event {
            start_ns: *start,
            duration_ns: end - start,
            file: 0,
            thread: *thread,
            action: Action::Sync,
            is_direct: false,
            is_timed: true,
        };
        Timeline::of(&Trace { seconds: 10.0, events: spans.iter().map(event).collect(), ..Trace::default() })
    }

    #[test]
    fn calls_of_parallel_threads_take_their_share() {
        let one = timeline(&[(0, 0, 100), (0, 200, 900)]);
        assert!((one.seconds(-4.0) - 6.0).abs() < 1e-9);
        let after_each_other = timeline(&[(0, 0, 400), (1, 400, 900)]);
        assert!((after_each_other.seconds(3.0) - 13.0).abs() < 1e-9);
        let together = timeline(&[(0, 0, 1000), (1, 0, 1000), (2, 0, 1000), (3, 0, 1000)]);
        assert!((together.seconds(8.0) - 12.0).abs() < 1e-9);
        assert!((timeline(&[]).seconds(1.0) - 11.0).abs() < 1e-9);
        assert!(timeline(&[]).seconds(-99.0).abs() < 1e-9);
    }
}
