//! The long suites: `torture crash|... [--cases N] [--seed FIRST] [--case N] [--format NAME] ...`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diorite_torture::formats::Format;
use diorite_torture::watchdog::Watch;
use diorite_torture::{crash, history, model, pool, stack};

const USAGE: &str = "usage: torture SUITE [--cases N] [--seed FIRST] [--case N] [--threads N]

  crash   [--images N of each case] [--outside N] [--format NAME] [--megabytes N] [--real-threads 1] [--keep DIR]
          [--known CLASS,...: failures to pass over]: power cuts; N cases are images here
  faults  [--faults N of each case, in place of one at every transfer] [options of crash]: errors once and from then on; N cases are runs
  model   [--calls N of each case] [--host 1: files of the host in TMPDIR]: every way in against a vector of bytes; N cases are calls
  stack   [--calls N of each thread]: queues, streams, buffered and synchronous I/O, views, names and syncs together, under every
          scheduler, in a simulated world; N cases are worlds
  pool    processes that share a buffer pool are killed; N cases are kills
  history [--rounds N of each case] [--real-threads 1] [--format NAME] [--host 1: files of the host in TMPDIR]: linearizability; N cases are
          calls
";

/// A case that takes longer is stalled: its threads' stacks are printed.
const LIMIT: Duration = Duration::from_secs(120);

struct Arguments(BTreeMap<String, String>);

impl Arguments {
    fn number(&self, name: &str, default: u64) -> u64 {
        match self.0.get(name) {
            Some(text) => text.parse().unwrap_or_else(|_| panic!("--{name} {text}: not a number")),
            None => default,
        }
    }

    fn format(&self) -> Option<Vec<Format>> {
        let name = self.0.get("format")?;
        Some(vec![Format::by_name(name).unwrap_or_else(|| panic!("no format {name}"))])
    }
}

fn main() -> ExitCode {
    let mut given = std::env::args().skip(1);
    let suite = given.next().unwrap_or_default();
    if suite == "pool-child" {
        // It ends by a signal, or with its parent.
        return pool::child(&given.collect::<Vec<_>>()).map_or_else(
            |error| {
                eprintln!("pool-child: {error}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let mut arguments = BTreeMap::new();
    while let Some(name) = given.next() {
        let Some(value) = given.next() else {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        };
        arguments.insert(name.trim_start_matches('-').to_owned(), value);
    }
    let arguments = Arguments(arguments);
    match suite.as_str() {
        "crash" | "faults" => {
            let (options, faults) = (crash_options(&arguments), arguments.number("faults", 0));
            let (is_crash, unit) = if suite == "crash" { (true, "images") } else { (false, "runs") };
            campaign(
                &arguments,
                unit,
                || crash::Checker::new(options.clone()).expect("a place for scratch files"),
                |checker, case| {
                    let done =
                        if is_crash { checker.run(case) } else { checker.run_with_faults(case, faults) };
                    done.map_err(|wrong| format!("{:?}: {}", wrong.class, wrong.what))
                },
            )
        }
        "model" => campaign(
            &arguments,
            "calls",
            || (),
            |(), case| model::run_in(case, arguments.number("calls", 300) as usize, subjects(&arguments)),
        ),
        "stack" => campaign(
            &arguments,
            "worlds",
            || (),
            |(), case| stack::run(case, arguments.number("calls", 40)).map(|_| 1),
        ),
        "pool" => {
            let program = std::env::current_exe().expect("this program has a name");
            let (arenas, count) = (AtomicU64::new(0), 200);
            campaign(
                &arguments,
                "kills",
                || None,
                |arena: &mut Option<pool::Arena>, case| {
                    let fresh = || pool::Arena::new(&program, arenas.fetch_add(1, Ordering::Relaxed));
                    if arena.is_none() || case % count == 0 {
                        *arena = Some(fresh().map_err(|error| error.to_string())?);
                    }
                    let done = arena.as_mut().expect("just made").run(case);
                    if done.is_err() {
                        *arena = None;
                    }
                    done
                },
            )
        }
        "history" => {
            let mut options = history::Options::default();
            options.rounds = arguments.number("rounds", options.rounds as u64) as usize;
            options.real_threads = arguments.number("real-threads", 0) != 0;
            options.formats = arguments.format().unwrap_or(options.formats);
            options.host = subjects(&arguments) == model::Subjects::Host;
            campaign(&arguments, "calls", || (), |(), case| history::run(&options, case))
        }
        "help" | "--help" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The files of the suites `model` and `history`.
fn subjects(arguments: &Arguments) -> model::Subjects {
    if arguments.number("host", 0) == 0 { model::Subjects::All } else { model::Subjects::Host }
}

/// Runs cases by number on several threads until so many units of work are done.
fn campaign<S>(
    arguments: &Arguments,
    unit: &str,
    state: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, u64) -> Result<u64, String> + Sync,
) -> ExitCode {
    let one = arguments.0.contains_key("case");
    let first = if one { arguments.number("case", 0) } else { arguments.number("seed", 0) };
    let wanted = if one { 1 } else { arguments.number("cases", 10_000) };
    let threads = if one { 1 } else { arguments.number("threads", 2) };
    let (next, units) = (AtomicU64::new(first), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut state = state();
                while units.load(Ordering::Relaxed) < wanted {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    let watch = Watch::start(format!("case {case}"), LIMIT);
                    let done = run(&mut state, case);
                    drop(watch);
                    let before = units.fetch_add(*done.as_ref().unwrap_or(&1), Ordering::Relaxed);
                    if let Err(what) = done {
                        println!("FAILED {what}\n");
                        failures.lock().expect("lock").push(case);
                    }
                    let now = units.load(Ordering::Relaxed);
                    if before / 1000 != now / 1000 {
                        println!("{now} {unit}, {:.0?}", begin.elapsed());
                    }
                    if one {
                        break;
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("lock");
    failures.sort_unstable();
    println!(
        "cases {first} to {}: {} {unit}, {} cases failed, {:.0?}: {failures:?}",
        next.into_inner(),
        units.into_inner(),
        failures.len(),
        begin.elapsed()
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn crash_options(arguments: &Arguments) -> crash::Options {
    let mut options = crash::Options::default();
    options.images = arguments.number("images", options.images as u64) as usize;
    options.outside = arguments.number("outside", options.outside);
    options.real_threads = arguments.number("real-threads", 0) != 0;
    if let Some(known) = arguments.0.get("known") {
        options.known = known.split(',').map(str::to_owned).collect();
    }
    options.keep = arguments.0.get("keep").map(Into::into);
    options.formats = arguments.format().unwrap_or(options.formats);
    for format in &mut options.formats {
        format.megabytes = arguments.number("megabytes", format.megabytes);
    }
    options
}
