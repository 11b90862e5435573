//! The command diff: the differences of two trees, of images or of the host.

use std::path::Path;

use diorite::Access;
use diorite_copy::{CompareOptions, Difference, Exclude, Selected, Selection, Source, compare};
use diorite_files::Exclusions;
use serde_json::{Value, json};

use crate::args::Diff;
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::interrupt;
use crate::location::Location;
use crate::output::{Output, json_path};
use crate::progress::{CopyProgress, CopySays};
use crate::sides::open_side;
use crate::sync::is_own_lost_and_found;

pub(crate) fn diff(arguments: &Diff, images: &mut Images, output: &mut Output) -> Result<()> {
    let open = |location: &Location, other: &Location, images: &mut Images| {
        open_side(location, Access::ReadOnly, std::slice::from_ref(other), images)
    };
    let first = open(&arguments.first, &arguments.second, images)?;
    let second = open(&arguments.second, &arguments.first, images)?;
    let options =
        CompareOptions { trusts_times: arguments.trust_times, only_content: arguments.only_content };
    let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
    let (first_start, second_start) = (arguments.first.path_inside(), arguments.second.path_inside());
    let exclusions = Exclusions::new(&arguments.excluding.exclude);
    let exclude_below = |start: &Path, path: &Path, is_directory: &dyn Fn() -> bool| {
        exclusions.leave_out(Path::new(""), path.strip_prefix(start).unwrap_or(path), is_directory)
    };
    let of_first =
        |path: &Path, is_directory: &dyn Fn() -> bool| exclude_below(first_start, path, is_directory);
    let of_second =
        |path: &Path, is_directory: &dyn Fn() -> bool| exclude_below(second_start, path, is_directory);
    let selection = |exclude| Selection { exclude, ..Selection::default() };
    let one = Selected::new(&*first, selection(Some(&of_first as &Exclude<'_>)), first_start);
    let other = Selected::new(&*second, selection(Some(&of_second as &Exclude<'_>)), second_start);
    let (one, other): (&dyn Source, &dyn Source) = (&one, &other);
    let is_part_of_volume = |path: &Path, difference: &Difference| match difference {
        Difference::OnlyFirst(_) => is_own_lost_and_found(&arguments.first, &*first, &first_start.join(path)),
        Difference::OnlySecond(_) => {
            is_own_lost_and_found(&arguments.second, &*second, &second_start.join(path))
        }
        Difference::Changed(_) => false,
    };
    let mut found: Vec<Value> = Vec::new();
    let mut count = 0u64;
    let json = arguments.common.reporting.json;
    let mut said = Ok(());
    compare((one, first_start), (other, second_start), options, &progress, &mut |path, difference| {
        if is_part_of_volume(path, difference) {
            return Ok(());
        }
        count += 1;
        if json {
            found.push(json_difference(path, difference));
        } else if said.is_ok() {
            let at = |source: &dyn Source, start: &Path| {
                source.name_of(&if path.as_os_str().is_empty() { start.to_owned() } else { start.join(path) })
            };
            let line = match difference {
                Difference::OnlyFirst(_) => format!("only in first: {}", at(one, first_start)),
                Difference::OnlySecond(_) => format!("only in second: {}", at(other, second_start)),
                Difference::Changed(changes) => {
                    format!("{}: {}", at(one, first_start), changes_text(changes))
                }
            };
            said = output.line(visible(&line));
        }
        Ok(())
    })?;
    said?;
    if json {
        output.json(json!({ "command": "diff", "differences": found }))?;
    }
    if count == 0 { Ok(()) } else { Err(Failure::Reported) }
}

fn changes_text(changes: &[(&str, String, String)]) -> String {
    let text = |(what, one, other): &(&str, String, String)| match (one.is_empty(), other.as_str()) {
        (true, "other") => format!("{what} differ"),
        _ => format!("{what} {one} -> {other}"),
    };
    changes.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn json_difference(path: &Path, difference: &Difference) -> Value {
    let path = json_path(path);
    match difference {
        Difference::OnlyFirst(_) => json!({ "path": path, "only_in": "first" }),
        Difference::OnlySecond(_) => json!({ "path": path, "only_in": "second" }),
        Difference::Changed(changes) => {
            let changes: Vec<Value> = changes
                .iter()
                .map(|(what, one, other)| json!({ "what": what, "first": one, "second": other }))
                .collect();
            json!({ "path": path, "changes": changes })
        }
    }
}
