//! The result in the shape of `fio --output-format=json`.

use serde_json::{Value, json};

use super::text::{PERCENTILES, spread};
use super::{DirectionResult, JobOutcome, JobResult};

impl JobOutcome {
    /// fio's JSON: the keys that its readers use, with fio's units; and `scheduler`, where there is one.
    pub fn json(&self) -> Value {
        let mut json = json!({
            "fio version": concat!("diorite-", env!("CARGO_PKG_VERSION")),
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
            self.settings.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
        let (user, system) = self.cpu_percent();
        json!({
            "jobname": self.name,
            "groupid": self.group,
            "error": 0,
            "elapsed": self.elapsed.as_secs(),
            "job options": options,
            "read": self.read.json(),
            "write": self.write.json(),
            "sync": { "total_ios": self.sync_ns.ios, "lat_ns": latency(&self.sync_ns) },
            "job_runtime": self.elapsed.as_millis() as u64,
            "usr_cpu": user,
            "sys_cpu": system,
            "latency_depth": self.depth,
        })
    }
}

impl DirectionResult {
    fn json(&self) -> Value {
        let (min, max, mean, deviation) = spread(&self.samples_kib_s).unwrap_or_default();
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
    }
}
