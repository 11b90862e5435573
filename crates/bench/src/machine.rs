//! The machine of a measurement, for the head of a report.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host::read_text;

/// Properties of a machine that its figures depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Operating system and version of its kernel.
    pub system: String,
    /// Model of the CPU.
    pub cpu: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Filesystem and device of the measured directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// CPU use before the measurement, 100 for one CPU. Other programs are part of machine-wide figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_cpu_percent: Option<f64>,
    /// CPU use of other programs during the measurement, 100 for one CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy_cpu_percent: Option<f64>,
}

impl Machine {
    /// This machine; unknown properties are empty. `directory` is the directory of the measured files.
    pub fn this(directory: Option<&Path>) -> Self {
        let uname = rustix::system::uname();
        let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
        Self {
            name: text(uname.nodename()),
            system: format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine())),
            cpu: cpu_model(&read_text("/proc/cpuinfo").unwrap_or_default()),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_bytes: memory_bytes(&read_text("/proc/meminfo").unwrap_or_default(), "MemTotal:")
                .unwrap_or(0),
            filesystem: directory.and_then(filesystem_of),
            background_cpu_percent: None,
            busy_cpu_percent: None,
        }
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, model)| model))
        .unwrap_or("unknown")
        .trim()
        .to_owned()
}

/// Memory that is available without swapping; `u64::MAX` if the system does not report it.
pub fn available_memory_bytes() -> u64 {
    let meminfo = read_text("/proc/meminfo").unwrap_or_default();
    memory_bytes(&meminfo, "MemAvailable:").unwrap_or(u64::MAX)
}

/// A line of `/proc/meminfo`, in bytes.
fn memory_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// The mount of `directory`, as `ext4 on /dev/vda (rw,relatime)`.
fn filesystem_of(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = read_text("/proc/self/mounts").ok()?;
    mount_of(&directory, &mounts)
}

fn mount_of(directory: &Path, mounts: &str) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (device, at) = (fields.next()?, fields.next()?);
            let (kind, options) = (fields.next()?, fields.next()?);
            directory.starts_with(at).then(|| (at.len(), format!("{kind} on {device} ({options})")))
        })
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deepest_mount_names_the_filesystem() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw,noatime 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(mount_of(Path::new("/data/x"), mounts).unwrap(), "xfs on /dev/b (rw,noatime)");
        assert_eq!(mount_of(Path::new("/home"), mounts).unwrap(), "ext4 on /dev/a (rw)");
    }

    #[test]
    fn lines_of_meminfo_are_read_by_name() {
        let text = "MemTotal:       2048 kB\nMemAvailable:    512 kB\nHugePages_Total:       3\n";
        assert_eq!(memory_bytes(text, "MemAvailable:"), Some(512 << 10));
        assert_eq!(memory_bytes(text, "HugePages_Total:"), None, "no unit");
        assert!(available_memory_bytes() > 1 << 20);
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let machine = Machine::this(Some(Path::new("/")));
        assert!(machine.cpus >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.system.starts_with("Linux"));
    }
}
