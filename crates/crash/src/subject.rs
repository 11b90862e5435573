//! What is tested: a volume, a file of it, or a raw device, opened in little memory.

use std::sync::Arc;
use std::time::Duration;

use diorite::front_end::WriteBack;
use diorite::{Access, BlockDevice, DirectIo, File, Filesystem, FilesystemOptions, RawFile};

/// Nothing is written or committed by age: the calls of the workload alone decide.
const NEVER: Duration = Duration::from_secs(1 << 30);
/// Memory of the volume of a workload.
const WORKLOAD_CACHE_BYTES: usize = 16 << 20;
/// Memory of the volume of a check.
const CHECK_CACHE_BYTES: usize = 256 << 10;
/// The name of the file under test.
pub(crate) const FILE: &str = "/file";

/// What the system writes by itself while a workload runs. A real system does any of these at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timing {
    /// Nothing: only syncs write, and later the end of the test.
    #[default]
    Late,
    /// Changes of metadata are committed at once, and data waits.
    MetadataFirst,
    /// Data is written at once, and metadata waits.
    DataFirst,
}

impl Timing {
    /// All of them, and their names in cases.
    pub(crate) const NAMES: [(Self, &'static str); 3] =
        [(Self::Late, "late"), (Self::MetadataFirst, "metadata"), (Self::DataFirst, "data")];
}

fn of_volume() -> FilesystemOptions {
    Filesystem::options().write_back(WriteBack::ByWriter).dirty_age(NEVER).commit_interval(NEVER)
}

/// Options of the volume that a workload changes.
fn of_workload(timing: Timing) -> FilesystemOptions {
    let options = of_volume().cache_bytes(WORKLOAD_CACHE_BYTES).metadata_cache_bytes(WORKLOAD_CACHE_BYTES);
    match timing {
        Timing::Late => options,
        Timing::MetadataFirst => options.commit_interval(Duration::ZERO),
        Timing::DataFirst => options.direct(DirectIo::Preferred),
    }
}

/// Options of the volume that a check reads.
fn of_check() -> FilesystemOptions {
    of_volume().cache_bytes(CHECK_CACHE_BYTES).metadata_cache_bytes(CHECK_CACHE_BYTES).read_ahead_bytes(0)
}

/// A volume to look at, which is not changed.
pub(crate) fn to_read(device: Arc<dyn BlockDevice>) -> diorite::Result<Filesystem> {
    of_check().access(Access::ReadOnly).open_device(device)
}

/// Whether a subject is opened for the workload or for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The workload changes it.
    Workload(Timing),
    /// A check reads it.
    Check,
}

/// A thing under test.
pub(crate) trait Subject {
    /// What a workload and a check get.
    type Handle;

    /// The timings that make a difference.
    const TIMINGS: &'static [Timing] = &[Timing::Late, Timing::MetadataFirst, Timing::DataFirst];

    /// Open it.
    fn open(device: Arc<dyn BlockDevice>, purpose: Purpose) -> diorite::Result<Self::Handle>;

    /// What the system does some time after the workload: changes of metadata become durable before file data does.
    fn settle(handle: &Self::Handle) -> diorite::Result<()>;
}

/// A volume.
pub(crate) struct OfVolume;

impl Subject for OfVolume {
    type Handle = Filesystem;

    fn open(device: Arc<dyn BlockDevice>, purpose: Purpose) -> diorite::Result<Filesystem> {
        match purpose {
            Purpose::Workload(timing) => {
                let filesystem = of_workload(timing).open_device(device)?;
                // The calls of the workload commit what is old; a thread would do it at another moment each time.
                filesystem.volume().end_waiting();
                Ok(filesystem)
            }
            Purpose::Check => of_check().open_device(device),
        }
    }

    fn settle(filesystem: &Filesystem) -> diorite::Result<()> {
        filesystem.volume().sync()?;
        filesystem.sync()
    }
}

/// One file of a volume.
pub(crate) struct OfFile;

impl Subject for OfFile {
    type Handle = (Filesystem, File);

    fn open(device: Arc<dyn BlockDevice>, purpose: Purpose) -> diorite::Result<Self::Handle> {
        let filesystem = OfVolume::open(device, purpose)?;
        let file = filesystem.open_options().read(true).write(true).open(FILE)?;
        Ok((filesystem, file))
    }

    fn settle((filesystem, _): &Self::Handle) -> diorite::Result<()> {
        OfVolume::settle(filesystem)
    }
}

/// A raw device.
pub(crate) struct OfDevice;

impl Subject for OfDevice {
    type Handle = File;

    const TIMINGS: &'static [Timing] = &[Timing::Late, Timing::DataFirst];

    fn open(device: Arc<dyn BlockDevice>, purpose: Purpose) -> diorite::Result<File> {
        let options = RawFile::options().read(true).write(true);
        match purpose {
            Purpose::Workload(Timing::DataFirst) => {
                options.direct(DirectIo::Preferred).open_device(device, WORKLOAD_CACHE_BYTES)
            }
            Purpose::Workload(_) => options.open_device(device, WORKLOAD_CACHE_BYTES),
            Purpose::Check => options.open_device(device, CHECK_CACHE_BYTES),
        }
    }

    fn settle(file: &File) -> diorite::Result<()> {
        file.sync_all()
    }
}
