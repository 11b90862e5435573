//! The initial content of a new filesystem: a directory or a tar archive.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diorite::front_end::{Clock, ReservedBlocks, VolumeInfo, host_paths, open_target};
use diorite::{Access, BlockDevice, DirectIo, Filesystem, Owner, SetAttributes, Timestamp};
use diorite_copy::{
    Copier, CopyOptions, Depth, HostTree, ImageTree, ReadStream, START_BYTES, StandardInput, Summary, Sync,
    Unwatched, Watch, WatchedInput, decompressor, no_archive, unpack,
};
use diorite_device::OpenOptions as DeviceOptions;

use crate::failure::{Failure, Result, complain};
use crate::foreign;
use crate::interrupt;
use crate::location::is_same_image;
use crate::progress::{CopyProgress, CopySays};

/// The source of the content.
pub(crate) enum Content {
    /// A directory of the host.
    Directory(PathBuf),
    /// A tar file and its name.
    Archive { reader: BufReader<File>, name: String },
    /// A tar stream whose start has been read.
    StandardInput { start: Vec<u8>, input: StandardInput },
}

impl Content {
    /// Open `from`. A file or standard input must begin with the header of a tar archive.
    #[expect(clippy::disallowed_methods, reason = "the archive is an argument of the command")]
    pub(crate) fn open(from: &Path, image: &Path) -> Result<Self> {
        if from == Path::new("-") {
            return Self::open_standard_input();
        }
        let found = from.metadata().map_err(|error| Failure::host(from.display(), "read", &error))?;
        if found.is_dir() {
            return Ok(Self::Directory(from.to_owned()));
        }
        if is_same_image(from, image) {
            let why = "the new filesystem would overwrite it; choose another image";
            return Err(Failure::Failed(format!("{}: not used as an archive: {why}", from.display())));
        }
        let file = File::open(from).map_err(|error| Failure::host(from.display(), "open", &error))?;
        let mut reader = BufReader::with_capacity(START_BYTES, file);
        // A pipe may not have enough data yet; it is checked when it is read.
        if found.is_file() {
            let start = reader.fill_buf().map_err(|error| Failure::host(from.display(), "read", &error))?;
            if let Some(why) = no_archive(start) {
                let why = better_reason(from, start).unwrap_or(why);
                let text = format!("{}: cannot read the archive: {why}", from.display());
                return Err(Failure::Failed(text));
            }
        }
        Ok(Self::Archive { reader, name: from.display().to_string() })
    }

    /// Read the archive with `read`, which also gets its name. `None` if this is a directory.
    pub(crate) fn read_archive<T>(
        self,
        watch: &dyn Watch,
        read: impl FnOnce(&mut dyn Read, &str) -> T,
    ) -> Option<T> {
        match self {
            Self::Directory(_) => None,
            Self::Archive { mut reader, name } => Some(read(&mut reader, &name)),
            Self::StandardInput { start, input } => {
                let rest = BufReader::with_capacity(START_BYTES, WatchedInput::new(input, watch));
                Some(read(&mut start.as_slice().chain(rest), StandardInput::NAME))
            }
        }
    }

    fn open_standard_input() -> Result<Self> {
        let mut input = StandardInput::new()?;
        let (mut start, mut len) = (vec![0; START_BYTES], 0);
        while len < start.len() {
            match ReadStream::read(&mut input, &mut start[len..], &Unwatched)? {
                0 => break,
                count => len += count,
            }
        }
        start.truncate(len);
        match no_archive(&start) {
            None => Ok(Self::StandardInput { start, input }),
            Some(why) => {
                Err(Failure::Failed(format!("{}: cannot read the archive: {why}", StandardInput::NAME)))
            }
        }
    }
}

/// The format of `from`, which is not a tar archive, and what to do with it.
fn better_reason(from: &Path, start: &[u8]) -> Option<String> {
    let name = from.display();
    if let Some(command) = decompressor(start) {
        return Some(format!("it is compressed; use `{command} {name} | diorite mkfs -d - ...`"));
    }
    let device = open_target(from.to_str()?, &DeviceOptions::read_only()).ok()?;
    if VolumeInfo::read(&*device).is_ok() {
        return Some(format!(
            "it is an image of a filesystem; make the new one without -d, and then use `diorite cp -r {name}:/ IMAGE:/`"
        ));
    }
    foreign::describe(from)
}

/// Under fakeroot(1), the attributes set in its session are only in its memory. Its library shows them to programs that use the C library, but
/// this program calls the kernel.
fn report_fakeroot(from: &Path) {
    if std::env::var_os("FAKEROOTKEY").is_some() {
        complain(&format!(
            "{name}: extended attributes and capabilities that were set under fakeroot are not kept; use \
             `tar --xattrs -C {name} -c . | diorite mkfs -d - ...`",
            name = from.display()
        ));
    }
}

/// Longer than any command runs.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// A clock that stands still, for reproducible images.
#[derive(Debug)]
struct FixedClock(Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// Copy the content into the root of the new filesystem. `root_owner` overrides the owner of the root in the source.
pub(crate) fn fill(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    content: Content,
    time: Option<Timestamp>,
    root_owner: Option<Owner>,
) -> Result<Summary> {
    let failure = |error| Failure::of(image.display(), "fill", &error);
    // The initial content may use the blocks reserved for root.
    let mut options =
        Filesystem::options().new_volume().access(Access::ReadWrite).reserved_blocks(ReservedBlocks::Usable);
    if let Some(time) = time {
        options = options.clock(Arc::new(FixedClock(time))).dirty_age(NEVER).commit_interval(NEVER);
    }
    let filesystem = options.open_device(device).map_err(failure)?;
    // Reproducible images need direct I/O: the order in which writeback allocates blocks depends on timing.
    let direct = time.map(|_| DirectIo::Preferred);
    let mut tree = ImageTree::new(filesystem.clone(), image.display().to_string(), direct);
    if let Some(time) = time {
        tree = tree.not_after(time);
    }
    let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
    let root = Path::new("/");
    let summary = match content {
        Content::Directory(from) => {
            // The close syncs.
            let options = CopyOptions { depth: Depth::Tree, sync: Sync::Never, ..CopyOptions::default() };
            report_fakeroot(&from);
            let mut copier = Copier::new(&tree, options, &progress);
            let host = HostTree::new().beside_images(host_paths(&image.to_string_lossy()));
            copier.copy_content(&host, &from, root).and_then(|()| copier.finish())
        }
        archive => {
            let unpacked =
                archive.read_archive(&progress, |reader, name| unpack(reader, name, &tree, root, &progress));
            unpacked.unwrap_or(Ok(Summary::default()))
        }
    };
    if let Some(Owner { uid, gid }) = root_owner {
        let owner = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        filesystem.resolve_link(root).and_then(|node| node.set_attributes(&owner)).map_err(failure)?;
    }
    progress.finish();
    drop(tree);
    let closed = filesystem.close().map_err(failure);
    let summary = summary?;
    closed?;
    Ok(summary)
}
