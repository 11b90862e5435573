//! The initial content of a new filesystem: a tree that is copied into it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diorite::front_end::{AllocationPolicy, Clock, ReservedBlocks, WriteBack};
use diorite::{Access, BlockDevice, Filesystem, Owner, SetAttributes, Timestamp};
use diorite_copy::{Copier, CopyOptions, Depth, ImageTree, Source, Summary, Sync};

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::progress::{CopyProgress, CopySays};

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

/// Rules by which equal content makes equal bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The time of the filesystem. No file has a later one.
    pub(crate) time: Timestamp,
    /// The order in which blocks are taken.
    pub(crate) allocation: AllocationPolicy,
    /// Overrides the owner of the root in the source.
    pub(crate) root_owner: Option<Owner>,
}

/// Copy the directory `top` of `content` into the root of the new filesystem.
pub(crate) fn fill(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    (content, top): (&dyn Source, &Path),
    rules: Rules,
) -> Result<Summary> {
    let failure = |error| Failure::of(image.display(), "fill", &error);
    // The initial content may use the blocks reserved for root. No thread of the volume may change it, because the result would depend on time.
    let options = Filesystem::options()
        .new_volume()
        .access(Access::ReadWrite)
        .reserved_blocks(ReservedBlocks::Usable)
        .allocation(rules.allocation)
        .clock(Arc::new(FixedClock(rules.time)))
        .write_back(WriteBack::ByWriter)
        .commit_interval(NEVER);
    let filesystem = options.open_device(device).map_err(failure)?;
    let tree = ImageTree::new(filesystem.clone(), image.display().to_string(), None).not_after(rules.time);
    let progress = CopyProgress::new(0, interrupt::cancel(), CopySays::default());
    let root = Path::new("/");
    // The close syncs.
    let options = CopyOptions { depth: Depth::Tree, sync: Sync::Never, ..CopyOptions::default() };
    let mut copier = Copier::new(&tree, options, &progress);
    let summary = copier.copy_content(content, top, root).and_then(|()| copier.finish());
    if let Some(Owner { uid, gid }) = rules.root_owner {
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
