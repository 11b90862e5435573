//! The scratch file of the probes, and the clocks.

use std::path::Path;

use diorite_bench::{Cancel, Error, FileIo, HostFile, Start, TemporaryFile};
use diorite_device::AlignedBuf;
use rustix::time::{ClockId, clock_gettime};

use super::curve::{Cost, Point};

/// Alignment for direct I/O: a page, which is a multiple of the logical block of any disk.
pub(super) const ALIGNMENT: usize = 4096;
/// Fewer samples are no measurement.
const SAMPLES_MIN: usize = 4;

/// A file of random bytes, open in both ways.
pub(super) struct Scratch {
    pub(super) buffered: HostFile,
    /// `None` without direct I/O.
    pub(super) direct: Option<HostFile>,
    pub(super) bytes: u64,
    /// Removes the file.
    _temporary: TemporaryFile,
    pub(super) cancel: Cancel,
    /// The time of one probe.
    pub(super) probe_s: f64,
}

impl Scratch {
    /// A new file without content in `directory`.
    pub(super) fn new(directory: &Path, bytes: u64, probe_s: f64, cancel: Cancel) -> Result<Self, Error> {
        let name = format!(".diorite-advise-{}", std::process::id());
        let temporary = TemporaryFile::new(directory, name.as_ref())?;
        let buffered = HostFile::open(temporary.path(), FileIo::Buffered, Start::New)?;
        let direct = HostFile::open(temporary.path(), FileIo::Direct, Start::Existing).ok();
        Ok(Self { buffered, direct, bytes, _temporary: temporary, cancel, probe_s })
    }
}

/// Aligned memory whose bytes a disk cannot compress.
pub(super) fn memory(bytes: usize) -> Result<AlignedBuf, Error> {
    let mut memory =
        AlignedBuf::try_zeroed(bytes, ALIGNMENT).map_err(|source| Error::Memory { bytes, source })?;
    fastrand::fill(&mut memory);
    Ok(memory)
}

/// Elapsed and CPU time of this process so far.
pub(super) fn clock() -> Cost {
    let seconds = |id| {
        let time = clock_gettime(id);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    Cost { seconds: seconds(ClockId::Monotonic), cpu_s: seconds(ClockId::ProcessCPUTime) }
}

/// The time since then.
pub(super) fn since(start: Cost) -> Cost {
    let now = clock();
    Cost { seconds: now.seconds - start.seconds, cpu_s: now.cpu_s - start.cpu_s }
}

/// Which calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// All: in a stream, a few calls wait for the disk on behalf of the others.
    All,
    /// All but the slowest tenth, which waited for other programs.
    Typical,
}

/// Repeat `call` for a short time, or until it returns false. The point is the mean of the calls.
pub(super) fn repeat(
    scratch: &Scratch,
    bytes: usize,
    counted: Counted,
    mut call: impl FnMut() -> Result<bool, Error>,
) -> Result<Point, Error> {
    let start = clock();
    let mut samples = Vec::new();
    let mut batch = 1;
    let mut has_more = true;
    while has_more {
        scratch.cancel.check()?;
        let before = clock();
        let mut calls = 0_u32;
        while has_more && calls < batch {
            has_more = call()?;
            calls += 1;
        }
        let spent = since(before);
        samples.push(spent * (1.0 / f64::from(calls)));
        // Reading the clocks is not a part of the cost of short calls.
        if spent.seconds < 1e-5 {
            batch = (batch * 2).min(256);
        }
        if since(start).seconds >= scratch.probe_s && samples.len() >= SAMPLES_MIN {
            break;
        }
    }
    Ok(Point { bytes: bytes as u64, cost: mean(samples, counted) })
}

/// The mean; the CPU time is that of all.
fn mean(mut samples: Vec<Cost>, counted: Counted) -> Cost {
    let cpu_s = samples.iter().map(|sample| sample.cpu_s).sum::<f64>() / samples.len().max(1) as f64;
    samples.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    if counted == Counted::Typical {
        samples.truncate((samples.len() * 9).div_ceil(10));
    }
    let seconds = samples.iter().map(|sample| sample.seconds).sum::<f64>() / samples.len().max(1) as f64;
    Cost { seconds, cpu_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_do_not_count() {
        let cost = |seconds| Cost { seconds, cpu_s: 0.5 };
        let mut samples = vec![cost(1.0); 19];
        samples.push(cost(1000.0));
        assert_eq!(mean(samples.clone(), Counted::Typical), cost(1.0));
        assert_eq!(mean(samples, Counted::All), cost(50.95));
        assert_eq!(mean(vec![cost(3.0)], Counted::Typical), cost(3.0));
        assert_eq!(mean(Vec::new(), Counted::All), Cost::default());
    }
}
