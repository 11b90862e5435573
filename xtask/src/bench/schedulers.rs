//! Suite `schedulers`: the cost of each I/O scheduler on the direct-issue path, on a disk and on a device in memory; its decisions a
//! second; and the real time of the fairness job of 2009 in a simulation.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::Options;
use super::measure::{build, median, shell, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio, pinned};
use super::store;
use crate::target;

const WORKLOADS: &[(&str, &str)] = &[
    ("read-128k", "rw=read\nbs=128k\niodepth=1\n"),
    ("randread-4k-qd1", "rw=randread\nbs=4k\niodepth=1\nnorandommap=1\n"),
    ("randread-4k-qd32", "rw=randread\nbs=4k\niodepth=32\nnorandommap=1\n"),
];
/// Values of `--scheduler`. The first one stands for no such option.
const SCHEDULERS: [&str; 5] = ["unset", "none", "deadline", "cfq", "inject"];
const FILE_MIB: u32 = 512;
/// Length of one run. CPU time is known to the microsecond, so more rounds are worth more than longer ones.
const RUN_MS: u32 = 600;
/// Target of the decisions a second of each scheduler on one core.
const DECISIONS_LEAST: f64 = 1e6;
/// Target of the time of a read in memory with `none`, relative to no scheduler.
const NONE_MOST: f64 = 1.02;
/// Target of the real seconds for ten virtual seconds.
const SIMULATION_MOST_S: f64 = 5.0;

/// The job of the report of 2009, as it was posted.
const SEED_JOB: &str = "crates/repro/published/fairness-2009.fio";

pub(super) fn run(options: &Options) -> Result<(), String> {
    if options.matrix {
        return matrix(options);
    }
    build(&["--package", "diorite-cli"])?;
    let store = store::directory("schedulers")?;
    let file = options.directory.join("schedulers.bare");
    let path = file.to_string_lossy();
    shell(&format!("dd if=/dev/urandom of={path} bs=1M count={FILE_MIB} oflag=direct status=none"))?;
    let versions = store::versions();
    let issued = direct_issue(options, &store, &file);
    let _ = std::fs::remove_file(&file);
    let text = format!(
        "# The cost of I/O schedulers\n\n{}\n`unset` and `none` use the same path, so their ratio shows the noise of the machine. \
         `own_cpu_s_per_gb` is the CPU time of the job's threads.\n\n{}\n{}\n{}\n{}",
        versions,
        issued?,
        in_memory(&store)?,
        decisions(&store)?,
        simulation(&store)?
    );
    store::finish(&store, &text, &text)
}

/// Every scheduler on every workload on simulated disks, with one seed for each round.
fn matrix(options: &Options) -> Result<(), String> {
    let store = store::directory("matrix")?;
    let json = store.join("matrix.json");
    let seeds: Vec<_> = (1..=options.rounds).map(|seed| seed.to_string()).collect();
    let (seeds, json) = (seeds.join(","), json.to_string_lossy());
    let command = format!(
        "cargo run --release --quiet -p diorite-repro --example matrix -- --seeds {seeds} --json {json}"
    );
    let said = shell(&command)?;
    let text = format!(
        "# Schedulers on workloads\n\n{}\nTotal MB/s and the highest p99 latency of any owner, medians over seeds, in virtual time. \
         `*`: no other scheduler is better in both by 5 %. Workloads: `crates/repro/src/matrix/workloads.rs`. `{}`\n\n```\n{said}```\n",
        store::versions(),
        command
    );
    store::finish(&store, &text, &text)
}

/// Direct reads of a bare file through each scheduler.
fn direct_issue(options: &Options, store: &Path, file: &Path) -> Result<String, String> {
    let on = format!("raw:{}", file.display());
    let mut runners = Vec::new();
    for (workload, options) in WORKLOADS {
        let job = store.join(format!("{workload}.fio"));
        let text = format!(
            "[{workload}]\n{options}filename=/file\nsize={FILE_MIB}m\ndirect=1\nioengine=io_uring\nruntime={RUN_MS}ms\ntime_based=1\n\
             invalidate=0\n"
        );
        store::write(&job, &text)?;
        for name in SCHEDULERS {
            let job = job.to_string_lossy();
            let diorite = target::file("release/diorite");
            let mut line = vec![diorite.as_str(), "job", "--json", &job, "--on", &on];
            if name != SCHEDULERS[0] {
                line.extend(["--scheduler", name]);
            }
            runners.push(Runner { workload, name, command: pinned(words(&line), 1), ..Runner::default() });
        }
    }
    let target = |(workload, _): &(&'static str, _)| {
        TargetRatio::of("own_cpu_s_per_gb", "none", "unset", Bound::AtMost(1.02)).on(workload)
    };
    let suite = RateSuite {
        name: "schedulers",
        title: "",
        about: String::new(),
        rounds: None,
        runners,
        targets: WORKLOADS.iter().map(target).collect(),
    };
    suite.measure(store, options)
}

/// Reads of 4 KiB from a device in memory, without a scheduler and through each.
fn in_memory(store: &Path) -> Result<String, String> {
    let command = "cargo run --release --quiet -p diorite-bench --example scheduler_cost";
    let said = shell(command)?;
    store::write(&store.join("in-memory.txt"), &said)?;
    let ratio = said
        .lines()
        .find(|line| line.starts_with("none "))
        .and_then(|line| line.split(" of bare").next()?.split_whitespace().next_back()?.parse::<f64>().ok())
        .ok_or("scheduler_cost: no line of `none`")?;
    let verdict = if ratio <= NONE_MOST { "holds" } else { "MISSED" };
    Ok(format!(
        "One thread reads 4 KiB from a device in memory, `{command}`:\n\n```\n{said}```\n\n- none / without a scheduler: {ratio:.3} \
         (target at most {NONE_MOST}): {verdict}\n"
    ))
}

/// Decisions a second on one core.
fn decisions(store: &Path) -> Result<String, String> {
    let command = "cargo run --release --quiet -p diorite-scheduler --example scheduler_rate";
    let said = shell(command)?;
    store::write(&store.join("decisions.txt"), &said)?;
    let mut text = format!(
        "Decisions (insert, dispatch, complete) on one core, `{command}`; target {:.0} million a second:\n",
        DECISIONS_LEAST / 1e6
    );
    for line in said.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(Ok(rate))) = (words.next(), words.next().map(str::parse::<f64>)) else {
            continue;
        };
        let verdict = if rate * 1e6 >= DECISIONS_LEAST { "holds" } else { "MISSED" };
        let _ = writeln!(text, "- {name}: {rate:.2} million: {verdict}");
    }
    Ok(text)
}

/// The job of 2009 in virtual time: the real time, and whether three runs have the same result.
fn simulation(store: &Path) -> Result<String, String> {
    let job = store.join("fairness-2009.fio");
    let text = std::fs::read_to_string(SEED_JOB).map_err(|error| format!("{SEED_JOB}: {error}"))?;
    store::write(&job, &text)?;
    let mut text =
        format!("The job of 2009, ten virtual seconds; target {SIMULATION_MOST_S} s of real time:\n");
    for scheduler in ["cfq", "inject"] {
        let job = job.to_string_lossy();
        let command = format!(
            "{} job {job} --on sim:sata-2009 --scheduler {scheduler} --seed 1 --json",
            target::file("release/diorite")
        );
        let (mut seconds, mut cpu_s, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..3 {
            let (start, cpu) = (Instant::now(), children_cpu_s()?);
            let said = shell(&command)?;
            seconds.push(start.elapsed().as_secs_f64());
            cpu_s.push(children_cpu_s()? - cpu);
            store::write(&store.join(format!("simulation-{scheduler}-{round}.json")), &said)?;
            moved.push(transfers(&said)?);
        }
        let (taken, same) = (median(seconds), moved.windows(2).all(|pair| pair[0] == pair[1]));
        let verdict = if same && taken < SIMULATION_MOST_S { "holds" } else { "MISSED" };
        let equal = if same { "the same figures three times" } else { "DIFFERENT figures" };
        let _ =
            writeln!(text, "- `{command}`: {taken:.2} s ({:.2} s of CPU), {equal}: {verdict}", median(cpu_s));
    }
    Ok(text)
}

/// CPU seconds of all child processes so far.
fn children_cpu_s() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let fields: Vec<f64> = text
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
        .unwrap_or_default();
    // cutime and cstime, in hundredths of a second.
    Ok((fields.get(13).unwrap_or(&0.0) + fields.get(14).unwrap_or(&0.0)) / 100.0)
}

/// The results of the jobs without the real CPU time.
fn transfers(said: &str) -> Result<Vec<Value>, String> {
    let json: Value = serde_json::from_str(said).map_err(|error| format!("the job's JSON: {error}"))?;
    let jobs = json["jobs"].as_array().ok_or("the job's JSON has no jobs")?;
    Ok(jobs.iter().flat_map(|job| [job["read"].clone(), job["write"].clone()]).collect())
}
