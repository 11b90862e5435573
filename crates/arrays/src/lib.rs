//! Devices that the kernel's MD and LVM2 make of several: assembled from the metadata on them.
//!
//! Where it sits: beside `diorite-device`, above its joined devices. `diorite::front_end::open_target` opens `md:` and `lvm:` with it. The metadata is
//! read when a device is opened. LVM2 metadata is never written. MD metadata is written only before a mirror is, so that a crash shows (`md`).
//!
//! Metadata is not trusted: sizes and offsets are checked, and recursion is bounded.

pub mod lvm;
mod lvm_group;
mod lvm_label;
mod lvm_raid;
mod lvm_text;
pub mod md;
mod md_superblock;
mod member;
mod mirror;
mod parts;

pub use member::{array_of, mirror_of, whole_of_part};
