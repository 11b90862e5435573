//! A file in an image, as a [`Target`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use diorite::{DirectIo, DirectReader, DirectWriter, File, Filesystem};
use diorite_device::AlignedBuf;

use super::CHUNK_BYTES;
use super::chunks::{ChunkReader, ChunkWriter, IN_FLIGHT, Streamed, huge_buffer};
use super::target::{Target, TargetCounts, one_at_a_time};
use crate::error::Error;
use crate::host::{FileIo, Start, WorkFile};
use crate::rows::Engine;

/// A file in an open filesystem, which the caller closes.
#[derive(Clone)]
pub struct ImageTarget {
    filesystem: Filesystem,
    image: String,
    path: PathBuf,
}

impl fmt::Debug for ImageTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageTarget")
            .field("image", &self.image)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ImageTarget {
    /// A file with a name of this process in `directory` of `filesystem`, which messages call `image`.
    pub fn new(filesystem: Filesystem, image: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        let path = directory.into().join(format!("Bonnie.{}", std::process::id()));
        Self { filesystem, image: image.into(), path }
    }

    /// An error if the volume has no space for a file of `bytes`.
    pub fn need_space(&self, bytes: u64) -> Result<(), Error> {
        let space = self.filesystem.statfs();
        let free = space.blocks_free.saturating_mul(space.block_size);
        if bytes <= free {
            return Ok(());
        }
        let (path, needed, free) = (self.name().into(), bytes / 1_000_000, free / 1_000_000);
        Err(Error::Space { path, needed, free })
    }

    fn error(&self) -> impl Fn(diorite::Error) -> Error + use<> {
        let object = self.name();
        move |source| {
            let object = object.clone();
            match source {
                diorite::Error::At { source, .. } => Error::Diorite { object, source },
                source => Error::Diorite { object, source: Box::new(source) },
            }
        }
    }

    fn open_file(&self, io: FileIo, start: Start) -> Result<File, Error> {
        let direct = match io {
            FileIo::Buffered => DirectIo::Off,
            FileIo::Direct => DirectIo::Required,
        };
        if start == Start::New {
            self.remove()?;
        }
        let is_new = start == Start::New;
        let options = self.filesystem.open_options().read(true).write(true).create_new(is_new).direct(direct);
        options.open(&self.path).map_err(self.error())
    }
}

impl Target for ImageTarget {
    fn engine(&self) -> Engine {
        Engine::Diorite
    }

    fn open(&self, io: FileIo, start: Start) -> Result<Arc<dyn WorkFile>, Error> {
        let file = self.open_file(io, start)?;
        Ok(Arc::new(ImageFile { file, target: self.clone() }))
    }

    fn writer(&self, io: FileIo) -> Result<Box<dyn ChunkWriter>, Error> {
        if io == FileIo::Buffered {
            return Ok(one_at_a_time(self, io, Start::New)?);
        }
        let file = self.open_file(io, Start::New)?;
        let stream = DirectWriter::new(file, 0, CHUNK_BYTES, IN_FLIGHT).map_err(self.error())?;
        Ok(Box::new(Streamed { stream, blame: self.error() }))
    }

    fn reader(&self, io: FileIo) -> Result<Box<dyn ChunkReader>, Error> {
        if io == FileIo::Buffered {
            return Ok(one_at_a_time(self, io, Start::Existing)?);
        }
        let file = self.open_file(io, Start::Existing)?;
        let stream = DirectReader::new(file, 0, CHUNK_BYTES, IN_FLIGHT).map_err(self.error())?;
        Ok(Box::new(Streamed { stream, blame: self.error() }))
    }

    fn forget_cached(&self) -> Result<(), Error> {
        self.filesystem.drop_caches().map_err(self.error())
    }

    fn remove(&self) -> Result<(), Error> {
        match self.filesystem.remove_file(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.error()(error)),
        }
    }

    fn counts(&self) -> Option<TargetCounts> {
        let stats = self.filesystem.stats();
        Some(TargetCounts { bios: stats.bios, bytes_copied: stats.bytes_copied })
    }

    fn buffer(&self, io: FileIo, len: usize) -> Result<AlignedBuf, Error> {
        match io {
            FileIo::Buffered => huge_buffer(len, AlignedBuf::try_zeroed),
            // The ring knows registered memory, and does not pin it for each transfer.
            FileIo::Direct => huge_buffer(len, AlignedBuf::registered),
        }
    }

    fn name(&self) -> String {
        format!("{}:{}", self.image, self.path.display())
    }
}

/// An open file of an image.
struct ImageFile {
    file: File,
    target: ImageTarget,
}

impl WorkFile for ImageFile {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.file.read_at(memory, offset).map_err(self.target.error())
    }

    fn write_all_at(&self, memory: &[u8], offset: u64) -> Result<(), Error> {
        self.file.write_all_at(memory, offset).map_err(self.target.error())
    }

    fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(self.target.error())
    }
}
