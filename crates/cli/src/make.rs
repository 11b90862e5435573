//! The command mkfs: translates arguments, and does not overwrite data without `--force`.

use std::path::Path;

use diorite::front_end::{AllocationPolicy, host_paths, is_new_file, open_target};
use diorite::mkfs::{MkfsOptions, QuotaKind, mkfs, preview};
use diorite::{Owner, Timestamp};
use diorite_copy::MemoryTree;
use diorite_device::OpenOptions as DeviceOptions;
use serde_json::json;

use crate::args::{FilesystemType, Mkfs};
use crate::devices::what_is_lost;
use crate::failure::{Failure, Result};
use crate::fill::fill;
use crate::fit;
use crate::free_space;
use crate::identity::{Given, Identity, identify};
use crate::interrupt;
use crate::location::name_of_image;
use crate::new_volume::{
    Made, SECTOR_BYTES, Target, mkfs_failure, no_size, open_device, rules, set_journal, size_of,
};
use crate::output::{Output, json_path};
use crate::replacement::Replacement;
use crate::sides::summary_json;
use crate::size::{ImageSize, Size, counted, human, size_in_words};
use crate::sources::Sources;
use crate::verity;
use crate::volume::uuid_text;

/// The UUID that does not come from the content.
const RANDOM: &str = "random";
pub(crate) fn make(arguments: &Mkfs, output: &mut Output) -> Result<()> {
    let image = Path::new(&arguments.image);
    let (mut options, times) = options_of(arguments)?;
    let is_fit = arguments.wanted_size == Some(ImageSize::Fit);
    refuse_useless(arguments, is_fit)?;
    // The source is opened before anything is created or overwritten.
    let sources = Sources::open(arguments)?;
    let is_new = is_new_file(name_of_image(image)?);
    if !arguments.force && !is_new {
        refuse_to_overwrite(name_of_image(image)?)?;
    }
    if arguments.dry_run {
        return preview_on(arguments, image, is_new, &mut options, output);
    }
    let content = sources.map(Sources::load).transpose()?;
    let identity = content.as_ref().map(|content| identify(content, &mut options, times)).transpose()?;
    interrupt::is_changing();
    // The old image is kept until the new one is complete: only then it is known to fit.
    let replacement = (is_fit && image.is_file()).then(|| Replacement::of(arguments, image)).transpose()?;
    let place = replacement.as_ref().map_or(image, Replacement::place);
    let target = Target { arguments, image, place, is_new: is_new || replacement.is_some() };
    let made = match (&content, identity) {
        (Some(content), Some(identity)) if is_fit => fit::make(target, content, options, identity),
        (content, identity) => make_on(target, content.as_ref().zip(identity), options),
    };
    let made = made.and_then(|made| verity::add(target, identity, made));
    let made = match replacement {
        Some(replacement) => made.and_then(|made| replacement.complete().map(|()| made)),
        None => made,
    };
    if made.is_err() && is_new {
        // Remove the new image. The first error is reported.
        let _ = host_paths(name_of_image(image)?).iter().try_for_each(std::fs::remove_file);
    }
    if made.is_err() && interrupt::check().is_err() {
        let left = if is_new || is_fit && image.is_file() {
            "not made"
        } else {
            "its new filesystem is not complete; make it again, with --force"
        };
        return Err(Failure::Failed(format!("{}: interrupted: {left}", image.display())));
    }
    let made = made?;
    if arguments.quiet { Ok(()) } else { show(arguments, image, &made, output) }
}

/// Fail for options that need others.
fn refuse_useless(arguments: &Mkfs, is_fit: bool) -> Result<()> {
    let image = Path::new(&arguments.image).display();
    let why = if is_fit && arguments.from.is_empty() {
        "--size fit needs content (-d)"
    } else if is_fit && arguments.dry_run {
        "the size is known only when the filesystem is full; leave out --dry-run"
    } else if arguments.slack.is_some() && !is_fit {
        "--slack needs --size fit"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(format!("{image}: not made: {why}")))
}

/// Print what would be made.
fn preview_on(
    arguments: &Mkfs,
    image: &Path,
    is_new: bool,
    options: &mut MkfsOptions,
    output: &mut Output,
) -> Result<()> {
    let (capacity_bytes, block) = match size_of(arguments) {
        Some(Size(bytes)) if is_new => (bytes, SECTOR_BYTES),
        _ if is_new => return Err(no_size(image)),
        _ => {
            let opened = open_target(name_of_image(image)?, &DeviceOptions::read_only());
            let device = opened.map_err(|error| Failure::open(&error))?;
            (device.geometry().capacity_bytes, device.geometry().logical_block_size)
        }
    };
    if let Some(sizes) = arguments.journal_size {
        set_journal(image, options, sizes, capacity_bytes, block)?;
    }
    let report = preview(options, capacity_bytes, block);
    let report = report.map_err(|error| mkfs_failure(image, error))?;
    show(arguments, image, &Made { report, summary: None, verity: None }, output)
}

/// Fail if the target has content.
fn refuse_to_overwrite(name: &str) -> Result<()> {
    let Some(found) = what_is_lost(name) else { return Ok(()) };
    let way = if found.is_partition_table() {
        "name a partition (?partition=1), or use --force to overwrite it"
    } else {
        "use --force to overwrite it"
    };
    Err(Failure::Failed(format!("{name}: not made: {found}; {way}")))
}

/// Make the filesystem in the size of the target, and fill it.
fn make_on(
    target: Target<'_>,
    content: Option<(&MemoryTree, Identity)>,
    mut options: MkfsOptions,
) -> Result<Made> {
    let Target { arguments, image, .. } = target;
    let device = open_device(target, size_of(arguments))?;
    // A partial block of the device at the end of an image cannot be used.
    let block = u64::from(device.geometry().logical_block_size);
    options.size_bytes = options.size_bytes.map(|size| size - size % block);
    if let Some(sizes) = arguments.journal_size {
        let geometry = device.geometry();
        set_journal(image, &mut options, sizes, geometry.capacity_bytes, geometry.logical_block_size)?;
    }
    if let Some((content, _)) = content {
        free_space::check(image, content, device.geometry(), &options)?;
    }
    let report = mkfs(device.as_ref(), &options).map_err(|error| mkfs_failure(image, error))?;
    let Some((content, identity)) = content else { return Ok(Made { report, summary: None, verity: None }) };
    let rules = rules(arguments, &options, identity, AllocationPolicy::Spread);
    let mut summary = fill(image, device, (content, content.top()), rules)?;
    summary.attributes_lost += content.attributes_lost();
    Ok(Made { report, summary: Some(summary), verity: None })
}

fn options_of(arguments: &Mkfs) -> Result<(MkfsOptions, Given)> {
    let is_fit = arguments.wanted_size == Some(ImageSize::Fit);
    let mut options = MkfsOptions {
        flavor: arguments.kind.flavor(),
        size_bytes: size_of(arguments).map(|size| size.0),
        block_size: arguments.block_size.map(|size| narrow(size.0, "the block size")).transpose()?,
        cluster_size: arguments.cluster_size.map(|size| narrow(size.0, "the cluster size")).transpose()?,
        inode_size: arguments.inode_size.map(|size| narrow(size.0, "the inode size")).transpose()?,
        bytes_per_inode: arguments
            .bytes_per_inode
            .map(|size| narrow(size.0, "the number of bytes for an inode"))
            .transpose()?,
        inodes: arguments.inodes,
        label: arguments.label.clone().unwrap_or_default().into_bytes(),
        uuid: arguments.uuid.as_deref().filter(|uuid| *uuid != RANDOM).map(parse_uuid).transpose()?,
        reserved_percent: arguments.reserved_percent.unwrap_or(if is_fit { 0.0 } else { 5.0 }),
        features: arguments.features.join(","),
        flex_groups: arguments.flex_groups,
        ..MkfsOptions::default()
    };
    let (mut seed, mut time, mut with_casefold) = (None, None, false);
    for word in arguments.extended.iter().flat_map(|words| words.split(',')).filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let wrong = |form: &str| Failure::Usage(format!("-E {word}: write {form}"));
        match key {
            "root_owner" => {
                let (uid, gid) = value.split_once(':').ok_or_else(|| wrong("root_owner=UID:GID"))?;
                let number =
                    |text: &str| text.parse::<u32>().map_err(|_| wrong("root_owner=UID:GID, both numbers"));
                options.root_owner = Owner { uid: number(uid)?, gid: number(gid)? };
            }
            "resize" => options.resize_blocks = Some(value.parse().map_err(|_| wrong("resize=BLOCKS"))?),
            "hash_seed" => options.hash_seed = Some(parse_uuid(value)?),
            "seed" => seed = Some(value.parse::<u64>().map_err(|_| wrong("seed=NUMBER"))?),
            "time" => {
                let seconds = value.parse::<i64>().map_err(|_| wrong("time=SECONDS since 1970"))?;
                time = Some(Timestamp { seconds, nanoseconds: 0 });
            }
            "encoding" if value == "utf8" || value == "utf8-12.1" => with_casefold = true,
            "encoding" => return Err(wrong("encoding=utf8")),
            "encoding_flags" => match value {
                "strict" => options.strict_encoding = true,
                "" | "nostrict" | "no-strict" => options.strict_encoding = false,
                _ => return Err(wrong("encoding_flags=strict")),
            },
            "mmp_update_interval" => {
                let seconds = value.parse().map_err(|_| wrong("mmp_update_interval=SECONDS"))?;
                options.mmp_update_interval = Some(seconds);
            }
            "quotatype" => {
                let kinds = value.split(':').map(|name| {
                    QuotaKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                        wrong(
                            "quotatype=KIND; kinds are usrquota, grpquota and prjquota, separated by colons",
                        )
                    })
                });
                options.quota_kinds = Some(kinds.collect::<Result<_>>()?);
            }
            "discard" if word == key => options.discard = true,
            "nodiscard" if word == key => options.discard = false,
            // Tables and journal are always complete when the command ends.
            "lazy_itable_init" | "lazy_journal_init" if matches!(value, "" | "0" | "1") => {}
            "lazy_itable_init" | "lazy_journal_init" => return Err(wrong(&format!("{key}=0 or {key}=1"))),
            _ => {
                return Err(Failure::Usage(format!(
                    "-E {word}: unknown option; the options are root_owner, resize, quotatype, mmp_update_interval, \
                     hash_seed, encoding, encoding_flags, discard, nodiscard, lazy_itable_init, \
                     lazy_journal_init, seed and time"
                )));
            }
        }
    }
    // As in mke2fs, an encoding or a journal size enables its feature.
    if with_casefold {
        options.features.push_str(",casefold");
    }
    if arguments.journal_size.is_some() {
        options.features.push_str(",has_journal");
    }
    if let Some(time) = time {
        options.time = time;
    }
    if let Some(seed) = seed {
        let (uuid, hash_seed, time) = (options.uuid, options.hash_seed, options.time);
        options = options.reproducible(seed, time);
        options.uuid = uuid.or(options.uuid);
        options.hash_seed = hash_seed.or(options.hash_seed);
    }
    let has_random_uuid = arguments.uuid.as_deref() == Some(RANDOM);
    Ok((options, Given { time, has_random_uuid }))
}

/// A number that must fit into fewer bits.
fn narrow<T: TryFrom<u64>>(number: u64, what: &str) -> Result<T> {
    T::try_from(number).map_err(|_| Failure::Usage(format!("{what} cannot be {number}: it is too large")))
}

fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    uuid::Uuid::try_parse(text)
        .map(uuid::Uuid::into_bytes)
        .map_err(|_| Failure::Usage(format!("`{text}` is not a UUID; write 8-4-4-4-12 hexadecimal digits")))
}

fn show(arguments: &Mkfs, image: &Path, made: &Made, output: &mut Output) -> Result<()> {
    let Made { report, summary, verity } = made;
    let (superblock, layout) = (&report.superblock, &report.layout);
    let uuid = superblock.uuid();
    if arguments.reporting.json {
        let mut value = json!({
            "command": "mkfs",
            "image": json_path(image),
            "uuid": uuid_text(&uuid),
            "features": superblock.features().names(),
            "block_size": layout.block_size.bytes(),
            "blocks": layout.blocks_count,
            "blocks_free": superblock.free_blocks_count(),
            "blocks_reserved": superblock.reserved_blocks_count(),
            "inodes": layout.inodes_count,
            "inode_size": layout.inode_size,
            "groups": layout.group_count,
            "journal_blocks": report.journal_blocks,
            "bytes_discarded": report.discarded_bytes,
        });
        if let Some(summary) = summary {
            value["content"] = summary_json("cp", summary);
        }
        if let Some(verity) = verity {
            value["verity"] = verity::json(arguments, verity);
        }
        return output.json(value);
    }
    let kind = match arguments.kind {
        FilesystemType::Ext2 => "ext2",
        FilesystemType::Ext3 => "ext3",
        FilesystemType::Ext4 => "ext4",
    };
    output.line(format!(
        "{}: {kind}, {} in {} blocks of {}, {} inodes, UUID {}",
        image.display(),
        human(layout.blocks_count.saturating_mul(layout.block_size.bytes())),
        layout.blocks_count,
        human(layout.block_size.bytes()),
        layout.inodes_count,
        uuid_text(&uuid)
    ))?;
    if report.journal_left_out {
        output.line("It is too small for a journal, so it has none.")?;
    }
    if let Some(summary) = summary {
        output.line(format!(
            "Filled with {} ({}), {} and {}.",
            counted(summary.files, "file", "files"),
            size_in_words(summary.bytes),
            counted(summary.directories, "directory", "directories"),
            counted(summary.others, "other entry", "other entries")
        ))?;
    }
    if let Some(verity) = verity {
        verity::show(arguments, verity, output)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_with_and_without_dashes() {
        let uuid = parse_uuid("01234567-89ab-cdef-0123-456789abcdef").unwrap();
        assert_eq!(uuid_text(&uuid), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(parse_uuid("0123456789abcdef0123456789abcdef").unwrap(), uuid);
        for wrong in ["", "0123", "0123456789abcdef0123456789abcdeg", "é123456789abcdef0123456789abcde"] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }
}
