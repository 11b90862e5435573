//! The block layer: bios, their merging, and the interface of a block device.
//!
//! Data flows down as a [`Bio`] and comes back as its result. A submitter collects bios in a [`Plug`],
//! which merges contiguous device ranges, and unplugs it onto a [`BlockDevice`]. This crate
//! knows no filesystem, no file and no clock. [`sync`] lets a simulation decide which thread runs.
#![warn(clippy::missing_errors_doc)]

mod bio;
mod counter;
mod device;
mod error;
mod fork;
mod immediate_queue;
mod lent;
mod lock_rank;
mod number_hasher;
mod plug;
mod queue;
mod sector;
pub mod sync;

/// Implement `Debug` by the type's name and the named fields. A derived `Debug` of a type that contains a cache or tables prints all of
/// them.
#[macro_export]
macro_rules! short_debug {
    ($type:ident $(<$lifetime:lifetime>)? $(, $field:ident)*) => {
        impl std::fmt::Debug for $type $(<$lifetime>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}

pub use bio::{Bio, BioFlags, BioMemory, IoOwner, IoPriority, Op, OwnerGuard, TaskId};
pub use counter::Counter;
pub use device::{Access, BlockDevice, Geometry, IoCounters, IoCounts};
pub use error::{IoError, IoErrorKind};
pub use fork::{Process, forks};
pub use immediate_queue::ImmediateQueue;
pub use lent::{LentMemory, Loans, with_loans};
pub use number_hasher::NumberHasher;
pub use plug::Plug;
pub use queue::{
    Completed, IoMemory, IoQueue, Notify, Piece, QueueWait, QueuedIo, QueuedMemory, SharedQueue, WaitOnQueue,
    Watch,
};
pub use sector::{SECTOR_SIZE, Sector};
