//! What the tests of a mount share: a served volume, random use of a file, and the table of POSIX calls.

mod exercise;
mod posix;
mod served;

pub(crate) use exercise::exercise;
pub(crate) use posix::posix_calls;
pub(crate) use served::Served;
