//! Workloads, measurement, published tables, reports.

pub mod job;
pub mod profile;
pub mod report;
