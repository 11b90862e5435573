//! The log of a session or a server, limited in rate: a failing device would fill it, with each request.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Messages in an interval, as in the kernel.
const MESSAGES_MAX: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(5);

/// Receives messages about errors without a caller.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module's head.
pub(crate) struct LimitedLog {
    log: Log,
    interval: Mutex<Interval>,
}

#[derive(Debug, Default)]
struct Interval {
    began: Option<Instant>,
    said: u32,
    suppressed: u64,
}

impl Interval {
    /// Returns the number of messages suppressed before, if a message may be logged now.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= INTERVAL) {
            (self.began, self.said) = (Some(now), 0);
        }
        if self.said == MESSAGES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl fmt::Debug for LimitedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedLog").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl LimitedLog {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, interval: Mutex::default() }
    }

    /// Log a message, unless the limit is reached.
    pub(crate) fn say(&self, what: &str) {
        self.log_at(Instant::now(), what);
    }

    fn log_at(&self, now: Instant, what: &str) {
        let admitted = self.interval.lock().unwrap_or_else(PoisonError::into_inner).admit(now);
        if let Some(suppressed) = admitted {
            self.log_suppressed(suppressed);
            (self.log)(what);
        }
    }

    fn log_suppressed(&self, count: u64) {
        if count > 0 {
            (self.log)(&format!("{count} more messages were suppressed"));
        }
    }

    /// Log how many messages were suppressed.
    pub(crate) fn finish(&self) {
        let mut interval = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = std::mem::take(&mut interval.suppressed);
        drop(interval);
        self.log_suppressed(suppressed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request to a device that is gone was a line in the system's log.
    #[test]
    fn a_device_that_fails_at_each_request_does_not_fill_the_log() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&said);
        let log =
            LimitedLog::new(Arc::new(move |line: &str| lines.lock().expect("lines").push(line.to_owned())));
        let taken = || std::mem::take(&mut *said.lock().expect("lines"));
        let start = Instant::now();
        (0..1000).for_each(|nth| log.log_at(start, &format!("error {nth}")));
        let first = taken();
        let shown = first.len();
        assert!((1..50).contains(&shown) && first[0] == "error 0", "{first:?}");
        log.log_at(start + Duration::from_secs(60), "another");
        assert_eq!(
            taken(),
            [format!("{} more messages were suppressed", 1000 - shown), "another".to_owned()]
        );
        (0..100).for_each(|_| log.log_at(start + Duration::from_secs(120), "error"));
        let shown = taken().len();
        log.finish();
        assert_eq!(taken(), [format!("{} more messages were suppressed", 100 - shown)]);
        log.finish();
        assert!(taken().is_empty());
    }
}
