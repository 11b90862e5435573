//! Suite `mount-profile`: where the time of small calls on a mount goes, by `perf`, beside the kernel's own mount.
//!
//! Each step runs under `perf record -a`, which samples all CPUs. A sample belongs to the first class that its thread and the functions of
//! its stack fit. The run stores times, not shares alone, because a CPU that waits for the other one costs time as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::Options;
use super::measure::{build, call, shell};
use super::mounts::{FILES, SIZE, TREE_FILES, image, make_archive, ours, transports, with_tmpfs};
use super::rates::loop_mount;
use super::store;
use crate::setup;

/// Samples a second and CPU; no divisor of the kernel's tick.
const RATE: u32 = 3989;
/// Functions that are stored of each class.
const TOP: usize = 8;
/// Seconds of each job of fio.
const SECONDS: u32 = 2;

/// Whose time a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Engine,
    Transport,
    Fuse,
    Switches,
    Program,
    Ext4,
    Idle,
    Other,
}

impl Class {
    const ALL: [Self; 8] = [
        Self::Engine,
        Self::Transport,
        Self::Fuse,
        Self::Switches,
        Self::Program,
        Self::Ext4,
        Self::Idle,
        Self::Other,
    ];

    /// Whether it is the work of the step.
    fn is_work(self) -> bool {
        !matches!(self, Self::Idle | Self::Other)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Transport => "transport, system calls",
            Self::Fuse => "kernel FUSE",
            Self::Switches => "switches, wake-ups",
            Self::Program => "program, VFS",
            Self::Ext4 => "ext4, loop",
            Self::Idle => "idle",
            Self::Other => "other",
        }
    }
}

/// What runs on a mount under `perf`.
struct Step {
    name: &'static str,
    /// A command of the shell; `$AT` is the mounted directory, `$ARCHIVE` the archive.
    command: String,
    /// How many operations it is, and it prints how many seconds it took; 0: it prints what fio prints.
    operations: u32,
}

fn steps(this: &str) -> Vec<Step> {
    let own =
        |name| Step { name, command: format!("{this} bench-step {name} {FILES} $AT"), operations: FILES };
    let fio = |name, options: &str| Step {
        name,
        command: format!(
            "fio --name=job --filename=$AT/fio --output-format=json --size={SIZE} --bs=4k --direct=1 --time_based --runtime={SECONDS} {options}"
        ),
        operations: 0,
    };
    let tree = |name, command: &str| Step {
        name,
        command: format!("start=$(date +%s%N); {command}; echo $(($(date +%s%N) - start))e-9"),
        operations: TREE_FILES,
    };
    vec![
        own("create"),
        own("stat"),
        own("readdir"),
        own("unlink"),
        tree("untar", "mkdir $AT/tree && tar -xf $ARCHIVE -C $AT/tree && sync -f $AT"),
        tree("remove", "rm -r $AT/tree && sync -f $AT"),
        fio("randread_4k", "--rw=randread"),
        fio("randwrite_4k", "--rw=randwrite"),
    ]
}

/// What came of a step.
struct Profile {
    step: &'static str,
    mount: &'static str,
    /// Microseconds of one operation on the clock.
    wall_us: f64,
    /// Microseconds of the CPUs for one operation.
    cpu_us: BTreeMap<Class, f64>,
}

pub(super) fn run(options: &Options) -> Result<(), String> {
    with_tmpfs("mount-profile", options, profile)
}

fn profile(directory: &Path) -> Result<(), String> {
    setup::install_perf()?;
    build(&["--package", "diorite-cli"])?;
    let (archive, image) = (make_archive(directory)?, image(directory)?);
    let mount = directory.join("mount").to_string_lossy().into_owned();
    let this = std::env::current_exe().map_err(|error| error.to_string())?.to_string_lossy().into_owned();
    let versions = store::versions();
    let store = store::directory("mount-profile")?;
    let mut mounts = Vec::new();
    for &(name, io_uring) in transports() {
        let (before, after) = ours(&image, &mount, &format!("io_uring={io_uring}"))?;
        mounts.push((name, before, after));
    }
    mounts.push(("kernel", loop_mount(&image, &mount), vec![format!("umount {mount}")]));
    let mut profiles = Vec::new();
    for (name, before, after) in mounts {
        println!("--- {name}");
        shell(&before)?;
        let result = measure(name, &this, &mount, &archive, directory, &store, &mut profiles);
        for line in after {
            shell(&line)?;
        }
        result?;
    }
    let text = format!(
        "# Where the time of calls on a mount goes\n\n{versions}\nOne ext4 image on tmpfs, mounted by `diorite mount` and by the kernel. Each step under `perf record -a -g -e cpu-clock -F {RATE}`, which itself \
         costs something. us: time of one operation on the clock. CPU: microseconds of the CPUs for one operation, of both together, and what it is made of. engine: the daemon's own code but for that of \
         FUSE; transport: its code for FUSE, and its system calls; kernel FUSE: both sides, copies to the daemon among them; switches: the scheduler and wake-ups; program: the program itself, and what the kernel does \
         for it above the filesystem; ext4: also the loop device, the journal's and other threads of the kernel; not in it: idle, CPUs with nothing to do, polling and halted; other, what else ran on the machine. {FILES} files; a tree of {TREE_FILES} files with `syncfs`; fio \
         one at a time.\n\n{}",
        table(&profiles)
    );
    store::finish(&store, &text, &table(&profiles))
}

/// All steps on what is mounted.
fn measure(
    name: &'static str,
    this: &str,
    mount: &str,
    archive: &str,
    directory: &Path,
    store: &Path,
    profiles: &mut Vec<Profile>,
) -> Result<(), String> {
    let daemon = shell(&format!("pgrep -f 'diorite mount.*{mount}' || true"))?;
    let daemon: Vec<&str> = daemon.split_whitespace().collect();
    let [data, first] =
        ["perf.data", "first"].map(|name| directory.join(name).to_string_lossy().into_owned());
    // The file of fio is laid out before.
    shell(&format!("dd if=/dev/zero of={mount}/fio bs=1M count=1024 conv=fsync status=none"))?;
    let mut stored = serde_json::Map::new();
    for step in steps(this) {
        let command = format!("echo $$ > {first}; AT={mount} ARCHIVE={archive}; {}", step.command);
        let said = call(&[
            "perf",
            "record",
            "-q",
            "-a",
            "-g",
            "-e",
            "cpu-clock",
            "-F",
            &RATE.to_string(),
            "-o",
            &data,
            "--",
            "sh",
            "-ec",
            &command,
        ])?;
        let script = call(&[
            "perf",
            "script",
            "--no-inline",
            "-i",
            &data,
            "-F",
            "comm,pid,ip,sym,dso",
            "--show-task-events",
        ])?;
        let (tasks, script) = take_tasks(&script);
        let shell = shell(&format!("cat {first}"))?;
        let program = descendants(&tasks, shell.trim());
        let samples = Samples::of(&script, &daemon, &program);
        let operations = operations(&step, &said)?;
        let wall =
            if step.operations == 0 { f64::from(SECONDS) } else { said.trim().parse().unwrap_or(f64::NAN) };
        let cpu_us: BTreeMap<Class, f64> = samples
            .classes
            .iter()
            .map(|(class, count)| (*class, *count as f64 / f64::from(RATE) * 1e6 / operations))
            .collect();
        let by_class: serde_json::Map<String, Value> =
            cpu_us.iter().map(|(class, us)| (class.name().to_owned(), json!(us))).collect();
        let top: serde_json::Map<String, Value> =
            Class::ALL.into_iter().map(|class| (class.name().to_owned(), samples.top(class))).collect();
        stored.insert(
            step.name.to_owned(),
            json!({ "seconds": wall, "operations": operations, "samples": samples.total(), "cpu_us": by_class, "top": top }),
        );
        profiles.push(Profile { step: step.name, mount: name, wall_us: wall * 1e6 / operations, cpu_us });
        println!("{} {:.2} us", step.name, wall * 1e6 / operations);
    }
    shell(&format!("rm -f {mount}/fio {data} {first}"))?;
    let text = serde_json::to_string_pretty(&Value::Object(stored)).map_err(|error| error.to_string())?;
    store::write(&store.join(format!("{name}.json")), &text)
}

/// How many operations a step has done.
fn operations(step: &Step, said: &str) -> Result<f64, String> {
    if step.operations > 0 {
        return Ok(f64::from(step.operations));
    }
    let report: Value = serde_json::from_str(said).map_err(|error| format!("fio's report: {error}"))?;
    let of = |way: &str| report.pointer(&format!("/jobs/0/{way}/total_ios")).and_then(Value::as_f64);
    let all = of("read").unwrap_or(0.0) + of("write").unwrap_or(0.0);
    if all > 0.0 { Ok(all) } else { Err("fio's report has no operations".to_owned()) }
}

/// Samples by class, and in which function each was.
#[derive(Default)]
struct Samples<'a> {
    classes: BTreeMap<Class, u64>,
    functions: BTreeMap<(Class, &'a str), u64>,
}

impl<'a> Samples<'a> {
    /// Of the text of `perf script`: for each sample a line with the thread and the process, one for each frame, and an empty one.
    fn of(script: &'a str, daemon: &[&str], program: &BTreeSet<&str>) -> Self {
        let mut samples = Self::default();
        for sample in script.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
            let Some((thread, process)) = lines.next().and_then(|line| line.trim().rsplit_once(' ')) else {
                continue;
            };
            let frames: Vec<&str> =
                lines.filter_map(|line| line.trim().split_once(' ')).map(|(_, frame)| frame).collect();
            let owner = if daemon.contains(&process) {
                Owner::Daemon
            } else if program.contains(process) {
                Owner::Program
            } else {
                Owner::Other
            };
            let class = class(thread.trim(), owner, &frames);
            *samples.classes.entry(class).or_default() += 1;
            *samples.functions.entry((class, frames.first().copied().unwrap_or("?"))).or_default() += 1;
        }
        samples
    }

    fn total(&self) -> u64 {
        self.classes.values().sum()
    }

    /// The functions that most samples of a class are in, with the samples.
    fn top(&self, class: Class) -> Value {
        let mut functions: Vec<_> = self.functions.iter().filter(|((of, _), _)| *of == class).collect();
        functions.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        functions.iter().take(TOP).map(|((_, name), count)| json!([name, count])).collect()
    }
}

/// Whose a process is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Daemon,
    Program,
    Other,
}

/// The lines of `perf script` that say which process began another one, as pairs of parent and child; and the rest.
fn take_tasks(script: &str) -> (Vec<(String, String)>, String) {
    let (events, rest): (Vec<_>, Vec<_>) = script.lines().partition(|line| line.contains("PERF_RECORD_"));
    let of_fork = |line: &str| {
        let (_, fork) = line.split_once("PERF_RECORD_FORK(")?;
        let (child, parent) = fork.split_once("):(")?;
        let first = |pair: &str| Some(pair.split_once(':')?.0.to_owned());
        Some((first(parent)?, first(child)?))
    };
    (events.into_iter().filter_map(of_fork).collect(), rest.join("\n"))
}

/// A process, and what it began.
fn descendants<'a>(tasks: &'a [(String, String)], first: &'a str) -> BTreeSet<&'a str> {
    let mut all = BTreeSet::from([first]);
    // In the order of time.
    for (parent, child) in tasks {
        if all.contains(parent.as_str()) {
            all.insert(child);
        }
    }
    all
}

/// The first class that a sample fits.
fn class(thread: &str, owner: Owner, frames: &[&str]) -> Class {
    const SWITCHES: [&str; 9] = [
        "schedule",
        "__schedule",
        "try_to_wake_up",
        "__wake_up",
        "finish_task_switch",
        "wake_up_process",
        "ttwu",
        "context_switch",
        "sched_yield",
    ];
    const THREADS: [&str; 7] = ["kworker", "loop", "jbd2", "ksoftirqd", "rcu", "migration", "kswapd"];
    let in_kernel =
        |frame: &&str| frame.contains("[kernel") || frame.contains("([fuse") || frame.contains(".ko");
    let kernel: Vec<&str> = frames.iter().copied().filter(|frame| in_kernel(frame)).collect();
    let any = |words: &[&str]| kernel.iter().any(|frame| words.iter().any(|word| frame.starts_with(word)));
    if thread == "swapper" {
        return Class::Idle;
    }
    let is_daemon = owner == Owner::Daemon;
    if owner == Owner::Other {
        return if THREADS.iter().any(|name| thread.starts_with(name)) { Class::Ext4 } else { Class::Other };
    }
    if any(&SWITCHES) {
        Class::Switches
    } else if kernel.iter().any(|frame| frame.starts_with("fuse_") || frame.starts_with("__fuse")) {
        Class::Fuse
    } else if is_daemon {
        let is_transport = frames.first().is_some_and(|frame| frame.contains("diorite_mount::fuse"));
        if kernel.is_empty() && !is_transport { Class::Engine } else { Class::Transport }
    } else if kernel.iter().any(|frame| {
        ["ext4", "jbd2", "__ext4", "loop", "lo_", "blk_", "submit_bio"]
            .iter()
            .any(|word| frame.starts_with(word))
    }) {
        Class::Ext4
    } else {
        Class::Program
    }
}

fn table(profiles: &[Profile]) -> String {
    let mut text = String::from("| step | mount | us | CPU |");
    for class in Class::ALL {
        let _ = write!(text, " {} |", class.name());
    }
    text.push_str("\n|---|---|---|---|");
    text.push_str(&"---|".repeat(Class::ALL.len()));
    text.push('\n');
    let mut order: Vec<&Profile> = profiles.iter().collect();
    let place = |profile: &Profile| profiles.iter().position(|other| other.step == profile.step);
    order.sort_by_key(|profile| place(profile));
    for profile in order {
        let _ = write!(text, "| {} | {} | {:.2} |", profile.step, profile.mount, profile.wall_us);
        let of = |class: Class| profile.cpu_us.get(&class).copied().unwrap_or(0.0);
        let all: f64 = Class::ALL.into_iter().filter(|class| class.is_work()).map(of).sum();
        let _ = write!(text, " {all:.2} |");
        for class in Class::ALL {
            let us = of(class);
            let _ = if class.is_work() {
                write!(text, " {us:.2} ({:.0} %) |", us / all * 100.0)
            } else {
                write!(text, " {us:.2} |")
            };
        }
        text.push('\n');
    }
    text
}

/// `bench-step NAME FILES DIRECTORY`: one step of the suite; prints how many seconds it took.
pub(crate) fn run_step(arguments: &[String]) -> Result<(), String> {
    let [name, files, directory] = arguments else {
        return Err("bench-step is for `cargo xtask bench mount-profile`".to_owned());
    };
    let files: u32 = files.parse().map_err(|_| "bench-step: a number of files is needed")?;
    let directory = Path::new(directory).join("names");
    if name == "create" {
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let paths: Vec<_> = (0..files).map(|number| directory.join(format!("file-{number}"))).collect();
    let start = Instant::now();
    let done = match name.as_str() {
        "create" => paths.iter().try_for_each(|path| std::fs::File::create_new(path).map(drop)),
        "stat" => paths.iter().try_for_each(|path| std::fs::symlink_metadata(path).map(drop)),
        "readdir" => {
            std::fs::read_dir(&directory).and_then(|mut names| names.try_for_each(|name| name.map(drop)))
        }
        "unlink" => paths.iter().try_for_each(std::fs::remove_file),
        _ => return Err(format!("bench-step: no step {name}")),
    };
    let seconds = start.elapsed().as_secs_f64();
    if name == "unlink" {
        std::fs::remove_dir(&directory).map_err(|error| error.to_string())?;
    }
    done.map_err(|error| format!("{name}: {error}"))?;
    println!("{seconds}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_one_class_each() {
        let script = "sh   70  PERF_RECORD_FORK(78:78):(70:70)\n\
            swapper     0 \n\tffffffff81 pv_native_safe_halt ([kernel.kallsyms])\n\n\
            fuse   77 \n\t 55d5 diorite_ext::names::find (/bin/diorite)\n\n\
            fuse   77 \n\tffffffff81 __schedule ([kernel.kallsyms])\n\tffffffff82 fuse_dev_do_read ([kernel.kallsyms])\n\n\
            fuse   77 \n\tffffffff81 pread64 ([kernel.kallsyms])\n\n\
            xtask   78 \n\tffffffff81 memcpy ([kernel.kallsyms])\n\tffffffff82 fuse_lookup ([kernel.kallsyms])\n\n\
            xtask   78 \n\tffffffff81 ext4_lookup ([kernel.kallsyms])\n\n\
            kworker/0:1-events   9 \n\tffffffff81 memcpy ([kernel.kallsyms])\n\n\
            fio   80 \n\t 55 main (/bin/rustc)\n\n";
        let (tasks, script) = take_tasks(script);
        let samples = Samples::of(&script, &["77"], &descendants(&tasks, "70"));
        let count = |class| samples.classes.get(&class).copied().unwrap_or(0);
        let counts = Class::ALL.map(count);
        assert_eq!(counts, [1, 1, 1, 1, 0, 2, 1, 1]);
    }
}
