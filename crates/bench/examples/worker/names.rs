//! Many empty files in one directory: made, looked at, listed, removed.
//!
//! On the clock: making and removing include the sync that makes them durable at the end (`syncfs` on the host);
//! looking and listing come after it, with whatever the contender still has in memory. Opening and closing the volume,
//! mount and unmount are not on the clock.

use std::time::Instant;

use crate::place::Place;
use crate::{Failure, Figures};

const DIRECTORY: &str = "names";
/// Files that one contender can look at or list so fast that it is done several times.
const LOOKS: usize = 200_000;

pub(crate) fn run(place: &Place, count: usize) -> Result<Figures, Failure> {
    let paths: Vec<String> = (0..count).map(|n| format!("{DIRECTORY}/file-{n:08}")).collect();
    place.make_directory(DIRECTORY)?;
    place.sync()?;
    let mut figures = Figures::new();
    let mut timed = |name: &str, rounds: usize, work: &mut dyn FnMut() -> Result<(), Failure>| {
        let start = Instant::now();
        for _ in 0..rounds {
            work()?;
        }
        figures.push((name.to_owned(), (rounds * count) as f64 / start.elapsed().as_secs_f64()));
        Ok::<(), Failure>(())
    };
    timed("create", 1, &mut || {
        paths.iter().try_for_each(|path| place.create(path))?;
        place.sync()
    })?;
    timed("stat", LOOKS.div_ceil(count), &mut || {
        paths.iter().try_for_each(|path| match place.size_of(path)? {
            0 => Ok(()),
            size => Err(format!("{path} has {size} bytes").into()),
        })
    })?;
    timed("readdir", LOOKS.div_ceil(count), &mut || match place.list(DIRECTORY)? {
        listed if listed == count => Ok(()),
        listed => Err(format!("{listed} names listed").into()),
    })?;
    timed("unlink", 1, &mut || {
        paths.iter().try_for_each(|path| place.remove(path))?;
        place.sync()
    })?;
    place.remove_directory(DIRECTORY)?;
    Ok(figures)
}
