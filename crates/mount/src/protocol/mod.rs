//! The FUSE protocol, for the transports of [`fuse`](crate::fuse) and [`virtiofs`](crate::virtiofs).
//!
//! - `abi`, `request`, `reply`: the structures of the protocol, parsed and made
//! - `session`: what was agreed on; the bytes of a request in, the bytes of a reply out
//! - `call`, `ioctl`: each request as a call of [`Operations`](crate::operations::Operations)
//! - `appends`: the parts of an append in their order
//! - `notify`: notifications to the kernel
//! - `payload`: memory for the data of requests

pub(crate) mod abi;
mod appends;
mod call;
mod ioctl;
pub(crate) mod notify;
pub(crate) mod payload;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod session;
