//! Who holds the lock on a file, so that an error can name them.
//!
//! Where it sits: below `open`, on the way of an error only. `/proc/locks` has a line for each lock: number, `FLOCK`, `ADVISORY`,
//! `READ` or `WRITE`, process, `major:minor:inode` of the file (the numbers in hexadecimal), range.

use std::fs;
use std::os::fd::AsFd;

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// This process.
    ThisProcess,
    /// A process with this number and name.
    Process(u32, String),
    /// The system does not say.
    Unknown,
}

impl LockHolder {
    /// What the user can do about it.
    pub(crate) fn cure(&self) -> &'static str {
        match self {
            Self::ThisProcess => {
                "use what is open, close it first, or copy in two steps, through a file of the host"
            }
            Self::Process(..) | Self::Unknown => "close it there, or wait and try again",
        }
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ThisProcess => f.write_str("this process"),
            Self::Process(number, name) => write!(f, "another process, {name} ({number})"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// The holder of a `flock` on this file.
pub(crate) fn lock_holder(file: impl AsFd) -> LockHolder {
    let Ok(stat) = rustix::fs::fstat(file) else { return LockHolder::Unknown };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let place = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    match locks.lines().find_map(|line| process_of(line, &place)) {
        Some(number) if number == std::process::id() => LockHolder::ThisProcess,
        Some(number) => {
            let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
            let name: String = name.trim_end().chars().filter(|character| !character.is_control()).collect();
            // The process that took the lock may have ended and left the file to a child.
            if name.is_empty() { LockHolder::Unknown } else { LockHolder::Process(number, name) }
        }
        None => LockHolder::Unknown,
    }
}

/// The process that holds the lock of a line, if the lock is on the file at `place`. Who waits has an arrow in front and is no holder.
fn process_of(line: &str, place: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_flock = words.next()? == "FLOCK";
    let number = words.nth(2)?.parse().ok().filter(|number| *number > 0);
    number.filter(|_| is_flock && words.next() == Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_file_tells_the_process() {
        let place = "fe:00:6554";
        assert_eq!(process_of("3: FLOCK  ADVISORY  WRITE 812 fe:00:6554 0 EOF", place), Some(812));
        assert_eq!(process_of("3: -> FLOCK  ADVISORY  WRITE 812 fe:00:6554 0 EOF", place), None);
        assert_eq!(process_of("3: POSIX  ADVISORY  WRITE 812 fe:00:6554 0 EOF", place), None);
        assert_eq!(process_of("3: FLOCK  ADVISORY  WRITE 812 fe:00:6555 0 EOF", place), None);
        assert_eq!(
            process_of("3: FLOCK  ADVISORY  WRITE 0 fe:00:6554 0 EOF", place),
            None,
            "another namespace"
        );
        assert_eq!(process_of("", place), None);
    }
}
