//! Miri, `AddressSanitizer` and `ThreadSanitizer` over what has `unsafe` code, locks and atomics. All need a nightly toolchain.

use std::process::{Command, Stdio};

use crate::target;

const TOOLCHAIN: &str = "rustup toolchain install nightly --component miri --component rust-src";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What Miri can run, as arguments of `cargo test`: code with `unsafe` and no system call, and the locks above it.
const MIRI: &[&[&str]] = &[
    &["--package", "diorite-device", "--lib", "buffer::"],
    &["--package", "diorite-device", "--lib", "heap::"],
    &["--package", "diorite-device", "--lib", "buffers::"],
    &["--package", "diorite-device", "--lib", "arena::"],
    &["--package", "diorite", "--lib", "cache::arena"],
    &["--package", "diorite", "--lib", "range_lock::"],
    &["--package", "diorite-pool", "--lib", "memory::"],
];

/// What moves memory by system calls, which Miri cannot: rings and queues, the arena, the buffer pool.
const ADDRESSES: &[&[&str]] = &[
    &[
        "--package",
        "diorite-device",
        "--lib",
        "--test",
        "conformance",
        "--test",
        "ring_queue_model",
        "--test",
        "rings",
    ],
    &["--package", "diorite", "--test", "queue", "--test", "async_queue"],
    &["--package", "diorite-pool", "--lib", "--test", "pages", "--test", "errors"],
];

/// What many real threads do at once: range locks, states of pages, the scheduled device, whole files.
const THREADS: &[&[&str]] = &[
    &["--package", "diorite-scheduler", "--test", "scheduled"],
    &["--package", "diorite", "--lib", "range_lock::"],
    &["--package", "diorite", "--lib", "cache::"],
    &["--package", "diorite-torture", "--test", "history", "real_threads"],
    &["--package", "diorite-pool", "--lib", "memory::"],
    &["--package", "diorite-pool", "--test", "pages", "threads_lose_no_change"],
];

/// The unsafe memory code under Miri.
pub(crate) fn miri() -> Result<(), String> {
    need(&["miri", "--version"])?;
    let flags = [("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks")];
    MIRI.iter().try_for_each(|tests| run(&[&["miri", "test"], *tests].concat(), &flags))
}

/// Memory in use by the kernel and by us, under `AddressSanitizer`.
pub(crate) fn asan() -> Result<(), String> {
    need(&["--version"])?;
    // What lives as long as the process is no leak.
    let flags = [("RUSTFLAGS", "-Zsanitizer=address"), ("ASAN_OPTIONS", "detect_leaks=0")];
    let directory = target::file("asan");
    let build = ["test", "--target", TARGET, "--target-dir", &directory];
    ADDRESSES.iter().try_for_each(|tests| run(&[&build, *tests].concat(), &flags))
}

/// The locks under `ThreadSanitizer`, with a standard library that is built for it.
pub(crate) fn tsan() -> Result<(), String> {
    need(&["--version"])?;
    let flags = [("RUSTFLAGS", "-Zsanitizer=thread"), ("TSAN_OPTIONS", "halt_on_error=1")];
    let directory = target::file("tsan");
    let build = ["test", "-Zbuild-std", "--target", TARGET, "--target-dir", &directory];
    THREADS.iter().try_for_each(|tests| run(&[&build, *tests].concat(), &flags))
}

/// The nightly cargo.
fn nightly(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").args(arguments).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

fn need(arguments: &[&str]) -> Result<(), String> {
    let found = nightly(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("no nightly toolchain with its parts: {TOOLCHAIN}")),
    }
}

fn run(arguments: &[&str], flags: &[(&str, &str)]) -> Result<(), String> {
    println!("--- cargo +nightly {}", arguments.join(" "));
    let status = nightly(arguments).envs(flags.iter().copied()).status();
    let status = status.map_err(|error| format!("cargo +nightly: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo +nightly {}: {status}", arguments.join(" "))) }
}
