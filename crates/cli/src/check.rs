//! The command check: the problems of a filesystem.

use std::path::Path;

use diorite::check::{CheckOptions, CheckPhase, CheckReport, Problem, check_replayed};
use diorite::front_end::open_volume_target;
use diorite_bench::Observer as _;
use diorite_device::{DirectIo, OpenOptions as DeviceOptions};
use serde_json::{Value, json};

use crate::args::Check;
use crate::failure::{Failure, Result, visible};
use crate::images::report_chosen_part;
use crate::kernel_mount::warn_if_mounted;
use crate::location::name_of_image;
use crate::output::{Output, json_path};
use crate::progress::StageProgress;

pub(crate) fn check(arguments: &Check, output: &mut Output) -> Result<()> {
    let image = Path::new(&arguments.image);
    let name = name_of_image(image)?;
    if arguments.yes {
        return Err(Failure::Usage(format!(
            "-y: check does not repair; run e2fsck -fy {} (for a partition, on its loop device)",
            image.display()
        )));
    }
    // Through the host's page cache, which still has the metadata of an image that was just written or unmounted.
    let options = DeviceOptions::read_only().direct(DirectIo::Off);
    let device = open_volume_target(name, &options).map_err(|error| Failure::open(&error))?;
    report_chosen_part(image, &device.name());
    warn_if_mounted(Path::new(&device.name()));
    let options = CheckOptions { max_problems: arguments.problems };
    let progress = StageProgress::counting();
    let mut phase: Option<(CheckPhase, u64)> = None;
    let report = check_replayed(&device, &options, &mut |state| {
        if phase.is_none_or(|(known, _)| known != state.phase) {
            progress.end();
            progress.begin(&format!("Checking {}", state.phase), state.total);
            phase = Some((state.phase, 0));
        }
        if let Some((_, done)) = &mut phase {
            progress.advance(state.done.saturating_sub(*done));
            *done = state.done;
        }
    });
    progress.end();
    let report = report.map_err(|error| Failure::of(image.display(), "check", &error.into()))?;
    if arguments.reporting.json {
        output.json(json_report(image, &report))?;
    } else {
        show(image, &report, output)?;
    }
    if report.is_clean() { Ok(()) } else { Err(Failure::Reported) }
}

fn show(image: &Path, report: &CheckReport, output: &mut Output) -> Result<()> {
    for problem in &report.problems {
        output.line(visible(&problem.to_string()))?;
    }
    let hidden = report.problem_count.saturating_sub(report.problems.len() as u64);
    if hidden > 0 {
        output.line(format!("... and {hidden} more; --problems shows more of them"))?;
    }
    for note in &report.notes {
        output.line(format!("note: {}", visible(note)))?;
    }
    let result = match (report.problem_count, report.incomplete) {
        (0, false) => "clean".to_owned(),
        (0, true) => "incomplete: a part could not be checked".to_owned(),
        (1, _) => "1 problem; copy the image, then repair it with e2fsck".to_owned(),
        (count, _) => format!("{count} problems; copy the image, then repair it with e2fsck"),
    };
    output.line(format!(
        "{}: {result}; {} files, {} directories, {} symbolic links, {} others, {} blocks in use, {} fragmented files",
        visible(&image.display().to_string()),
        report.files,
        report.directories,
        report.symlinks,
        report.special_files,
        report.blocks_used,
        report.fragmented
    ))
}

fn json_problem(problem: &Problem) -> Value {
    let mut value = json!({ "kind": format!("{:?}", problem.kind), "what": problem.what });
    let places = [
        ("group", problem.group.map(u64::from)),
        ("inode", problem.inode.map(u64::from)),
        ("block", problem.block),
    ];
    for (name, place) in places {
        if let Some(place) = place {
            value[name] = json!(place);
        }
    }
    value
}

fn json_report(image: &Path, report: &CheckReport) -> Value {
    json!({
        "command": "check",
        "image": json_path(image),
        "clean": report.is_clean(),
        "incomplete": report.incomplete,
        "problem_count": report.problem_count,
        "problems": report.problems.iter().map(json_problem).collect::<Vec<_>>(),
        "notes": report.notes,
        "inodes_used": report.inodes_used,
        "files": report.files,
        "directories": report.directories,
        "symlinks": report.symlinks,
        "special_files": report.special_files,
        "blocks_used": report.blocks_used,
        "fragmented": report.fragmented,
    })
}
