//! `diorite crash replay`: rebuilds one state.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diorite_mount::MountOptions;
use diorite_mount::fuse::detach;

use super::case_file::CaseFile;
use super::judge::{Judge, Mounted, device_of};
use super::process::scratch;
use super::volume::{needs_repair, repaired};
use crate::args::{Replay, ReplayedBy};
use crate::failure::{Failure, Result, print_error};
use crate::interrupt;

/// Time limit of a repeated check.
const LIMIT: Duration = Duration::from_secs(3600);

pub(super) fn replay(arguments: &Replay) -> Result<()> {
    let mut case = CaseFile::load(&arguments.case)?;
    let name = arguments.case.display();
    if let Some(path) = &arguments.image {
        let failed = |error: std::io::Error| Failure::host(path.display(), "write the image", &error);
        let mut file = File::create(path).map_err(failed)?;
        file.set_len(case.image.len()).map_err(failed)?;
        return case.image.export(&mut file).map_err(failed);
    }
    let scratch = scratch()?;
    if needs_repair(&case.image) {
        let image = repaired(&case.image, &scratch.path().join("image"));
        case.image = image.map_err(|why| Failure::Failed(format!("{name}: {why}")))?;
    }
    if let Some(directory) = &arguments.directory {
        return mount(case, directory, &name.to_string());
    }
    interrupt::is_changing();
    let judge = Judge {
        check: arguments.check.as_deref().unwrap_or(&case.check),
        limit: LIMIT,
        lines: &case.lines,
        scratch: scratch.path(),
        has_own_namespaces: false,
        by: ReplayedBy::Diorite,
        needs_repair: false,
    };
    match judge.check_mounted(device_of(case.image), &case.lines, 0) {
        Ok(()) => Ok(()),
        Err(why) => Err(Failure::Failed(format!("{name}: the check fails: {why}"))),
    }
}

/// Mount the state until it is unmounted, or the user interrupts.
fn mount(case: CaseFile, directory: &Path, name: &str) -> Result<()> {
    let directory = directory
        .canonicalize()
        .map_err(|error| Failure::host(directory.display(), "be mounted on", &error))?;
    let mounted = Mounted::new(device_of(case.image), &directory, &MountOptions::default(), None)
        .map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
    let place = directory.clone();
    interrupt::act(Arc::new(move |_| {
        if let Err(error) = detach(&place, true) {
            print_error(&format!("diorite: {error}"));
        }
    }));
    let lines = case.lines.len();
    print_error(&format!(
        "{name}: {} after a power cut, mounted on {}; {lines} acknowledged lines; the check said: {}\n{}Ctrl-C or `diorite umount` ends it",
        case.filesystem,
        directory.display(),
        case.why,
        case.explanation,
    ));
    mounted.wait();
    Ok(())
}
