//! The job language: a job file as text, and as [`spec::Job`]s.

pub(crate) mod check;
pub(crate) mod parse;
mod sections;
pub(crate) mod spec;
mod values;
