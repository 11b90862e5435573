//! The initial content of a new filesystem: a tree that is copied into it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diorite::front_end::{Clock, ReservedBlocks};
use diorite::{Access, BlockDevice, DirectIo, Filesystem, Owner, SetAttributes, Timestamp};
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

/// Copy the directory `top` of `content` into the root of the new filesystem. `root_owner` overrides the owner of the root in the source.
pub(crate) fn fill(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    (content, top): (&dyn Source, &Path),
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
    // The close syncs.
    let options = CopyOptions { depth: Depth::Tree, sync: Sync::Never, ..CopyOptions::default() };
    let mut copier = Copier::new(&tree, options, &progress);
    let summary = copier.copy_content(content, top, root).and_then(|()| copier.finish());
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
