//! Memory for the data of one request. The device uses it directly.

use diorite::AlignedBuf;

use super::session::PAGE;

/// As many bytes as a request has at most, from a page boundary on. It is registered with the rings, which more than doubles the speed of large
/// transfers.
///
/// # Errors
/// There is no memory.
pub(crate) fn payload(len: usize) -> diorite::Result<AlignedBuf> {
    let what = "cannot get memory for requests";
    AlignedBuf::registered(len, PAGE).map_err(|source| diorite::Error::Os { what, source })
}
