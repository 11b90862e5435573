//! `diorite.load` against the readers of other packages: `cargo xtask load`, and the packages for `cargo xtask bench load`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, setup, target};

/// Packages of the comparison. The readers of `gguf` and `safetensors` are the peers.
const PACKAGES: &[&str] = &["numpy", "safetensors", "gguf", "ml_dtypes"];
/// Damaged files of the comparison.
const CASES: &str = "300";
/// Debian's interpreter, for which Debian has torch.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Compare with the peers, and run the test with torch.
pub(crate) fn run() -> Result<(), String> {
    setup::install_load_packages()?;
    let python = environment()?;
    let package = package("debug")?;
    let script = Path::new("crates/python/tests/load/compare.py").canonicalize();
    let script = script.map_err(|error| format!("compare.py: {error}"))?;
    let python_path = package.canonicalize().map_err(|error| format!("{}: {error}", package.display()))?;
    println!("--- compare with safetensors, gguf and NumPy");
    let mut compare = Command::new(python);
    compare.arg(script).arg(CASES).env("PYTHONPATH", &python_path).current_dir(&package);
    command::run(&mut compare)?;
    println!("--- tensors of torch");
    let tests = Path::new("crates/python").canonicalize().map_err(|error| error.to_string())?;
    let mut torch = Command::new(SYSTEM_PYTHON);
    torch.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]);
    torch.arg(tests.join("tests/load/torch_tensors.py"));
    torch.env("PYTHONPATH", &python_path).env("DIORITE_PYTHON_CRATE", tests).current_dir(&package);
    command::run(&mut torch)
}

/// The interpreter of an environment with the packages, which is made if it does not exist.
pub(crate) fn environment() -> Result<PathBuf, String> {
    let directory = target::directory().join("load-venv");
    let python = directory.join("bin/python");
    let check = format!("import {}", PACKAGES.join(", "));
    let has_all = Command::new(&python).args(["-c", &check]).output();
    if !has_all.is_ok_and(|ran| ran.status.success()) {
        println!("--- pip install {}", PACKAGES.join(" "));
        command::run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
        command::run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    }
    // `canonicalize` would follow the link to the interpreter, which then does not find the environment.
    std::path::absolute(&python).map_err(|error| format!("{}: {error}", python.display()))
}

/// The directory with the package `diorite`, of a library that is built here.
pub(crate) fn package(profile: &str) -> Result<PathBuf, String> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "diorite-python"]);
    if profile == "release" {
        build.arg("--release");
    }
    command::run(&mut build)?;
    let directory = target::directory().join("load-package");
    let package = directory.join("diorite");
    let failed = |error: std::io::Error| format!("{}: {error}", package.display());
    let _ = std::fs::remove_dir_all(&package);
    std::fs::create_dir_all(&package).map_err(failed)?;
    for entry in std::fs::read_dir("crates/python/python/diorite").map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            std::fs::copy(&path, package.join(path.file_name().unwrap_or_default())).map_err(failed)?;
        }
    }
    let library = target::directory().join(profile).join("libdiorite_python.so");
    std::fs::copy(library, package.join("_diorite.abi3.so")).map_err(failed)?;
    Ok(directory)
}
