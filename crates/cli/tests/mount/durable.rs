//! Data of files that were synced, or written synchronously, after the daemon was killed.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::process::Command;

use super::Served;
use crate::common::pattern;

/// `sync`, `syncfs` and `fsync` wait for the daemon; a daemon that is killed afterwards has lost nothing, and the journal is replayed.
pub(crate) fn what_was_synced_survives_a_killed_daemon() {
    survives_a_killed_daemon(|options| Served::new("ext4", "64M", options));
    survives_a_killed_daemon(Served::striped);
    survives_a_killed_daemon(super::on_nbd);
}

fn survives_a_killed_daemon(new: fn(&str) -> Option<Served>) {
    for how in ["sync", "syncfs", "fsync"] {
        if how != "fsync" && !super::has_kernel(6, 18, &format!("{how} does not wait for fuseblk")) {
            continue;
        }
        let Some(served) = new("commit=300") else { return };
        let name = |index: u64| served.path(&format!("file{index}"));
        for index in 0..20 {
            fs::write(name(index), pattern(index as usize * 5000, index)).expect("write");
        }
        let root = fs::File::open(served.at()).expect("open");
        match how {
            "sync" => rustix::fs::sync(),
            "syncfs" => rustix::fs::syncfs(&root).expect("syncfs"),
            _ => {
                (0..20)
                    .for_each(|index| fs::File::open(name(index)).expect("open").sync_all().expect("fsync"));
                root.sync_all().expect("fsync");
            }
        }
        drop(root);
        fs::write(served.path("unsynced"), pattern(100_000, 3)).expect("write");
        let served = served.kill_and_again();
        for index in 0..20 {
            let path = served.path(&format!("file{index}"));
            assert_eq!(
                fs::read(path).expect("read"),
                pattern(index as usize * 5000, index),
                "{how}: file{index}"
            );
        }
        served.must_end_clean();
    }
}

/// The kernel syncs after no write to a file that it does not cache, whatever the file was opened with.
pub(crate) fn synchronous_writes_that_no_sync_follows_survive_a_killed_daemon() {
    const O_DSYNC: i32 = 0o10_000;
    const O_SYNC: i32 = 0o4_010_000;
    for flag in [O_DSYNC, O_SYNC] {
        let Some(served) = Served::new("ext4", "64M", "direct,commit=300") else { return };
        let path = served.path("file");
        let open = OpenOptions::new().create_new(true).write(true).custom_flags(flag).open(path);
        open.and_then(|file| file.write_all_at(&pattern(5000, 1), 0)).expect("write");
        let served = served.kill_and_again();
        assert_eq!(fs::read(served.path("file")).expect("read"), pattern(5000, 1), "{flag:o}, -o direct");
        served.must_end_clean();

        let Some(served) = Served::new("ext4", "64M", "commit=300") else { return };
        let path = served.path("log");
        fs::write(&path, b"").expect("create");
        let changed = Command::new("chattr").arg("+a").arg(&path).status().expect("chattr");
        assert!(changed.success());
        let mut log = OpenOptions::new().append(true).custom_flags(flag).open(&path).expect("open");
        log.write_all(&pattern(5000, 2)).expect("append");
        drop(log);
        let served = served.kill_and_again();
        assert_eq!(fs::read(served.path("log")).expect("read"), pattern(5000, 2), "{flag:o}, append-only");
        served.must_end_clean();
    }
}
