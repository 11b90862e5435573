//! The option `--profile` of a program without the feature `profile`: an error that says so.

use std::path::Path;

use crate::args::{Profiling as Arguments, Reporting};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Sampling, which cannot begin.
pub(crate) enum Profiling {}

/// An error if a profile is wanted.
pub(crate) fn start(file: Option<&Path>) -> Result<Option<Profiling>> {
    if file.is_none() {
        return Ok(None);
    }
    Err(Failure::Failed("--profile: not part of this program; build it with `--features profile`".to_owned()))
}

/// An error for `--profile` in a simulation, whose time is virtual.
pub(crate) fn refuse_in_simulation(arguments: &Arguments) -> Result<()> {
    if arguments.profile.is_none() {
        return Ok(());
    }
    Err(Failure::Usage(
        "--profile samples real CPU time, and a simulation has virtual time; run it on a real device"
            .to_owned(),
    ))
}

impl Profiling {
    /// The same.
    pub(crate) fn stop(self) -> Self {
        self
    }

    /// Nothing.
    pub(crate) fn show(self, _: Reporting, _: &mut Output) -> Result<()> {
        match self {}
    }
}
