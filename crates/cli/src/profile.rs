//! A sampling profiler: CPU time per function, per layer and as a flame graph.
//!
//! Samples follow the CPU time of this process, at most one per millisecond (the kernel's timer), so waiting does not appear. Kernel time
//! of a thread appears as its system call.

use std::collections::HashMap;

use pprof::{ProfilerGuard, ProfilerGuardBuilder, Report};

/// Samples per second of CPU time.
const FREQUENCY_HZ: i32 = 997;

/// The error of a profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// The profiler failed.
    #[error("the profiler: {0}")]
    Profiler(#[from] pprof::Error),
    /// No sample was taken.
    #[error(
        "the run was too short for a sample: there is one for each millisecond of CPU time; make it longer"
    )]
    TooShort,
}

/// A running profiler.
pub(crate) struct Profiler {
    guard: ProfilerGuard<'static>,
}

/// Ticks of one function or layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Its name.
    pub(crate) name: String,
    /// Its samples.
    pub(crate) ticks: u64,
}

/// A profile with at least one sample.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// All samples.
    pub(crate) total: u64,
    /// Samples by function, most first.
    pub(crate) functions: Vec<Ticks>,
    /// Samples by layer, most first: the innermost crate of Diorite, or the system call.
    pub(crate) layers: Vec<Ticks>,
    /// A flame graph, as SVG.
    pub(crate) flame_graph: String,
}

impl Profiler {
    /// Start sampling every thread of this process.
    pub(crate) fn start() -> Result<Self, ProfileError> {
        Ok(Self { guard: ProfilerGuardBuilder::default().frequency(FREQUENCY_HZ).build()? })
    }

    /// Stop, and make the profile.
    pub(crate) fn finish(self) -> Result<Profile, ProfileError> {
        profile_of(&self.guard.report().build()?)
    }
}

fn profile_of(report: &Report) -> Result<Profile, ProfileError> {
    let (mut functions, mut layers) = (HashMap::new(), HashMap::new());
    let mut total = 0;
    for (frames, count) in &report.data {
        let count = u64::try_from(*count).unwrap_or(0);
        // Innermost first.
        let names: Vec<String> = frames.frames.iter().flatten().map(|symbol| plain(&symbol.name())).collect();
        let Some(innermost) = names.first() else { continue };
        total += count;
        *functions.entry(innermost.clone()).or_insert(0) += count;
        *layers.entry(layer(&names)).or_insert(0) += count;
    }
    if total == 0 {
        return Err(ProfileError::TooShort);
    }
    let mut flame_graph = Vec::new();
    report.flamegraph(&mut flame_graph)?;
    let flame_graph = String::from_utf8_lossy(&flame_graph).into_owned();
    Ok(Profile { total, functions: sorted(functions), layers: sorted(layers), flame_graph })
}

fn sorted(ticks: HashMap<String, u64>) -> Vec<Ticks> {
    let mut list: Vec<_> = ticks.into_iter().map(|(name, ticks)| Ticks { name, ticks }).collect();
    list.sort_by(|a, b| b.ticks.cmp(&a.ticks).then_with(|| a.name.cmp(&b.name)));
    list
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

    #[test]
    fn nothing_sampled_is_an_error_with_its_cure() {
        #[expect(clippy::default_trait_access, reason = "its type has no public name")]
        let report = Report { data: HashMap::new(), timing: Default::default() };
        let error = profile_of(&report).expect_err("nothing to show");
        assert!(error.to_string().contains("too short") && error.to_string().contains("longer"), "{error}");
    }

    /// A busy function is sampled.
    #[test]
    fn a_busy_loop_is_sampled() {
        let profiler = Profiler::start().expect("one profiler at a time");
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 300 {
            for value in 0..10_000u64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(value));
            }
        }
        let profile = profiler.finish().expect("a report");
        assert!(profile.total > 10, "{} samples of 300 ms", profile.total);
        assert!(profile.flame_graph.contains("<svg"));
    }
}
