//! Probes in a file, one for each filesystem, so that a later run need not measure.

use std::path::{Path, PathBuf};

use super::Probes;

/// Why stored probes are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeFileError {
    /// A call of the system failed.
    #[error("{}: cannot {what} the probes: {source}; run once without --no-probe", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failed action.
        what: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content is not that of this version.
    #[error("{}: not the probes of this version: {source}; run once without --no-probe", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// The file of the filesystem of `directory`, in `cache`.
pub fn path_for(cache: &Path, directory: &Path) -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let device = std::fs::metadata(directory).map_or(0, |found| found.dev());
    cache.join(format!("probes-{device:x}.json"))
}

/// Store probes; the directory is made.
///
/// # Errors
/// The file cannot be written.
pub fn store(probes: &Probes, path: &Path) -> Result<(), ProbeFileError> {
    let failed = |source| ProbeFileError::Io { path: path.to_owned(), what: "store", source };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(probes)
        .map_err(|source| ProbeFileError::Damaged { path: path.to_owned(), source })?;
    #[expect(clippy::disallowed_methods, reason = "a report, not data I/O")]
    std::fs::write(path, text + "\n").map_err(failed)
}

/// Load probes.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn load(path: &Path) -> Result<Probes, ProbeFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| ProbeFileError::Io {
        path: path.to_owned(),
        what: "load",
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| ProbeFileError::Damaged { path: path.to_owned(), source })
}
