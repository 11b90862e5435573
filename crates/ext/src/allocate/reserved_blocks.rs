//! Access to the blocks that are reserved for root (`mke2fs -m`).

use std::cell::Cell;
use std::marker::PhantomData;

/// Whether blocks that are kept for the superuser may be used.
///
/// The volume's option is the default of calls without their own setting: the blocks stay free unless requested, whichever
/// user the process runs as, so that a program does the same for all of them. For what follows in one thread
/// [`ReservedBlocks::enter`] says it, which is how a server acts for its clients.
///
/// Data of files needs the right. So do blocks of directories and of extended attributes where a thread says that it has not got
/// it; other metadata, which changes that are under way cannot do without, may always use these blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedBlocks {
    /// They are left free.
    #[default]
    Kept,
    /// They are used as others.
    Usable,
}

thread_local! {
    static RIGHT: Cell<Option<ReservedBlocks>> = const { Cell::new(None) };
}

/// The setting of this thread.
pub(super) fn of_this_thread() -> Option<ReservedBlocks> {
    RIGHT.get()
}

impl ReservedBlocks {
    /// Calls of this thread, on any volume, have this right until the guard is dropped, whatever the options of the volume say.
    #[must_use = "the right ends with the guard"]
    pub fn enter(self) -> ReservedBlocksGuard {
        ReservedBlocksGuard { before: RIGHT.replace(Some(self)), of_thread: PhantomData }
    }
}

/// See [`ReservedBlocks::enter`].
#[derive(Debug)]
pub struct ReservedBlocksGuard {
    before: Option<ReservedBlocks>,
    /// It stays in its thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for ReservedBlocksGuard {
    fn drop(&mut self) {
        RIGHT.set(self.before);
    }
}
