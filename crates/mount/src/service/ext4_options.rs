//! The mount options of the kernel's ext4 that Diorite does not implement itself: accepted and rejected ones, with the reasons.
//!
//! Source: the kernel's `Documentation/admin-guide/ext4.rst` and `ext4(5)`.

/// The effect of an option.
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

/// Options about the code of the kernel.
const OF_KERNEL: &str = "\
    bh nobh check nocheck debug i_version iversion noiversion init_itable noinit_itable inlinecrypt \
    inode_readahead_blks journal_checksum nojournal_checksum journal_ioprio mand max_batch_time \
    min_batch_time mb_optimize_scan mblk_io_submit nomblk_io_submit nombcache no_mbcache oldalloc orlov \
    prefetch_block_bitmaps no_prefetch_block_bitmaps stripe warn_on_error nowarn_on_error";
const QUOTA: Effect = Ignored("quota is enforced if the volume has the feature");
const OLD_QUOTA: Effect =
    Rejected("quota files are not supported; `tune2fs -O quota` makes it a feature of the volume");

/// The effect of an option, a name with or without a value; `None`: it is none of these.
pub(crate) fn effect_of(word: &str) -> Option<Effect> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    Some(match (name, value) {
        ("barrier", "0") => return effect_of("nobarrier"),
        ("auto_da_alloc", "0") => return effect_of("noauto_da_alloc"),
        ("errors", "continue" | "panic") => {
            Ignored("the volume becomes read-only when a write of metadata fails")
        }
        ("usrjquota" | "grpjquota", "") => QUOTA,
        ("dax", "never" | "inode") => AlwaysSo,
        _ => return effect_of_name(name),
    })
}

fn effect_of_name(name: &str) -> Option<Effect> {
    Some(match name {
        "abort" => Rejected("it is for debugging of the kernel"),
        "acl" | "auto_da_alloc" | "barrier" | "block_validity" | "bsddf" | "nogrpid" | "sysvgroups"
        | "delalloc" | "dioread_lock" | "dioread_nolock" | "nodiscard" | "nomand" | "silent" | "loud"
        | "user_xattr" => AlwaysSo,
        "noacl" => Ignored("access control lists are enforced"),
        "noauto_da_alloc" => Ignored("a file that replaces another is written first"),
        "nobarrier" => Ignored("the device is flushed in any case"),
        name if OF_KERNEL.split_ascii_whitespace().any(|word| word == name) => {
            Ignored("it is for the kernel's own ext4")
        }
        "noblock_validity" => Ignored("addresses of blocks are checked"),
        "minixdf" => Ignored("the space of the filesystem itself is left out"),
        "bsdgroups" | "grpid" => Rejected("set the set-group-ID bit of directories instead"),
        "data_err" => Ignored("an error of data is reported to its file"),
        "dax" => Rejected("files cannot be mapped from persistent memory"),
        "debug_want_extra_isize" => Rejected("the volume has the size of its inodes"),
        "nodelalloc" => Ignored("blocks are allocated when the kernel writes its cache back"),
        "discard" => Ignored("freed blocks are not discarded at once; use fstrim"),
        "journal_async_commit" => Ignored("a commit is written after its blocks"),
        "journal_dev" | "journal_path" => Rejected("a journal on another device is not supported"),
        "max_dir_size_kb" => Rejected("the size of directories is not limited"),
        "nouid32" => Rejected("owners have 32 bits"),
        "quota" | "noquota" | "usrquota" | "grpquota" | "prjquota" => QUOTA,
        "usrjquota" | "grpjquota" | "jqfmt" => OLD_QUOTA,
        "resuid" => Rejected("`tune2fs -u` sets who may use the reserved blocks"),
        "resgid" => Rejected("`tune2fs -g` sets who may use the reserved blocks"),
        "sb" => Rejected("a backup is read if the superblock is damaged"),
        "test_dummy_encryption" => Rejected("it is for tests of the kernel"),
        "nouser_xattr" => Ignored("extended attributes of users are stored"),
        _ => return None,
    })
}
