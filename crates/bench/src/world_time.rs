//! The time of day of a simulated world: a fixed moment plus virtual time.
//!
//! So all that a simulation writes is a function of its seed (ARCHITECTURE invariant 11).

use std::sync::Arc;

use diorite::Timestamp;
use diorite::front_end::Clock;
use diorite_block::sync;
use diorite_sim::Context;
use jiff::Zoned;
use jiff::tz::TimeZone;

/// Start of every world.
pub const BEGINNING: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };

/// The clock of volumes in a world. Outside a world it does not advance.
#[derive(Debug)]
struct WorldClock;

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        if Context::current().is_none() {
            return BEGINNING;
        }
        let since = sync::now();
        Timestamp { seconds: BEGINNING.seconds + since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }
}

/// The clock of volumes in a world.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(WorldClock)
}

/// Present date and time: of the world in a simulated process, in UTC, otherwise of the host.
pub fn date() -> Zoned {
    if Context::current().is_none() {
        return Zoned::now();
    }
    let Timestamp { seconds, nanoseconds } = WorldClock.now();
    let now = jiff::Timestamp::new(seconds, nanoseconds as i32).unwrap_or_default();
    now.to_zoned(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use diorite_sim::{Simulation, WorldOptions};

    use super::*;

    /// It is the same in every run, and advances with virtual time.
    #[test]
    fn a_day_in_a_world_is_a_day_of_virtual_time() {
        let body = || {
            let before = date();
            sync::sleep(Duration::from_secs(86_400));
            (before.to_string(), date().to_string())
        };
        let (dates, _) = Simulation::run_one(WorldOptions::default(), body).unwrap();
        assert_eq!(dates.0, "2001-09-09T01:46:40+00:00[UTC]");
        assert_eq!(dates.1, "2001-09-10T01:46:40+00:00[UTC]");
        assert_eq!(clock().now(), BEGINNING, "nothing passes outside");
    }
}
