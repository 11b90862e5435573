//! Results in the form of `fio --output-format=json`.

use serde_json::{Value, json};

use super::counts::DepthCounts;
use super::disks::DiskUse;
use super::result::{DirectionResult, JobOutcome, JobResult};
use super::text::{PERCENTILES, spread};

impl JobOutcome {
    /// fio's JSON, with the keys and units that its readers use, and `scheduler`, where there is one.
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
        json["trim"]["bw_agg"] = self.share_of_group(result, |result| &result.trim).into();
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
            "trim": self.trim.json(),
            "sync": { "total_ios": self.sync_ns.ios, "lat_ns": latency(&self.sync_ns) },
            "job_runtime": self.elapsed.as_millis() as u64,
            "usr_cpu": user,
            "sys_cpu": system,
            "ctx": self.usage.switches,
            "majf": self.usage.major_faults,
            "minf": self.usage.minor_faults,
            "iodepth_level": self.levels.json(DepthCounts::LEVELS),
            "iodepth_submit": self.submitted.json(DepthCounts::BATCHES),
            "iodepth_complete": self.completed.json(DepthCounts::BATCHES),
            "latency_depth": self.depth,
            "latency_target": 0,
            "latency_percentile": 100.0,
            "latency_window": 0,
            "latency_ns": object(self.shares(1)),
            "latency_us": object(self.shares(1000)),
            "latency_ms": object(self.shares(1_000_000)),
        })
    }
}

fn object(shares: Vec<(String, f64)>) -> Value {
    shares.into_iter().map(|(bound, percent)| (bound, Value::from(percent))).collect()
}

/// fio's bounds of latency in each unit; milliseconds have one more.
const BOUNDS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

impl JobResult {
    /// Percent of transfers in each latency class: up to the bound, in units of `unit_ns`, and above the bound before it.
    pub(super) fn shares(&self, unit_ns: u64) -> Vec<(String, f64)> {
        let bounds = if unit_ns == 1_000_000 { &BOUNDS[..] } else { &BOUNDS[..10] };
        let sides = [&self.read, &self.write];
        let all: u64 = sides.iter().map(|side| side.latency_ns.len()).sum();
        // The smaller unit covers up to one of this unit.
        let mut from = if unit_ns == 1 { 0 } else { unit_ns + 1 };
        let mut shares = Vec::new();
        for bound in bounds {
            let to = bound * unit_ns;
            let count: u64 = sides.iter().map(|side| side.latency_ns.count_between(from, to)).sum();
            shares.push((bound.to_string(), 100.0 * count as f64 / all.max(1) as f64));
            from = to + 1;
        }
        if unit_ns == 1_000_000 {
            let count: u64 = sides.iter().map(|side| side.latency_ns.count_between(from, u64::MAX)).sum();
            shares.push((">=2000".to_owned(), 100.0 * count as f64 / all.max(1) as f64));
        }
        shares
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
            "short_ios": self.short,
            "drop_ios": 0,
            "slat_ns": self.submission.json(),
            "clat_ns": latency(self),
            "lat_ns": self.total.json(),
            "bw_min": min as u64,
            "bw_max": max as u64,
            "bw_agg": 0.0,
            "bw_mean": mean,
            "bw_dev": deviation,
            "bw_samples": self.samples_kib_s.len(),
            "iops_min": iops_min as u64,
            "iops_max": iops_max as u64,
            "iops_mean": iops_mean,
            "iops_stddev": iops_deviation,
            "iops_samples": self.samples_iops.len(),
        })
    }
}

fn latency(direction: &DirectionResult) -> Value {
    let mut json = direction.completion.json();
    let histogram = &direction.latency_ns;
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
