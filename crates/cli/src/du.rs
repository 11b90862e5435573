//! The command du: the space of trees.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use diorite::{Access, Attributes, FileKind, InodeNumber};
use serde_json::json;

use crate::args::Du;
use crate::each::{for_each, report};
use crate::entry::{location_bytes, walked, whole};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::output::{Output, json_path};
use crate::size::human;

/// The bytes of one file in the sum of `du`.
fn du_bytes(attributes: &Attributes, apparent: bool) -> u64 {
    if apparent { attributes.size } else { attributes.sectors.saturating_mul(512) }
}

pub(crate) fn du(arguments: &Du, images: &mut Images, output: &mut Output) -> Result<()> {
    let paths = images.expand(&arguments.paths, Access::ReadOnly)?;
    let mut totals = Vec::new();
    let mut all = 0u64;
    let size_text = |bytes: u64| match (arguments.bytes, arguments.kib) {
        (true, _) => bytes.to_string(),
        (_, true) => bytes.div_ceil(1024).to_string(),
        _ => human(bytes),
    };
    // A file with several names counts once over all arguments.
    let mut seen: HashMap<PathBuf, HashSet<InodeNumber>> = HashMap::new();
    let done = for_each(&paths, |location| {
        let (image, path) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        let seen = seen.entry(image.to_owned()).or_default();
        let mut show = |bytes: u64, path: &Path| {
            if arguments.common.reporting.json {
                totals.push(json!({
                    "image": json_path(image),
                    "path": json_path(path),
                    "bytes": bytes,
                }));
                return Ok(());
            }
            output.text(&format!("{}\t", size_text(bytes)))?;
            output.name(&location_bytes(image, path))?;
            output.line("")
        };
        // The directories above the current entry, with their sums.
        let mut stack: Vec<(PathBuf, u64, usize)> = Vec::new();
        let (mut total, mut is_partial) = (0u64, false);
        let mut close_below = |stack: &mut Vec<(PathBuf, u64, usize)>, depth: usize| {
            while let Some((path, sum, open)) = stack.pop_if(|(_, _, open)| *open >= depth) {
                if let Some((_, parent, _)) = stack.last_mut() {
                    *parent = parent.saturating_add(sum);
                }
                if !arguments.summarize && arguments.max_depth.is_none_or(|most| open <= most) {
                    show(sum, &path)?;
                }
            }
            Ok::<(), Failure>(())
        };
        for entry in filesystem.walk(path) {
            interrupt::check()?;
            let Some(entry) = walked(entry, location, &mut is_partial)? else { continue };
            close_below(&mut stack, entry.depth)?;
            let Some(attributes) = walked(entry.metadata(), location, &mut is_partial)? else { continue };
            let is_new = attributes.links < 2
                || attributes.kind == FileKind::Directory
                || seen.insert(attributes.inode);
            let bytes =
                if is_new { du_bytes(attributes, arguments.apparent_size || arguments.bytes) } else { 0 };
            total = total.saturating_add(bytes);
            if entry.kind == FileKind::Directory || arguments.all || entry.depth == 0 {
                // A file is treated as a directory without entries.
                stack.push((entry.path, bytes, entry.depth));
            } else if let Some((_, sum, _)) = stack.last_mut() {
                *sum = sum.saturating_add(bytes);
            }
        }
        close_below(&mut stack, 0)?;
        if arguments.summarize {
            show(total, path)?;
        }
        all = all.saturating_add(total);
        whole(is_partial)
    });
    if arguments.total && !arguments.common.reporting.json {
        output.line(format!("{}\ttotal", size_text(all)))?;
    }
    report(arguments.common.reporting, done, output, || json!({ "command": "du", "totals": totals }))
}
