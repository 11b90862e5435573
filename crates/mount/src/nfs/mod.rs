//! NFS, version 3, over TCP: a volume for other machines, and for systems that mount NFS without drivers.
//!
//! - `xdr`, `rpc`: how messages are written, and calls and their replies
//! - `protocol`: the protocol's numbers, handles and attributes
//! - `export`: users and dispatch of calls; `procedures`, `names`: the calls
//! - `open_files`: files open for clients, since the protocol has no open
//! - `repeated`: calls that a client sends again after it has lost its connection
//! - `server`: connections and threads; `connection`: replies to clients that take them late
//!
//! Both the NFS and the mount protocol are on one port; there is no port mapper, so clients are given the port. A file handle is the volume's
//! UUID, an inode and its generation: it is good for as long as the file is, whatever happens to the server. Writes are unstable where clients
//! ask for that, and a new write verifier tells them when they may be lost: a server that starts, or a write-back that failed. Permissions are
//! checked here, for the users that clients name; nothing proves that they are these users, so the network must be trusted.
//!
//! No crate is used. `nfsserve` 0.11 and `nfs3_server` 0.11 do not pass the caller to an operation, and support no links and no special files.
//! They use one number for the write verifier, which must change with each start, and for the handles, which must not.

mod connection;
mod export;
mod names;
mod open_files;
mod procedures;
mod protocol;
mod repeated;
mod rpc;
mod server;
mod xdr;

pub use export::Squash;
pub use server::{NfsOptions, NfsServer, Stop};
