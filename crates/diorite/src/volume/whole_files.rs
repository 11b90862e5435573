//! Whole files in one call, as in `std::fs`.

use std::io::Read;
use std::path::Path;

use crate::error::AtPath;
use crate::{Error, ErrorKind, File, Filesystem, Result, SetAttributes, Unaligned};

/// Bytes of one step of a copy.
const COPY_BYTES: usize = 1 << 20;

impl Filesystem {
    /// Everything in a file.
    ///
    /// ```no_run
    /// # fn main() -> diorite::Result<()> {
    /// let filesystem = diorite::Filesystem::open("disk.img")?;
    /// filesystem.write("/settings", "depth=32\n")?;
    /// assert_eq!(filesystem.read("/settings")?, b"depth=32\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As opening the file and reading it.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut file = self.open_options().read(true).unaligned(Unaligned::Bounce).open(path)?;
        let (mut content, size) = (Vec::new(), file.size() as usize);
        content
            .try_reserve_exact(size)
            .map_err(|error| Error::Os { what: "cannot get memory for the file", source: error.into() })
            .at_path(path)?;
        content.resize(size, 0);
        let len = file.read_at(&mut content, 0)?;
        content.truncate(len);
        // It may have grown meanwhile.
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(len as u64))
            .and_then(|_| file.read_to_end(&mut content))
            .map_err(|source| Error::Os { what: "cannot read the file", source })
            .at_path(path)?;
        Ok(content)
    }

    /// Everything in a file, as text.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Error::NotText`] if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Error::NotText).at_path(path)
    }

    /// Make or empty a file and write all of its content. It is durable after a sync ([`Self::sync`]), not before.
    ///
    /// # Errors
    /// As making the file and writing it; it may have a part of the content then.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        self.emptied(path.as_ref())?.write_all_at(content.as_ref(), 0)
    }

    /// Copy a file's content and permission bits to another, which is made or emptied; holes stay holes. Returns the size.
    ///
    /// # Errors
    /// As reading the one and writing the other; [`InvalidInput`](ErrorKind::InvalidInput) if they are the same file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open_options().read(true).unaligned(Unaligned::Bounce).open(from)?;
        let attributes = source.metadata()?;
        match self.metadata(to) {
            Ok(there) if there.inode == attributes.inode => {
                return Err(Error::InvalidArgument("a file cannot be copied to itself").at(to));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let target = self.emptied(to)?;
        let size = copy_data(&source, &target)?;
        target.set_len(size)?;
        let permissions =
            SetAttributes { permissions: Some(attributes.permissions), ..SetAttributes::default() };
        self.resolve(to)?.set_attributes(&permissions).at_path(to)?;
        Ok(size)
    }

    fn emptied(&self, path: &Path) -> Result<File> {
        let options = self.open_options().write(true).create(true).truncate(true);
        options.unaligned(Unaligned::Bounce).open(path)
    }
}

/// Copy all data, up to the final size of the source; returns that size.
fn copy_data(source: &File, target: &File) -> Result<u64> {
    let mut memory = source.buffer(COPY_BYTES)?;
    let mut at = 0;
    loop {
        let data = match source.seek_data(at) {
            Err(error) if error.kind() == ErrorKind::BeyondEnd => return Ok(source.size().max(at)),
            data => data?,
        };
        let end = source.seek_hole(data)?;
        at = data;
        while at < end {
            let len = COPY_BYTES.min((end - at) as usize);
            let read = source.read_at(&mut memory[..len], at)?;
            if read == 0 {
                break;
            }
            target.write_all_at(&memory[..read], at)?;
            at += read as u64;
        }
    }
}
