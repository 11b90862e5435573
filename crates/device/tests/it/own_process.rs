//! A process of its own for a test that forks, sets limits, changes the environment, or counts resources of a process. The other tests of the
//! program run in threads beside it.
#![allow(dead_code, unused_macros, reason = "not each program of tests has such a test")]

use std::process::{Command, Stdio};

/// Whether this is the process of the test alone. Otherwise the test has run in one, and is over.
macro_rules! is_own_process {
    () => {{
        fn here() {}
        $crate::own_process::is_alone(std::any::type_name_of_val(&here))
    }};
}

/// Run the test in which `path` is the function `here`, in a process of its own, if this is none.
pub(crate) fn is_alone(path: &str) -> bool {
    const ALONE: &str = "DIORITE_TEST_ALONE";
    let test = path.split_once("::").and_then(|(_, path)| path.strip_suffix("::here")).expect("a test");
    if std::env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, test).stdin(Stdio::null());
    let output = program.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    // Its skips are counted by its lines.
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {}", output.status);
    false
}
