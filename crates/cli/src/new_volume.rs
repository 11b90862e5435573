//! The target and the result of mkfs, for all ways to choose a size.

use std::path::Path;
use std::sync::Arc;

use diorite::front_end::{AllocationPolicy, open_target};
use diorite::mkfs::{MkfsError, MkfsOptions, MkfsReport, preview};
use diorite::{BlockDevice, DirectIo};
use diorite_copy::{Summary, VerityReport};
use diorite_device::{Create, OpenError, OpenOptions as DeviceOptions};
use rustix::process::{Resource, getrlimit};

use crate::args::Mkfs;
use crate::failure::{Failure, Result};
use crate::fill::Rules;
use crate::identity::Identity;
use crate::journal_sizes::JournalSizes;
use crate::location::name_of_image;
use crate::size::{ImageSize, Size};

/// Smaller images cannot hold a filesystem; the user probably forgot the unit.
pub(crate) const SMALLEST_BYTES: u64 = 16 << 10;
/// The logical block of an image that does not exist yet.
pub(crate) const SECTOR_BYTES: u32 = 512;

/// The place of the new filesystem.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) arguments: &'a Mkfs,
    /// Its name in messages.
    pub(crate) image: &'a Path,
    /// Its path until it is complete: a file beside the image that it replaces, or the image itself.
    pub(crate) place: &'a Path,
    pub(crate) is_new: bool,
}

/// A new filesystem.
pub(crate) struct Made {
    pub(crate) report: MkfsReport,
    pub(crate) summary: Option<Summary>,
    pub(crate) verity: Option<VerityReport>,
}

/// The size that the arguments name.
pub(crate) fn size_of(arguments: &Mkfs) -> Option<Size> {
    match arguments.wanted_size {
        Some(ImageSize::Bytes(size)) => Some(size),
        Some(ImageSize::Fit) => None,
        None => arguments.size,
    }
}

/// A new image needs a size.
pub(crate) fn no_size(image: &Path) -> Failure {
    let image = image.display();
    Failure::Usage(format!("{image}: does not exist; give the size of a new image, for instance 1G"))
}

/// The rules for the content.
pub(crate) fn rules(
    arguments: &Mkfs,
    options: &MkfsOptions,
    identity: Identity,
    allocation: AllocationPolicy,
) -> Rules {
    let is_given = arguments.extended.iter().any(|word| word.starts_with("root_owner="));
    Rules { time: identity.time, allocation, root_owner: is_given.then_some(options.root_owner) }
}

pub(crate) fn mkfs_failure(image: &Path, error: MkfsError) -> Failure {
    let text = format!("{}: cannot make the filesystem: {error}", image.display());
    match error {
        MkfsError::Io(error) => Failure::of(image.display(), "make the filesystem", &error.into()),
        // These do not depend on the image.
        MkfsError::Invalid { .. } | MkfsError::UnknownFeature { .. } | MkfsError::Conflict { .. } => {
            Failure::Usage(text)
        }
        _ => Failure::Failed(text),
    }
}

/// Open the target; a new image gets this size.
pub(crate) fn open_device(target: Target<'_>, size: Option<Size>) -> Result<Arc<dyn BlockDevice>> {
    let Target { arguments, image, place, is_new } = target;
    let name = name_of_image(place)?;
    if let Some(Size(size)) = size.filter(|size| size.0 < SMALLEST_BYTES) {
        return Err(Failure::Usage(format!(
            "{}: {size} bytes are too few for a filesystem; give the size of the image, for instance 1G",
            image.display()
        )));
    }
    let create = match size {
        Some(size) if is_new => Create::NewSized(size.0),
        Some(size) if std::fs::metadata(place).is_ok_and(|found| found.is_file() && found.len() == 0) => {
            Create::Sized(size.0)
        }
        None if is_new => return Err(no_size(image)),
        _ => Create::Never,
    };
    let options = DeviceOptions::read_write().create(create);
    let open = |options: &DeviceOptions| {
        open_target(name, options).map_err(|error| match &error {
            OpenError::Os { source, .. } if source.kind() == std::io::ErrorKind::FileTooLarge => {
                let why = match getrlimit(Resource::Fsize).current {
                    Some(limit) => {
                        format!("this process may write {limit} bytes to a file; raise the limit (ulimit -f)")
                    }
                    None => "its filesystem allows no files of that size; use another filesystem".to_owned(),
                };
                Failure::Failed(format!("{name}: cannot set the size: {why}, or choose a smaller size"))
            }
            OpenError::NotFound { .. } if is_new => Failure::Failed(format!(
                "{name}: cannot make the image: its directory does not exist; make the directory first"
            )),
            _ => Failure::open(&error),
        })
    };
    let device = open(&options)?;
    let requested = arguments.block_size.map_or(u64::MAX, |size| size.0);
    if u64::from(device.geometry().logical_block_size) <= requested {
        return Ok(device);
    }
    // Direct I/O cannot transfer such small blocks, so the image is made through the host's page cache.
    drop(device);
    open(&options.create(Create::Never).direct(DirectIo::Off))
}

/// Set the journal's sizes in blocks. The block size may depend on the size of the volume.
pub(crate) fn set_journal(
    image: &Path,
    options: &mut MkfsOptions,
    sizes: JournalSizes,
    capacity_bytes: u64,
    logical_block_size: u32,
) -> Result<()> {
    let chosen = preview(options, capacity_bytes, logical_block_size);
    // Invalid options are reported when the volume is made.
    let block = chosen.map_or_else(
        |_| options.block_size.unwrap_or(4096).into(),
        |volume| volume.layout.block_size.bytes(),
    );
    let too_large =
        |what| move |_| Failure::Failed(format!("{}: not made: {what} is too large", image.display()));
    let blocks = |size: Option<Size>, what| {
        size.map(|size| u32::try_from(size.0 / block.max(1)).map_err(too_large(what))).transpose()
    };
    options.journal_blocks = blocks(sizes.log, "the size of the journal")?;
    options.fast_commit_blocks = blocks(sizes.fast_commits, "the size of the area for fast commits")?;
    Ok(())
}
