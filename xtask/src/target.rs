//! The target directory of cargo: `target`, unless `CARGO_TARGET_DIR` or a configuration of cargo changes it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// The target directory. Inside the current directory the path is relative, so that stored commands do not depend on the machine.
pub(crate) fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let found = ask().unwrap_or_else(|| PathBuf::from("target"));
        let here = std::env::current_dir().unwrap_or_default();
        found.strip_prefix(here).map(Path::to_owned).unwrap_or(found)
    })
}

/// A file below the target directory, for a command line.
pub(crate) fn file(name: &str) -> String {
    directory().join(name).display().to_string()
}

fn ask() -> Option<PathBuf> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(arguments).output().ok()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(metadata["target_directory"].as_str()?.into())
}
