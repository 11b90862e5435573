//! An inode is durable when the transaction that last changed it is durable: `fsync` and `fdatasync` wait for its number, without a flag.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use std::sync::Arc;

use common::{have, write_blocks};
use crash::{at, file, make_image, scratch};
use diorite_ext::{FileBlock, Inode, SyncKind, Volume, VolumeOptions};
use diorite_sim::crash::RecordingDevice;

fn volume_with_file(arguments: &str) -> Option<(Arc<RecordingDevice>, Arc<Volume>, Arc<Inode>)> {
    volume_with(arguments, VolumeOptions::default())
}

fn volume_with(
    arguments: &str,
    options: VolumeOptions,
) -> Option<(Arc<RecordingDevice>, Arc<Volume>, Arc<Inode>)> {
    if !have(&["mke2fs"]) {
        return None;
    }
    let recorder = RecordingDevice::on_image(make_image(scratch().path(), arguments, "8M"));
    let volume = Volume::open(recorder.clone(), options).unwrap();
    let inode = volume.names.create(&at(&volume, ""), b"f", &file()).unwrap();
    Some((recorder, volume, inode))
}

fn holds_for(arguments: &str) {
    let Some((recorder, volume, inode)) = volume_with_file(arguments) else { return };
    let block = volume.block_size().bytes();
    write_blocks(&volume, &inode, 0, &vec![1; block as usize], Some(block)).unwrap();
    assert!(!volume.is_inode_durable(&inode, SyncKind::Data), "mapped and sized, and not on the disk");
    volume.sync_inode(&inode, SyncKind::Data).unwrap();
    assert!(
        volume.is_inode_durable(&inode, SyncKind::Data) && volume.is_inode_durable(&inode, SyncKind::All)
    );

    // There is no metadata to write. One flush makes data durable that was overwritten in place.
    let (flushes, writes) = (recorder.flush_count(), recorder.recording().write_count());
    volume.sync_inode(&inode, SyncKind::All).unwrap();
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
    // The sync of another file also makes this one durable.
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

/// `fdatasync` waited for the first transaction of a change that takes several: a crash brought a part of a hole back, or left a file half
/// moved.
fn changes_of_several_transactions_are_durable(
    arguments: &str,
    (parts, distance): (u64, u64),
    change: impl Fn(&Volume, &Inode) -> diorite_ext::Result<()>,
) {
    // Each handle is a transaction.
    let options = VolumeOptions { commit_interval: std::time::Duration::ZERO, ..VolumeOptions::default() };
    let Some((_, volume, inode)) = volume_with(arguments, options) else { return };
    let block = volume.block_size().bytes();
    for part in 0..parts {
        let at = 14 + part * distance;
        write_blocks(&volume, &inode, at, &vec![1; block as usize], Some((at + 1) * block)).unwrap();
    }
    volume.sync_inode(&inode, SyncKind::All).unwrap();
    let before = volume.status().transactions.running_transaction;
    change(&volume, &inode).unwrap();
    let transactions = volume.status().transactions.running_transaction - before;
    volume.sync_inode(&inode, SyncKind::Data).unwrap();
    assert!(transactions > 1, "{arguments}: the test needs a change of several transactions");
    assert!(volume.is_inode_durable(&inode, SyncKind::All), "{arguments}: its end is not durable");
}

#[test]
fn syncs_of_data_wait_for_all_of_a_change() {
    let punch = |volume: &Volume, inode: &Inode| volume.files.punch(inode, FileBlock(0), 20_000);
    // Each block has an index block of its own; each is an extent.
    changes_of_several_transactions_are_durable("-t ext3 -b 1024 -J size=1", (60, 300), punch);
    changes_of_several_transactions_are_durable("-t ext4 -b 1024 -J size=1", (1500, 2), |volume, inode| {
        volume.files.insert_range(inode, FileBlock(10), 7)
    });
}
