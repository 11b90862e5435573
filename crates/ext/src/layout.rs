//! The on-disk structures, one file each.
