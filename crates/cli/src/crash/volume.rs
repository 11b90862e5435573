//! The volume of a run, and its repair.

use std::ffi::OsString;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use diorite::DirectIo;
use diorite::front_end::open_target;
use diorite_device::OpenOptions as DeviceOptions;
use diorite_sim::image::SparseImage;

use crate::args::{self, Cli, Command as Arguments, Crash, FilesystemType};
use crate::failure::{Failure, Result};
use crate::make;
use crate::output::Output;

/// Feature bit of a journal: `has_journal` of `s_feature_compat`.
const HAS_JOURNAL: u32 = 4;
/// Exit status of `e2fsck` from which on it could not repair.
const UNREPAIRED: i32 = 4;

/// The volume before the workload, in memory.
pub(super) fn make(arguments: &Crash, kind: FilesystemType) -> Result<SparseImage> {
    if let Some(from) = &arguments.from
        && is_volume(from)
    {
        return load(from);
    }
    let failed = |error: std::io::Error| Failure::host("crash", "make the volume", &error);
    let scratch = tempfile::tempdir().map_err(failed)?;
    let image = scratch.path().join("volume.img");
    let mut words: Vec<OsString> = ["diorite", "mkfs", "-q", "-t", kind.name()].map(OsString::from).to_vec();
    if let Some(from) = &arguments.from {
        words.extend(["-d".into(), from.clone().into()]);
    }
    let options = arguments.mkfs.as_deref().unwrap_or("-b 4096");
    words.extend(options.split_whitespace().map(OsString::from));
    words.extend([image.clone().into(), arguments.size.0.to_string().into()]);
    let Cli { command } = args::parse(words)
        .map_err(|wrong| Failure::Usage(format!("--mkfs {options}: {}", first_line(&wrong.to_string()))))?;
    let Arguments::Mkfs(mkfs) = command else { unreachable!("the words are of mkfs") };
    make::make(&mkfs, &mut Output::new())?;
    load(&image)
}

/// Whether a file has the magic number of a superblock (`s_magic`).
fn is_volume(path: &Path) -> bool {
    let mut magic = [0; 2];
    let read = std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut magic, 1024 + 0x38));
    path.is_file() && read.is_ok() && magic == [0x53, 0xef]
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ")
}

fn load(path: &Path) -> Result<SparseImage> {
    let name = path.display();
    let options = DeviceOptions::read_only().direct(DirectIo::Off);
    let device = open_target(&path.to_string_lossy(), &options).map_err(|error| Failure::open(&error))?;
    SparseImage::copy_of(&*device).map_err(|error| Failure::Failed(format!("{name}: cannot read: {error}")))
}

/// Whether the volume has no journal.
pub(super) fn needs_repair(image: &SparseImage) -> bool {
    let mut compat = [0; 4];
    image.read(1024 + 0x5c, &mut compat);
    u32::from_le_bytes(compat) & HAS_JOURNAL == 0
}

/// Write a volume to a new file.
pub(super) fn save(image: &SparseImage, path: &Path) -> std::io::Result<()> {
    // The last one may still be in use by a loop device.
    let _ = std::fs::remove_file(path);
    image.export(&mut std::fs::File::create(path)?)
}

/// The volume after `e2fsck -fy`, as a system without a journal runs it at its start.
pub(super) fn repaired(image: &SparseImage, path: &Path) -> std::result::Result<SparseImage, String> {
    let failed = |error: std::io::Error| format!("the volume cannot be repaired: {error}");
    save(image, path).map_err(failed)?;
    let mut e2fsck = Command::new("e2fsck");
    e2fsck.args(["-fy"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = e2fsck.status().map_err(|error| format!("e2fsck cannot run: {error}; install e2fsprogs"))?;
    if status.code().is_none_or(|code| code >= UNREPAIRED) {
        return Err(format!("e2fsck cannot repair the volume: {status}"));
    }
    let options = DeviceOptions::read_only().direct(DirectIo::Off);
    let device = open_target(&path.to_string_lossy(), &options).map_err(|error| error.to_string())?;
    SparseImage::copy_of(&*device).map_err(|error| error.to_string())
}
