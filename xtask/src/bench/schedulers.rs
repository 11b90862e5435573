//! Suite `schedulers`: the cost of each I/O scheduler on the direct-issue path, on a disk and on a device in memory; and its decisions a
//! second.

use std::path::Path;

use super::Options;
use super::measure::{build, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio, pinned};
use super::store;
use crate::command::shell;
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
const DECISIONS_LEAST: &str = "1 million a second";
/// Target of the time of a read in memory with `none`, relative to no scheduler.
const NONE_MOST: f64 = 1.02;
pub(super) fn run(options: &Options) -> Result<(), String> {
    if options.matrix {
        return matrix(options);
    }
    build(&["--package", "diorite-cli"])?;
    let store = store::directory(if options.before.is_some() { "schedulers-before" } else { "schedulers" })?;
    let file = options.directory.join("schedulers.bare");
    let path = file.to_string_lossy();
    shell(&format!("dd if=/dev/urandom of={path} bs=1M count={FILE_MIB} oflag=direct status=none"))?;
    let versions = store::versions();
    let issued = direct_issue(options, &store, &file);
    let _ = std::fs::remove_file(&file);
    let text = format!(
        "# The cost of I/O schedulers\n\n{}\n`unset` and `none` use the same path, so their ratio shows the noise of the machine. \
         `own_cpu_s_per_gb` is the CPU time of the job's threads.\n\n{}\n{}\n{}",
        versions,
        issued?,
        in_memory(&store)?,
        decisions(&store)?
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
    Ok(format!(
        "Decisions (insert, dispatch, complete) on one core, `{command}`; target {DECISIONS_LEAST}:\n\n```\n{said}```\n"
    ))
}
