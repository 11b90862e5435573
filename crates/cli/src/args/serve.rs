//! Commands that serve a volume to other systems.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use log::LevelFilter;

use super::mount::log_level;
use crate::location::image_text;

/// After the help of `serve nfs`.
pub(super) const NFS_CLIENTS: &str = "\
Clients, for a server on port 2049 of HOST:
  Linux    mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,nolock HOST:/ /mnt
  macOS    mount_nfs -o vers=3,tcp,port=2049,mountport=2049,nolocks,resvport HOST:/ /mnt
  libnfs   nfs-ls 'nfs://HOST/?nfsport=2049&mountport=2049'

A client states its user, and the server cannot verify it: listen only on a network whose hosts are all trusted. Permission bits and
access control lists apply to the stated user. Locks between clients (NLM) are not supported.";

/// After the help of `serve virtiofs`.
pub(super) const VIRTIOFS_CLIENTS: &str = "\
With the socket /run/vol.sock and a tag of your choice:
  QEMU     -chardev socket,id=c,path=/run/vol.sock -device vhost-user-fs-pci,chardev=c,tag=vol
           -object memory-backend-memfd,id=m,size=1G,share=on -numa node,memdev=m -m 1G
  guest    mount -t virtiofs vol /mnt

One virtual machine at a time can use the volume. Only the user who runs the server can connect to the socket.";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(subcommand)]
    pub(crate) protocol: Protocol,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Protocol {
    /// Serve a volume by NFS (version 3, TCP) until SIGINT or SIGTERM
    #[command(after_help = NFS_CLIENTS)]
    Nfs(Nfs),
    /// Serve a volume to a virtual machine (virtio-fs, vhost-user) until SIGINT or SIGTERM
    #[command(after_help = VIRTIOFS_CLIENTS)]
    Virtiofs(Virtiofs),
}

/// Options of all protocols.
#[derive(Debug, Args)]
pub(crate) struct Served {
    /// Options of `diorite mount`, separated by commas. Options that only concern a mount on this host are rejected: `allow_other`,
    /// `default_permissions`, `nosuid`, `nodev`, `noexec`, `io_uring`, `idle_polling`, `fsname`; with `nfs` also `direct`
    #[arg(short = 'o', value_name = "OPTION,...", action = clap::ArgAction::Append)]
    pub(crate) options: Vec<String>,
    /// Read-only
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Log level on standard error: error, warn, info, or debug (every request)
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level())]
    pub(crate) log_level: LevelFilter,
    /// Image file or block device; `?partition=N` or `?offset=BYTES` selects a part of it
    #[arg(value_hint = ValueHint::FilePath, value_parser = image_text())]
    pub(crate) image: String,
}

#[derive(Debug, Args)]
pub(crate) struct Virtiofs {
    /// Path of the socket for the virtual machine monitor, which is created
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: PathBuf,
    #[command(flatten)]
    pub(crate) served: Served,
}

#[derive(Debug, Args)]
pub(crate) struct Nfs {
    /// Address and port to listen on; port 0 means any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2049")]
    pub(crate) listen: SocketAddr,
    /// Also serve clients that use a port above 1023
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Map a client's root user and root group to the anonymous user
    #[arg(long)]
    pub(crate) root_squash: bool,
    /// Map all users to the anonymous user
    #[arg(long)]
    pub(crate) all_squash: bool,
    /// Number of the anonymous user
    #[arg(long, value_name = "UID", default_value_t = 65_534)]
    pub(crate) anonuid: u32,
    /// Number of the anonymous user's group
    #[arg(long, value_name = "GID", default_value_t = 65_534)]
    pub(crate) anongid: u32,
    #[command(flatten)]
    pub(crate) served: Served,
}
