//! Options of a world.

use crate::cost::CpuCosts;

/// The choice among processes that can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The process that has waited longest.
    #[default]
    Fifo,
    /// A random process, by the seed, to find races.
    Shuffled,
}

/// Options of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// Processors; a process that works occupies one.
    pub cpus: u32,
    /// Costs of CPU work.
    pub costs: CpuCosts,
    /// Choice of the next process.
    pub order: Order,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self { seed: 1, cpus: 4, costs: CpuCosts::default(), order: Order::default() }
    }
}
