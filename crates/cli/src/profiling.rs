//! The option `--profile`: CPU time as tables on standard output and as a flame graph in a file.

use std::path::{Path, PathBuf};

use crate::args::Reporting;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::profile::{Profile, ProfileError, Profiler, Ticks};

/// The maximum number of lines of a table.
const LINES: usize = 20;

/// Start sampling if a file for the flame graph is given.
pub(crate) fn start(file: Option<&Path>) -> Result<Option<Profiling>> {
    let Some(file) = file else { return Ok(None) };
    let profiler = Profiler::start().map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(Some(Profiling { profiler, file: file.to_owned() }))
}

/// A running profiler and its file.
pub(crate) struct Profiling {
    profiler: Profiler,
    file: PathBuf,
}

/// A profile that is not written yet.
pub(crate) struct Profiled {
    profile: Result<Profile, ProfileError>,
    file: PathBuf,
}

impl Profiling {
    /// Stop sampling.
    pub(crate) fn stop(self) -> Profiled {
        Profiled { profile: self.profiler.finish(), file: self.file }
    }
}

impl Profiled {
    /// Write the flame graph. A text report also has the ticks per layer and per function, in ascending order, as `readprofile` printed
    /// them in 2002.
    pub(crate) fn show(self, reporting: Reporting, output: &mut Output) -> Result<()> {
        let name = self.file.display();
        let profile =
            self.profile.map_err(|error| Failure::Failed(format!("{name}: not written: {error}")))?;
        #[expect(clippy::disallowed_methods, reason = "a picture, not data I/O")]
        std::fs::write(&self.file, &profile.flame_graph)
            .map_err(|error| Failure::host(&name, "write", &error))?;
        if reporting.json {
            return Ok(());
        }
        let total = profile.total;
        output.line(format!("\nCPU profile: {total} ticks; flame graph in {name}"))?;
        output.line("   ticks      %  layer")?;
        lines(&profile.layers, total, output)?;
        output.line("   ticks      %  function")?;
        lines(&profile.functions, total, output)
    }
}

fn lines(ticks: &[Ticks], total: u64, output: &mut Output) -> Result<()> {
    for entry in ticks.iter().take(LINES).rev() {
        let percent = 100.0 * entry.ticks as f64 / total.max(1) as f64;
        output.line(format!("{:>8} {percent:>6.2}  {}", entry.ticks, entry.name))?;
    }
    Ok(())
}
