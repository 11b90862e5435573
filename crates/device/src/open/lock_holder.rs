//! The holder of the lock on a file, for an error message.
//!
//! Where it sits: below `open`, only for errors. `/proc/locks` has a line for each lock: number, `FLOCK`, `ADVISORY`,
//! `READ` or `WRITE`, process, `major:minor:inode` of the file (the numbers in hexadecimal), range.

use std::fs;
use std::os::fd::AsFd;

use crate::error::LockHolder;

/// The holder of a `flock` on this file.
pub(crate) fn lock_holder(file: impl AsFd) -> LockHolder {
    let Ok(stat) = rustix::fs::fstat(file) else { return LockHolder::Unknown };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let identity = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    match locks.lines().find_map(|line| process_of(line, &identity)) {
        Some(number) if number == std::process::id() => LockHolder::ThisProcess,
        Some(number) => {
            let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
            let name: String = name.trim_end().chars().filter(|character| !character.is_control()).collect();
            // The process that took the lock may have ended, and its child has the file.
            if name.is_empty() { LockHolder::Unknown } else { LockHolder::Process(number, name) }
        }
        None => LockHolder::Unknown,
    }
}

/// The process that holds the lock of a line, if the lock is on the file `file`. A waiting process has an arrow in front.
fn process_of(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_flock = words.next()? == "FLOCK";
    let number = words.nth(2)?.parse().ok().filter(|number| *number > 0);
    number.filter(|_| is_flock && words.next() == Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_file_tells_the_process() {
        let file = "fe:00:6554";
        assert_eq!(process_of("3: FLOCK  ADVISORY  WRITE 812 fe:00:6554 0 EOF", file), Some(812));
        assert_eq!(process_of("3: -> FLOCK  ADVISORY  WRITE 812 fe:00:6554 0 EOF", file), None);
        assert_eq!(process_of("3: POSIX  ADVISORY  WRITE 812 fe:00:6554 0 EOF", file), None);
        assert_eq!(process_of("3: FLOCK  ADVISORY  WRITE 812 fe:00:6555 0 EOF", file), None);
        assert_eq!(
            process_of("3: FLOCK  ADVISORY  WRITE 0 fe:00:6554 0 EOF", file),
            None,
            "another namespace"
        );
        assert_eq!(process_of("", file), None);
    }
}
