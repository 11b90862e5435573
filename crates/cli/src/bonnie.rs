//! The command bonnie: one target, or the comparison of all modes.

use std::path::Path;

use diorite_bench::bonnie::{
    FileIo, HostTarget, ImageTarget, Seeking, Settings, comparison_text, csv_line, need_space, run,
    table_text,
};
use diorite_bench::{Machine, Report, Row};

use diorite::{Access, FileKind};

use crate::args::{Bonnie, Opening, command_line};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;
use crate::progress::StageProgress;

/// Default size of the file, as in the seeds' program.
const DEFAULT_MIB: u32 = 100;

pub(crate) fn bonnie(arguments: &Bonnie, output: &mut Output) -> Result<()> {
    // An interrupt ends the program after the files are removed.
    interrupt::is_changing();
    match &arguments.directory {
        Some(directory) => one_target(arguments, directory, output),
        None => compare_all(arguments, output),
    }
}

fn one_target(arguments: &Bonnie, directory: &Location, output: &mut Output) -> Result<()> {
    let size_mib = arguments.size_mib.unwrap_or(DEFAULT_MIB);
    let seeking = Seeking::default();
    let settings = Settings {
        size_mib,
        io: if arguments.o_direct { FileIo::Direct } else { FileIo::Buffered },
        seeking: (!arguments.fast).then_some(seeking),
    };
    let (cancel, progress) = (interrupt::cancel(), StageProgress::default());
    let (machine, rows) = match directory {
        Location::Host(path) if path.exists() && !path.is_dir() => {
            return Err(Failure::Failed(format!(
                "{}: not a directory; IMAGE:/ is the root of an image or a disk",
                path.display()
            )));
        }
        Location::Host(_) if arguments.queueing.choice()?.is_some() => {
            return Err(Failure::Usage(
                "--scheduler is for images and disks: the host's kernel schedules files of the host"
                    .to_owned(),
            ));
        }
        Location::Host(path) => {
            need_space(path, settings.size_bytes())?;
            let target = HostTarget::new(path, "")?;
            (Machine::this(Some(path)), run(&target, &settings, &cancel, &progress)?)
        }
        Location::Image { image, path } => {
            let mut images = Images::new(Opening { queueing: arguments.queueing, ..Opening::default() });
            let filesystem = images.open(image, Access::ReadWrite)?;
            let is_directory = filesystem.metadata(path).map(|found| found.kind == FileKind::Directory);
            if !is_directory.map_err(Failure::map(directory, "use as a directory"))? {
                return Err(Failure::Failed(format!(
                    "{directory}: not a directory; choose a directory of the image"
                )));
            }
            let target = ImageTarget::new(filesystem, image.display().to_string(), path);
            let rows = target
                .need_space(settings.size_bytes())
                .and_then(|()| run(&target, &settings, &cancel, &progress));
            drop(target);
            let closed = images.close();
            let rows = rows?;
            closed?;
            (Machine::this(Some(image.parent().unwrap_or(Path::new(".")))), rows)
        }
    };
    let label = arguments.label.clone().unwrap_or_default();
    let refs: Vec<&Row> = rows.iter().collect();
    if arguments.csv {
        let name = if label.is_empty() { &machine.name } else { &label };
        return output.line(csv_line(name, size_mib, seeking, &refs));
    }
    if arguments.reporting.json {
        let mut report = Report::new(command_line(), machine);
        report.rows = rows;
        let json = serde_json::to_value(&report).map_err(std::io::Error::from)?;
        return output.json(json);
    }
    if arguments.o_direct {
        output.line("Using O_DIRECT for block based I/O")?;
    }
    if arguments.fast {
        output.line("Will skip the seek test")?;
    }
    output.text(&table_text(&label, size_mib, &refs))
}

fn compare_all(arguments: &Bonnie, output: &mut Output) -> Result<()> {
    if arguments.queueing.choice()?.is_some() {
        return Err(Failure::Usage("--scheduler is for one image or disk; choose it with -d".to_owned()));
    }
    let progress = StageProgress::default();
    let directory = Path::new(".");
    let comparison = diorite_bench::bonnie::compare_all(
        directory,
        arguments.size_mib,
        command_line(),
        &interrupt::cancel(),
        &progress,
    )?;
    if arguments.reporting.json {
        let json = serde_json::to_value(&comparison.report).map_err(std::io::Error::from)?;
        return output.json(json);
    }
    output.text(&comparison_text(&comparison.report, comparison.size_mib))
}
