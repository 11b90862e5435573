//! A volume with multi-mount protection belongs to the host that has it open, also while the host is idle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diorite::{BlockDevice, FilesystemOptions};
use diorite_ext::layout::mmp::{MmpBlock, SEQUENCE_CLEAN};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

fn entry(device: &Arc<dyn BlockDevice>) -> MmpBlock {
    let block = diorite_ext::read_superblock(&**device).unwrap().mmp_block().unwrap();
    let mut memory = diorite::AlignedBuf::zeroed(1024, 4096);
    device.read_bytes(block.0 * 1024, &mut memory).unwrap();
    MmpBlock::parse(&memory, None).unwrap()
}

#[test]
fn an_idle_filesystem_renews_its_mark_and_gives_it_back() {
    let options = MkfsOptions {
        flavor: Flavor::Ext4,
        block_size: Some(1024),
        features: "mmp".to_owned(),
        mmp_update_interval: Some(1),
        ..MkfsOptions::default()
    };
    let device = common::memory_volume(16, &options);
    let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).unwrap();
    let first = entry(&device);
    assert_eq!(first.node, diorite_device::host_name().into_bytes());
    let start = Instant::now();
    while entry(&device).sequence <= first.sequence + 1 {
        assert!(start.elapsed() < Duration::from_secs(20), "the mark is not renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
    filesystem.close().unwrap();
    assert_eq!(entry(&device).sequence, SEQUENCE_CLEAN);
    // Without a close it is given back too, when the filesystem is not held any more.
    drop(FilesystemOptions::new().open_device(Arc::clone(&device)).unwrap());
    assert_eq!(entry(&device).sequence, SEQUENCE_CLEAN);
    common::assert_device_clean(&device);
}
