//! The open images of a command. Each is opened once, and closed in order, with statistics if requested.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use diorite::front_end::{MmpWait, ReservedBlocks};
use diorite::{Access, DirectIo, Filesystem, Timestamp};

use crate::args::Opening;
use crate::failure::{Failure, Result, complain, print_error};
use crate::inside::Inside;
use crate::interrupt;
use crate::kernel_mount::warn_if_mounted;
use crate::location::{Location, is_same_image, with_partition};
use crate::output::local_time;
use crate::size::human;

/// Images by the names on the command line.
pub(crate) struct Images {
    opening: Opening,
    read_ahead_bytes: Option<usize>,
    open: Vec<Image>,
}

struct Image {
    name: PathBuf,
    access: Access,
    filesystem: Filesystem,
}

impl Images {
    pub(crate) fn new(opening: Opening) -> Self {
        Self { opening, read_ahead_bytes: None, open: Vec::new() }
    }

    /// Set the largest read-ahead window of the images, if one is given.
    #[must_use]
    pub(crate) fn read_ahead(self, read_ahead_bytes: Option<usize>) -> Self {
        Self { read_ahead_bytes, ..self }
    }

    /// Whether images are opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.opening.read_only
    }

    /// The user's choice of direct I/O, if any.
    pub(crate) fn direct(&self) -> Option<DirectIo> {
        match (self.opening.direct, self.opening.buffered) {
            (true, _) => Some(DirectIo::Required),
            (_, true) => Some(DirectIo::Off),
            _ => None,
        }
    }

    /// The filesystem in an image, opened for at least `access`. The first open of an image must have the highest access.
    pub(crate) fn open(&mut self, name: &Path, access: Access) -> Result<Filesystem> {
        let name = &*with_partition(name.as_os_str().as_bytes());
        if let Some(image) = self.open.iter().find(|image| is_same_image(&image.name, name)) {
            assert!(
                access == Access::ReadOnly || image.access == Access::ReadWrite,
                "commands open for writing first"
            );
            return Ok(image.filesystem.clone());
        }
        if access == Access::ReadWrite {
            if self.opening.read_only {
                let name = name.display();
                return Err(Failure::Failed(format!(
                    "{name}: cannot be changed: --read-only was given; leave it out"
                )));
            }
            interrupt::is_changing();
        }
        let mut options = Filesystem::options()
            .access(access)
            .reserved_blocks(reserved_blocks())
            .mmp_watch(mmp_watch(name));
        if self.opening.direct {
            options = options.direct(DirectIo::Preferred).device_direct(DirectIo::Required);
        }
        if let Some(kind) = self.opening.queueing.choice()? {
            options = options.scheduler(kind);
        }
        if let Some(bytes) = self.read_ahead_bytes {
            options = options.read_ahead_bytes(bytes);
        }
        let filesystem = options.open(name).map_err(|error| {
            let failure = Failure::of(name.display(), "open", &error);
            if looks_like_a_path_inside(name) {
                failure.with("; a file in an image is IMAGE:/path")
            } else {
                failure
            }
        })?;
        if access == Access::ReadWrite
            && let Some(reason) = filesystem.read_only_reason()
        {
            return Err(Failure::Failed(format!("{}: cannot be changed: {reason}", name.display())));
        }
        let device = filesystem.device().name();
        report_chosen_part(name, &device);
        if access == Access::ReadOnly {
            warn_if_mounted(Path::new(&device));
        }
        for defect in filesystem.defects() {
            complain(&format!("{}: {defect}", name.display()));
        }
        if let Some(advice) = filesystem.check_advice() {
            complain(&format!("{}: {advice}", name.display()));
        }
        self.open.push(Image { name: name.to_owned(), access, filesystem: filesystem.clone() });
        Ok(filesystem)
    }

    /// Replaces each location with a pattern by the files that fit. Opens the images of patterns for `access`.
    pub(crate) fn expand(&mut self, locations: &[Location], access: Access) -> Result<Vec<Location>> {
        let mut all = Vec::with_capacity(locations.len());
        for location in locations {
            if Inside::may_expand(location) {
                all.extend(self.expand_pattern(location, access)?);
            } else {
                all.push(location.clone());
            }
        }
        Ok(all)
    }

    /// The files that fit the pattern in a location, or the location itself.
    pub(crate) fn expand_pattern(&mut self, location: &Location, access: Access) -> Result<Vec<Location>> {
        let Location::Image { image, path } = location else { return Ok(vec![location.clone()]) };
        if !diorite_files::has_pattern(path) {
            return Ok(vec![location.clone()]);
        }
        let filesystem = self.open(image, access)?;
        let found = diorite_files::expand(&filesystem, path).map_err(Failure::map(location, "list"))?;
        Ok(found.into_iter().map(|path| Location::Image { image: image.clone(), path }).collect())
    }

    /// Sync and close all images. Returns the first failure.
    pub(crate) fn close(self) -> Result<()> {
        let mut result = Ok(());
        for image in self.open {
            let stats = image.filesystem.stats();
            let scheduler = image.filesystem.scheduler().cloned();
            let closed = match image.access {
                Access::ReadOnly => Ok(()),
                Access::ReadWrite => {
                    image.filesystem.close().map_err(Failure::map(image.name.display(), "close"))
                }
            };
            result = result.and(closed);
            if self.opening.stats {
                print_error(&stats_text(&image.name, &stats));
                if let Some(scheduler) = scheduler {
                    print_error(scheduler.describe().trim_end());
                }
            }
        }
        result
    }
}

/// Report the partition of a disk that was chosen automatically.
pub(crate) fn report_chosen_part(name: &Path, device: &str) {
    if let Some((_, number)) = device.rsplit_once("?partition=")
        && !name.as_os_str().as_bytes().contains(&b'?')
    {
        complain(&format!("{}: using ?partition={number}, the only volume on this disk", name.display()));
    }
}

/// Root may use the reserved blocks.
fn reserved_blocks() -> ReservedBlocks {
    if rustix::process::geteuid().is_root() { ReservedBlocks::Usable } else { ReservedBlocks::Kept }
}

/// Reports once why an open waits for another host (multi-mount protection). An interrupt ends the wait.
fn mmp_watch(name: &Path) -> impl Fn(&MmpWait) -> ControlFlow<()> + Send + Sync + 'static {
    let (name, said, cancel) = (name.display().to_string(), Once::new(), interrupt::cancel());
    move |wait| {
        said.call_once(|| complain(&mmp_text(&name, wait)));
        if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn mmp_text(name: &str, wait: &MmpWait) -> String {
    let seconds = i64::try_from(wait.time).unwrap_or(i64::MAX);
    let time = local_time(Timestamp { seconds, nanoseconds: 0 }, "%Y-%m-%d %H:%M:%S");
    format!(
        "{name}: waiting for {} s (Ctrl-C ends it): host {} (device {}) marked the volume as in use at {time}; the wait shows whether it \
         still does (multi-mount protection)",
        wait.total.as_secs(),
        wait.node,
        wait.device
    )
}

/// Whether a missing name may be a mistyped path in an image: `disk.img:path` or `disk.img/path`.
fn looks_like_a_path_inside(name: &Path) -> bool {
    let bytes = name.as_os_str().as_bytes();
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    let is_image = |end: usize| Path::new(OsStr::from_bytes(&bytes[..end])).is_file();
    !name.exists() && (ends.any(is_image) || name.ancestors().skip(1).any(Path::is_file))
}

/// The counters of an image.
fn stats_text(name: &Path, stats: &diorite::Stats) -> String {
    let device = &stats.device;
    format!(
        "{}: {} reads of {}, {} writes of {}, {} flushes; {} bios of file data, {} of them direct; \
         {} copied by the CPU; cache: {} hits, {} misses, {} read ahead, {} written back",
        name.display(),
        device.reads,
        human(device.read_bytes),
        device.writes,
        human(device.write_bytes),
        device.flushes,
        stats.bios,
        stats.direct_bios,
        human(stats.bytes_copied),
        stats.cache_hits,
        stats.cache_misses,
        stats.readahead_pages,
        stats.writeback_pages,
    )
}
