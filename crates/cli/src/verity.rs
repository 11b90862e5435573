//! `mkfs --verity`: a dm-verity hash tree of the new image.

use std::path::Path;
use std::sync::Arc;

use diorite::BlockDevice;
use diorite::front_end::open_target;
use diorite_copy::{VERITY_BLOCK, VERITY_SALT_MAX, VerityLayout, VerityOptions, VerityReport, write_verity};
use diorite_device::{Create, FileDevice, OpenOptions as DeviceOptions};
use serde_json::json;

use crate::args::{HashPlace, Mkfs};
use crate::failure::{Failure, Result};
use crate::fit::bytes_of;
use crate::identity::{Identity, combined};
use crate::interrupt;
use crate::location::name_of_image;
use crate::new_volume::{Made, Target};
use crate::output::{Output, bytes_of_hex, hex};
use crate::progress::{CopyProgress, CopySays};

/// Add the tree that the arguments ask for.
pub(crate) fn add(target: Target<'_>, identity: Option<Identity>, made: Made) -> Result<Made> {
    let Target { arguments, image, .. } = target;
    let (Some(place), Some(identity)) = (&arguments.verity, identity) else { return Ok(made) };
    let bytes = bytes_of(&made.report);
    if !bytes.is_multiple_of(VERITY_BLOCK) {
        let why =
            format!("its size of {bytes} bytes is not a multiple of {VERITY_BLOCK}; choose another size");
        return Err(Failure::Failed(format!("{}: no hash tree: {why}", image.display())));
    }
    let layout = VerityLayout::new(bytes / VERITY_BLOCK);
    let uuid = uuid::Builder::from_custom_bytes(derived(identity, "uuid")).into_uuid().into_bytes();
    let options = VerityOptions { salt: salt(arguments, identity)?, uuid };
    let failure = |error: diorite_block::IoError| Failure::of(image.display(), "hash", &error.into());
    let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
    let written = if let HashPlace::File(file) = place {
        let data = open_target(name_of_image(target.place)?, &DeviceOptions::read_only())
            .map_err(|error| Failure::open(&error))?;
        let hashes = open(file, layout.hash_bytes())?;
        write_verity((&*data, &layout), (&*hashes, 0), &options, &progress)
    } else {
        let device = open_appended(target, bytes + layout.hash_bytes())?;
        write_verity((&*device, &layout), (&*device, bytes), &options, &progress)
    };
    progress.finish();
    let Some(verity) = written.map_err(failure)? else {
        return Err(Failure::Failed(format!("{}: interrupted", image.display())));
    };
    Ok(Made { verity: Some(verity), ..made })
}

/// The image with space for the tree.
fn open_appended(target: Target<'_>, bytes: u64) -> Result<Arc<dyn BlockDevice>> {
    let Target { image, place, .. } = target;
    if place.is_file() {
        return open(place, bytes);
    }
    let device = open_target(name_of_image(place)?, &DeviceOptions::read_write())
        .map_err(|error| Failure::open(&error))?;
    if device.geometry().capacity_bytes < bytes {
        let why = "the device has no space after the filesystem; use a smaller size, or --verity=FILE";
        return Err(Failure::Failed(format!("{}: no hash tree: {why}", image.display())));
    }
    Ok(device)
}

fn open(file: &Path, bytes: u64) -> Result<Arc<dyn BlockDevice>> {
    let options = DeviceOptions::read_write().create(Create::Sized(bytes));
    FileDevice::open(file, &options).map(|device| device as _).map_err(|error| Failure::open(&error))
}

/// The salt in the arguments, or from the content.
fn salt(arguments: &Mkfs, identity: Identity) -> Result<Vec<u8>> {
    let Some(text) = &arguments.verity_salt else {
        return Ok([derived(identity, "salt 1"), derived(identity, "salt 2")].concat());
    };
    if text == "-" {
        return Ok(Vec::new());
    }
    let salt = bytes_of_hex(text).filter(|salt| (1..=VERITY_SALT_MAX).contains(&salt.len()));
    salt.ok_or_else(|| {
        let cure = format!("write up to {VERITY_SALT_MAX} bytes in hexadecimal digits, or - for none");
        Failure::Usage(format!("--verity-salt: `{text}` is not a salt; {cure}"))
    })
}

/// Bytes for a purpose, from the identity of the image.
fn derived(identity: Identity, purpose: &str) -> [u8; 16] {
    combined(identity.digest, purpose.as_bytes())
}

/// The file that has the tree.
fn place(arguments: &Mkfs) -> &Path {
    match &arguments.verity {
        Some(HashPlace::File(file)) => file,
        _ => Path::new(&arguments.image),
    }
}

/// The line of `veritysetup` that opens the image.
fn command(arguments: &Mkfs, verity: &VerityReport) -> String {
    let (image, hashes) = (Path::new(&arguments.image).display(), place(arguments).display());
    let (root, offset) = (hex(verity.root_hash), verity.hash_offset);
    format!("veritysetup open {image} NAME {hashes} {root} --hash-offset={offset}")
}

/// The parameter of the kernel that mounts the first disk as root. A tree in another file is on the second disk.
fn kernel_parameter(verity: &VerityReport) -> String {
    let hashes = if verity.hash_offset == 0 { "/dev/vdb" } else { "/dev/vda" };
    let sectors = verity.data_blocks * (VERITY_BLOCK / 512);
    let start = verity.hash_offset / VERITY_BLOCK + 1;
    let salt = if verity.salt.is_empty() { "-".to_owned() } else { hex(&verity.salt) };
    format!(
        "dm-mod.create=\"root,,,ro,0 {sectors} verity 1 /dev/vda {hashes} {VERITY_BLOCK} {VERITY_BLOCK} {} {start} \
         sha256 {} {salt}\" root=/dev/dm-0",
        verity.data_blocks,
        hex(verity.root_hash)
    )
}

pub(crate) fn show(arguments: &Mkfs, verity: &VerityReport, output: &mut Output) -> Result<()> {
    output.line(format!("Root hash: {}", hex(verity.root_hash)))?;
    output.line(format!("Hash tree: {}, offset {}", place(arguments).display(), verity.hash_offset))?;
    output.line(format!("Open it: {}", command(arguments, verity)))?;
    output.line(format!("Boot it: {}", kernel_parameter(verity)))
}

pub(crate) fn json(arguments: &Mkfs, verity: &VerityReport) -> serde_json::Value {
    json!({
        "root_hash": hex(verity.root_hash),
        "hash_offset": verity.hash_offset,
        "data_blocks": verity.data_blocks,
        "salt": hex(&verity.salt),
        "command": command(arguments, verity),
        "kernel_parameter": kernel_parameter(verity),
    })
}
