//! The option `--profile` without the feature `profile`: an error.

use std::path::Path;

use crate::args::Reporting;
use crate::failure::{Failure, Result};
use crate::output::Output;

/// A profiler, which cannot be started.
pub(crate) enum Profiling {}

/// Fail if a profile is requested.
pub(crate) fn start(file: Option<&Path>) -> Result<Option<Profiling>> {
    if file.is_none() {
        return Ok(None);
    }
    Err(Failure::Failed("--profile: not part of this program; build it with `--features profile`".to_owned()))
}

impl Profiling {
    pub(crate) fn stop(self) -> Self {
        self
    }

    pub(crate) fn show(self, _: Reporting, _: &mut Output) -> Result<()> {
        match self {}
    }
}
