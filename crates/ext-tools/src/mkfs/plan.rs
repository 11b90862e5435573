//! The numbers of the superblock, from options and the device's size: block size, groups, inodes, space for growth.
//!
//! The arithmetic is that of e2fsprogs (`ext2fs_initialize`), so that the same arguments give the same geometry: inodes fill the
//! blocks of their tables, and a last group that is too small is left out.

use zerocopy::FromZeros;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

use crate::mkfs::options::UsageType;
use crate::mkfs::{MkfsError, MkfsOptions};
use diorite_ext_format::superblock::{
    ENCODING_STRICT, ENCODING_UTF8, FLAG_SIGNED_HASH, MAGIC, RawSuperblock, STATE_VALID, is_sparse_backup,
};
use diorite_ext_format::{BlockSize, Error};
use diorite_ext_format::{Compat, Features, Incompat, RoCompat, Superblock};

/// First inode for files.
const FIRST_INODE: u32 = 11;
/// Blocks that a last group must have beyond its metadata.
const LEAST_USE_OF_GROUP: u64 = 50;
/// `s_encrypt_algos`: for contents, and for names.
const AES_256_XTS: u8 = 1;
const AES_256_CTS: u8 = 4;
/// Groups of a flex group, by default.
const FLEX_GROUPS: u32 = 16;
/// Unit to which the size of a whole device is rounded down.
const PAGE: u64 = 4096;

/// The numbers while they are worked out.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    block_size: BlockSize,
    per_cluster: u64,
    blocks: u64,
    reserved: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    groups: u64,
    inodes_per_group: u64,
    table_blocks: u64,
    inode_size: u64,
    desc_size: u64,
    descriptor_blocks: u64,
    growth: u64,
    features: Features,
}

/// The superblock of the new volume; free counts are still those of an empty one.
pub(super) fn plan(
    options: &MkfsOptions,
    capacity: u64,
    logical_block: u32,
) -> Result<Superblock, MkfsError> {
    let features = options.resolve_features()?;
    let bytes = options.size_bytes.unwrap_or(capacity);
    if bytes > capacity {
        return Err(MkfsError::BeyondDevice { requested: bytes, capacity });
    }
    let usage = UsageType::of_size(bytes);
    let block_size = options.block_size_for(bytes, logical_block);
    let Some(block_size) = BlockSize::new(block_size) else {
        return Err(MkfsError::Invalid {
            what: "the block size (-b)",
            given: u64::from(block_size),
            cure: "use a power of two from 1024 to 65536",
        });
    };
    if block_size.bytes() < u64::from(logical_block) {
        return Err(MkfsError::BlockBelowSector { block_size: block_size.bytes(), logical_block });
    }
    let usable = if options.size_bytes.is_some() { bytes } else { bytes / PAGE * PAGE };
    let mut numbers = first_numbers(options, features, block_size, usable / block_size.bytes())?;
    let requested = inodes_requested(options, &numbers, usage)?;
    settle(&mut numbers, requested, bytes, options)?;
    // The first ones belong to the volume itself. mke2fs fails there, too.
    if numbers.inodes_per_group * numbers.groups <= u64::from(FIRST_INODE) {
        let cure = "no inode is left for a file; use a larger image, or more inodes (-N 16)";
        return Err(MkfsError::TooSmall { bytes, cure });
    }
    let raw = raw_superblock(options, &numbers)?;
    Superblock::from_raw(&raw).map_err(|error| match error {
        Error::Corrupt(corrupt) => MkfsError::Impossible(corrupt),
        incompatible @ Error::Incompatible(_) => MkfsError::Format(incompatible),
    })
}

fn first_numbers(
    options: &MkfsOptions,
    mut features: Features,
    block_size: BlockSize,
    blocks: u64,
) -> Result<Numbers, MkfsError> {
    let inode_size = u64::from(options.inode_size.unwrap_or(256));
    if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block_size.bytes() {
        return Err(MkfsError::Invalid {
            what: "the inode size (-I)",
            given: inode_size,
            cure: "use a power of two from 128 to the block size",
        });
    }
    if blocks > u64::from(u32::MAX) {
        if !features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            return Err(MkfsError::TooLarge {
                blocks,
                most: u64::from(u32::MAX),
                cure: "use larger blocks (-b), or ext4 or -O 64bit",
            });
        }
        features.compat -= Compat::RESIZE_INODE;
        if blocks > 1 << 48 {
            return Err(MkfsError::TooLarge { blocks, most: 1 << 48, cure: "use larger blocks (-b)" });
        }
    }
    let clusters = features.has_ro_compat(RoCompat::BIGALLOC);
    let per_cluster = if clusters { blocks_per_cluster(options, block_size)? } else { 1 };
    Ok(Numbers {
        block_size,
        per_cluster,
        blocks: blocks / per_cluster * per_cluster,
        reserved: (options.reserved_percent * blocks as f64 / 100.0) as u64,
        first_data_block: u64::from(block_size.bytes() == 1024 && !clusters),
        blocks_per_group: blocks_per_group(options, block_size, per_cluster)?,
        groups: 0,
        inodes_per_group: 0,
        table_blocks: 0,
        inode_size,
        desc_size: if features.has_incompat(Incompat::SIXTY_FOUR_BIT) { 64 } else { 32 },
        descriptor_blocks: 0,
        growth: 0,
        features,
    })
}

/// Blocks of a group, as asked for or as many as a bitmap has bits.
fn blocks_per_group(
    options: &MkfsOptions,
    block_size: BlockSize,
    per_cluster: u64,
) -> Result<u64, MkfsError> {
    let most = (block_size.bytes() * 8).min(65528) * per_cluster;
    let blocks = options.blocks_per_group.map_or(most, u64::from);
    if (256 * per_cluster..=most).contains(&blocks) && blocks.is_multiple_of(8 * per_cluster) {
        return Ok(blocks);
    }
    let cure = "use a multiple of 8 from 256 to the bits of a block";
    Err(MkfsError::Invalid { what: "the number of blocks per group", given: blocks, cure })
}

/// Blocks of a cluster, as asked for or 16. A group must not have more blocks than can be counted.
fn blocks_per_cluster(options: &MkfsOptions, block_size: BlockSize) -> Result<u64, MkfsError> {
    let block = block_size.bytes();
    let cluster = options.cluster_size.map_or(16 * block, u64::from);
    let most = u64::from(u32::MAX) / (block * 8).min(65528);
    let per_cluster = cluster / block;
    if cluster.is_power_of_two() && (2..=most).contains(&per_cluster) && cluster <= 1 << 29 {
        return Ok(per_cluster);
    }
    Err(MkfsError::Invalid {
        what: "the cluster size (-C)",
        given: cluster,
        cure: "use a power of two that is larger than a block and at most 512 MiB",
    })
}

fn inodes_requested(options: &MkfsOptions, numbers: &Numbers, usage: UsageType) -> Result<u64, MkfsError> {
    let bytes = numbers.blocks * numbers.block_size.bytes();
    let requested = match (options.inodes, options.bytes_per_inode) {
        (Some(inodes), _) => u64::from(inodes),
        (None, Some(ratio)) if !(1024..=64 << 20).contains(&ratio) => {
            return Err(MkfsError::Invalid {
                what: "the bytes per inode (-i)",
                given: u64::from(ratio),
                cure: "use 1024 to 67108864",
            });
        }
        (None, ratio) => {
            // Only the default ratio is raised to a block; a given one stays.
            let cluster = numbers.block_size.bytes() * numbers.per_cluster;
            let ratio = ratio.map_or(u64::from(usage.bytes_per_inode).max(cluster), u64::from);
            (bytes / ratio).min(u64::from(u32::MAX))
        }
    };
    if requested * numbers.inode_size >= bytes.max(1) {
        return Err(MkfsError::TooManyInodes {
            inodes: requested,
            cure: "use fewer inodes (-N) or more bytes per inode (-i)",
        });
    }
    Ok(requested)
}

/// Settle groups, inodes per group and space for growth; drops a last group that is too small.
fn settle(
    numbers: &mut Numbers,
    inode_count: u64,
    bytes: u64,
    options: &MkfsOptions,
) -> Result<(), MkfsError> {
    // Too few blocks for any volume.
    if numbers.blocks <= numbers.first_data_block + 1 {
        return Err(MkfsError::TooSmall { bytes, cure: "use a larger image or device" });
    }
    let cure = "use a larger device, smaller blocks (-b), or fewer inodes (-N)";
    let too_small = || MkfsError::TooSmall { bytes, cure };
    let (asked_blocks, asked_reserved) = (numbers.blocks, numbers.reserved);
    loop {
        if numbers.blocks <= numbers.first_data_block + 1 {
            return Err(too_small());
        }
        numbers.groups = (numbers.blocks - numbers.first_data_block).div_ceil(numbers.blocks_per_group);
        let per_block = numbers.block_size.bytes() / numbers.desc_size;
        numbers.descriptor_blocks = numbers.groups.div_ceil(per_block);
        let bits = numbers.block_size.bytes() * 8;
        let mut per_group = inode_count.max(u64::from(FIRST_INODE) + 1).div_ceil(numbers.groups);
        if per_group > bits {
            if numbers.blocks_per_group < 256 + 8 || numbers.per_cluster > 1 {
                let cure = "use fewer inodes (-N) or more bytes per inode (-i)";
                return Err(MkfsError::TooManyInodes { inodes: inode_count, cure });
            }
            numbers.blocks_per_group -= 8;
            numbers.blocks = asked_blocks;
            continue;
        }
        per_group = per_group.min(65536 - numbers.block_size.bytes() / numbers.inode_size);
        if !fill_tables(numbers, 1) {
            let groups = u64::from(u32::MAX) / numbers.inodes_per_group;
            return Err(MkfsError::TooLarge {
                blocks: numbers.blocks,
                most: numbers.first_data_block + groups * numbers.blocks_per_group,
                cure: "the number of inodes would be above 4294967295; use another block size (-b)",
            });
        }
        while !fill_tables(numbers, per_group) {
            per_group -= 1;
        }
        settle_growth(numbers, options);
        let own = numbers.table_blocks + 3 + numbers.growth + numbers.descriptor_blocks;
        if own > numbers.blocks_per_group {
            let cure = "use fewer inodes (-N) or more bytes per inode (-i)";
            return Err(MkfsError::TooManyInodes { inodes: inode_count, cure });
        }
        let mut overhead = 2 + numbers.table_blocks;
        let every_backup = !numbers.features.has_ro_compat(RoCompat::SPARSE_SUPER);
        let last_backup = numbers.features.has_compat(Compat::SPARSE_SUPER2);
        if every_backup || last_backup || is_sparse_backup(numbers.groups - 1) {
            overhead += 1 + numbers.descriptor_blocks + numbers.growth;
        }
        let rest = (numbers.blocks - numbers.first_data_block) % numbers.blocks_per_group;
        if numbers.groups == 1 && rest != 0 && rest < overhead {
            return Err(too_small());
        }
        if rest == 0 || rest >= overhead + LEAST_USE_OF_GROUP {
            return Ok(());
        }
        numbers.blocks -= rest;
        let ratio = 100.0 * asked_reserved as f64 / asked_blocks as f64;
        numbers.reserved = (ratio * numbers.blocks as f64 / 100.0) as u64;
    }
}

/// Round inodes per group so that they fill blocks and are a multiple of 8; `false` if that makes too many in all.
fn fill_tables(numbers: &mut Numbers, per_group: u64) -> bool {
    let block = numbers.block_size.bytes();
    let filled = (per_group * numbers.inode_size).div_ceil(block) * block / numbers.inode_size;
    numbers.inodes_per_group = filled.max(8) / 8 * 8;
    numbers.table_blocks = (numbers.inodes_per_group * numbers.inode_size).div_ceil(block);
    u32::try_from(numbers.inodes_per_group * numbers.groups).is_ok()
}

fn settle_growth(numbers: &mut Numbers, options: &MkfsOptions) {
    let addresses = numbers.block_size.bytes() / 4;
    numbers.growth = 0;
    if numbers.features.has_compat(Compat::RESIZE_INODE) {
        let most = u64::from(u32::MAX);
        let growth_to = |blocks: u64| {
            let groups = (blocks - numbers.first_data_block).div_ceil(numbers.blocks_per_group);
            let table = groups.div_ceil(numbers.block_size.bytes() / numbers.desc_size);
            table.saturating_sub(numbers.descriptor_blocks)
        };
        let asked = options.resize_blocks.map_or(0, |blocks| growth_to(blocks.clamp(numbers.blocks, most)));
        // Space that the descriptors have anyway is not a request: the default is reserved.
        let usual = growth_to(numbers.blocks.saturating_mul(1024).min(most).max(numbers.blocks));
        numbers.growth = if asked > 0 { asked } else { usual }.min(addresses);
    }
    if numbers.growth + numbers.descriptor_blocks > numbers.blocks_per_group * 3 / 4 {
        numbers.features.incompat |= Incompat::META_BG;
        numbers.features.compat -= Compat::RESIZE_INODE;
        numbers.growth = 0;
    }
}

fn raw_superblock(options: &MkfsOptions, numbers: &Numbers) -> Result<RawSuperblock, MkfsError> {
    let mut raw = RawSuperblock::new_zeroed();
    let features = numbers.features;
    let narrow = |value: u64| U32::new(value as u32);
    let log = numbers.block_size.log2() - 10;
    raw.inodes_count = narrow(numbers.inodes_per_group * numbers.groups);
    raw.free_inodes_count = raw.inodes_count;
    raw.blocks_count_lo = narrow(numbers.blocks);
    raw.blocks_count_hi = narrow(numbers.blocks >> 32);
    raw.r_blocks_count_lo = narrow(numbers.reserved);
    raw.r_blocks_count_hi = narrow(numbers.reserved >> 32);
    raw.first_data_block = narrow(numbers.first_data_block);
    raw.log_block_size = U32::new(log);
    raw.log_cluster_size = U32::new(log + numbers.per_cluster.trailing_zeros());
    raw.blocks_per_group = narrow(numbers.blocks_per_group);
    raw.clusters_per_group = narrow(numbers.blocks_per_group / numbers.per_cluster);
    raw.inodes_per_group = narrow(numbers.inodes_per_group);
    raw.max_mnt_count = U16::new(u16::MAX);
    raw.magic = U16::new(MAGIC);
    raw.state = U16::new(STATE_VALID);
    raw.errors = U16::new(1);
    raw.rev_level = U32::new(1);
    raw.first_ino = U32::new(FIRST_INODE);
    raw.inode_size = U16::new(numbers.inode_size as u16);
    raw.feature_compat = U32::new(features.compat.bits());
    raw.feature_incompat = U32::new(features.incompat.bits());
    raw.feature_ro_compat = U32::new(features.ro_compat.bits());
    raw.uuid = options.uuid.map_or_else(random_uuid, Ok)?;
    raw.volume_name[..options.label.len()].copy_from_slice(&options.label);
    raw.reserved_gdt_blocks = U16::new(numbers.growth as u16);
    raw.hash_seed = options.hash_seed.map_or_else(random_uuid, Ok)?;
    raw.def_hash_version = 1;
    raw.flags = U32::new(FLAG_SIGNED_HASH);
    raw.default_mount_opts = U32::new(0xc);
    if features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
        raw.desc_size = U16::new(numbers.desc_size as u16);
    }
    if numbers.inode_size >= 160 {
        raw.min_extra_isize = U16::new(32);
        raw.want_extra_isize = U16::new(32);
    }
    if features.has_incompat(Incompat::FLEX_BG) {
        raw.log_groups_per_flex = options.flex_groups.unwrap_or(FLEX_GROUPS).trailing_zeros() as u8;
    }
    if features.has_compat(Compat::ORPHAN_FILE) {
        // Until the file is made, an inode that it could have.
        raw.orphan_file_inum = raw.first_ino;
    }
    if features.has_incompat(Incompat::MMP) {
        // Until the block is taken, one that is on the volume.
        raw.mmp_block = U64::new(numbers.first_data_block + 1);
    }
    if features.metadata_csum() {
        raw.checksum_type = 1;
    }
    if features.has_incompat(Incompat::CASEFOLD) {
        raw.encoding = U16::new(ENCODING_UTF8);
        raw.encoding_flags = U16::new(if options.strict_encoding { ENCODING_STRICT } else { 0 });
    }
    if features.has_incompat(Incompat::ENCRYPT) {
        raw.encrypt_algos[..2].copy_from_slice(&[AES_256_XTS, AES_256_CTS]);
    }
    if features.has_incompat(Incompat::CSUM_SEED) {
        raw.checksum_seed = U32::new(diorite_ext_format::ChecksumSeed::of_uuid(&raw.uuid).0);
    }
    if features.has_compat(Compat::SPARSE_SUPER2) && numbers.groups > 1 {
        let last = numbers.groups - 1;
        raw.backup_bgs = [U32::new(1), narrow(if last > 1 { last } else { 0 })];
    }
    let seconds = options.time.seconds;
    for time in [&mut raw.mkfs_time, &mut raw.lastcheck, &mut raw.wtime] {
        *time = U32::new(seconds as u32);
    }
    for high in [&mut raw.mkfs_time_hi, &mut raw.lastcheck_hi, &mut raw.wtime_hi] {
        *high = (seconds >> 32) as u8;
    }
    Ok(raw)
}

fn random_uuid() -> Result<[u8; 16], MkfsError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| MkfsError::NoRandomness)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search for inodes that fit did not end, or went below zero, where the fewest of all groups are too many.
    #[test]
    fn more_groups_than_there_can_be_inodes_are_an_error() {
        for block_size in [1024, 65536] {
            let options = MkfsOptions {
                block_size: Some(block_size),
                inode_size: Some(128),
                features: "^resize_inode".to_owned(),
                ..MkfsOptions::new(crate::mkfs::Flavor::Ext4)
            };
            let capacity = if block_size == 1024 { 1 << 52 } else { 1 << 62 };
            match plan(&options, capacity, 512) {
                Err(MkfsError::TooLarge { blocks, most, .. }) => {
                    assert!(blocks == capacity / u64::from(block_size) && most < blocks, "{blocks} {most}");
                }
                other => panic!("{block_size}: {other:?}"),
            }
        }
    }
}
