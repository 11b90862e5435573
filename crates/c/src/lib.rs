//! The C library: `diorite.h`, libdiorite.
//!
//! Where it sits: on the crate `diorite`, whose calls it translates.
//!
//! Interface: each module is a section of `include/diorite.h`, which `tests/it/header.rs` generates from these sources. The items have C names, and
//! their documentation, including the module heads, is written for readers of the header. `boundary.rs` has the code common to all functions.
//!
//! Safety policy: the functions take pointers of a C program. The `SAFETY` comments rely on the rules of the header: a handle was made by
//! this library and is not closed; other pointers point to memory of the stated length, which no other thread changes during the call.
//! NULL is checked. Each function first turns its pointers into references (`boundary.rs`), and the rest of it is safe code. Only
//! `memory.rs` and `queue.rs` keep pointers longer, under the policies in their heads.
#![allow(unsafe_code)]
#![allow(clippy::doc_markdown, reason = "the header has no backticks")]
#![allow(non_camel_case_types, reason = "C names")]
#![allow(clippy::missing_safety_doc, reason = "the header states the rules once")]
#![warn(clippy::missing_errors_doc)]

mod boundary;
pub mod directory;
pub mod error;
pub mod file;
pub mod filesystem;
pub mod memory;
pub mod names;
pub mod queue;
