//! Workloads, measurement, published tables, reports.

pub mod job;
pub mod report;
