//! The users of a mount, for an error that names them.
//!
//! Where it sits: beside `mounted`, for an unmount that fails. The mount itself is not accessed: `/proc` has the directories, programs and mappings
//! of each process by path, and the number of the mount that an open file is on (`proc_pid_fdinfo(5)`). A user sees the own processes, the
//! superuser all.
#![allow(clippy::disallowed_methods, reason = "files of the kernel")]

use std::fs;
use std::path::{Path, PathBuf};

use super::mounted::{self, loop_backing};

/// Users of the mount on a directory: processes as `program (pid)`, mounts below it, loop devices over its files.
pub fn users_of(directory: &Path) -> Vec<String> {
    let Some(mounted) = mounted::on(directory) else { return Vec::new() };
    let directory = &mounted.directory;
    let processes = entries(Path::new("/proc")).filter_map(|path| {
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let is_other = pid != std::process::id();
        (is_other && is_user(&path, directory, mounted.id, &mounted.numbers)).then(|| {
            let name = fs::read(path.join("comm")).unwrap_or_default();
            format!("{} ({pid})", String::from_utf8_lossy(name.trim_ascii_end()))
        })
    });
    let below = mounted::all().into_iter().map(|other| other.directory);
    let below = below.filter(|other| other != directory && other.starts_with(directory));
    let mounts = below.map(|path| format!("the mount on {}", path.display()));
    let loops = entries(Path::new("/sys/block")).filter_map(|path| {
        let device = Path::new("/dev").join(path.file_name()?);
        loop_backing(&device).filter(|file| file.starts_with(directory)).map(|_| device.display().to_string())
    });
    processes.chain(mounts).chain(loops).collect()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Whether the process with this directory in `/proc` uses a mount.
fn is_user(process: &Path, directory: &Path, id: u64, numbers: &str) -> bool {
    let is_link_into = |name| fs::read_link(process.join(name)).is_ok_and(|path| path.starts_with(directory));
    let is_open_file = |path: PathBuf| {
        let info = fs::read_to_string(path).unwrap_or_default();
        let on = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        on.is_some_and(|on| on.trim().parse() == Ok(id))
    };
    ["cwd", "root", "exe"].into_iter().any(is_link_into)
        || entries(&process.join("fdinfo")).any(is_open_file)
        || maps(process, numbers)
}

/// Whether the process maps a file of the device with these numbers: the fourth field of a line of `maps` has them in hexadecimal.
fn maps(process: &Path, numbers: &str) -> bool {
    let numbers = numbers.split_once(':').and_then(|(major, minor)| {
        Some(format!("{:02x}:{:02x}", major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    String::from_utf8_lossy(&maps).lines().any(|line| line.split(' ').nth(3) == numbers.as_deref())
}
