//! Many inodes in use at once, as in a mount: the cost of each is that of the first.

use crate::common;
use std::time::Duration;

use common::memory_volume;
use diorite::{FileKind, FilesystemOptions, NodeSpec, Owner};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};
use rustix::time::{ClockId, clock_gettime};

/// Time that this thread has been running: other processes do not count.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Every insertion above 4,096 held inodes looked at the whole table: 146,000 creates a second fell to 690 at 30,000.
#[test]
fn an_inode_costs_the_same_however_many_are_in_use() {
    const STEP: u32 = 3000;
    let options = MkfsOptions { flavor: Flavor::Ext4, inodes: Some(40_000), ..MkfsOptions::default() };
    let filesystem = FilesystemOptions::new().open_device(memory_volume(64, &options)).expect("open");
    let root = filesystem.root().expect("root");
    let spec = NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    let mut held = Vec::new();
    let mut costs = Vec::new();
    for step in 0..8 {
        let start = thread_time();
        for n in 0..STEP {
            let name = format!("{}", step * STEP + n);
            held.push(root.create(name.as_bytes(), &spec).expect("create"));
        }
        costs.push(thread_time().saturating_sub(start));
    }
    // The directory grows meanwhile, and the first ones find the memory that they need.
    assert!(costs[7] < costs[0] * 4, "{STEP} inodes more, again and again: {costs:?}");
    let first = root.lookup(b"0").expect("look up");
    assert_eq!(first.number(), held[0].number());
    drop(first);
    drop(held);
    drop(root);
    filesystem.close().expect("nothing is in use");
}
