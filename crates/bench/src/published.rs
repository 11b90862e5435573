//! Published figures of the seed documents, embedded from `published/*.toml`.

use serde::Deserialize;

/// The bonnie tables of April 2001: direct against buffered I/O on ext2.
#[derive(Clone, Debug, Deserialize)]
pub struct Odirect2001 {
    /// Through the page cache.
    pub buffered: BonnieRuns,
    /// With the patch.
    pub direct: BonnieRuns,
    /// An early version that wrote metadata before each direct write.
    pub direct_flushing_metadata: BonnieRuns,
}

/// The runs of one mode: block output, rewrite, block input.
#[derive(Clone, Debug, Deserialize)]
pub struct BonnieRuns {
    /// Block writes.
    pub output: Vec<BonnieCell>,
    /// Rewrites.
    pub rewrite: Vec<BonnieCell>,
    /// Block reads.
    pub input: Vec<BonnieCell>,
}

/// One cell of the table, as bonnie prints it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct BonnieCell {
    /// Units of 1024 bytes a second.
    pub kps: f64,
    /// CPU time per elapsed time, 100 for one CPU.
    pub cpu: f64,
}

impl BonnieCell {
    /// CPU seconds per 10^9 bytes.
    pub fn cpu_s_per_gb(self) -> f64 {
        self.cpu / 100.0 * 1e9 / (self.kps * 1024.0)
    }
}

/// The mean of several runs, as throughput and CPU.
pub fn mean(runs: &[BonnieCell]) -> BonnieCell {
    let count = runs.len().max(1) as f64;
    BonnieCell {
        kps: runs.iter().map(|cell| cell.kps).sum::<f64>() / count,
        cpu: runs.iter().map(|cell| cell.cpu).sum::<f64>() / count,
    }
}

impl Odirect2001 {
    /// The published table.
    pub fn load() -> Self {
        toml::from_str(include_str!("../published/odirect-2001.toml"))
            .expect("embedded file, parsed in a test")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_table_gives_the_announced_ratios() {
        let table = Odirect2001::load();
        let cut = |a: &[BonnieCell], b: &[BonnieCell]| mean(a).cpu_s_per_gb() / mean(b).cpu_s_per_gb();
        let write = cut(&table.buffered.output, &table.direct.output);
        let rewrite = cut(&table.buffered.rewrite, &table.direct.rewrite);
        let read = cut(&table.buffered.input, &table.direct.input);
        assert!((6.6..6.8).contains(&write), "{write}");
        assert!((6.5..6.7).contains(&rewrite), "{rewrite}");
        assert!((10.0..11.0).contains(&read), "{read}");
        assert_eq!(table.direct_flushing_metadata.output.len(), 1);
    }
}
