//! A world in which the whole stack runs on virtual time: simulated processes, disks, faults and crashes.

pub mod crash;
pub mod image;
