//! Memory that the page cache can use.

use std::path::{Path, PathBuf};

use diorite_bench::available_memory_bytes;

/// Free and reclaimable memory, or less in a control group with a limit.
pub(crate) fn for_files() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.fold(available_memory_bytes(), u64::min)
}

/// Files with the limits of the control groups of a process and of those above: version 2 and version 1.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (words.next(), words.next()) else { continue };
        let (top, name) = match controllers {
            "" => (Path::new("/sys/fs/cgroup"), "memory.max"),
            "memory" => (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let group = Path::new(group);
        let above = group.ancestors().map(|part| part.strip_prefix("/").unwrap_or(part));
        files.extend(above.map(|part| top.join(part).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_groups_above_count() {
        let names = |text: &str| -> Vec<String> {
            limit_files(text).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            names("0::/user/a\n"),
            [
                "/sys/fs/cgroup/user/a/memory.max",
                "/sys/fs/cgroup/user/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            names("4:memory:/x\n3:cpu:/y\n\nz"),
            ["/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert!(for_files() > 1 << 20);
    }
}
