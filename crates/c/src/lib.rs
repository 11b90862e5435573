//! The C library: `diorite.h`, libdiorite.
//!
//! Where it sits: beside the other users of the crate `diorite`, whose calls it translates. It decides nothing.
//!
//! Interface: each module is a section of `include/diorite.h`, which `tests/it/header.rs` makes of these sources: the items are named as in C, and
//! their documentation, module heads included, is written for its readers. `boundary.rs` has what all functions share.
//!
//! Safety policy: the functions take pointers of a C program. What the header asks of its callers is what the `SAFETY` comments here
//! rely on: a handle is one that this library made and that was not closed; other pointers point to memory of the stated length,
//! which no other thread changes during the call. NULL is checked. Each function turns its pointers into references first, in one step
//! (`boundary.rs`), and is safe code from there on; only `memory.rs` and `queue.rs` keep pointers for longer, and their heads say how.
#![allow(unsafe_code)]
#![allow(clippy::doc_markdown, reason = "the header has no backticks, and names of C on every line")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the documentation is the header's, which states the rules once"
)]
#![warn(clippy::missing_errors_doc)]

mod boundary;
pub mod directory;
pub mod error;
pub mod file;
pub mod filesystem;
pub mod memory;
pub mod names;
pub mod queue;
