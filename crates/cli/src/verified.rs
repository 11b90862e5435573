//! `cp --verify`: each copy is compared with its source.

use std::path::{Path, PathBuf};

use diorite_copy::{CompareOptions, Difference, Exclude, Selected, Selection, Side, compare};
use diorite_files::Exclusions;

use crate::args::Cp;
use crate::blocks::differs;
use crate::failure::{Failure, Result, complain_of_part};
use crate::location::Location;
use crate::progress::CopyProgress;
use crate::sides::name_of;

/// Compare the content of each copy with its source.
pub(crate) fn verify(
    jobs: &[(&Location, Box<dyn Side>)],
    made: &[(Location, PathBuf)],
    target: &dyn Side,
    arguments: &Cp,
    progress: &CopyProgress,
) -> Result<()> {
    let options = CompareOptions { only_content: true, ..CompareOptions::default() };
    let exclusions = Exclusions::new(&arguments.excluding.exclude);
    let keeps_links = arguments.no_dereference || arguments.links_only || arguments.link;
    for (from, to) in made {
        let Some((_, side)) = jobs.iter().find(|(known, _)| *known == from) else { continue };
        let start = from.path_inside();
        let name = name_of(start).unwrap_or_default();
        let exclude = |path: &Path, is_directory: &dyn Fn() -> bool| {
            let below = path.strip_prefix(start).unwrap_or(path);
            exclusions.leave_out(Path::new(&name), below, is_directory)
        };
        let is_file = !arguments.recursive && !arguments.archive && !keeps_links;
        let selection = Selection {
            exclude: if exclusions.is_empty() { None } else { Some(&exclude as &Exclude<'_>) },
            follow_links: arguments.dereference || is_file,
            one_filesystem: arguments.one_file_system,
            ..Selection::default()
        };
        let selected = Selected::new(&**side, selection, start);
        let mut different = 0;
        compare((&selected, start), (target, to), options, progress, &mut |path, difference| {
            // Earlier files of the destination are not copies.
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
