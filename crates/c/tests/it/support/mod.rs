//! Compiles programs in C and C++ against the library, and runs them.
//!
//! Cargo does not build static and shared libraries for tests. The first test that needs them runs cargo, unless `DIORITE_C_LIBRARY` is the
//! directory of libraries built together with the tests. A separate build has other features and builds the shared crates again.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The linking of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linking {
    Shared,
    Static,
}

/// The libraries that the static library needs, as in docs/c.md.
const SYSTEM_LIBRARIES: &[&str] = &["-lgcc_s", "-lpthread", "-lm", "-ldl"];

/// The directory of the library, built with the profile of this test.
pub(crate) fn library_directory() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(built) = std::env::var_os("DIORITE_C_LIBRARY") {
            return built.into();
        }
        let test = std::env::current_exe().expect("the test's own path");
        // TARGET/debug/deps/programs-HASH
        let profile = test.ancestors().nth(2).expect("the directory of a profile");
        let name = profile.file_name().expect("its name").to_string_lossy();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "diorite-c", "--message-format", "json"]);
        cargo.args(["--profile", if name == "debug" { "dev" } else { &name }]);
        cargo.arg("--target-dir").arg(profile.parent().expect("the target directory"));
        let said = succeeds(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        directory_of_library(&String::from_utf8_lossy(&said.stdout)).expect("cargo names the library")
    })
}

/// The directory of the static library, from the messages of cargo, because the target directory can be anywhere.
fn directory_of_library(messages: &str) -> Option<PathBuf> {
    let end = messages.find("/libdiorite_c.a\"")?;
    let start = messages[..end].rfind('"')? + 1;
    Some(PathBuf::from(&messages[start..end]))
}

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Whether a program is installed; otherwise prints a line for the skip.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED: {program} is not installed");
    }
    found
}

/// Compile a source of this crate and return the program. `None`, and a line for the skip, without a compiler.
pub(crate) fn compile(name: &str, linking: Linking, directory: &Path) -> Option<PathBuf> {
    let source = source(name);
    let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let (compiler, standard) = if is_cpp { ("g++", "-std=c++17") } else { ("cc", "-std=c11") };
    if !has(compiler) {
        return None;
    }
    let kind = if linking == Linking::Static { "static" } else { "shared" };
    let program = directory.join(format!("{}-{kind}", source.file_stem().expect("a name").display()));
    let mut command = Command::new(compiler);
    command
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1", "-o"])
        .arg(&program)
        .arg(&source);
    command.arg("-I").arg(self::source("include"));
    let libraries = library_directory();
    match linking {
        Linking::Shared => command.arg("-L").arg(libraries).args(["-ldiorite_c", "-lpthread"]),
        Linking::Static => command.arg(libraries.join("libdiorite_c.a")).args(SYSTEM_LIBRARIES),
    };
    succeeds(&mut command);
    Some(program)
}

/// Run a program that was compiled here.
pub(crate) fn run(program: &Path, arguments: &[&Path]) -> Output {
    succeeds(Command::new(program).args(arguments).env("LD_LIBRARY_PATH", library_directory()))
}

pub(crate) fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// Check an image.
pub(crate) fn check(image: &Path) {
    for program in ["e2fsck", "/usr/sbin/e2fsck", "/sbin/e2fsck"] {
        if Command::new(program).arg("-V").output().is_ok() {
            succeeds(Command::new(program).arg("-fn").arg(image));
            return;
        }
    }
    println!("SKIPPED: e2fsck is not installed");
}
