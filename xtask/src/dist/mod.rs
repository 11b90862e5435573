//! The packages of a release, below `target/dist`.
//!
//! Interface: [`run`] builds packages, [`check::run`] installs each one in a fresh root and uses it there. A part of CI is
//! [`debian::lays_out`], which packs the program of the test build.

pub(crate) mod check;
pub(crate) mod debian;
mod library;
mod program;
mod python;
mod source;

use std::path::{Path, PathBuf};

use crate::command::{self, shell};
use crate::target;

/// A package, and the function that builds it.
struct Part {
    name: &'static str,
    build: fn(&Release) -> Result<(), String>,
}

/// In this order: the container and the wheel contain the static program.
const PARTS: &[Part] = &[
    Part { name: "deb", build: debian::build },
    Part { name: "static", build: program::build_static },
    Part { name: "container", build: program::build_container },
    Part { name: "wheel", build: python::build },
    Part { name: "library", build: library::build },
    Part { name: "source", build: source::build },
    Part { name: "sbom", build: source::build_sbom },
];

/// What all packages share.
pub(crate) struct Release {
    /// The version of the workspace.
    pub(crate) version: String,
    /// The directory of the packages.
    pub(crate) directory: PathBuf,
    /// The directory of intermediate files.
    pub(crate) work: PathBuf,
}

impl Release {
    pub(crate) fn new() -> Result<Self, String> {
        let manifest =
            std::fs::read_to_string("Cargo.toml").map_err(|error| format!("Cargo.toml: {error}"))?;
        let version = manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
        let version = version.ok_or("Cargo.toml: no version of the workspace")?.to_owned();
        let (directory, work) = (target::directory().join("dist"), target::directory().join("dist-work"));
        for directory in [&directory, &work] {
            std::fs::create_dir_all(directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        Ok(Self { version, directory, work })
    }

    /// A package by the end of its file name.
    pub(crate) fn package(&self, end: &str) -> Result<PathBuf, String> {
        let entries = std::fs::read_dir(&self.directory).map_err(|error| error.to_string())?;
        let mut names = entries.flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(end);
        names.find(is_it).ok_or_else(|| {
            format!("{}: no package *{end}; build it with `cargo xtask dist`", self.directory.display())
        })
    }

    /// A file of `packaging/` with the values of its `@NAMES@`.
    pub(crate) fn filled(&self, name: &str, values: &[(&str, &str)]) -> Result<String, String> {
        let path = Path::new("packaging").join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = text.replace("@VERSION@", &self.version);
        Ok(values.iter().fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value)))
    }
}

/// Build the named parts, or all, and the list of checksums.
pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let release = Release::new()?;
    if let Some(unknown) = names.iter().find(|name| PARTS.iter().all(|part| part.name != name.as_str())) {
        let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(format!("dist: {unknown}: no such part; the parts are {}", known.join(", ")));
    }
    for part in PARTS.iter().filter(|part| names.is_empty() || names.iter().any(|name| name == part.name)) {
        println!("--- dist: {}", part.name);
        (part.build)(&release)?;
    }
    let sums = "find . -type f ! -name SHA256SUMS -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum > SHA256SUMS";
    shell(&format!("cd {}; {sums}; cat SHA256SUMS", release.directory.display())).map(|sums| print!("{sums}"))
}

/// Build a package of the workspace with the profile of releases. Returns the directory of the results.
pub(crate) fn cargo_build(package: &str, triple: &str) -> Result<PathBuf, String> {
    command::run(
        std::process::Command::new(env!("CARGO"))
            .args(["build", "--locked", "--profile", "packaged", "--package", package, "--target", triple])
            // The linker of the toolchain links musl for any processor.
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld"),
    )?;
    Ok(target::directory().join(triple).join("packaged"))
}

/// Write a small file of a package.
#[expect(clippy::disallowed_methods, reason = "files of packages, not data I/O")]
fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The target of this host with the C library of GNU.
pub(crate) fn gnu_triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}
