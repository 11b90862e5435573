//! Data of files: mapping, and the order of changes to it.
//!
//! Where it sits: above the mapping trees ([`crate::map`]) and the inode store. It never touches the data itself, except data in an
//! inode. The order is that of every write (ARCHITECTURE, "A write"): blocks are kept in memory (`reserve`), data is
//! written to them, and one transaction marks them in use and maps them (`write`). `remove`: truncate, punch; `range`: ranges that
//! move; `inline`: content in the inode.

mod inline;
mod range;
mod remove;
mod reserve;
mod write;

use std::sync::Arc;

use crate::base::Core;
use crate::base::Handle;
use crate::inode::InodeState;
use crate::inodes::InodeStore;
use crate::layout::{Compat, Incompat, InodeFlags, RoCompat};
use crate::map::Mappings;
use crate::quota::Quotas;
use crate::{DataMode, FileBlock, FileKind, Inode, Mapping, Result};

pub(crate) use remove::RESIZE_CREDITS;

/// The data of a volume's files.
#[derive(Debug)]
pub struct Files {
    pub(crate) core: Arc<Core>,
    pub(crate) maps: Arc<Mappings>,
    pub(crate) inodes: Arc<InodeStore>,
    pub(crate) quotas: Arc<Quotas>,
}

impl Files {
    pub(crate) fn new(inodes: Arc<InodeStore>, quotas: Arc<Quotas>) -> Self {
        Self { core: inodes.core.clone(), maps: inodes.maps.clone(), inodes, quotas }
    }

    /// The mapping at file block `at`: the longest mapping of one kind from there, at most `max_blocks` long. A
    /// contiguous run on the device is one mapping, whatever indirect or extent blocks lie between. Ranges
    /// beyond the end of the file are holes.
    pub fn map(&self, inode: &Inode, at: FileBlock, max_blocks: u64) -> Result<Mapping> {
        let max_blocks = max_blocks.max(1);
        if let Some(mapping) = inode.runs.lookup(at, max_blocks) {
            return Ok(mapping);
        }
        let state = inode.read_in_use()?;
        self.maps.find(inode, &state, at, max_blocks)
    }

    /// Largest size of a file mapped as this one is.
    pub fn max_size(&self, inode: &Inode) -> u64 {
        self.maps.max_size(&inode.state.read())
    }

    /// Largest size that a file of this volume can have.
    pub fn max_file_size(&self) -> u64 {
        self.maps.max_size_mapped(self.core.features().has_incompat(Incompat::EXTENTS))
    }

    /// The journal mode of file data, from the options or else from the volume.
    pub fn data_mode(&self) -> DataMode {
        self.core.options.data_mode.unwrap_or_else(|| self.core.format.default_data_mode())
    }

    /// Whether an inode's data must go through the journal: by the mode of the volume, or by the inode's flag (`chattr +j`).
    pub fn wants_journalled_data(&self, inode: &Inode) -> bool {
        let flags = inode.state.read().flags;
        let wanted = self.data_mode() == DataMode::Journal || flags.contains(InodeFlags::JOURNAL_DATA);
        wanted && self.core.has_journal() && inode.kind() == FileKind::Regular
    }

    /// Write the state through to the inode-table buffer, and charge its owners for the difference.
    pub(crate) fn store(&self, handle: &mut Handle<'_>, inode: &Inode, state: &mut InodeState) -> Result<()> {
        const LARGE: u64 = 0x7fff_ffff;
        if state.size > LARGE && inode.kind() == FileKind::Regular {
            // Programs that do not know such files must not write this volume.
            self.core.add_features(handle, Compat::empty(), RoCompat::LARGE_FILE)?;
        }
        self.quotas.settle(handle, inode, state)?;
        self.inodes.store(handle, inode, state)
    }
}
