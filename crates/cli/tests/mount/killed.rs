//! A daemon that is killed while it unmounts.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

use super::{Served, on_slow_device};
use crate::common::pattern;

const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// The remains of a daemon are gone after this time.
const LIMIT: Duration = Duration::from_secs(10);

/// The kernel's connection to a daemon. If a test fails, the connection is ended by force: a daemon that waits for itself would block
/// itself and `sync(2)` of the host.
struct Connection(PathBuf);

impl Connection {
    fn of(served: &Served) -> Self {
        let device = fs::metadata(served.at()).map(|found| std::os::unix::fs::MetadataExt::dev(&found));
        let device = device.expect("stat");
        // As the kernel writes it.
        let number = u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
        let abort = PathBuf::from(format!("{CONNECTIONS}/{number}/abort"));
        if !abort.exists() {
            // As systemd does, where it runs.
            let _ = mount("none", CONNECTIONS, "fusectl", MountFlags::empty(), None);
        }
        Self(abort)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0.display(), fs::write(&self.0, "1"));
        }
    }
}

/// The daemon called `umount` itself. When it was killed in that call, it waited for its own answers with its descriptors open. It did not
/// end, nor did any `sync(2)` of the host.
pub(crate) fn a_daemon_that_is_killed_while_it_unmounts_ends() {
    for delay in [5, 50, 150, 400] {
        let Some(served) = on_slow_device("cache=256K") else { return };
        let data = pattern(16 << 20, 1);
        fs::write(served.path("synced"), &data[..100_000]).expect("write");
        fs::File::open(served.path("synced")).and_then(|file| file.sync_all()).expect("sync");
        fs::write(served.path("dirty"), &data).expect("write");
        let connection = Connection::of(&served);
        served.terminate();
        std::thread::sleep(Duration::from_millis(delay));
        let start = Instant::now();
        assert!(served.kill_only(LIMIT), "killed {delay} ms after SIGTERM, it does not end");
        // The unmounting program continues, or the mount stays.
        while served.is_mounted() && start.elapsed() < LIMIT / 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        if served.is_mounted() {
            served.bench().run("umount -l at");
        }
        drop(connection);
        let served = served.on_the_image().mount_again("");
        assert!(fs::read(served.path("synced")).expect("read") == data[..100_000]);
        served.must_end_clean();
    }
}
