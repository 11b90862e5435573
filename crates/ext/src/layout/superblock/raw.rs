//! The superblock byte by byte: 1024 bytes at byte 1024 of the volume, and at the start of each backup group.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Where the first one is on the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// The number that marks one.
pub const MAGIC: u16 = 0xef53;

/// `s_state`: unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 2;
/// `s_state`: orphans are being removed.
pub const STATE_ORPHANS: u16 = 4;

/// `s_flags`: directory hashes were made with signed characters.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes were made with unsigned characters.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// `s_encoding`: UTF-8 of Unicode 12.1, the only one that there is.
pub const ENCODING_UTF8: u16 = 1;
/// `s_encoding_flags`: names that are not valid are refused.
pub const ENCODING_STRICT: u16 = 1;

/// The bytes as they are on the disk; field names are the kernel's without `s_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    pub(crate) inodes_count: U32,
    pub(crate) blocks_count_lo: U32,
    pub(crate) r_blocks_count_lo: U32,
    pub(crate) free_blocks_count_lo: U32,
    pub(crate) free_inodes_count: U32,
    pub(crate) first_data_block: U32,
    pub(crate) log_block_size: U32,
    pub(crate) log_cluster_size: U32,
    pub(crate) blocks_per_group: U32,
    pub(crate) clusters_per_group: U32,
    pub(crate) inodes_per_group: U32,
    pub(crate) mtime: U32,
    pub(crate) wtime: U32,
    pub(crate) mnt_count: U16,
    pub(crate) max_mnt_count: U16,
    pub(crate) magic: U16,
    pub(crate) state: U16,
    pub(crate) errors: U16,
    pub(crate) minor_rev_level: U16,
    pub(crate) lastcheck: U32,
    pub(crate) checkinterval: U32,
    pub(crate) creator_os: U32,
    pub(crate) rev_level: U32,
    pub(crate) def_resuid: U16,
    pub(crate) def_resgid: U16,
    pub(crate) first_ino: U32,
    pub(crate) inode_size: U16,
    pub(crate) block_group_nr: U16,
    pub(crate) feature_compat: U32,
    pub(crate) feature_incompat: U32,
    pub(crate) feature_ro_compat: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) volume_name: [u8; 16],
    pub(crate) last_mounted: [u8; 64],
    pub(crate) algorithm_usage_bitmap: U32,
    pub(crate) prealloc_blocks: u8,
    pub(crate) prealloc_dir_blocks: u8,
    pub(crate) reserved_gdt_blocks: U16,
    pub(crate) journal_uuid: [u8; 16],
    pub(crate) journal_inum: U32,
    pub(crate) journal_dev: U32,
    pub(crate) last_orphan: U32,
    pub(crate) hash_seed: [u8; 16],
    pub(crate) def_hash_version: u8,
    pub(crate) jnl_backup_type: u8,
    pub(crate) desc_size: U16,
    pub(crate) default_mount_opts: U32,
    pub(crate) first_meta_bg: U32,
    pub(crate) mkfs_time: U32,
    pub(crate) jnl_blocks: [U32; 17],
    pub(crate) blocks_count_hi: U32,
    pub(crate) r_blocks_count_hi: U32,
    pub(crate) free_blocks_count_hi: U32,
    pub(crate) min_extra_isize: U16,
    pub(crate) want_extra_isize: U16,
    pub(crate) flags: U32,
    pub(crate) raid_stride: U16,
    pub(crate) mmp_interval: U16,
    pub(crate) mmp_block: U64,
    pub(crate) raid_stripe_width: U32,
    pub(crate) log_groups_per_flex: u8,
    pub(crate) checksum_type: u8,
    pub(crate) encryption_level: u8,
    pub(crate) reserved_pad: u8,
    pub(crate) kbytes_written: U64,
    pub(crate) snapshot_inum: U32,
    pub(crate) snapshot_id: U32,
    pub(crate) snapshot_r_blocks_count: U64,
    pub(crate) snapshot_list: U32,
    pub(crate) error_count: U32,
    pub(crate) first_error_time: U32,
    pub(crate) first_error_ino: U32,
    pub(crate) first_error_block: U64,
    pub(crate) first_error_func: [u8; 32],
    pub(crate) first_error_line: U32,
    pub(crate) last_error_time: U32,
    pub(crate) last_error_ino: U32,
    pub(crate) last_error_line: U32,
    pub(crate) last_error_block: U64,
    pub(crate) last_error_func: [u8; 32],
    pub(crate) mount_opts: [u8; 64],
    pub(crate) usr_quota_inum: U32,
    pub(crate) grp_quota_inum: U32,
    pub(crate) overhead_blocks: U32,
    pub(crate) backup_bgs: [U32; 2],
    pub(crate) encrypt_algos: [u8; 4],
    pub(crate) encrypt_pw_salt: [u8; 16],
    pub(crate) lpf_ino: U32,
    pub(crate) prj_quota_inum: U32,
    pub(crate) checksum_seed: U32,
    pub(crate) wtime_hi: u8,
    pub(crate) mtime_hi: u8,
    pub(crate) mkfs_time_hi: u8,
    pub(crate) lastcheck_hi: u8,
    pub(crate) first_error_time_hi: u8,
    pub(crate) last_error_time_hi: u8,
    pub(crate) first_error_errcode: u8,
    pub(crate) last_error_errcode: u8,
    pub(crate) encoding: U16,
    pub(crate) encoding_flags: U16,
    pub(crate) orphan_file_inum: U32,
    pub(crate) reserved: [U32; 94],
    pub(crate) checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, mmp_block) == 0x168);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, checksum) == 0x3fc);
