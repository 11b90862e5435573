//! The check finds volumes clean that e2fsck finds clean, and damaged that e2fsck finds damaged.

#![allow(clippy::unwrap_used)]

mod attributes;
mod damage;
mod fields;
mod hostile;
mod image;
mod journal;
mod roles;
mod sound;
mod superblock;
