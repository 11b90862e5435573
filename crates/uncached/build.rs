//! Compiles the preloaded library, so that the program contains it.
//!
//! Cargo cannot hand a shared library of one crate to another one, and `cargo install` installs programs only. The library has no
//! dependencies, so one call of the compiler makes it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-changed=src/shared");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let output = Path::new(&variable("OUT_DIR")).join("libdiorite_uncached.so");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let target = match &*variable("CARGO_CFG_TARGET_ENV") {
        "gnu" => Some(variable("TARGET")),
        // The programs that load it use the C library of GNU. The host's compiler makes it for the host's processor only.
        "musl" => {
            Some(format!("{architecture}-unknown-linux-gnu")).filter(|target| *target == variable("HOST"))
        }
        _ => None,
    };
    let is_known =
        variable("CARGO_CFG_TARGET_OS") == "linux" && matches!(&*architecture, "x86_64" | "aarch64");
    let Some(target) = target.filter(|_| is_known) else {
        // The command reports it.
        let mut empty = std::fs::File::options();
        empty.write(true).create(true).truncate(true).open(&output).expect("OUT_DIR is writable");
        return;
    };
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--crate-name", "diorite_uncached", "--crate-type", "cdylib", "--edition", "2024"])
        .args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols", "-C", "codegen-units=1"])
        .args(["--target", &target, "--cap-lints", "allow"]);
    if let (Ok(linker), true) = (std::env::var("RUSTC_LINKER"), target == variable("TARGET")) {
        compiler.args(["-C", &format!("linker={linker}")]);
    }
    let status = compiler.arg("-o").arg(&output).arg("preload/lib.rs").status().expect("rustc starts");
    assert!(status.success(), "preload/lib.rs: rustc failed: {status}");
}
