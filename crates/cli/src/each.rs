//! The loop of commands on several files: each location in turn, and the report at the end.

use std::path::Path;

use serde_json::Value;

use crate::args::Reporting;
use crate::failure::{Failure, Result, visible};
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;

const NEED_IMAGE: &str = "is not in an image; write IMAGE:/path";

/// The image and the path of a location, which must be in an image.
pub(crate) fn in_image(location: &Location) -> Result<(&Path, &Path)> {
    match location {
        Location::Image { image, path } => Ok((image, path)),
        Location::Host(path) => Err(Failure::Usage(format!("{}: {NEED_IMAGE}", path.display()))),
    }
}

/// Call `act` for each location. Failures are reported, and the remaining locations are done.
pub(crate) fn for_each(locations: &[Location], mut act: impl FnMut(&Location) -> Result<()>) -> Result<()> {
    let mut failed = false;
    for location in locations {
        let Err(failure) = act(location) else { continue };
        if locations.len() == 1 {
            return Err(failure);
        }
        failure.of_part()?;
        failed = true;
        interrupt::check().map_err(|_| Failure::Reported)?;
    }
    if failed { Err(Failure::Reported) } else { Ok(()) }
}

/// Whether [`for_each`] has results to show; failures of parts are reported already.
pub(crate) fn is_worth_showing(done: &Result<()>) -> bool {
    matches!(done, Ok(()) | Err(Failure::Reported))
}

/// Print the result of a command as one JSON object, if requested.
pub(crate) fn report(
    json: Reporting,
    done: Result<()>,
    output: &mut Output,
    what: impl FnOnce() -> Value,
) -> Result<()> {
    if json.json && is_worth_showing(&done) {
        output.json(what())?;
    }
    done
}

/// Print a line for `-v`.
pub(crate) fn said(verbose: bool, output: &mut Output, line: &str) -> Result<()> {
    if verbose { output.line(visible(line)) } else { Ok(()) }
}
