//! Sound superblocks survive a round trip, and others are rejected with the name of the field or feature.

use zerocopy::FromZeros;

use super::*;
use crate::Error;

/// A small sound volume: 8192 blocks of 1 KiB in one group.
pub(crate) fn sound() -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.magic = U16::new(MAGIC);
    raw.rev_level = U32::new(1);
    raw.blocks_count_lo = U32::new(8192);
    raw.first_data_block = U32::new(1);
    raw.blocks_per_group = U32::new(8192);
    raw.clusters_per_group = U32::new(8192);
    raw.inodes_per_group = U32::new(1024);
    raw.inodes_count = U32::new(1024);
    raw.first_ino = U32::new(11);
    raw.inode_size = U16::new(256);
    raw
}

#[test]
fn a_sound_superblock_comes_back_with_all_its_bytes() {
    let mut raw = sound();
    raw.reserved[50] = U32::new(0x1234_5678);
    raw.feature_ro_compat = U32::new(RoCompat::METADATA_CSUM.bits());
    raw.checksum_type = 1;
    let mut superblock = Superblock::from_raw(&raw).unwrap();
    let mut bytes = [0; SUPERBLOCK_SIZE];
    superblock.write_into(&mut bytes);
    let again = Superblock::parse(&bytes).unwrap();
    assert_eq!(again.raw().as_bytes(), superblock.raw().as_bytes());
    bytes[300] ^= 1;
    assert!(matches!(
        Superblock::parse(&bytes),
        Err(Error::Corrupt(Corrupt::Checksum { what: "superblock", .. }))
    ));
}

#[test]
fn each_number_that_cannot_be_is_named() {
    type Change = fn(&mut RawSuperblock);
    let cases: [(&str, Change); 12] = [
        ("s_log_block_size", |raw| raw.log_block_size = U32::new(7)),
        ("s_log_block_size", |raw| raw.log_block_size = U32::new(u32::MAX)),
        ("s_blocks_per_group", |raw| raw.blocks_per_group = U32::new(0)),
        ("s_blocks_per_group", |raw| raw.blocks_per_group = U32::new(8200)),
        ("s_first_data_block", |raw| raw.first_data_block = U32::new(2)),
        ("s_blocks_count", |raw| raw.blocks_count_lo = U32::new(1)),
        ("s_inode_size", |raw| raw.inode_size = U16::new(0)),
        ("s_inode_size", |raw| raw.inode_size = U16::new(2048)),
        ("s_inodes_per_group", |raw| raw.inodes_per_group = U32::new(0)),
        ("s_inodes_count", |raw| raw.inodes_count = U32::new(1023)),
        ("s_first_ino", |raw| raw.first_ino = U32::new(5)),
        ("s_reserved_gdt_blocks", |raw| raw.reserved_gdt_blocks = U16::new(300)),
    ];
    for (name, change) in cases {
        let mut raw = sound();
        change(&mut raw);
        match Superblock::parse(raw.as_bytes()) {
            Err(Error::Corrupt(Corrupt::Superblock { field, .. })) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Descriptor blocks of meta groups that lay past the end were read there.
#[test]
fn descriptors_past_the_end_are_refused() {
    let small_groups = |raw: &mut RawSuperblock| {
        raw.feature_incompat = U32::new(Incompat::META_BG.bits());
        raw.blocks_per_group = U32::new(256);
        raw.clusters_per_group = U32::new(256);
        raw.inodes_per_group = U32::new(16);
        raw.inode_size = U16::new(128);
    };
    let mut two_blocks = sound();
    small_groups(&mut two_blocks);
    two_blocks.blocks_count_lo = U32::new(2);
    two_blocks.first_meta_bg = U32::new(1);
    two_blocks.inodes_count = U32::new(16);
    let mut short_group = sound();
    small_groups(&mut short_group);
    // 33 groups: the last one has a block for its superblock, and none for the descriptors.
    short_group.blocks_count_lo = U32::new(1 + 32 * 256 + 1);
    short_group.inodes_count = U32::new(33 * 16);
    for raw in [two_blocks, short_group] {
        match Superblock::parse(raw.as_bytes()) {
            Err(Error::Corrupt(Corrupt::Superblock { field, .. })) => assert_eq!(field, "s_blocks_count"),
            other => panic!("{} blocks: {:?}", raw.blocks_count_lo, other.map(drop)),
        }
    }
}

proptest::proptest! {
    /// ARCHITECTURE invariant 10: whatever the bytes are, the answer is a superblock that keeps the invariants, or an error.
    #[test]
    fn hostile_superblocks_are_refused_or_sound(changes in proptest::collection::vec((0..1024_usize, 0..=255_u8), 0..12)) {
        let mut bytes = sound().as_bytes().to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Ok(superblock) = Superblock::parse_any_features(&bytes) {
            let layout = crate::Layout::new(&superblock);
            assert!(layout.group_count > 0 && layout.first_data_block < layout.blocks_count);
            assert!(layout.descriptors_per_block() > 0);
            let last = GroupNumber(layout.group_count - 1);
            assert!(layout.blocks_in(last) > 0);
            assert!(layout.descriptor_place(last).0.0 < layout.blocks_count);
            layout.overhead_in(last);
            layout.locate_inode(InodeNumber(superblock.inodes_count())).unwrap();
        }
    }
}
