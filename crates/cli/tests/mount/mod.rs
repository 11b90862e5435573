//! What the tests of a mount share: a served volume, random use of a file, and the table of POSIX calls.

mod commands;
pub(crate) mod exercise;
pub(crate) mod flags;
#[path = "../../../device/tests/common/nbd.rs"]
mod nbd;
mod posix;
mod served;
mod watch;

pub(crate) use exercise::exercise;
pub(crate) use posix::posix_calls;
pub(crate) use served::{Alone, Served, Transport, alone, can_mount};
pub(crate) use watch::{on_nbd, on_slow_device};

/// Whether the host's kernel is of this version or a later one.
pub(crate) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}
