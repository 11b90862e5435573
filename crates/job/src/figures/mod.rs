//! The results of jobs, as text and JSON.

pub(crate) mod disks;
mod json;
pub(crate) mod result;
mod text;
pub(crate) mod usage;
