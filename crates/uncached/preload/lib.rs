//! The preloaded library: calls of the C library on files, without leaving the files in the page cache.
//!
//! Where it sits: `LD_PRELOAD` puts its functions before those of the C library. It has no dependencies, and uses only `core`: no memory
//! is allocated, so that a call in a signal handler or in an allocator works.
//!
//! Interface: a call has the result and the error of the C library's. Calls that the library does not change go to the next library
//! (`RTLD_NEXT`), so they stay cancellation points.
//!
//! The ways, in this order ([`transfer`]): `RWF_DONTCACHE` on the call itself; direct I/O by a second open of the file ([`direct`]); the
//! page cache, after which the pages that were not cached before are dropped ([`windows`]). Small transfers take the last one.
//!
//! With [`shared::RECORD`] it changes no call, and records them ([`recorder`]).
//!
//! Limits: pages that another process reads in the meantime are dropped too, and reading them again costs I/O. One descriptor, that of the
//! [`cleaner`]'s socket, is not the program's.
//!
//! Safety policy: exported functions have the types of the C library's headers (`LP64`, Linux), and pass on their arguments. Memory of the
//! caller is touched only by the kernel, so a bad address is `EFAULT`, as without the library. System calls get pointers to
//! memory of this library that lives for the call. State is in one `static` behind a lock that a thread cannot take twice.
#![allow(unsafe_code, reason = "see the head")]
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the exported functions are those of the C library"
)]

pub mod calls;
mod cleaner;
pub mod closing;
pub mod copies;
mod direct;
mod file;
mod next;
pub mod opens;
mod process;
mod recorder;
mod settings;
#[path = "../src/shared/mod.rs"]
pub mod shared;
mod state;
pub mod streams;
mod sys;
mod transfer;
mod windows;
