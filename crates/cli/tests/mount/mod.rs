//! Shared by the tests of mounts: a served volume, random use of a file, and the table of POSIX calls.

pub(crate) mod appends;
pub(crate) mod blocks;
mod commands;
mod crash;
pub(crate) mod durable;
pub(crate) mod exercise;
pub(crate) mod flags;
pub(crate) mod habits;
pub(crate) mod interrupts;
pub(crate) mod kernel_cache;
pub(crate) mod killed;
mod limits;
pub(crate) mod listing;
mod many_inodes;
pub(crate) mod names;
pub(crate) mod namespaces;
#[path = "../../../nbd/tests/it/server.rs"]
mod nbd;
mod posix;
mod remount;
pub(crate) mod seek;
mod served;
mod settings;
pub(crate) mod space;
pub(crate) mod users;
mod watch;

pub(crate) use exercise::exercise;
pub(crate) use posix::{User, differences as posix_differences, posix_calls};
pub(crate) use served::{Alone, Served, Transport, alone, bench_with, can_mount};
pub(crate) use watch::{on_breakable, on_large_slow_device, on_nbd, on_slow_device};

/// A user without rights.
pub(crate) const NOBODY: u32 = 65_534;
pub(crate) const NO_DIRECT_MAPPING: &str = "files of mounts with -o direct cannot be mapped";

/// Whether the host's kernel is of this version or a later one.
pub(crate) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// As above. With an older kernel, a line says which test is skipped.
pub(crate) fn has_kernel(major: u32, minor: u32, lack: &str) -> bool {
    let has = kernel_is_at_least(major, minor);
    if !has {
        eprintln!("SKIPPED: before Linux {major}.{minor} {lack}");
    }
    has
}
