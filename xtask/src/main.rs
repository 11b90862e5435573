//! Checks and tests of the workspace: `cargo xtask help`.

mod bench;
mod command;
mod dist;
mod guests;
mod hosts;
mod layers;
mod lines;
mod load;
mod mount;
mod runner;
mod sanitizers;
mod setup;
mod skips;
mod source;
mod target;
mod uncached;

use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask COMMAND

  setup   install the Debian packages that the tests need (as root), or print the missing ones
  test    [--no-skip] [--seed N]: setup, then every test of the workspace, and fsx on mounts for one minute (with a new seed, or N);
          skipped tests are listed; with --no-skip a skip that is not in xtask/expected_skips.txt is a failure
  miri    the unsafe memory code under Miri (needs a nightly toolchain)
  asan    queues, the arena and the buffer pool under AddressSanitizer; as miri
  tsan    locks, states of pages and the scheduled device on real threads under ThreadSanitizer; as miri
  lint    formatting, lints, documentation and layers
  layers  imports that go up between crates, and cycles within one
  lines   lines of code by crate: without tests, comments and blank lines
  ci      lint, then test: before a change lands
  bench   [--directory DIR] [--rounds N] [SUITE...]: ratios against peers, stored under bench/runs
  torture SUITE [OPTION...]: power cuts and other long suites (`cargo xtask torture help`)
  mount   [--seconds N] [--seed N] [NAME...]: programs and databases on a mount, also with the daemon killed,
          over /dev/fuse and over io_uring (needs root)
  uncached [NAME...]: programs under `diorite uncached`, in each of its ways: same bytes, same errors, same pages in the cache (needs root)
  guests  [virtiofs] [nfs] [arrays] [images]: a virtual machine that uses volumes by virtio-fs and NFS, makes arrays of MD and LVM2,
          and boots images of mkfs (needs root)
  load    diorite.load against the packages safetensors, gguf and numpy of PyPI, on whole and damaged files, and with torch
  hosts   [--cases N] [--seed N] [NAME...]: files of the host on ext4, XFS, Btrfs, tmpfs, overlayfs and a FUSE mount (needs root)
  dist    [PART...]: the packages of a release, in target/dist
  dist-check [PART...]: install each package in a fresh root and use it there (needs root)
  fuzz    [--seconds N] [--seed FIRST_CASE] [--case N]: hostile images, with a limit of memory
";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let done = match command.as_str() {
        "setup" => setup::install_packages(),
        "test" => test(&std::env::args().skip(2).collect::<Vec<_>>()),
        "ci" => lint().and_then(|()| test(&[])),
        "lint" => lint(),
        "layers" => layers::check(),
        "lines" => lines::print(),
        "miri" => sanitizers::miri(),
        "asan" => sanitizers::asan(),
        "tsan" => sanitizers::tsan(),
        "bench" => bench::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "bench-in" => bench::run_in(&std::env::args().skip(2).collect::<Vec<_>>()),
        "bench-databases" => bench::run_databases_in(&std::env::args().skip(2).collect::<Vec<_>>()),
        "mount" => mount::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "uncached" => uncached::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "guests" => guests::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "load" => load::run(),
        "hosts" => hosts::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "dist" => setup::install_dist_packages()
            .and_then(|()| dist::run(&std::env::args().skip(2).collect::<Vec<_>>())),
        "dist-check" => dist::check::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "torture" => torture(&std::env::args().skip(2).collect::<Vec<_>>()),
        "fuzz" => fuzz(&std::env::args().skip(2).collect::<Vec<_>>()),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn lint() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    layers::check()?;
    let features = runner::FEATURES;
    cargo(&["clippy", "--workspace", features, "--all-targets", "--", "--deny", "warnings"], &[])?;
    cargo(&["doc", "--workspace", features, "--no-deps"], &[("RUSTDOCFLAGS", "--deny warnings")])
}

fn test(arguments: &[String]) -> Result<(), String> {
    let mut no_skip = false;
    let mut seed = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--no-skip" => no_skip = true,
            "--seed" => {
                let value = arguments.next().and_then(|value| value.parse().ok());
                seed = Some(value.ok_or("test: --seed: a number is needed")?);
            }
            other => return Err(format!("test: {other}: only --no-skip and --seed are known")),
        }
    }
    setup::install_packages()?;
    let seed = seed.unwrap_or_else(new_seed);
    // A second build uses the processor that the first one leaves idle. fsx reports its failure.
    let install_fsx = std::thread::spawn(setup::install_fsx);
    let built = runner::build()?;
    let mut skips = skips::Skips::default();
    let mut skips_of_fsx = skips::Skips::default();
    let (passed, fsx) = std::thread::scope(|scope| {
        // fsx waits for the mount half of the time, so it runs beside the tests.
        let fsx = scope.spawn(|| {
            let _ = install_fsx.join();
            mount::fsx(seed, &mut skips_of_fsx)
        });
        (runner::run(built, &mut skips), fsx.join().unwrap_or_else(|_| Err("fsx: a panic".to_owned())))
    });
    skips.extend(skips_of_fsx);
    let packed = dist::debian::lays_out(&target::directory().join("debug/diorite"));
    let expected = skips.report(no_skip);
    passed.and(fsx).and(packed).and(expected)
}

/// A new seed: the seconds since 1970.
fn new_seed() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs() as u32)
}

/// A long suite of `crates/torture`, built with assertions.
fn torture(arguments: &[String]) -> Result<(), String> {
    let mut command = vec!["run", "--package", "diorite-torture", "--"];
    command.extend(arguments.iter().map(String::as_str));
    cargo(&command, &[])
}

/// The limit of address space for hostile images in KiB; a larger allocation aborts the campaign.
const FUZZ_ADDRESS_SPACE_KIB: u32 = 6 << 20;

fn fuzz(arguments: &[String]) -> Result<(), String> {
    cargo(&["build", "--release", "--package", "diorite", "--example", "fuzz"], &[])?;
    let script = format!("ulimit -v {FUZZ_ADDRESS_SPACE_KIB} && exec \"$0\" \"$@\"");
    let fuzz = target::file("release/examples/fuzz");
    command::run(Command::new("sh").args(["-c", &script, &fuzz]).args(arguments))
}

/// Print and run a command of cargo.
fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    println!("--- cargo {}", arguments.join(" "));
    command::run(Command::new(env!("CARGO")).args(arguments).envs(environment.iter().copied()))
}
