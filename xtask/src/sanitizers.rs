//! Miri, `AddressSanitizer` and `ThreadSanitizer` on modules with `unsafe` code, locks and atomics. All need a nightly toolchain.

use std::process::{Command, Stdio};

use crate::{command, target};

const TOOLCHAIN: &str = "rustup toolchain install nightly --component miri --component rust-src";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Tests for Miri, as arguments of `cargo test`: `unsafe` code without system calls, and the locks above it.
const MIRI: &[&[&str]] = &[
    &["--package", "diorite-device", "--lib", "buffer::"],
    &["--package", "diorite-device", "--lib", "heap::"],
    &["--package", "diorite-device", "--lib", "buffers::"],
    &["--package", "diorite-device", "--lib", "arena::"],
    &["--package", "diorite", "--lib", "cache::arena"],
    &["--package", "diorite", "--lib", "range_lock::"],
    &["--package", "diorite-pool", "--lib", "memory::"],
];

/// Tests whose memory is accessed by system calls, which Miri cannot run: rings and queues, the arena, the buffer pool.
const ADDRESSES: &[&[&str]] = &[
    &["--package", "diorite-device", "--lib"],
    &["--package", "diorite-device", "--test", "it", "--", "conformance::", "ring_queue_model::", "rings::"],
    &["--package", "diorite", "--test", "it", "--", "queue::", "async_queue::"],
    &["--package", "diorite-pool", "--lib"],
    &["--package", "diorite-pool", "--test", "it", "--", "pages::", "errors::"],
];

/// Tests with many real threads: range locks, states of pages, the scheduled device, whole files.
const THREADS: &[&[&str]] = &[
    &["--package", "diorite-scheduler", "--test", "it", "scheduled::"],
    &["--package", "diorite", "--lib", "range_lock::"],
    &["--package", "diorite", "--lib", "cache::"],
    &["--package", "diorite-torture", "--test", "it", "real_threads"],
    &["--package", "diorite-pool", "--lib", "memory::"],
    &["--package", "diorite-pool", "--test", "it", "threads_lose_no_change"],
];

/// The unsafe memory code under Miri.
pub(crate) fn miri() -> Result<(), String> {
    need(&["miri", "--version"])?;
    let flags = [("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks")];
    MIRI.iter().try_for_each(|tests| run(&[&["miri", "test"], *tests].concat(), &flags))
}

/// Memory that the kernel and this program share, under `AddressSanitizer`.
pub(crate) fn asan() -> Result<(), String> {
    need(&["--version"])?;
    // Memory that lives as long as the process counts as a leak.
    let flags = [("RUSTFLAGS", "-Zsanitizer=address"), ("ASAN_OPTIONS", "detect_leaks=0")];
    let directory = target::file("asan");
    let build = ["test", "--target", TARGET, "--target-dir", &directory];
    ADDRESSES.iter().try_for_each(|tests| run(&[&build, *tests].concat(), &flags))
}

/// The locks under `ThreadSanitizer`, with an instrumented standard library.
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
        _ => Err(format!("the nightly toolchain or a component of it is missing: {TOOLCHAIN}")),
    }
}

fn run(arguments: &[&str], flags: &[(&str, &str)]) -> Result<(), String> {
    println!("--- cargo +nightly {}", arguments.join(" "));
    command::run(nightly(arguments).envs(flags.iter().copied()))
}
