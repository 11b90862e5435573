//! Requests in the order of arrival. A volume with scheduler `none` has no queue at all; this state machine is for
//! comparisons in which the same queue runs with and without a policy.

use std::collections::VecDeque;
use std::time::Duration;

use super::table::{Key, RequestTable};
use super::{IoScheduler, Request, RequestId, Statistics};

/// First come, first dispatched.
#[derive(Debug, Default)]
pub struct Noop {
    table: RequestTable,
    queue: VecDeque<Key>,
}

impl Noop {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }
}

impl IoScheduler for Noop {
    fn name(&self) -> &'static str {
        "none"
    }

    fn merge(&mut self, _request: &Request, _now: Duration) -> Option<RequestId> {
        None
    }

    fn insert(&mut self, request: Request, now: Duration) {
        let key = self.table.insert(request, 0, now, now);
        self.queue.push_back(key);
    }

    fn dispatch(&mut self, now: Duration) -> Option<Request> {
        let key = self.queue.pop_front()?;
        Some(self.table.dispatch(key, now))
    }

    fn completed(&mut self, id: RequestId, now: Duration) {
        self.table.complete(id, now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn statistics(&self) -> &Statistics {
        &self.table.statistics
    }

    fn pending_count(&self) -> usize {
        self.table.pending_count()
    }

    fn describe(&self, _now: Duration) -> String {
        format!(
            "none: {} pending, {} in flight\n{}",
            self.table.pending_count(),
            self.table.flying_count(),
            self.table.statistics.describe()
        )
    }
}
