//! Writes one large file sequentially: new, or over existing blocks.
//!
//! Measured: the writes and the final `fdatasync`.

use std::time::Instant;

use diorite::{DirectIo, Filesystem};

use crate::place::Place;
use crate::{Failure, Figures};

const STEP: usize = 1 << 20;
const PATH: &str = "/stream";

/// `words`: `direct` or `buffered`, `fresh` or `overwrite`.
pub(crate) fn run(place: &Place, mib: u64, words: &[String]) -> Result<Figures, Failure> {
    let Place::Image(filesystem) = place else { return Err("only on an image".into()) };
    let has = |word: &str| words.iter().any(|other| other == word);
    let direct = if has("direct") { DirectIo::Required } else { DirectIo::Off };
    // The disk did the same work before each measurement.
    write(filesystem, mib, direct)?;
    if has("fresh") {
        filesystem.remove_file(PATH)?;
        filesystem.sync()?;
    }
    let start = Instant::now();
    write(filesystem, mib, direct)?;
    let bytes = (mib << 20) as f64;
    Ok(vec![("mb_per_s".to_owned(), bytes / 1e6 / start.elapsed().as_secs_f64())])
}

fn write(filesystem: &Filesystem, mib: u64, direct: DirectIo) -> Result<(), Failure> {
    let file = filesystem.open_options().write(true).create(true).direct(direct).open(PATH)?;
    let mut buffer = file.buffer(STEP)?;
    buffer.fill(0xa5);
    for step in 0..mib {
        file.write_all_at(&buffer, step * STEP as u64)?;
    }
    Ok(file.sync_data()?)
}
