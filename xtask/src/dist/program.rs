//! The program without shared libraries, alone and in a container.

use std::path::PathBuf;

use super::{Release, cargo_build};
use crate::command::shell;

/// The processors for which the program is built. The second one is left out if its target cannot be installed.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// The largest program that is accepted.
const BYTES_MAX: u64 = 15_000_000;

pub(super) fn build_static(release: &Release) -> Result<(), String> {
    for architecture in ARCHITECTURES {
        let triple = format!("{architecture}-unknown-linux-musl");
        if let Err(why) = shell(&format!("rustup target add {triple}")) {
            if architecture == std::env::consts::ARCH {
                return Err(why);
            }
            println!("SKIPPED: the static program for {architecture}: {why}");
            continue;
        }
        let built = cargo_build("diorite-cli", &triple)?.join("diorite");
        let program = path(release, architecture);
        shell(&format!("install -m 755 {} {}", built.display(), program.display()))?;
        let bytes = std::fs::metadata(&program).map_err(|error| error.to_string())?.len();
        if bytes > BYTES_MAX {
            return Err(format!("{}: {bytes} bytes; the limit is {BYTES_MAX}", program.display()));
        }
        println!("{}: {bytes} bytes", program.display());
    }
    Ok(())
}

/// The static program for a processor.
pub(super) fn path(release: &Release, architecture: &str) -> PathBuf {
    release.directory.join(format!("diorite-{}-{architecture}-linux-static", release.version))
}

/// A directory from which `podman build` makes an image.
pub(super) fn build_container(release: &Release) -> Result<(), String> {
    shell(&format!(
        "mkdir -p {directory}; cp packaging/Containerfile {directory}/; install -m 755 {program} {directory}/diorite",
        directory = release.directory.join("container").display(),
        program = path(release, std::env::consts::ARCH).display(),
    ))
    .map(drop)
}
