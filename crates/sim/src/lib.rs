//! A world in which the whole stack runs on virtual time: simulated processes, disks, faults and crashes.

pub mod cost;
pub mod crash;
pub mod disk;
pub mod faults;
pub mod image;
pub mod overlay;
pub mod world;

pub use cost::CpuCosts;
pub use disk::{DISK_NAMES, DiskParameters, SimDisk};
pub use world::{Context, Deadlock, Event, Order, ProcessReport, Report, Simulation, WorldOptions};
