//! A workload, who runs it, and what fio's JSON says of it.

use std::path::Path;

use serde_json::Value;

use super::measure::{Run, call};

/// One fio job.
pub(crate) struct Workload {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// Its options, one per line, without the options that name the target.
    pub(crate) options: &'static str,
    /// Threads that it keeps busy.
    pub(crate) threads: u32,
}

pub(crate) const fn workload(name: &'static str, options: &'static str, threads: u32) -> Workload {
    Workload { name, options, threads }
}

impl Workload {
    /// Whether it changes what it runs on.
    pub(crate) fn writes(&self) -> bool {
        self.options.contains("write")
    }
}

/// Makes a contender's command from the path of the job file.
pub(crate) type CommandFor = Box<dyn Fn(&Path) -> Vec<String>>;

/// Who runs a workload.
pub(crate) struct Contender {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// What to do before each run, such as mounting.
    pub(crate) before: Vec<Vec<String>>,
    /// The command, given the path of the job file.
    pub(crate) command: CommandFor,
    /// Options that only this contender's job file has: the file, the engine's own switches.
    pub(crate) options: String,
    /// What to do after each run.
    pub(crate) after: Vec<Vec<String>>,
}

impl Contender {
    /// One that needs nothing before or after a run.
    pub(crate) fn new(name: &'static str, command: CommandFor, options: String) -> Self {
        Self { name, before: vec![], command, options, after: vec![] }
    }

    /// The job file for a workload.
    pub(crate) fn job_file(&self, workload: &Workload) -> String {
        format!("[{}]\n{}{}", workload.name, workload.options, self.options)
    }

    /// Do what comes before a run.
    pub(crate) fn prepare(&self) -> Result<(), String> {
        each(&self.before)
    }

    /// Do what comes after a run, as much of it as can be done.
    pub(crate) fn clean_up(&self) -> Result<(), String> {
        each(&self.after)
    }
}

fn each(commands: &[Vec<String>]) -> Result<(), String> {
    let mut result = Ok(());
    for command in commands {
        if let Err(error) = call(command) {
            result = Err(error);
        }
    }
    result
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Bytes a second.
    pub(crate) bandwidth: f64,
    pub(crate) iops: f64,
    /// CPU seconds of the machine per 10^9 bytes.
    pub(crate) cpu_s_per_gb: f64,
    /// CPU seconds of the job's own threads per 10^9 bytes.
    pub(crate) own_cpu_s_per_gb: f64,
    /// Median and 99th percentile of a transfer, in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Read fio's JSON (or ours, which has the same keys).
pub(crate) fn figures(run: &Run) -> Result<Figures, String> {
    // fio may print notes before the object.
    let start = run.stdout.find('{').ok_or("no JSON in the output")?;
    let json: Value =
        serde_json::from_str(&run.stdout[start..]).map_err(|error| format!("fio's JSON: {error}"))?;
    let job = &json["jobs"][0];
    let direction =
        ["read", "write"].map(|name| &job[name]).into_iter().find(|d| d["total_ios"].as_u64() > Some(0));
    let direction = direction.ok_or("the job moved nothing")?;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let bytes = number(&direction["io_bytes"]);
    let own_percent = number(&job["usr_cpu"]) + number(&job["sys_cpu"]);
    let own_s = own_percent / 100.0 * number(&direction["runtime"]) / 1e3;
    let percentile = |name: &str| number(&direction["clat_ns"]["percentile"][name]) / 1000.0;
    Ok(Figures {
        bandwidth: number(&direction["bw_bytes"]),
        iops: number(&direction["iops"]),
        cpu_s_per_gb: run.cpu_s / (bytes / 1e9),
        own_cpu_s_per_gb: own_s / (bytes / 1e9),
        p50_us: percentile("50.000000"),
        p99_us: percentile("99.000000"),
    })
}
