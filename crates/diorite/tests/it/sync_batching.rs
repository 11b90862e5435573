//! Concurrent syncs share a commit, and a single sync does not wait for others (in virtual time).

use std::sync::Arc;
use std::time::Duration;

use diorite::{BlockDevice, File, Filesystem, FilesystemOptions};
use diorite_block::sync::{self, now};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::disk::SimDisk;
use diorite_sim::{Simulation, WorldOptions};

const APPENDS: u64 = 40;

/// Run in a world with a volume on a disk where a commit takes long enough to wait for others.
fn on_a_volume<T: Send + 'static>(body: impl FnOnce(&Filesystem) -> T + Send + 'static) -> T {
    let disk = SimDisk::named("sim:ssd").expect("disk");
    let options = MkfsOptions { flavor: Flavor::Ext4, size_bytes: Some(64 << 20), ..MkfsOptions::default() };
    mkfs(&*disk, &options).expect("mkfs");
    let device: Arc<dyn BlockDevice> = disk;
    let run = move || {
        let filesystem = FilesystemOptions::new().open_device(device).expect("open");
        let result = body(&filesystem);
        filesystem.close().expect("close");
        result
    };
    Simulation::run_one(WorldOptions::default(), run).expect("no deadlock").0
}

fn append(file: &File, index: u64) {
    file.write_all_at(&[1; 4096], index * 4096).expect("write");
    file.sync_all().expect("sync");
}

/// `work` on a thread of its own, until it ends.
fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    sync::spawn("appends", work).expect("a thread").join();
}

/// As requests of one program do that any thread of a mount may serve: each once waited for the thread before it.
#[test]
fn syncs_one_after_the_other_do_not_wait_whichever_thread_they_are_of() {
    let time = |by_many: bool| {
        on_a_volume(move |filesystem| {
            let file = Arc::new(filesystem.create_file("/log").expect("create"));
            let start = now();
            for index in 0..APPENDS {
                let of_thread = Arc::clone(&file);
                let appends = move || append(&of_thread, index);
                if by_many {
                    on_a_thread(appends);
                } else {
                    on_a_thread(|| ());
                    appends();
                }
            }
            now().saturating_sub(start)
        })
    };
    let (one, many) = (time(false), time(true));
    let slower = many.saturating_sub(one) / APPENDS as u32;
    assert!(slower < Duration::from_micros(10), "one thread {one:?}, a thread each {many:?}");
}

#[test]
fn syncs_of_eight_threads_share_commits() {
    let commits = on_a_volume(|filesystem| {
        let durable = |filesystem: &Filesystem| filesystem.status().volume.transactions.durable_transaction;
        let before = durable(filesystem);
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let file = filesystem.create_file(format!("/log-{number}")).expect("create");
                let appends = move || (0..APPENDS).for_each(|index| append(&file, index));
                sync::spawn("appends", appends).expect("a thread")
            })
            .collect();
        threads.into_iter().for_each(sync::JoinHandle::join);
        durable(filesystem) - before
    });
    assert!(commits <= APPENDS * 8 / 7, "{commits} commits for {} appends by eight threads", 8 * APPENDS);
}
