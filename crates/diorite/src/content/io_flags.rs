//! The flags of one read or write, as those of `preadv2(2)` and `pwritev2(2)`.

use crate::store::map::SyncKind;

bitflags::bitflags! {
    /// The flags of one read or write, in addition to the options of the open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct IoFlags: u8 {
        /// Fail with [`WouldBlock`](crate::ErrorKind::WouldBlock), having done nothing, where the call would have to wait before its own transfer (`RWF_NOWAIT`): for
        /// another call on the range, for dirty data to be written back, for pages that are not cached, for blocks or for a larger size.
        /// This is checked once, when the call begins. The call may wait for another thread that begins after the
        /// check.
        /// A direct transfer itself is waited for. Mappings that are not cached may be read.
        const NOWAIT = 1;
        /// Go through the page cache, and leave no new page there (`RWF_DONTCACHE`). A write has been written back
        /// when it
        /// returns. Direct I/O leaves nothing there anyway.
        const DONTCACHE = 1 << 1;
        /// A direct write that is complete or absent after a power failure (`RWF_ATOMIC`): its length is a power of
        /// two, at most
        /// [`Alignment::atomic_write`](crate::Alignment::atomic_write), its offset a multiple of that length, and its range lies within the
        /// file and is contiguous on the device. Otherwise it fails, having done nothing. It is as durable as any write.
        const ATOMIC = 1 << 2;
        /// The write is durable when it returns, with the metadata needed to read it (`RWF_DSYNC`); see
        /// [`OpenOptions::dsync`](crate::OpenOptions::dsync).
        const DSYNC = 1 << 3;
        /// The same with all of the inode (`RWF_SYNC`); see [`OpenOptions::sync`](crate::OpenOptions::sync).
        const SYNC = 1 << 4;
    }
}

impl IoFlags {
    /// No flag.
    pub const NONE: Self = Self::empty();

    /// The durability of the call, where the handle asks for `by_handle`.
    pub(crate) fn sync_kind(self, by_handle: Option<SyncKind>) -> Option<SyncKind> {
        if self.contains(Self::SYNC) {
            return Some(SyncKind::All);
        }
        by_handle.or(self.contains(Self::DSYNC).then_some(SyncKind::Data))
    }
}
