//! Results in the form of `fio --output-format=json`.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::disks::DiskUse;
use super::result::{DirectionResult, JobOutcome, JobResult};
use super::text::PERCENTILES;

impl JobOutcome {
    /// fio's JSON, with the keys and units that its readers use, and `scheduler`, if there is one.
    pub fn json(&self) -> Value {
        let ended = self.ended.timestamp();
        let mut json = json!({
            "fio version": concat!("diorite-", env!("CARGO_PKG_VERSION")),
            "timestamp": ended.as_second(),
            "timestamp_ms": ended.as_millisecond(),
            "time": self.date(),
            "global options": options(&self.global_options),
            "jobs": self.results.iter().map(|result| self.job_json(result)).collect::<Vec<_>>(),
        });
        if !self.disks.is_empty() {
            json["disk_util"] = self.disks.iter().map(DiskUse::json).collect();
        }
        if let Some(bytes) = self.read_ahead_bytes {
            json["read_ahead_bytes"] = bytes.into();
        }
        if let Some(scheduler) = &self.scheduler {
            json["scheduler"] = scheduler.json();
        }
        json
    }

    /// When the jobs ended, as fio writes it.
    pub(super) fn date(&self) -> String {
        self.ended.strftime("%a %b %e %H:%M:%S %Y").to_string()
    }

    fn job_json(&self, result: &JobResult) -> Value {
        let mut json = result.json();
        json["read"]["bw_agg"] = self.share_of_group(result, |result| &result.read).into();
        json["write"]["bw_agg"] = self.share_of_group(result, |result| &result.write).into();
        json
    }
}

fn options(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect()
}

impl JobResult {
    fn json(&self) -> Value {
        let (user, system) = self.cpu_percent();
        json!({
            "jobname": self.name,
            "groupid": self.group,
            "error": self.first_error.unwrap_or(0),
            "eta": 0,
            "elapsed": self.longest.as_secs() + 1,
            "job options": options(&self.options),
            "read": self.read.json(),
            "write": self.write.json(),
            "trim": DirectionResult::default().json(),
            "sync": { "total_ios": self.sync_ns.ios, "lat_ns": latency(&self.sync_ns.latency_ns) },
            "job_runtime": self.elapsed.as_millis() as u64,
            "usr_cpu": user,
            "sys_cpu": system,
            "ctx": self.usage.switches,
            "majf": self.usage.major_faults,
            "minf": self.usage.minor_faults,
            "latency_depth": self.depth,
        })
    }
}

impl DirectionResult {
    fn json(&self) -> Value {
        json!({
            "io_bytes": self.bytes,
            "io_kbytes": self.bytes / 1024,
            "bw_bytes": self.bandwidth() as u64,
            "bw": (self.bandwidth() / 1024.0) as u64,
            "iops": self.iops(),
            "runtime": self.runtime.as_millis() as u64,
            "total_ios": self.ios,
            "short_ios": self.short,
            "drop_ios": 0,
            "slat_ns": moments(&self.submission_ns),
            "clat_ns": latency(&self.latency_ns),
            "lat_ns": moments(&self.total_ns),
            "bw_agg": 0.0,
            "bw_mean": self.bandwidth() / 1024.0,
            "iops_mean": self.iops(),
        })
    }
}

/// fio's object for a series of times.
fn moments(times: &Histogram<u64>) -> Value {
    let (mean, stddev) = (times.mean(), times.stdev());
    json!({ "min": times.min(), "max": times.max(), "mean": mean, "stddev": stddev, "N": times.len() })
}

fn latency(histogram: &Histogram<u64>) -> Value {
    let mut json = moments(histogram);
    let percentiles: serde_json::Map<_, _> = PERCENTILES
        .iter()
        .map(|percentile| {
            let value = histogram.value_at_quantile(percentile / 100.0);
            (format!("{percentile:.6}"), Value::from(value))
        })
        .collect();
    json["percentile"] = percentiles.into();
    json
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
}
