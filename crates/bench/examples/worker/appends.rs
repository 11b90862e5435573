//! Appends of 4 KiB with an `fsync` after each; each thread has its own file.

use std::fs;
use std::io::Write;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use diorite::Filesystem;

use crate::place::Place;
use crate::{Failure, Figures};

const BYTES: usize = 4096;

pub(crate) fn run(place: &Place, threads: usize, seconds: u64) -> Result<Figures, Failure> {
    let barrier = Barrier::new(threads);
    let length = Duration::from_secs(seconds);
    let before = writes(place);
    let counts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let barrier = &barrier;
                scope.spawn(move || match place {
                    Place::Image(filesystem) => append_image(filesystem, n, barrier, length),
                    Place::Host => append_host(n, barrier, length),
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let appends = counts.iter().sum::<u64>() as f64;
    let mut figures = vec![("appends".to_owned(), appends / length.as_secs_f64())];
    if let (Some(before), Some(after)) = (before, writes(place)) {
        figures.push(("writes_per_append".to_owned(), (after.0 - before.0) as f64 / appends));
        figures.push(("flushes_per_append".to_owned(), (after.1 - before.1) as f64 / appends));
    }
    Ok(figures)
}

/// Writes and flushes of the device, with the library only.
fn writes(place: &Place) -> Option<(u64, u64)> {
    match place {
        Place::Image(filesystem) => {
            let device = filesystem.stats().device;
            Some((device.writes, device.flushes))
        }
        Place::Host => None,
    }
}

fn append_image(
    filesystem: &Filesystem,
    thread: usize,
    barrier: &Barrier,
    length: Duration,
) -> Result<u64, Failure> {
    let file = filesystem.create_file(format!("append-{thread}"))?;
    filesystem.sync()?;
    let data = vec![0x5a; BYTES];
    barrier.wait();
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < length {
        file.append(&data)?;
        file.sync_all()?;
        count += 1;
    }
    Ok(count)
}

#[expect(clippy::disallowed_methods, reason = "the host is what is measured")]
fn append_host(thread: usize, barrier: &Barrier, length: Duration) -> Result<u64, Failure> {
    let mut file = fs::File::create(format!("append-{thread}"))?;
    file.sync_all()?;
    let data = vec![0x5a; BYTES];
    barrier.wait();
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < length {
        file.write_all(&data)?;
        file.sync_all()?;
        count += 1;
    }
    Ok(count)
}
