//! Commands about whole volumes: info, df.

use std::fmt::Write as _;
use std::path::Path;

use diorite::front_end::{
    SuperblockBackup, VolumeInfo, array_read_only_reason, open_target, partitions_with_volumes,
};
use diorite::{Access, Filesystem, Timestamp};
use diorite_device::{OpenOptions as DeviceOptions, Partition, has_partitions};
use serde_json::json;

use crate::args::{Df, Info, Trim};
use crate::each::{for_each, is_worth_showing};
use crate::failure::{Failure, Result, visible};
use crate::images::Images;
use crate::kernel_mount::warn_if_mounted;
use crate::location::name_of_image;
use crate::output::{Output, json_name, json_path, json_time, local_time};
use crate::size::human;

use diorite_ext::layout::Incompat;
use diorite_ext::layout::superblock::STATE_ORPHANS;
pub(crate) use diorite_ext::layout::uuid_text;

pub(crate) fn trim(arguments: &Trim, images: &mut Images, output: &mut Output) -> Result<()> {
    let image = Path::new(&arguments.image);
    let filesystem = images.open(image, Access::ReadWrite)?;
    let bytes = filesystem.trim(0..u64::MAX, 0).map_err(Failure::map(image.display(), "trim"))?;
    if arguments.common.reporting.json {
        let image = json_path(image);
        return output.json(json!({ "image": image, "bytes_discarded": bytes }));
    }
    output.line(format!(
        "{}: {} of free space discarded",
        visible(&image.display().to_string()),
        human(bytes)
    ))
}

fn state(info: &VolumeInfo) -> String {
    let mut words = Vec::new();
    words.push(if info.is_clean() { "clean" } else { "not cleanly closed" });
    if info.features().has_incompat(Incompat::RECOVER) {
        words.push("the journal will be replayed when it is opened for writing");
    }
    if info.has_errors() {
        words.push("has errors");
    }
    if info.state() & STATE_ORPHANS != 0 {
        words.push("has orphaned inodes");
    }
    words.join(", ")
}

/// Show the superblock. It also works on volumes that cannot be opened.
pub(crate) fn info(arguments: &Info, output: &mut Output) -> Result<()> {
    let image = Path::new(&arguments.image);
    let name = name_of_image(image)?;
    let device = open_target(name, &DeviceOptions::read_only()).map_err(|error| Failure::open(&error))?;
    warn_if_mounted(image);
    let (info, backup) = match VolumeInfo::find(device.as_ref()).map_err(diorite::Error::from) {
        Err(error) if error.is_no_volume() => {
            let partitions = match partitions_with_volumes(&device) {
                Err(damaged) if has_partitions(&*device) => return Err(Failure::Failed(damaged.to_string())),
                found => found.unwrap_or_default(),
            };
            if partitions.is_empty() {
                return Err(Failure::of(image.display(), "read the superblock", &error));
            }
            return show_partitions(arguments, image, &partitions, device.geometry().capacity_bytes, output);
        }
        found => found.map_err(Failure::map(image.display(), "read the superblock"))?,
    };
    let geometry = device.geometry();
    let missing = info
        .blocks_count()
        .saturating_mul(info.layout.block_size.bytes())
        .saturating_sub(geometry.capacity_bytes);
    // The device ends with a whole logical block; the filesystem may end within it.
    let missing = if missing < u64::from(geometry.logical_block_size) { 0 } else { missing };
    let journal_defect = VolumeInfo::journal_defect(device.as_ref());
    let found = Found { info, missing, backup, journal_defect, array_reason: array_read_only_reason(name) };
    if arguments.reporting.json {
        return output.json(json_info(image, &found));
    }
    show_info(image, &found, output)
}

/// Show the partitions of a disk, with their volumes.
fn show_partitions(
    arguments: &Info,
    image: &Path,
    partitions: &[(Partition, Option<VolumeInfo>)],
    capacity_bytes: u64,
    output: &mut Output,
) -> Result<()> {
    if arguments.reporting.json {
        let list: Vec<_> = partitions.iter().map(json_partition).collect();
        let image = json_path(image);
        return output.json(json!({ "command": "info", "image": image, "partitions": list }));
    }
    let name = visible(&image.display().to_string());
    output.line(format!("{name}: a disk with partitions; `{name}?partition=N` is one of them"))?;
    output.line(format!("{:>3} {:>14} {:>8}  {}", "N", "Start", "Size", "Type and content"))?;
    for (partition, volume) in partitions {
        let mut what = partition.kind.to_string();
        if !partition.name.is_empty() {
            let _ = write!(what, " \"{}\"", visible(&partition.name));
        }
        if partition.start.to_bytes().saturating_add(partition.len_bytes) > capacity_bytes {
            what.push_str(", ends beyond the device");
        }
        if let Some(volume) = volume {
            let _ = write!(what, ": {}", volume.flavor());
            if !volume.label().is_empty() {
                let _ = write!(what, " \"{}\"", visible(&String::from_utf8_lossy(volume.label())));
            }
        }
        output.line(format!(
            "{:>3} {:>14} {:>8}  {what}",
            partition.number,
            partition.start.to_bytes(),
            human(partition.len_bytes)
        ))?;
    }
    Ok(())
}

fn json_partition((partition, volume): &(Partition, Option<VolumeInfo>)) -> serde_json::Value {
    json!({
        "number": partition.number,
        "kind": partition.kind.to_string(),
        "name": partition.name,
        "start": partition.start.to_bytes(),
        "bytes": partition.len_bytes,
        "type": volume.as_ref().map(VolumeInfo::flavor),
        "label": volume.as_ref().map(|volume| json_name(volume.label())),
        "uuid": volume.as_ref().map(|volume| uuid_text(&volume.uuid())),
    })
}

/// The content of `info`.
struct Found {
    info: VolumeInfo,
    /// Bytes of the filesystem after the end of the device.
    missing: u64,
    backup: Option<SuperblockBackup>,
    journal_defect: Option<String>,
    /// The reason why the array of the volume is read-only.
    array_reason: Option<String>,
}

fn show_info(image: &Path, found: &Found, output: &mut Output) -> Result<()> {
    let Found { info, missing, backup, journal_defect, array_reason } = found;
    let missing = *missing;
    let text = |bytes: &[u8]| visible(&String::from_utf8_lossy(bytes));
    let mut line = |name: &str, value: String| output.line(format!("{name:<16} {value}"));
    let bytes = |blocks: u64| human(blocks.saturating_mul(info.layout.block_size.bytes()));
    line("Image", visible(&image.display().to_string()))?;
    if let Some(SuperblockBackup { block, damage }) = backup {
        line("Damaged", format!("{damage}; this is the backup in block {block}"))?;
    }
    line("Type", format!("{}, revision {}", info.flavor(), info.raw().rev_level.get()))?;
    if !info.label().is_empty() {
        line("Label", text(info.label()))?;
    }
    line("UUID", uuid_text(&info.uuid()))?;
    line("State", state(info))?;
    line(
        "Size",
        format!(
            "{} in {} blocks of {}",
            bytes(info.blocks_count()),
            info.blocks_count(),
            human(info.layout.block_size.bytes())
        ),
    )?;
    if missing > 0 {
        line("Cut off", format!("the last {} ({missing} bytes) are missing", human(missing)))?;
    }
    line(
        "Free",
        format!(
            "{} in {} blocks, {} of them only for root",
            bytes(info.free_blocks_count()),
            info.free_blocks_count(),
            info.reserved_blocks_count()
        ),
    )?;
    line(
        "Inodes",
        format!(
            "{} of {} bytes, {} free",
            info.inodes_count(),
            info.layout.inode_size,
            info.free_inodes_count()
        ),
    )?;
    line(
        "Groups",
        format!(
            "{} of {} blocks and {} inodes",
            info.layout.group_count, info.layout.blocks_per_group, info.layout.inodes_per_group
        ),
    )?;
    line("Features", info.features().names().join(" "))?;
    if !info.features().unreadable().is_empty() {
        line("Cannot be read", format!("because of {}", info.features().unreadable().join(" ")))?;
    } else if !info.features().unwritable().is_empty() {
        line("Read only", format!("because of {}", info.features().unwritable().join(" ")))?;
    }
    if let Some(journal) = info.journal_inode() {
        line("Journal", format!("in inode {journal}"))?;
    } else if let Some(uuid) = info.external_journal() {
        line("Journal", format!("on another device, {}", uuid_text(&uuid)))?;
    }
    for reason in [journal_defect, array_reason].into_iter().flatten() {
        line("Read only", reason.clone())?;
    }
    let time = |time: Timestamp| {
        if time.seconds == 0 { "never".to_owned() } else { local_time(time, "%Y-%m-%d %H:%M:%S") }
    };
    line("Created", time(info.created()))?;
    line("Last mounted", {
        let place = text(info.last_mounted());
        let on = if place.is_empty() { String::new() } else { format!(" on {place}") };
        format!("{}{on}", time(info.mounted()))
    })?;
    line("Last written", time(info.written()))?;
    line("Last checked", time(info.checked()))?;
    if info.kib_written() > 0 {
        line("Written so far", human(info.kib_written().saturating_mul(1024)))?;
    }
    if info.raw().error_count.get() > 0 {
        line("Errors found", info.raw().error_count.get().to_string())?;
    }
    Ok(())
}

fn json_info(image: &Path, found: &Found) -> serde_json::Value {
    let Found { info, missing, backup, journal_defect, array_reason } = found;
    json!({
        "command": "info",
        "image": json_path(image),
        "type": info.flavor(),
        "revision": info.raw().rev_level.get(),
        "label": json_name(info.label()),
        "uuid": uuid_text(&info.uuid()),
        "clean": info.is_clean(),
        "has_errors": info.has_errors(),
        "needs_recovery": info.features().has_incompat(Incompat::RECOVER),
        "features": info.features().names(),
        "unreadable_features": info.features().unreadable(),
        "unwritable_features": info.features().unwritable(),
        "block_size": info.layout.block_size.bytes(),
        "cluster_size": info.layout.cluster_bytes(),
        "blocks": info.blocks_count(),
        "bytes_missing": missing,
        "superblock_backup": backup.as_ref().map(|backup| backup.block.0),
        "blocks_free": info.free_blocks_count(),
        "blocks_reserved": info.reserved_blocks_count(),
        "inodes": info.inodes_count(),
        "inodes_free": info.free_inodes_count(),
        "inode_size": info.layout.inode_size,
        "groups": info.layout.group_count,
        "blocks_per_group": info.layout.blocks_per_group,
        "inodes_per_group": info.layout.inodes_per_group,
        "backups": info.layout.superblock_backups(),
        "journal_inode": info.journal_inode().map(|inode| inode.0),
        "journal_defect": journal_defect,
        "array_read_only_reason": array_reason,
        "created": json_time(info.created()),
        "mounted": json_time(info.mounted()),
        "written": json_time(info.written()),
        "checked": json_time(info.checked()),
        "mount_count": info.raw().mnt_count.get(),
        "written_kib": info.kib_written(),
    })
}

/// The type of a volume: ext2, ext3 or ext4.
pub(crate) fn type_of(filesystem: &Filesystem) -> &'static str {
    VolumeInfo::find(&**filesystem.device()).map_or("ext", |(info, _)| info.flavor())
}

pub(crate) fn df(arguments: &Df, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut rows = Vec::new();
    let done = for_each(&arguments.images, |location| {
        let (image, _) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        rows.push((image.to_owned(), filesystem.statfs(), type_of(&filesystem)));
        Ok(())
    });
    if !is_worth_showing(&done) {
        return done;
    }
    if arguments.reporting.json {
        let list: Vec<_> = rows
            .iter()
            .map(|(image, space, kind)| {
                json!({
                    "type": kind,
                    "image": json_path(image),
                    "block_size": space.block_size,
                    "blocks": space.blocks,
                    "blocks_free": space.blocks_free,
                    "blocks_available": space.blocks_available,
                    "inodes": space.inodes,
                    "inodes_free": space.inodes_free,
                })
            })
            .collect();
        output.json(json!({ "command": "df", "images": list }))?;
        return done;
    }
    let width = rows.iter().map(|(image, ..)| image.as_os_str().len()).max().unwrap_or(0).max(5);
    let (size, free) = if arguments.inodes { ("Inodes", "Free") } else { ("Size", "Avail") };
    let kind = |kind: &str| if arguments.print_type { format!(" {kind:4}") } else { String::new() };
    output.line(format!(
        "{:width$}{} {size:>8} {:>8} {free:>8} {:>5}",
        "Image",
        kind("Type"),
        "Used",
        "Use%"
    ))?;
    for (image, space, name) in rows {
        let bytes = |blocks: u64| human(blocks.saturating_mul(space.block_size));
        let (all, used, available) = if arguments.inodes {
            (space.inodes, space.inodes.saturating_sub(space.inodes_free), space.inodes_free)
        } else {
            (space.blocks, space.blocks.saturating_sub(space.blocks_free), space.blocks_available)
        };
        // As in df: percent of the blocks available to users without root, rounded up.
        let percent = used.saturating_mul(100).div_ceil(used.saturating_add(available).max(1));
        let show = |count: u64| if arguments.inodes { count.to_string() } else { bytes(count) };
        output.line(format!(
            "{:width$}{} {:>8} {:>8} {:>8} {percent:>4}%",
            image.display(),
            kind(name),
            show(all),
            show(used),
            show(available)
        ))?;
    }
    done
}
