//! The switch `--profile`: where the CPU time went, as tables on standard output and as a flame graph in a file.

use std::path::{Path, PathBuf};

use diorite_bench::profile::{Profile, Profiler, Ticks};

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Functions shown.
const LINES: usize = 20;

/// Start sampling if a file for the flame graph was named.
pub(crate) fn start(file: Option<&Path>) -> Result<Option<Profiler>> {
    file.map(|_| Profiler::start()).transpose().map_err(|error| Failure::Failed(error.to_string()))
}

/// Stop sampling and write the flame graph.
pub(crate) fn finish(profiler: Option<Profiler>, file: Option<&Path>) -> Result<Option<(Profile, PathBuf)>> {
    let (Some(profiler), Some(file)) = (profiler, file) else { return Ok(None) };
    let profile = profiler.finish().map_err(|error| Failure::Failed(error.to_string()))?;
    #[expect(clippy::disallowed_methods, reason = "a picture, not data I/O")]
    std::fs::write(file, &profile.flame_graph)
        .map_err(|error| Failure::host(file.display(), "write", &error))?;
    Ok(Some((profile, file.to_owned())))
}

/// Ticks per layer and per function, most last, as readprofile was read in 2002.
pub(crate) fn print(profile: Option<&(Profile, PathBuf)>, output: &mut Output) -> Result<()> {
    let Some((profile, file)) = profile else { return Ok(()) };
    output.line(format!("\nCPU profile: {} ticks; flame graph in {}", profile.total, file.display()))?;
    output.line("   ticks      %  layer")?;
    lines(&profile.layers, profile.total, output)?;
    output.line("   ticks      %  function")?;
    lines(&profile.functions, profile.total, output)
}

fn lines(ticks: &[Ticks], total: u64, output: &mut Output) -> Result<()> {
    for entry in ticks.iter().take(LINES).rev() {
        let percent = 100.0 * entry.ticks as f64 / total.max(1) as f64;
        output.line(format!("{:>8} {percent:>6.2}  {}", entry.ticks, entry.name))?;
    }
    Ok(())
}
