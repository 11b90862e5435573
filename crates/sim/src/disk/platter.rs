//! The geometry of a rotating disk: position of a byte, media rate there, seek times.
//!
//! The data rate falls linearly with the byte address from the outer to the inner zone. Track skew hides head and track
//! switches, so that sequential data streams at the zone's rate; a byte's angle is the fraction of the turns before it.

use super::RotationalParameters;

/// A disk's mechanics; all times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Platter {
    capacity: f64,
    turn: f64,
    outer: f64,
    slope: f64,
    heads: f64,
    /// Seek over d cylinders: a + b sqrt(d) + c d.
    seek: [f64; 3],
    phase: f64,
}

impl Platter {
    pub(super) fn new(parameters: &RotationalParameters, phase: f64) -> Self {
        let capacity = parameters.capacity_gb * 1e9;
        let (outer, inner) = (parameters.outer_mb_per_s * 1e6, parameters.inner_mb_per_s * 1e6);
        let mut platter = Self {
            capacity,
            turn: 60.0 / parameters.rpm,
            outer,
            slope: (inner - outer) / capacity,
            heads: parameters.heads,
            seek: [0.0; 3],
            phase,
        };
        let full = platter.cylinder(capacity);
        platter.seek = fit_seek(parameters.seek_ms.map(|ms| ms / 1e3), full);
        platter
    }

    fn rate(&self, byte: f64) -> f64 {
        self.outer + self.slope * byte
    }

    /// Revolutions of the disk during a read from its first byte to this one.
    pub(super) fn turns(&self, byte: f64) -> f64 {
        let byte = byte.clamp(0.0, self.capacity);
        if self.slope.abs() * self.capacity < 1.0 {
            return byte / (self.outer * self.turn);
        }
        (self.rate(byte) / self.outer).ln() / (self.slope * self.turn)
    }

    /// The byte under the head after this many revolutions.
    pub(super) fn byte_after(&self, turns: f64) -> f64 {
        if self.slope.abs() * self.capacity < 1.0 {
            return turns * self.outer * self.turn;
        }
        let rate = self.outer * (turns * self.slope * self.turn).exp();
        ((rate - self.outer) / self.slope).clamp(0.0, self.capacity)
    }

    fn cylinder(&self, byte: f64) -> f64 {
        (self.turns(byte) / self.heads).floor()
    }

    /// Time to stream a range.
    pub(super) fn streaming(&self, start: u64, end: u64) -> f64 {
        (self.turns(end as f64) - self.turns(start as f64)) * self.turn
    }

    /// One revolution.
    pub(super) fn turn(&self) -> f64 {
        self.turn
    }

    /// Time from `now` (with the head at byte `from`) until byte `to` is under the head.
    pub(super) fn positioning(&self, now: f64, from: u64, to: u64) -> f64 {
        let distance = (self.cylinder(from as f64) - self.cylinder(to as f64)).abs();
        let seek = if distance < 1.0 {
            0.0
        } else {
            self.seek[0] + self.seek[1] * distance.sqrt() + self.seek[2] * distance
        };
        let angle = (now + seek) / self.turn + self.phase;
        let wait = (self.turns(to as f64) - angle).rem_euclid(1.0);
        seek + wait * self.turn
    }
}

/// The curve through the seek times of one cylinder, a third and all of `full` cylinders.
fn fit_seek(times: [f64; 3], full: f64) -> [f64; 3] {
    let distances = [1.0, (full / 3.0).max(2.0), full.max(3.0)];
    let roots = distances.map(f64::sqrt);
    let (r10, r20) = (roots[1] - roots[0], roots[2] - roots[0]);
    let (d10, d20) = (distances[1] - distances[0], distances[2] - distances[0]);
    let (t10, t20) = (times[1] - times[0], times[2] - times[0]);
    let determinant = r10 * d20 - r20 * d10;
    let b = (t10 * d20 - t20 * d10) / determinant;
    let c = (r10 * t20 - r20 * t10) / determinant;
    [times[0] - b * roots[0] - c * distances[0], b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskParameters;

    fn platter() -> Platter {
        let DiskParameters::Rotational(parameters) = DiskParameters::named("sata-2009").unwrap() else {
            panic!("a rotating disk")
        };
        Platter::new(&parameters, 0.0)
    }

    #[test]
    fn zones_and_seeks_are_as_specified() {
        let platter = platter();
        let megabyte = 1_000_000;
        assert!((platter.streaming(0, 145 * megabyte) - 1.0).abs() < 0.001);
        let inner = 1_000_000 * megabyte;
        assert!((platter.streaming(inner - 70 * megabyte, inner) - 1.0).abs() < 0.001);
        let byte = platter.byte_after(platter.turns(5e11));
        assert!((byte - 5e11).abs() < 1.0, "turns and bytes are inverse: {byte}");
        let full = platter.cylinder(1e12);
        assert!((270_000.0..300_000.0).contains(&full), "{full} cylinders");
        for (distance, ms) in [(1.0, 0.8), (full / 3.0, 8.5), (full, 17.0)] {
            let seek = platter.seek[0] + platter.seek[1] * f64::sqrt(distance) + platter.seek[2] * distance;
            assert!((seek * 1e3 - ms).abs() < 0.01, "{distance}: {seek}");
        }
    }

    #[test]
    fn a_byte_comes_by_once_in_a_turn() {
        let platter = platter();
        let first = platter.positioning(0.0, 0, 1_000_000);
        let again = platter.positioning(first + 1e-9, 1_000_000, 1_000_000);
        assert!((again - platter.turn()).abs() < 1e-6, "{again}");
    }
}
