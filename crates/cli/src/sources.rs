//! The sources of the content of a new filesystem: opened before anything is written, and then read into memory.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use diorite::FileKind;
use diorite::front_end::{VolumeInfo, host_paths, open_target};
use diorite_copy::{
    Archive, Follow, HostTree, LayerSource, Loading, MemoryTree, Source as _, Table, Unwatched, decompressor,
    load,
};
use diorite_device::OpenOptions as DeviceOptions;
use diorite_files::{Accounts, Ownership};

use crate::args::Mkfs;
use crate::failure::{Failure, Result, complain};
use crate::foreign;
use crate::interrupt;
use crate::location::is_same_image;
use crate::progress::{CopyProgress, CopySays};

/// A longer file of accounts is not read.
const ACCOUNTS_BYTES_MAX: u64 = 4 << 20;

/// The sources and changes of the content.
pub(crate) struct Sources<'a> {
    arguments: &'a Mkfs,
    layers: Vec<LayerSource>,
    table: Option<Table>,
}

impl<'a> Sources<'a> {
    /// Open the sources that the arguments name; `None` if there is none.
    pub(crate) fn open(arguments: &'a Mkfs) -> Result<Option<Self>> {
        let image = Path::new(&arguments.image);
        let open = |from: &PathBuf| open_source(from, image);
        let layers = arguments.from.iter().map(open).collect::<Result<Vec<_>>>()?;
        let table = arguments.table.as_deref().map(read_table).transpose()?;
        Ok((!layers.is_empty()).then_some(Self { arguments, layers, table }))
    }

    /// Read the metadata of all files into memory.
    pub(crate) fn load(self) -> Result<MemoryTree> {
        let image = Path::new(&self.arguments.image);
        let host = HostTree::new().beside_images(host_paths(&image.to_string_lossy()));
        let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
        let loading = Loading {
            host: &host,
            temporary: &temporary_directory(image),
            platform: self.arguments.platform.as_ref(),
            watch: &progress,
        };
        let loaded = load(self.layers, &loading);
        progress.finish();
        let mut tree = loaded?;
        if let Some(text) = &self.arguments.owner {
            let accounts = accounts_of(&tree);
            let owner = Ownership::parse(text, &accounts)
                .map_err(|wrong| Failure::Usage(format!("--owner {wrong}")))?;
            tree.set_owner(owner.uid, owner.gid);
        }
        if let Some(table) = &self.table {
            tree.obey(table)?;
        }
        Ok(tree)
    }
}

/// The accounts of the content, or of the host if the content has no `/etc/passwd`.
fn accounts_of(tree: &MemoryTree) -> Accounts {
    match small_file(tree, "/etc/passwd") {
        Some(users) => Accounts::of_text(&users, &small_file(tree, "/etc/group").unwrap_or_default()),
        None => Accounts::of_host(),
    }
}

fn small_file(tree: &MemoryTree, path: &str) -> Option<Vec<u8>> {
    let path = Path::new(path);
    let meta = tree.meta(path, Follow::Yes).ok()?;
    if meta.kind != FileKind::Regular || meta.size > ACCOUNTS_BYTES_MAX {
        return None;
    }
    let (file, mut text) = (tree.open(path, &meta).ok()?, vec![0; meta.size as usize]);
    let count = file.read_at(&mut text, 0).ok()?;
    text.truncate(count);
    Some(text)
}

/// Open a tar archive in a file, in a pipe, or in standard input (`-`).
pub(crate) fn open_archive(from: &Path) -> Result<Archive> {
    let opened = if from == Path::new("-") {
        Archive::standard_input(&Unwatched)
    } else {
        Archive::open(from, &Unwatched)
    };
    let archive = opened?;
    refuse_other(from, &archive, "tar -x")?;
    Ok(archive)
}

fn open_source(from: &Path, image: &Path) -> Result<LayerSource> {
    if is_same_image(from, image) {
        let why = "the new filesystem would overwrite it; choose another image";
        return Err(Failure::Failed(format!("{}: not used as an archive: {why}", from.display())));
    }
    let source = LayerSource::open(from, &Unwatched)?;
    match &source {
        LayerSource::Directory(directory) => {
            refuse_own_content(directory, image)?;
            report_fakeroot(directory);
        }
        LayerSource::Image { path, .. } if is_same_image(path, image) => {
            let why = "the new filesystem would overwrite it; choose another image";
            return Err(Failure::Failed(format!("{}: not used as an archive: {why}", path.display())));
        }
        _ => {}
    }
    if let Some(archive) = source.archive() {
        refuse_other(from, archive, "mkfs -d")?;
    }
    Ok(source)
}

/// Fail if a file is no archive.
fn refuse_other(from: &Path, archive: &Archive, command: &str) -> Result<()> {
    let Some(why) = archive.refusal() else { return Ok(()) };
    let better = from.is_file().then(|| better_reason(from, archive.start(), command)).flatten();
    let why = better.unwrap_or(why);
    Err(Failure::Failed(format!("{}: cannot read the archive: {why}", archive.name())))
}

/// The format of `from`, which is not a tar archive, and what to do with it.
fn better_reason(from: &Path, start: &[u8], command: &str) -> Option<String> {
    let name = from.display();
    if let Some(decompressor) = decompressor(start) {
        return Some(format!("it is compressed; use `{decompressor} {name} | diorite {command} - ...`"));
    }
    let device = open_target(from.to_str()?, &DeviceOptions::read_only()).ok()?;
    if VolumeInfo::read(&*device).is_ok() {
        return Some(format!(
            "it is an image of a filesystem; make the new one without -d, and then use `diorite cp -r {name}:/ IMAGE:/`"
        ));
    }
    foreign::describe(from)
}

/// Fail if a new image would be in the directory that fills it.
fn refuse_own_content(directory: &Path, image: &Path) -> Result<()> {
    let is_device = |kind: FileType| kind.is_block_device() || kind.is_char_device();
    if image.metadata().is_ok_and(|found| is_device(found.file_type())) {
        return Ok(());
    }
    let (Ok(directory), Ok(place)) = (directory.canonicalize(), parent_of(image).canonicalize()) else {
        return Ok(());
    };
    if !place.starts_with(&directory) {
        return Ok(());
    }
    let why = "it would contain itself; choose a place outside the directory";
    Err(Failure::Failed(format!("{}: not copied into itself: {why}", image.display())))
}

fn parent_of(image: &Path) -> &Path {
    let parent = image.parent().unwrap_or(image);
    if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
}

/// The directory of temporary files: beside the image, because that place must hold the data in any case. Devices have none.
fn temporary_directory(image: &Path) -> PathBuf {
    let is_file = !image.exists() || image.is_file();
    let beside = parent_of(image);
    if is_file && beside.is_dir() { beside.to_owned() } else { std::env::temp_dir() }
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

#[expect(clippy::disallowed_methods, reason = "the table is an argument of the command")]
fn read_table(path: &Path) -> Result<Table> {
    let text = std::fs::read(path).map_err(|error| Failure::host(path.display(), "read", &error))?;
    Ok(Table::parse(&path.display().to_string(), &text)?)
}
