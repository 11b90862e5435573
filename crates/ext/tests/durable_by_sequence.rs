//! An inode is durable when the transaction that last changed it is: `fsync` and `fdatasync` wait for a number, no flag says it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod crash;

use std::sync::Arc;

use common::{have, write_blocks};
use crash::{at, file, make_image, scratch};
use diorite_ext::{Inode, SyncKind, Volume, VolumeOptions};
use diorite_sim::crash::RecordingDevice;

fn volume_with_file(arguments: &str) -> Option<(Arc<RecordingDevice>, Arc<Volume>, Arc<Inode>)> {
    if !have(&["mke2fs"]) {
        return None;
    }
    let recorder = RecordingDevice::on_image(make_image(scratch().path(), arguments, "8M"));
    let volume = Volume::open(recorder.clone(), VolumeOptions::default()).unwrap();
    let inode = volume.names.create(&at(&volume, ""), b"f", &file()).unwrap();
    Some((recorder, volume, inode))
}

fn holds_for(arguments: &str) {
    let Some((recorder, volume, inode)) = volume_with_file(arguments) else { return };
    let block = volume.block_size().bytes();
    write_blocks(&volume, &inode, 0, &vec![1; block as usize], Some(block)).unwrap();
    assert!(!volume.is_inode_durable(&inode, SyncKind::Data), "mapped and sized, and not on the disk");
    volume.sync_inode_metadata(&inode, SyncKind::Data).unwrap();
    assert!(
        volume.is_inode_durable(&inode, SyncKind::Data) && volume.is_inode_durable(&inode, SyncKind::All)
    );

    // Nothing to write: no I/O for metadata, and exactly one flush for data that was overwritten in place.
    let (flushes, writes) = (recorder.flush_count(), recorder.recording().write_count());
    volume.sync_inode_metadata(&inode, SyncKind::All).unwrap();
    assert_eq!((recorder.flush_count(), recorder.recording().write_count()), (flushes, writes));
    volume.sync_inode(&inode, SyncKind::Data).unwrap();
    assert_eq!((recorder.flush_count(), recorder.recording().write_count()), (flushes + 1, writes));

    // A change of times is nothing that reading the data needs.
    volume
        .set_attributes(
            &inode,
            &diorite_ext::SetAttributes { permissions: Some(0o600), ..Default::default() },
        )
        .unwrap();
    assert!(volume.is_inode_durable(&inode, SyncKind::Data));
    assert!(!volume.is_inode_durable(&inode, SyncKind::All));
    // What makes another file durable makes this one durable too.
    let other = volume.names.create(&at(&volume, ""), b"g", &file()).unwrap();
    volume.sync_inode(&other, SyncKind::All).unwrap();
    assert!(volume.is_inode_durable(&inode, SyncKind::All));
}

#[test]
fn inodes_are_durable_with_their_transaction() {
    holds_for("-t ext4 -b 1024 -J size=1");
}

#[test]
fn inodes_are_durable_with_their_write_out() {
    holds_for("-t ext2 -b 1024");
    holds_for("-t ext4 -O ^has_journal -b 1024");
}
