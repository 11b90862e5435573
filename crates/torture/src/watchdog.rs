//! A stall watchdog: a case that does not end in time is named, the stack of every thread is printed, and the process ends.
//!
//! It uses nothing but the standard library, so that other tests can take the file as it is.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// The running case.
struct Watched {
    number: u64,
    name: String,
    limit: Duration,
    took: Duration,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());
static START: Once = Once::new();
/// How often the monitor looks.
const TICK: Duration = Duration::from_millis(200);

fn watched() -> MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A case under way; it ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    number: u64,
}

impl Watch {
    /// The case `name` must end within `limit`. Time in which a thread of the process was ready and got no processor does not
    /// count: on a busy machine a case may take a hundred times as long as alone.
    pub fn start(name: impl Into<String>, limit: Duration) -> Self {
        START.call_once(|| {
            // The monitor must not be stopped by what it watches: a thread of its own, and no lock but the list's.
            let monitor = std::thread::Builder::new().name("watchdog".to_owned()).spawn(monitor);
            monitor.expect("a thread for the watchdog");
        });
        let mut list = watched();
        let number = list.last().map_or(0, |last| last.number + 1);
        list.push(Watched { number, name: name.into(), limit, took: Duration::ZERO });
        Self { number }
    }

    /// Time that has counted so far, to the monitor's tick.
    pub fn took(&self) -> Duration {
        let list = watched();
        list.iter()
            .find(|watched| watched.number == self.number)
            .map_or(Duration::ZERO, |watched| watched.took)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watched().retain(|watched| watched.number != self.number);
    }
}

fn monitor() {
    let mut waits = HashMap::new();
    loop {
        std::thread::sleep(TICK);
        if is_starved(&mut waits) {
            continue;
        }
        let mut list = watched();
        list.iter_mut().for_each(|watched| watched.took += TICK);
        let late = list.iter().find(|watched| watched.took > watched.limit).map(|late| late.name.clone());
        drop(list);
        if let Some(name) = late {
            eprintln!("STALLED: {name}: no end in time; every thread's stack:\n{}", stacks());
            std::process::abort();
        }
    }
}

/// Whether some thread was ready for half of the last tick and did not run; `waits` is how long each had waited before.
fn is_starved(waits: &mut HashMap<std::ffi::OsString, u64>) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waited: HashMap<_, u64> = threads
        .filter_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), text.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let half = TICK.as_nanos() as u64 / 2;
    let starved = waited.iter().any(|(thread, now)| *now > waits.get(thread).unwrap_or(now) + half);
    *waits = waited;
    starved
}

/// The stack of every thread of this process: from gdb, or from the system without it.
pub fn stacks() -> String {
    match gdb_stacks() {
        Ok(text) => text,
        Err(error) => format!("gdb: {error}\n{}", waits()),
    }
}

/// gdb stops this process while it writes, so its output goes into a file: a full pipe would stop both.
fn gdb_stacks() -> std::io::Result<String> {
    let own = std::process::id().to_string();
    let path =
        std::env::temp_dir().join(format!("diorite-stacks-{own}-{:?}.txt", std::thread::current().id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let status = Command::new("gdb")
        .args([
            "-batch",
            "-nx",
            "-ex",
            "set pagination off",
            "-ex",
            "thread apply all backtrace 40",
            "-p",
            &own,
        ])
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(Stdio::null())
        .status()?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    if status.success() { Ok(text) } else { Err(std::io::Error::other(format!("{status}: {text}"))) }
}

/// Where each thread waits in the kernel.
fn waits() -> String {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let line = |thread: std::fs::DirEntry| {
        let text = |name: &str| {
            let text = std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        format!("{}: {}\n", text("comm"), [text("wchan"), text("syscall"), text("stack")].join(" "))
    };
    threads.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn waits_for_ever_and_is_named(receiver: &std::sync::mpsc::Receiver<()>) {
        let end = receiver.recv();
        // A call that comes last may leave no frame, and a function that does nothing else may be merged with what it calls.
        std::hint::black_box(&end);
    }

    /// The dump names the function in which another thread waits; without gdb there is at least the thread.
    #[test]
    fn stacks_name_what_waits() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = std::thread::Builder::new().name("stalled-one".to_owned());
        let waiting = waiting.spawn(move || waits_for_ever_and_is_named(&receiver)).expect("a thread");
        std::thread::sleep(Duration::from_millis(50));
        let text = stacks();
        assert!(text.contains("stalled-one"), "{text}");
        if Command::new("gdb").arg("--version").output().is_ok_and(|output| output.status.success())
            && !text.starts_with("gdb:")
        {
            assert!(text.contains("waits_for_ever_and_is_named"), "{text}");
        }
        drop(sender);
        waiting.join().expect("it ends");
    }

    #[test]
    fn cases_that_end_are_forgotten() {
        let watch = Watch::start("a short case", Duration::from_secs(1000));
        assert!(watched().iter().any(|watched| watched.name == "a short case"));
        drop(watch);
        assert!(!watched().iter().any(|watched| watched.name == "a short case"));
    }
}
