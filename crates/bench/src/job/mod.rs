//! fio job files: read, run on Diorite, and reported the way fio does.

mod parse;
mod spec;

pub use parse::{JobFileError, parse};
pub use spec::{Engine, Job, JobFile, Pattern, Verify};
