//! What a job measured, and how it is shown.

pub(crate) mod counts;
pub(crate) mod disks;
mod json;
pub(crate) mod result;
mod text;
pub(crate) mod usage;
