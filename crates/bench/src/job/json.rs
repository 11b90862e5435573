//! The result in the shape of `fio --output-format=json`.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::text::{PERCENTILES, spread};
use super::{DirectionResult, JobOutcome, JobResult};

impl JobOutcome {
    /// fio's JSON: the keys that its readers use, with fio's units; and `scheduler`, where there is one.
    pub fn json(&self) -> Value {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut json = json!({
            "fio version": concat!("diorite-", env!("CARGO_PKG_VERSION")),
            "timestamp": now.as_secs(),
            "timestamp_ms": now.as_millis() as u64,
            "jobs": self.results.iter().map(JobResult::json).collect::<Vec<_>>(),
        });
        if let Some(scheduler) = &self.scheduler {
            json["scheduler"] = scheduler.json();
        }
        json
    }
}

impl JobResult {
    fn json(&self) -> Value {
        let options: serde_json::Map<_, _> =
            self.options.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
        let (user, system) = self.cpu_percent();
        json!({
            "jobname": self.name,
            "groupid": self.group,
            "error": 0,
            "elapsed": self.elapsed.as_secs(),
            "job options": options,
            "read": self.read.json(),
            "write": self.write.json(),
            "trim": DirectionResult::default().json(),
            "sync": { "total_ios": self.sync_ns.ios, "lat_ns": latency(&self.sync_ns) },
            "job_runtime": self.elapsed.as_millis() as u64,
            "usr_cpu": user,
            "sys_cpu": system,
            "latency_depth": self.depth,
            "latency_target": 0,
            "latency_percentile": 100.0,
            "latency_window": 0,
            "latency_ns": self.shares(1, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000]),
            "latency_us": self.shares(1000, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000]),
            "latency_ms": self.shares(1_000_000, &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000]),
        })
    }
}

impl JobResult {
    /// Percent of all transfers that took at most each bound (in units of so many nanoseconds) and more than the one below.
    fn shares(&self, unit_ns: u64, bounds: &[u64]) -> Value {
        let sides = [&self.read, &self.write];
        let all: u64 = sides.iter().map(|side| side.latency_ns.len()).sum();
        // The unit below reaches up to one of this unit.
        let mut from = if unit_ns == 1 { 0 } else { unit_ns + 1 };
        let mut shares = serde_json::Map::new();
        for bound in bounds {
            let to = bound * unit_ns;
            let count: u64 = sides.iter().map(|side| side.latency_ns.count_between(from, to)).sum();
            shares.insert(bound.to_string(), json!(100.0 * count as f64 / all.max(1) as f64));
            from = to + 1;
        }
        if unit_ns == 1_000_000 {
            let count: u64 = sides.iter().map(|side| side.latency_ns.count_between(from, u64::MAX)).sum();
            shares.insert(">=2000".to_owned(), json!(100.0 * count as f64 / all.max(1) as f64));
        }
        Value::Object(shares)
    }
}

impl DirectionResult {
    fn json(&self) -> Value {
        let (min, max, mean, deviation) = spread(&self.samples_kib_s).unwrap_or_default();
        let (iops_min, iops_max, iops_mean, iops_deviation) = spread(&self.samples_iops).unwrap_or_default();
        json!({
            "io_bytes": self.bytes,
            "io_kbytes": self.bytes / 1024,
            "bw_bytes": self.bandwidth() as u64,
            "bw": (self.bandwidth() / 1024.0) as u64,
            "iops": self.iops(),
            "runtime": self.runtime.as_millis() as u64,
            "total_ios": self.ios,
            "short_ios": 0,
            "drop_ios": 0,
            "clat_ns": latency(self),
            "lat_ns": latency(self),
            "bw_min": min as u64,
            "bw_max": max as u64,
            "bw_mean": mean,
            "bw_dev": deviation,
            "bw_samples": self.samples_kib_s.len(),
            "iops_min": iops_min as u64,
            "iops_max": iops_max as u64,
            "iops_mean": iops_mean,
            "iops_stddev": iops_deviation,
            "iops_samples": self.samples_iops.len(),
            // A transfer is submitted and waited for in one call: all of its time is `clat`.
            "slat_ns": { "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 },
        })
    }
}

fn latency(direction: &DirectionResult) -> Value {
    let histogram = &direction.latency_ns;
    let percentiles: serde_json::Map<_, _> = PERCENTILES
        .iter()
        .map(|percentile| {
            let value = histogram.value_at_quantile(percentile / 100.0);
            (format!("{percentile:.6}"), Value::from(value))
        })
        .collect();
    json!({
        "min": if direction.ios == 0 { 0 } else { histogram.min() },
        "max": histogram.max(),
        "mean": histogram.mean(),
        "stddev": histogram.stdev(),
        "N": histogram.len(),
        "percentile": percentiles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_fio_find_their_keys() {
        let result = JobResult { name: "a".into(), jobs: 1, ..JobResult::default() };
        let json = JobOutcome::collect(vec![result]).json();
        let job = &json["jobs"][0];
        assert_eq!(job["jobname"], "a");
        for key in ["io_bytes", "bw_bytes", "bw", "iops", "runtime", "total_ios", "clat_ns", "lat_ns"] {
            assert!(!job["read"][key].is_null(), "{key}");
        }
        assert_eq!(job["read"]["clat_ns"]["percentile"]["99.990000"], 0);
        assert_eq!(
            (job["trim"]["total_ios"].as_u64(), job["read"]["iops_mean"].as_f64()),
            (Some(0), Some(0.0))
        );
    }

    /// Each transfer is in exactly one class of latency.
    #[test]
    fn shares_of_latency_add_up() {
        let mut result = JobResult::default();
        for ns in [1, 2, 3, 999, 1000, 1001, 5_000, 999_000, 1_000_500, 3_000_000, 5_000_000_000] {
            result.read.latency_ns.saturating_record(ns);
        }
        let json = result.json();
        let sum: f64 = ["latency_ns", "latency_us", "latency_ms"]
            .iter()
            .flat_map(|class| json[class].as_object().expect("a table").values().filter_map(Value::as_f64))
            .sum();
        assert!((sum - 100.0).abs() < 0.01, "{json:#}");
        assert!(json["latency_ms"][">=2000"].as_f64() > Some(9.0));
    }
}
