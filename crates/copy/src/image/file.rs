//! Open and new files of an image.

use std::path::PathBuf;

use diorite::{DirectIo, Error as DioriteError, File, NodeRef};

use super::ImageTree;
use crate::Error;
use crate::tree::{Attributes, LostAttribute, Meta, NewFile, ReadFile, Sink, WriteFile};

/// An open file of an image.
pub(super) struct ImageFile {
    pub(super) file: File,
    pub(super) tree: ImageTree,
    pub(super) path: PathBuf,
}

impl ReadFile for ImageFile {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.file.read_at(memory, offset).map_err(self.tree.error(&self.path, "read"))
    }

    fn size(&self) -> Result<u64, Error> {
        Ok(self.file.size())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
        let start = match self.file.seek_data(offset) {
            Ok(start) => start,
            Err(error) if matches!(error.without_path(), DioriteError::BeyondEnd) => return Ok(None),
            Err(error) => return Err(self.tree.error(&self.path, "read")(error)),
        };
        let end = self.file.seek_hole(start).map_err(self.tree.error(&self.path, "read"))?;
        Ok(Some((start, end)))
    }
}

impl WriteFile for ImageFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        // Only the end of a file can be part of a block. It is written separately, so that only this part is bounced.
        let whole = data.len() - data.len() % self.file.alignment().offset as usize;
        let at = if self.file.direct_io() == DirectIo::Off { data.len() } else { whole };
        let (head, tail) = data.split_at(at);
        let parts = [(head, offset), (tail, offset + at as u64)];
        parts
            .into_iter()
            .filter(|(part, _)| !part.is_empty())
            .try_for_each(|(part, offset)| self.file.write_all_at(part, offset))
            .map_err(self.tree.error(&self.path, "write"))
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        self.file.set_len(size).map_err(self.tree.error(&self.path, "set the size"))
    }

    fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(self.tree.error(&self.path, "sync"))
    }
}

/// An incomplete file.
pub(super) struct NewImageFile {
    pub(super) file: ImageFile,
    pub(super) node: NodeRef,
    /// Its temporary name; none when it is complete.
    pub(super) name: Option<PathBuf>,
}

impl NewFile for NewImageFile {
    fn content(&self) -> &dyn WriteFile {
        &self.file
    }

    fn set_meta(&self, meta: &Meta, attributes: &Attributes) -> Result<Vec<LostAttribute>, Error> {
        self.file.tree.set_node_meta(&self.node, &self.file.path, meta, attributes)
    }

    fn complete(mut self: Box<Self>) -> Result<(), Error> {
        let to = &self.file.path;
        if let Some(name) = self.name.as_deref().filter(|name| name != to) {
            self.file.tree.rename(name, to)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for NewImageFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller reports why it is incomplete.
            let _ = self.file.tree.filesystem.remove_file(name);
        }
    }
}
