//! The NBD client: an export of an NBD server (`qemu-nbd`, `nbdkit`, the gateway of a storage cluster) as a block device.
//!
//! Where it sits: beside `diorite-device`, which it uses for options, errors and queues. `diorite::front_end::open_target` opens `nbd://`, `nbds://`
//! (TLS), `nbd+unix://` and `nbds+unix://` with it.

mod claim;
mod device;
mod handshake;
mod session;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod uri;
mod wire;

pub use device::NbdDevice;
pub use uri::{NbdUri, SCHEMES, is_nbd, parse};
