//! The mount options of the kernel's ext4 that are no options of Diorite by themselves: which of them are accepted, and why the others are not.
//!
//! Source: the kernel's `Documentation/admin-guide/ext4.rst` and `ext4(5)`.

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Diorite always does this.
    AlwaysSo,
    /// Accepted and logged: it changes speed or checks of the kernel's code, and the content stays right without it. The text says what holds.
    Ignored(&'static str),
    /// Rejected: content or access would differ. The text has the reason.
    Rejected(&'static str),
}

use Effect::{AlwaysSo, Ignored, Rejected};

const KERNEL_ONLY: Effect = Ignored("it is for the kernel's own ext4");
const QUOTA: Effect = Ignored("quota is in force where the volume has the feature");
const OLD_QUOTA: Effect =
    Rejected("quota files are not supported; `tune2fs -O quota` makes it a feature of the volume");

/// Options by name, without a value where the name has several forms.
const OPTIONS: &[(&str, Effect)] = &[
    ("abort", Rejected("it is for debugging of the kernel")),
    ("acl", AlwaysSo),
    ("noacl", Ignored("access control lists are enforced")),
    ("auto_da_alloc", AlwaysSo),
    ("noauto_da_alloc", Ignored("a file that replaces another is written first")),
    ("barrier", AlwaysSo),
    ("nobarrier", Ignored("the device is flushed in any case")),
    ("bh", KERNEL_ONLY),
    ("nobh", KERNEL_ONLY),
    ("block_validity", AlwaysSo),
    ("noblock_validity", Ignored("addresses of blocks are checked")),
    ("bsddf", AlwaysSo),
    ("minixdf", Ignored("the space of the filesystem itself is left out")),
    ("bsdgroups", Rejected("set the set-group-ID bit of directories instead")),
    ("grpid", Rejected("set the set-group-ID bit of directories instead")),
    ("nogrpid", AlwaysSo),
    ("sysvgroups", AlwaysSo),
    ("check", KERNEL_ONLY),
    ("nocheck", KERNEL_ONLY),
    ("data_err", Ignored("an error of data is reported to its file")),
    ("dax", Rejected("files cannot be mapped from persistent memory")),
    ("debug", KERNEL_ONLY),
    ("debug_want_extra_isize", Rejected("the volume has the size of its inodes")),
    ("delalloc", AlwaysSo),
    ("nodelalloc", Ignored("blocks are allocated when the kernel writes its cache back")),
    ("dioread_lock", AlwaysSo),
    ("dioread_nolock", AlwaysSo),
    ("discard", Ignored("freed blocks are not discarded at once; use fstrim")),
    ("nodiscard", AlwaysSo),
    ("i_version", KERNEL_ONLY),
    ("iversion", KERNEL_ONLY),
    ("noiversion", KERNEL_ONLY),
    ("init_itable", KERNEL_ONLY),
    ("noinit_itable", KERNEL_ONLY),
    ("inlinecrypt", KERNEL_ONLY),
    ("inode_readahead_blks", KERNEL_ONLY),
    ("journal_async_commit", Ignored("a commit is written after its blocks")),
    ("journal_checksum", KERNEL_ONLY),
    ("nojournal_checksum", KERNEL_ONLY),
    ("journal_dev", Rejected("a journal on another device is not supported")),
    ("journal_path", Rejected("a journal on another device is not supported")),
    ("journal_ioprio", KERNEL_ONLY),
    ("mand", KERNEL_ONLY),
    ("nomand", AlwaysSo),
    ("max_batch_time", KERNEL_ONLY),
    ("min_batch_time", KERNEL_ONLY),
    ("max_dir_size_kb", Rejected("the size of directories is not limited")),
    ("mb_optimize_scan", KERNEL_ONLY),
    ("mblk_io_submit", KERNEL_ONLY),
    ("nomblk_io_submit", KERNEL_ONLY),
    ("nombcache", KERNEL_ONLY),
    ("no_mbcache", KERNEL_ONLY),
    ("nouid32", Rejected("owners have 32 bits")),
    ("oldalloc", KERNEL_ONLY),
    ("orlov", KERNEL_ONLY),
    ("prefetch_block_bitmaps", KERNEL_ONLY),
    ("no_prefetch_block_bitmaps", KERNEL_ONLY),
    ("quota", QUOTA),
    ("noquota", QUOTA),
    ("usrquota", QUOTA),
    ("grpquota", QUOTA),
    ("prjquota", QUOTA),
    ("usrjquota", OLD_QUOTA),
    ("grpjquota", OLD_QUOTA),
    ("jqfmt", OLD_QUOTA),
    ("resuid", Rejected("`tune2fs -u` sets who may use the reserved blocks")),
    ("resgid", Rejected("`tune2fs -g` sets who may use the reserved blocks")),
    ("sb", Rejected("a backup is read by itself where the superblock is damaged")),
    ("silent", AlwaysSo),
    ("loud", AlwaysSo),
    ("stripe", KERNEL_ONLY),
    ("test_dummy_encryption", Rejected("it is for tests of the kernel")),
    ("user_xattr", AlwaysSo),
    ("nouser_xattr", Ignored("extended attributes of users are stored")),
    ("warn_on_error", KERNEL_ONLY),
    ("nowarn_on_error", KERNEL_ONLY),
];

/// What becomes of an option, a name with or without a value; `None`: it is none of these.
pub(crate) fn effect_of(word: &str) -> Option<Effect> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    match (name, value) {
        ("barrier", "0") => effect_of("nobarrier"),
        ("auto_da_alloc", "0") => effect_of("noauto_da_alloc"),
        ("errors", "continue" | "panic") => {
            Some(Ignored("the volume becomes read-only when a write of metadata fails"))
        }
        ("usrjquota" | "grpjquota", "") => Some(QUOTA),
        ("dax", "never" | "inode") => Some(AlwaysSo),
        _ => OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, effect)| *effect),
    }
}
