//! Many empty files in one directory: made, looked at, listed, removed. `first_list` is the first time that its names are counted,
//! `readdir` each time after it, and `list` also keeps them in memory.
//!
//! On the clock: making and removing include the sync that makes them durable at the end (`syncfs` on the host);
//! looking and listing come after it, with whatever the contender still has in memory. Opening and closing the volume,
//! mount and unmount are not on the clock.

use std::time::{Duration, Instant};

use crate::place::Place;
use crate::{Failure, Figures};

const DIRECTORY: &str = "names";
/// Looking and listing are repeated until this much time has passed.
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
