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
    let is_supported = variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && matches!(&*variable("CARGO_CFG_TARGET_ARCH"), "x86_64" | "aarch64");
    if !is_supported {
        // The command reports it.
        let mut empty = std::fs::File::options();
        empty.write(true).create(true).truncate(true).open(&output).expect("OUT_DIR is writable");
        return;
    }
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--crate-name", "diorite_uncached", "--crate-type", "cdylib", "--edition", "2024"])
        .args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols", "-C", "codegen-units=1"])
        .args(["--target", &variable("TARGET"), "--cap-lints", "allow"]);
    if let Ok(linker) = std::env::var("RUSTC_LINKER") {
        compiler.args(["-C", &format!("linker={linker}")]);
    }
    let status = compiler.arg("-o").arg(&output).arg("preload/lib.rs").status().expect("rustc starts");
    assert!(status.success(), "preload/lib.rs: rustc failed: {status}");
}
