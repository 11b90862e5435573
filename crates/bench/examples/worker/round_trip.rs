//! Cost of a system call that a FUSE server answers without work: `statfs`.

use std::time::Instant;

use crate::place::Place;
use crate::{Failure, Figures};

pub(crate) fn run(place: &Place, count: u32) -> Result<Figures, Failure> {
    if matches!(place, Place::Image(_)) {
        return Err("round_trip needs a mount".into());
    }
    let start = Instant::now();
    for _ in 0..count {
        rustix::fs::statvfs(".")?;
    }
    Ok(vec![("round_trip_us".to_owned(), start.elapsed().as_secs_f64() * 1e6 / f64::from(count))])
}
