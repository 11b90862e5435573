//! Creates, looks up, lists and removes many empty files in one directory. `first_list` counts the names for the first time,
//! `readdir` counts them again, and `list` also keeps them in memory.
//!
//! Measured: making and removing with the final sync (`syncfs` on the host); then lookups and listings with the contender's
//! caches. Not measured: opening and closing the volume, mount and unmount.

use std::time::{Duration, Instant};

use crate::place::Place;
use crate::{Failure, Figures};

const DIRECTORY: &str = "names";
/// Lookups and listings repeat for this time.
const LOOK: Duration = Duration::from_millis(300);

pub(crate) fn run(place: &Place, count: usize) -> Result<Figures, Failure> {
    let paths: Vec<String> = (0..count).map(|n| format!("{DIRECTORY}/file-{n:08}")).collect();
    place.make_directory(DIRECTORY)?;
    place.sync()?;
    let mut figures = Figures::new();
    let mut timed = |name: &str, at_least: Duration, work: &mut dyn FnMut() -> Result<(), Failure>| {
        let (start, mut rounds) = (Instant::now(), 0);
        while rounds == 0 || start.elapsed() < at_least {
            work()?;
            rounds += 1;
        }
        figures.push((name.to_owned(), (rounds * count) as f64 / start.elapsed().as_secs_f64()));
        Ok::<(), Failure>(())
    };
    timed("create", Duration::ZERO, &mut || {
        paths.iter().try_for_each(|path| place.create(path))?;
        place.sync()
    })?;
    timed("stat", LOOK, &mut || {
        paths.iter().try_for_each(|path| match place.size_of(path)? {
            0 => Ok(()),
            size => Err(format!("{path} has {size} bytes").into()),
        })
    })?;
    let all = |listed: usize| {
        if listed == count { Ok(()) } else { Err(Failure::from(format!("{listed} names listed"))) }
    };
    timed("first_list", Duration::ZERO, &mut || all(place.count_names(DIRECTORY)?))?;
    timed("readdir", LOOK, &mut || all(place.count_names(DIRECTORY)?))?;
    timed("list", LOOK, &mut || all(place.list(DIRECTORY)?))?;
    timed("unlink", Duration::ZERO, &mut || {
        paths.iter().try_for_each(|path| place.remove(path))?;
        place.sync()
    })?;
    place.remove_directory(DIRECTORY)?;
    Ok(figures)
}
