//! The Python suite, the examples and their images: run by `pytest` over the library that cargo built.
//!
//! The package is assembled in a temporary directory, from the Python files and the shared object beside this test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// An interpreter of Python 3.11 or later that has pytest; one that has all that is tested, if there is one.
fn interpreter() -> Option<PathBuf> {
    let has = |modules: &str, python: &&str| {
        let check = format!("import sys, {modules}; sys.exit(sys.version_info < (3, 11))");
        let ran = Command::new(python).args(["-c", &check]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let known = ["python3", "/usr/bin/python3"];
    let with_all = known.iter().find(|python| has("pytest, numpy, fsspec", python));
    with_all.or_else(|| known.iter().find(|python| has("pytest", python))).map(PathBuf::from)
}

/// The package `diorite` as an import finds it.
fn put_together(directory: &Path) {
    let package = directory.join("diorite");
    std::fs::create_dir(&package).expect("a directory");
    for entry in std::fs::read_dir(Path::new(CRATE).join("python/diorite")).expect("the Python files") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_file() {
            std::fs::copy(entry.path(), package.join(entry.file_name())).expect("a copy");
        }
    }
    let test = std::env::current_exe().expect("the path of this test");
    let library = test.with_file_name("libdiorite_python.so");
    std::fs::copy(&library, package.join("_diorite.abi3.so")).expect("the library that cargo built");
}

fn run(python: &Path, directory: &Path, arguments: &[&str]) -> Output {
    Command::new(python)
        .args(arguments)
        .env("PYTHONPATH", directory)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DIORITE_PYTHON_CRATE", CRATE)
        .current_dir(directory)
        .output()
        .expect("python starts")
}

#[test]
fn the_python_suite_passes() {
    let Some(python) = interpreter() else {
        return println!("SKIPPED: no Python 3.11 with pytest (python3-pytest)");
    };
    let directory = tempfile::tempdir().expect("a directory");
    put_together(directory.path());
    let suite = format!("{CRATE}/tests/python");
    let arguments = [
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-W",
        "error::pytest.PytestUnraisableExceptionWarning",
        &suite,
    ];
    let ran = run(&python, directory.path(), &arguments);
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    for line in out.lines() {
        // The report of pytest for a skip: `SKIPPED [1] FILE:LINE: why`.
        match line.strip_prefix("SKIPPED [").and_then(|line| line.split_once(": ")) {
            Some((_, why)) => println!("SKIPPED: {why}"),
            None => println!("{line}"),
        }
    }
    assert!(ran.status.success(), "{}: {out}\n{err}", ran.status);
}
