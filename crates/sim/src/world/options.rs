//! How a world is made.

use crate::cost::CpuCosts;

/// Which of several processes that can run goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that has waited longest.
    #[default]
    Fifo,
    /// A random one, by the seed: to look for races.
    Shuffled,
}

/// How a world is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Decides everything that is random.
    pub seed: u64,
    /// Processors; a process that works occupies one.
    pub cpus: u32,
    /// What work costs.
    pub costs: CpuCosts,
    /// Who goes next.
    pub order: Order,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self { seed: 1, cpus: 4, costs: CpuCosts::default(), order: Order::default() }
    }
}
