//! Invariant 10: damaged images get errors or answers, nothing worse. The long campaign is `cargo xtask fuzz`.

use crate::fuzz;
use std::sync::Arc;

use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{Access, BlockDevice, ErrorKind, Filesystem};
use diorite_block::BioFlags;
use diorite_ext::layout::{GroupDescriptor, Layout};
use diorite_ext::read_superblock;
use diorite_sim::image::ImageDevice;

/// Cases of the campaign that were found to fail once, each with the fault that it showed.
const ONCE_FAILED: &[u64] = &[
    // Directories below themselves: a walk without end.
    1_000_079, 1_000_211,
];

#[test]
fn damaged_images_get_errors_or_answers() {
    if !is_own_process!() {
        return;
    }
    let campaign = fuzz::Campaign::new();
    let (mut opened, mut problems, mut failed) = ([0, 0], 0, Vec::new());
    for case in ONCE_FAILED.iter().copied().chain(0..150) {
        match campaign.run(case) {
            Ok(outcome) => {
                (0..2).for_each(|which| opened[which] += u64::from(outcome.opened[which]));
                problems += outcome.problems;
            }
            Err(what) => failed.push(what),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // The damage is neither none nor such that nothing can be tried.
    assert!(opened[0] > 75 && opened[1] > 75 && problems > 75, "{opened:?} opened, {problems} problems");
}

/// A block of pointers that points to itself at three levels maps 16 million times what is there: asking for all extents took
/// memory without bound.
#[test]
fn a_map_that_points_to_itself_has_no_list_of_extents() {
    if !is_own_process!() {
        return;
    }
    const BLOCK: u64 = 1024;
    let options = MkfsOptions { block_size: Some(BLOCK as u32), ..MkfsOptions::default() };
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(8 << 20);
    mkfs(&*device, &options).expect("mkfs");
    let filesystem = Filesystem::options().open_device(Arc::clone(&device)).expect("open");
    let file = filesystem.create_file("/file").expect("create");
    file.write_all_at(&[1; 1024], (12 + 256 + 65_536) * BLOCK).expect("write");
    file.set_len(16 << 30).expect("size");
    let number = file.metadata().expect("stat").inode;
    drop(file);
    filesystem.close().expect("close");

    let superblock = read_superblock(&*device).expect("superblock");
    let place = Layout::new(&superblock).locate_inode(number).expect("inode");
    let mut memory = vec![0; BLOCK as usize];
    device.read_bytes(2 * BLOCK, &mut memory).expect("descriptors");
    let table =
        GroupDescriptor::parse(&memory[..32], &superblock).inode_table.0 + u64::from(place.table_block);
    device.read_bytes(table * BLOCK, &mut memory).expect("read");
    let at = place.offset as usize + 0x28 + 14 * 4;
    let triple = u32::from_le_bytes(memory[at..at + 4].try_into().expect("4 bytes"));
    let pointers: Vec<u8> = triple.to_le_bytes().repeat(256);
    device.write_bytes(u64::from(triple) * BLOCK, &pointers, BioFlags::NONE).expect("write");

    let filesystem = Filesystem::options().access(Access::ReadOnly).open_device(device).expect("open");
    let error = filesystem.open_file("/file").expect("open").extents().expect_err("no such list");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
