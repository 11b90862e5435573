//! `mkfs --size fit`: a volume with more space than the content needs is filled, and truncated at its end.

use std::path::Path;

use diorite::front_end::AllocationPolicy;
use diorite::mkfs::{MkfsOptions, MkfsReport, mkfs};
use diorite_copy::{FitPlan, MemoryTree, Slack, VERITY_BLOCK};

use crate::failure::{Failure, Result};
use crate::fill::fill;
use crate::free_space;
use crate::identity::Identity;
use crate::new_volume::{Made, SECTOR_BYTES, Target, mkfs_failure, open_device, rules, set_journal};
use crate::size::Size;

/// A size for the preview of options.
const USUAL_BYTES: u64 = 1 << 30;

/// Make the smallest image of the content.
pub(crate) fn make(
    target: Target<'_>,
    content: &MemoryTree,
    mut options: MkfsOptions,
    identity: Identity,
) -> Result<Made> {
    let Target { arguments, image, place, is_new } = target;
    let is_file = is_new || place.is_file();
    let sector =
        if is_file { SECTOR_BYTES } else { open_device(target, None)?.geometry().logical_block_size };
    if let Some(sizes) = arguments.journal_size {
        // The sizes are stored in blocks.
        options.block_size = Some(FitPlan::block_size((content, content.top()), &options, sector));
        set_journal(image, &mut options, sizes, USUAL_BYTES, sector)?;
    }
    let slack = arguments.slack.map_or(Slack::Bytes(0), |slack| slack.0);
    let plan = FitPlan::new((content, content.top()), &options, slack, sector);
    let plan = plan.map_err(|error| mkfs_failure(image, error))?;
    let device = open_device(target, Some(Size(plan.size_bytes)))?;
    let capacity = device.geometry().capacity_bytes;
    // A disk may be smaller than the plan, and large enough for the content.
    let volume = MkfsOptions { size_bytes: Some(plan.size_bytes.min(capacity)), ..plan.options.clone() };
    free_space::check(image, content, device.geometry(), &volume)?;
    mkfs(device.as_ref(), &volume).map_err(|error| mkfs_failure(image, error))?;
    let rules = rules(arguments, &options, identity, AllocationPolicy::Packed);
    let mut summary = fill(image, device.clone(), (content, content.top()), rules)?;
    summary.attributes_lost += content.attributes_lost();
    let unit = if arguments.verity.is_some() { VERITY_BLOCK } else { 1 };
    let report = plan.cut(device.as_ref(), unit).map_err(|error| {
        Failure::Failed(format!("{}: cannot truncate the filesystem: {error}", image.display()))
    })?;
    drop(device);
    if is_file {
        set_len(place, bytes_of(&report))?;
    }
    Ok(Made { report, summary: Some(summary), verity: None })
}

/// Bytes of a volume.
pub(crate) fn bytes_of(report: &MkfsReport) -> u64 {
    report.layout.blocks_count * report.layout.block_size.bytes()
}

fn set_len(file: &Path, bytes: u64) -> Result<()> {
    let set = || std::fs::OpenOptions::new().write(true).open(file)?.set_len(bytes);
    set().map_err(|error| Failure::host(file.display(), "set the size", &error))
}
