//! Simulated disks by name.

use std::path::PathBuf;
use std::sync::Arc;

use diorite_sim::disk::ParameterError;
use diorite_sim::{DiskParameters, SimDisk};

/// Why a simulated disk cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedDiskError {
    /// Unknown name, or impossible parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The file with the parameters could not be read.
    #[error("{}: cannot read: {}", path.display(), reason(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The system's message, without the number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// The simulated disk of that name, or with the parameters of a TOML file.
///
/// # Errors
/// There is no such disk or file, or the parameters are impossible.
pub fn open_simulated(name: &str) -> Result<Arc<SimDisk>, SimulatedDiskError> {
    let path = PathBuf::from(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(SimDisk::named(name)?);
    }
    let text = std::fs::read_to_string(&path).map_err(|source| SimulatedDiskError::File { path, source })?;
    Ok(SimDisk::new(name, DiskParameters::from_toml(name, &text)?))
}
