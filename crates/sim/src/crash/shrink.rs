//! The smallest failing state: as few lost writes as possible.

use super::states::{CrashPoint, Fate};

impl CrashPoint<'_> {
    /// Restore lost and torn writes while `fails` holds, in ever smaller groups, with at most `tries` states. `fates` must fail.
    pub fn shrunk(&self, fates: &[Fate], tries: usize, mut fails: impl FnMut(&[Fate]) -> bool) -> Vec<Fate> {
        let mut best = fates.to_vec();
        let mut left = tries;
        let mut group = best.len();
        while group > 0 && left > 0 {
            let mut has_changed = false;
            let damaged: Vec<usize> = (0..best.len()).filter(|at| best[*at] != Fate::Whole).collect();
            for some in damaged.chunks(group).filter(|some| some.len() < damaged.len()) {
                if left == 0 {
                    break;
                }
                let mut next = best.clone();
                for at in some {
                    next[*at] = Fate::Whole;
                }
                left -= 1;
                if fails(&next) {
                    (best, has_changed) = (next, true);
                }
            }
            if !has_changed || group > 1 {
                group /= 2;
            }
        }
        // A lost write is simpler than a torn one.
        for at in 0..best.len() {
            if !matches!(best[at], Fate::Torn { .. }) || left == 0 {
                continue;
            }
            let mut next = best.clone();
            next[at] = Fate::Lost;
            left -= 1;
            if fails(&next) {
                best = next;
            }
        }
        best
    }
}
