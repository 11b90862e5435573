//! The option `--profile`: a sampling profiler. CPU time by layer and by function as tables on standard output, and as a flame graph in a file.
//!
//! Samples follow the CPU time of this process, at most one per millisecond (the kernel's timer), so waiting does not appear. Kernel time
//! of a thread appears as its system call.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pprof::{ProfilerGuard, ProfilerGuardBuilder, Report};

use crate::args::Reporting;
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Samples per second of CPU time.
const FREQUENCY_HZ: i32 = 997;
/// The maximum number of lines of a table.
const LINES: usize = 20;

/// Start sampling every thread of this process, if a file for the flame graph is given.
pub(crate) fn start(file: Option<&Path>) -> Result<Option<Profiling>> {
    let Some(file) = file else { return Ok(None) };
    let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY_HZ).build();
    let guard = guard.map_err(|error| Failure::Failed(format!("the profiler: {error}")))?;
    Ok(Some(Profiling { guard, file: file.to_owned() }))
}

/// A running profiler and its file.
pub(crate) struct Profiling {
    guard: ProfilerGuard<'static>,
    file: PathBuf,
}

/// A profile that is not written yet.
pub(crate) struct Profiled {
    report: pprof::Result<Report>,
    file: PathBuf,
}

impl Profiling {
    /// Stop sampling.
    pub(crate) fn stop(self) -> Profiled {
        Profiled { report: self.guard.report().build(), file: self.file }
    }
}

impl Profiled {
    /// Write the flame graph. A text report also has the ticks per layer and per function, in ascending order, as `readprofile` printed
    /// them in 2002.
    pub(crate) fn show(self, reporting: Reporting, output: &mut Output) -> Result<()> {
        let name = self.file.display();
        let failed = |error| Failure::Failed(format!("{name}: not written: the profiler: {error}"));
        let report = self.report.map_err(failed)?;
        let ticks = Ticks::of(&report);
        if ticks.total == 0 {
            let why = "the run was too short for a sample: there is one for each millisecond of CPU time; make it longer";
            return Err(Failure::Failed(format!("{name}: not written: {why}")));
        }
        let mut flame_graph = Vec::new();
        report.flamegraph(&mut flame_graph).map_err(failed)?;
        #[expect(clippy::disallowed_methods, reason = "a picture, not data I/O")]
        std::fs::write(&self.file, &flame_graph).map_err(|error| Failure::host(&name, "write", &error))?;
        if reporting.json {
            return Ok(());
        }
        output.line(format!("\nCPU profile: {} ticks; flame graph in {name}", ticks.total))?;
        for (what, counts) in [("layer", &ticks.layers), ("function", &ticks.functions)] {
            output.line(format!("   ticks      %  {what}"))?;
            let mut list: Vec<_> = counts.iter().collect();
            list.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
            for (name, count) in list.into_iter().take(LINES).rev() {
                let percent = 100.0 * *count as f64 / ticks.total as f64;
                output.line(format!("{count:>8} {percent:>6.2}  {name}"))?;
            }
        }
        Ok(())
    }
}

/// Samples by name.
#[derive(Default)]
struct Ticks {
    total: u64,
    functions: HashMap<String, u64>,
    /// By the innermost crate of Diorite, or the system call.
    layers: HashMap<String, u64>,
}

impl Ticks {
    fn of(report: &Report) -> Self {
        let mut ticks = Self::default();
        for (frames, count) in &report.data {
            let count = u64::try_from(*count).unwrap_or(0);
            let names: Vec<_> = frames.frames.iter().flatten().map(|symbol| plain(&symbol.name())).collect();
            let Some(innermost) = names.first() else { continue };
            ticks.total += count;
            *ticks.functions.entry(innermost.clone()).or_insert(0) += count;
            *ticks.layers.entry(layer(&names)).or_insert(0) += count;
        }
        ticks
    }
}

/// A function's name without the hash that the compiler appends.
fn plain(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            path.to_owned()
        }
        _ => name.to_owned(),
    }
}

/// The layer of a stack of function names, innermost first.
fn layer(names: &[String]) -> String {
    let is_system_call = names.iter().take(3).any(|name| {
        matches!(name.as_str(), "syscall" | "__GI_syscall")
            || name.contains("linux_raw")
            || name.starts_with("__libc_p")
    });
    if is_system_call {
        return "kernel (system calls)".to_owned();
    }
    if names.first().is_some_and(|name| name.contains("memcpy") || name.contains("memmove")) {
        return "copying (memcpy)".to_owned();
    }
    let ours = names.iter().find_map(|name| {
        let start = name.find("diorite")?;
        let end =
            name[start..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len() - start);
        Some(name[start..start + end].replace('_', "-"))
    });
    ours.unwrap_or_else(|| "other".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_of(names: &[&str]) -> String {
        layer(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn layers_are_told_by_the_innermost_frame_of_ours() {
        assert_eq!(
            layer_of(&["core::iter::next", "<diorite_ext::map::Run as X>::f", "diorite::file::read"]),
            "diorite-ext"
        );
        assert_eq!(layer_of(&["syscall", "io_uring::submit", "diorite_device::x"]), "kernel (system calls)");
        assert_eq!(layer_of(&["__memmove_avx_unaligned_erms", "diorite::cache::copy"]), "copying (memcpy)");
        assert_eq!(layer_of(&["main"]), "other");
        assert_eq!(plain("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(plain("a::handle"), "a::handle");
    }

    /// A busy function is sampled.
    #[test]
    fn a_busy_loop_is_sampled() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("profile.svg");
        let profiler = start(Some(&file)).expect("one profiler at a time").expect("a file is given");
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 300 {
            for value in 0..10_000u64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(value));
            }
        }
        let report = profiler.stop().report.expect("a report");
        assert!(Ticks::of(&report).total > 10, "few samples of 300 ms");
        let mut flame_graph = Vec::new();
        report.flamegraph(&mut flame_graph).expect("a picture");
        assert!(String::from_utf8_lossy(&flame_graph).contains("<svg"));
    }

    #[test]
    fn nothing_sampled_is_an_error_with_its_cure() {
        #[expect(clippy::default_trait_access, reason = "its type has no public name")]
        let report = Report { data: HashMap::new(), timing: Default::default() };
        let profiled = Profiled { report: Ok(report), file: "profile.svg".into() };
        let error =
            profiled.show(Reporting { json: false }, &mut Output::new()).expect_err("nothing to show");
        assert!(
            format!("{error:?}").contains("too short") && format!("{error:?}").contains("longer"),
            "{error:?}"
        );
    }
}
