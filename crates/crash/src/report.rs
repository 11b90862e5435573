//! The answer of a test.

use std::fmt;

use crate::case::Case;
use crate::examine::{Failing, Progress};
use crate::explain::Explanation;

/// The result of a [`CrashTest`](crate::CrashTest).
#[derive(Clone, Debug)]
pub struct Report {
    /// Numbers of states.
    pub progress: Progress,
    /// Number of moments of power cuts.
    pub moments: usize,
    /// The smallest failing state, if one failed.
    pub failure: Option<Failure>,
}

impl Report {
    /// Panic with the report if a state failed.
    ///
    /// # Panics
    /// A state failed.
    pub fn assert_passed(&self) {
        assert!(self.failure.is_none(), "{self}");
    }

    /// Panic if no state failed, and return the failure: for a test of a known mistake.
    ///
    /// # Panics
    /// All states passed.
    pub fn expect_failure(&self) -> &Failure {
        self.failure.as_ref().unwrap_or_else(|| panic!("{self}"))
    }
}

/// A failing state with the fewest lost writes.
#[derive(Clone, Debug)]
pub struct Failure {
    /// For [`CrashTest::case`](crate::CrashTest::case).
    pub case: Case,
    /// Lines that were acknowledged before the power cut.
    pub acknowledged: usize,
    /// The last of them.
    pub last_acknowledged: Option<String>,
    /// The words of the check.
    pub why: String,
    /// The state in words of files.
    pub explanation: Explanation,
}

impl Failure {
    pub(crate) fn new(failing: Failing, lines: &[String], explanation: Explanation) -> Self {
        let Failing { case, promises, why } = failing;
        let last_acknowledged = lines[..promises].last().cloned();
        Self { case, acknowledged: promises, last_acknowledged, why, explanation }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { states, equal, failed, .. } = self.progress;
        let moments = self.moments;
        let Some(failure) = &self.failure else {
            return write!(
                f,
                "all {states} states of {moments} power cuts passed ({equal} equal ones left out)"
            );
        };
        let after = match &failure.last_acknowledged {
            Some(line) => format!("following `{line}`"),
            None => "before the first acknowledgement".to_owned(),
        };
        writeln!(
            f,
            "{failed} of {states} states of {moments} power cuts fail. A power cut {after}: {}",
            failure.why
        )?;
        write!(f, "{}", failure.explanation)?;
        write!(f, "case: {}", failure.case)
    }
}
