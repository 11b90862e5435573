//! `cp --verify`: each copy is compared with its source.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use diorite_copy::{CompareOptions, Difference, Selected, Selection, Side, compare};
use diorite_files::Pattern;

use crate::args::Cp;
use crate::blocks::differs;
use crate::failure::{Failure, Result, complain_of_part};
use crate::location::Location;
use crate::progress::CopyProgress;

/// Compare the content of each copy with its source.
pub(crate) fn verify(
    jobs: &[(&Location, Box<dyn Side>)],
    made: &[(Location, PathBuf)],
    target: &dyn Side,
    arguments: &Cp,
    progress: &CopyProgress,
) -> Result<()> {
    let options = CompareOptions { only_content: true, ..CompareOptions::default() };
    let patterns: Vec<Pattern> = arguments.exclude.iter().map(|text| Pattern::new(text)).collect();
    for (from, to) in made {
        let Some((_, side)) = jobs.iter().find(|(known, _)| *known == from) else { continue };
        let start = from.path_inside();
        let is_excluded = |path: &Path| fits_any(&patterns, start, path);
        let is_file = !arguments.recursive && !arguments.archive;
        let selection = Selection {
            exclude: if patterns.is_empty() { None } else { Some(&is_excluded) },
            follow_links: arguments.dereference || is_file,
            one_filesystem: arguments.one_file_system,
            ..Selection::default()
        };
        let selected = Selected::new(&**side, selection, start);
        let mut different = 0;
        compare((&selected, start), (target, to), options, progress, &mut |path, difference| {
            // What was in the destination before is no copy.
            if !matches!(difference, Difference::OnlySecond(_)) {
                different += 1;
                let at = |start: &Path| {
                    if path.as_os_str().is_empty() { start.to_owned() } else { start.join(path) }
                };
                complain_of_part(&differs(&at(start), &at(to)));
            }
            Ok(())
        })?;
        if different > 0 {
            return Err(Failure::Reported);
        }
    }
    Ok(())
}

/// Whether one of the patterns fits the name or the path below `start` of a file.
pub(crate) fn fits_any(patterns: &[Pattern], start: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(start).unwrap_or(path).as_os_str().as_bytes();
    let name = path.file_name().unwrap_or_default().as_bytes();
    patterns.iter().any(|pattern| pattern.fits(name) || pattern.fits(below))
}
