//! Cost as a function of size: a line between measured points.

use std::ops::{Add, AddAssign, Mul};

use serde::{Deserialize, Serialize};

/// Elapsed and CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Elapsed time.
    pub seconds: f64,
    /// CPU time.
    pub cpu_s: f64,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { seconds: self.seconds + other.seconds, cpu_s: self.cpu_s + other.cpu_s }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<f64> for Cost {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self { seconds: self.seconds * factor, cpu_s: self.cpu_s * factor }
    }
}

/// A measured point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Size of a call.
    pub bytes: u64,
    /// Its cost.
    #[serde(flatten)]
    pub cost: Cost,
}

/// Points by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve(Vec<Point>);

impl Curve {
    /// Without points: each cost is zero.
    pub const EMPTY: Self = Self(Vec::new());

    /// Of points in any order.
    pub fn new(mut points: Vec<Point>) -> Self {
        points.retain(|point| {
            point.bytes > 0 && point.cost.seconds.is_finite() && point.cost.cpu_s.is_finite()
        });
        points.sort_by_key(|point| point.bytes);
        points.dedup_by_key(|point| point.bytes);
        Self(points)
    }

    /// The points, by size.
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    /// The cost of a call. Smaller calls than the smallest measured one have its cost; larger ones than the largest have its rate.
    pub fn at(&self, bytes: u64) -> Cost {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return Cost::default() };
        if bytes <= first.bytes {
            return first.cost;
        }
        if bytes >= last.bytes {
            return last.cost * (bytes as f64 / last.bytes as f64);
        }
        let above = self.0.partition_point(|point| point.bytes < bytes);
        let (low, high) = (&self.0[above - 1], &self.0[above]);
        let share = (bytes - low.bytes) as f64 / (high.bytes - low.bytes) as f64;
        low.cost * (1.0 - share) + high.cost * share
    }

    /// The highest rate, in bytes a second.
    pub fn best_rate(&self) -> f64 {
        self.0.iter().map(|point| point.bytes as f64 / point.cost.seconds.max(1e-12)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bytes: u64, seconds: f64) -> Point {
        Point { bytes, cost: Cost { seconds, cpu_s: seconds / 2.0 } }
    }

    #[test]
    fn costs_are_lines_between_points() {
        let curve = Curve::new(vec![point(65536, 10.0), point(4096, 1.0), point(0, 7.0), point(8, f64::NAN)]);
        assert_eq!(curve.points().len(), 2);
        assert_eq!(curve.at(100), Cost { seconds: 1.0, cpu_s: 0.5 });
        assert_eq!(curve.at(4096 + 30720), Cost { seconds: 5.5, cpu_s: 2.75 });
        assert_eq!(curve.at(131_072), Cost { seconds: 20.0, cpu_s: 10.0 });
        assert_eq!(Curve::default().at(5), Cost::default());
        assert!((curve.best_rate() - 6553.6).abs() < 1e-6);
    }
}
