//! The shared memory of a pool: its layout, its words and its pages. The only module with `unsafe` code.
//!
//! Where it sits: below everything else in this crate, which sees references to atomics ([`Shared`]) and guards that give out the
//! bytes of a page ([`SharedHold`], [`ExclusiveHold`]).
//!
//! Safety policy:
//! - A [`Mapping`] maps the whole memory from construction to drop. Its file is sealed against any change of size, so that no access
//!   meets a missing page. Everything outside the pages is atomics, which other threads and processes may change at any time.
//! - The bytes of a page are reached through a hold only. A hold is made by taking the frame's latch and gives it back when dropped;
//!   the latch admits any number of shared holds or one exclusive hold, over all processes (`latch.rs`, model tests there). So
//!   `&[u8]` from a shared hold is not written meanwhile, and `&mut [u8]` from an exclusive one is the only reference.
//! - Exception: [`copy_racing`] copies from a page that may be written meanwhile, by relaxed atomic loads, and its caller discards the
//!   copy if the frame's version changed. (A sequence lock; the language has no atomic copy of bytes yet.)
//! - Every process that has the memory runs this crate: it reached the others through a file descriptor that was handed over. A process
//!   that writes at random into shared memory breaks its peers, as one that writes into their files would.
//! - Indices that come from the shared memory are checked against its bounds at each use.
#![allow(unsafe_code)]

mod frame;
mod hold;
mod latch;
mod layout;
mod life;
mod mapping;

pub(crate) use frame::{Frame, FrameIndex, NO_PAGE, Undo};
pub(crate) use hold::{ExclusiveHold, SharedHold, copy_racing, restore};
pub(crate) use latch::ProcessSlot;
pub(crate) use layout::{FILES, FRAMES_MIN, FileEntry, Layout, NAME_WORDS};
pub(crate) use life::Life;
pub(crate) use mapping::Mapping;
