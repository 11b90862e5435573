//! A volume that is closed while other threads finish their operations on it.

use crate::common;
use std::sync::atomic::{AtomicBool, Ordering};

use common::assert_clean;
use diorite::{ErrorKind, Filesystem};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// The blocks of a large file are freed in many transactions by the thread that dropped it, which was in no table then: a close in
/// between left it an orphan, and without a journal a damaged volume.
#[test]
fn a_close_waits_for_what_is_being_removed() {
    for (flavor, by_name) in [(Flavor::Ext2, false), (Flavor::Ext2, true), (Flavor::Ext4, false)] {
        let image = common::Image::new(3072, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let filesystem = Filesystem::open(&image.path).expect("open");
        let file = filesystem.create_file("/large").expect("create");
        // In many pieces, so that it takes long to free them.
        for piece in 0..40_000_u64 {
            file.write_all_at(&[piece as u8; 1024], piece * 16_384).expect("write");
        }
        file.sync_all().expect("sync");
        let has_begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (begun, remover) = (&has_begun, filesystem.clone());
            if by_name {
                drop(file);
                scope.spawn(move || {
                    begun.store(true, Ordering::Release);
                    remover.remove_file("/large").expect("remove");
                });
            } else {
                remover.remove_file("/large").expect("remove");
                scope.spawn(move || {
                    begun.store(true, Ordering::Release);
                    drop(file);
                });
            }
            while !has_begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            common::wait_until("the name is removed", || filesystem.resolve("/large").is_err());
            loop {
                match filesystem.clone().close() {
                    Err(error) if error.kind() == ErrorKind::Busy => std::thread::yield_now(),
                    closed => break closed.expect("close"),
                }
            }
        });
        drop(filesystem);
        assert_clean(&image.path);
    }
}
