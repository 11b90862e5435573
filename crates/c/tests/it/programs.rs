//! Programs in C and C++ on the built library: `tests/c` has tests, including errors, and `examples` has examples.

#![allow(clippy::disallowed_methods, reason = "sources are no data")]

use crate::support;
use std::path::Path;

use support::{Linking, check, compile, has, library_directory, run, succeeds};

/// Run a test program on a new image, and check the image.
fn program(name: &str, linking: Linking, more: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(name, linking, directory.path()) else { return };
    let image = directory.path().join("disk.img");
    let more: Vec<_> = more.iter().map(|name| directory.path().join(name)).collect();
    let arguments: Vec<&Path> = std::iter::once(&*image).chain(more.iter().map(|path| &**path)).collect();
    run(&program, &arguments);
    check(&image);
}

#[test]
fn names_attributes_and_listings() {
    program("tests/c/names.c", Linking::Shared, &[]);
}

/// ARCHITECTURE invariant 1.
#[test]
fn direct_transfers_copy_nothing() {
    program("tests/c/direct.c", Linking::Shared, &[]);
}

/// ARCHITECTURE invariant 1.
#[test]
fn queues_keep_what_is_in_flight() {
    program("tests/c/queue.c", Linking::Shared, &[]);
}

#[test]
fn wrong_calls_are_errors_with_a_message() {
    program("tests/c/errors.c", Linking::Shared, &["."]);
}

#[test]
fn threads_host_files_and_devices() {
    program("tests/c/threads.c", Linking::Shared, &["host"]);
}

#[test]
fn the_static_library_links_alone() {
    program("tests/c/direct.c", Linking::Static, &[]);
}

#[test]
fn the_header_is_one_of_cpp_too() {
    program("tests/c/header.cpp", Linking::Shared, &[]);
}

/// The next open replays the journal, and the image is then consistent (ARCHITECTURE invariant 6).
#[test]
fn a_program_may_end_without_closing_anything() {
    let directory = tempfile::tempdir().expect("a directory");
    let compiled = |name: &str| compile(name, Linking::Shared, directory.path());
    let (Some(program), Some(reopen)) = (compiled("tests/c/exit.c"), compiled("tests/c/reopen.c")) else {
        return;
    };
    for round in 0..3 {
        let image = directory.path().join(format!("{round}.img"));
        run(&program, &[&image]);
        run(&reopen, &[&image]);
        check(&image);
    }
}

/// With a system call for each transfer, because Valgrind does not support `io_uring`.
#[test]
fn no_program_uses_memory_that_is_not_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    if !has("valgrind") {
        return;
    }
    for name in ["queue", "names"] {
        let Some(program) = compile(&format!("tests/c/{name}.c"), Linking::Shared, directory.path()) else {
            return;
        };
        let mut valgrind = std::process::Command::new("valgrind");
        valgrind.args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        valgrind.env("LD_LIBRARY_PATH", library_directory()).env("DIORITE_IO_BACKEND", "threads");
        let image = directory.path().join(format!("{name}.img"));
        succeeds(valgrind.arg(program).arg(&image));
        check(&image);
    }
}

#[test]
fn examples_do_what_they_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let compiled = |name: &str| compile(&format!("examples/{name}.c"), Linking::Shared, directory.path());
    let (Some(store), Some(reads), Some(copy)) =
        (compiled("page_store"), compiled("random_reads"), compiled("copy_out"))
    else {
        return;
    };
    let image = directory.path().join("disk.img");
    let stored = run(&store, &[&image]);
    assert!(String::from_utf8_lossy(&stored.stdout).contains(" 0 copied"), "{stored:?}");
    check(&image);
    let read = run(&reads, &[&image, Path::new("/pages"), Path::new("2000")]);
    assert!(String::from_utf8_lossy(&read.stdout).starts_with("2000 reads in "), "{read:?}");
    let pages = run(&copy, &[&image, Path::new("/pages")]).stdout;
    let is_right =
        pages.chunks(4096).enumerate().all(|(number, page)| page.iter().all(|byte| *byte == number as u8));
    assert!(pages.len() == 256 * 4096 && is_right, "{} bytes", pages.len());
    check(&image);
}

/// The program in docs/c.md.
#[test]
fn the_page_compiles_and_does_what_it_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = std::fs::read_to_string(support::source("../../docs/c.md")).expect("docs/c.md");
    let (_, text) = page.split_once("```c\n").expect("a program in C");
    let (text, _) = text.split_once("```").expect("its end");
    let source = directory.path().join("page.c");
    std::fs::write(&source, text).expect("a source");
    let source = source.to_str().expect("text");
    let (Some(program), Some(store)) = (
        compile(source, Linking::Static, directory.path()),
        compile("examples/page_store.c", Linking::Static, directory.path()),
    ) else {
        return;
    };
    let image = directory.path().join("disk.img");
    run(&store, &[&image]);
    succeeds(std::process::Command::new(program).current_dir(directory.path()));
    check(&image);
}
