//! The C library: shared and static, with its header and its file for pkg-config.

use std::process::Command;

use super::{Release, gnu_triple};
use crate::command::{output_of, shell};
use crate::target;

pub(super) fn build(release: &Release) -> Result<(), String> {
    let triple = gnu_triple();
    // Until 1.0 each minor version has an interface of its own.
    let interface = release.version.rsplit_once('.').map_or(&*release.version, |(interface, _)| interface);
    let soname = format!("-Clink-arg=-Wl,-soname,libdiorite.so.{interface}");
    let rustc = |kind: &str, arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["rustc", "--locked", "--profile", "packaged", "--package", "diorite-c", "--lib"]);
        cargo.args(["--target", &triple, "--crate-type", kind, "--"]).args(arguments);
        output_of(&mut cargo)
    };
    rustc("cdylib", &[&soname])?;
    rustc("staticlib", &[])?;
    let private = private_libraries()?;
    let name = format!("libdiorite-{}-{}-linux-gnu", release.version, std::env::consts::ARCH);
    let configuration = release.filled("diorite.pc", &[("PRIVATE", &private)])?;
    let root = release.work.join(&name);
    shell(&format!(
        "rm -rf {root}; mkdir -p {root}/lib/pkgconfig {root}/include
         install -m 755 {built}/libdiorite_c.so {root}/lib/libdiorite.so.{version}; strip {root}/lib/libdiorite.so.{version}
         install -m 644 {built}/libdiorite_c.a {root}/lib/libdiorite.a; strip --strip-debug {root}/lib/libdiorite.a
         ln -s libdiorite.so.{version} {root}/lib/libdiorite.so.{interface}; ln -s libdiorite.so.{interface} {root}/lib/libdiorite.so
         cp crates/c/include/diorite.h {root}/include/; cp LICENSE-MIT LICENSE-APACHE docs/c.md {root}/",
        root = root.display(),
        built = target::directory().join(&triple).join("packaged").display(),
        version = release.version,
    ))?;
    super::write(&root.join("lib/pkgconfig/diorite.pc"), &configuration)?;
    shell(&format!(
        "tar -C {work} --sort=name --owner=0 --group=0 --numeric-owner -czf {dist}/{name}.tar.gz {name}",
        work = release.work.display(),
        dist = release.directory.display(),
    ))
    .map(drop)
}

/// The libraries that a program with the static library needs, as the compiler reports them.
fn private_libraries() -> Result<String, String> {
    let directory = target::file("dist-work/native");
    let script = format!(
        "mkdir -p {directory}; echo > {directory}/empty.rs
         rustc --crate-type staticlib --print native-static-libs {directory}/empty.rs -o {directory}/empty.a 2>&1"
    );
    let output = shell(&script)?;
    let found = output.lines().find_map(|line| line.split_once("native-static-libs: "));
    found
        .map(|(_, libraries)| libraries.trim().to_owned())
        .ok_or("rustc names no native libraries".to_owned())
}
