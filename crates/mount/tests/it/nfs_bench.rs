//! A server on an image of its own, and a client that uses the crate `nfs3_types`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

use diorite::Filesystem;
use diorite::check::CheckOptions;
use diorite::mkfs::{Flavor, MkfsOptions};
use diorite_mount::MountOptions;
use diorite_mount::nfs::{NfsOptions, NfsServer, Squash, Stop};
use nfs3_types::mount::{mountres3, mountres3_ok};
use nfs3_types::nfs3::{Nfs3Result, nfs_fh3, nfsstat3};
use nfs3_types::rpc::{auth_unix, call_body, msg_body, opaque_auth, rpc_msg};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use tempfile::TempDir;

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;

/// A volume that is served; stopped, closed and checked at the end.
pub(crate) struct Server {
    directory: Option<TempDir>,
    stop: Stop,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(squash: Squash) -> Self {
        Self::filled(squash, |_| {})
    }

    /// Of a volume that has something in it.
    pub(crate) fn filled(squash: Squash, fill: impl FnOnce(&Filesystem)) -> Self {
        Self::on(Self::image_of(&MkfsOptions::new(Flavor::Ext4), fill), squash)
    }

    /// Of such a volume.
    pub(crate) fn made(options: &MkfsOptions, fill: impl FnOnce(&Filesystem)) -> Self {
        Self::on(Self::image_of(options, fill), Squash::default())
    }

    fn image_of(options: &MkfsOptions, fill: impl FnOnce(&Filesystem)) -> TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let made = Filesystem::create(Self::image(&directory), 64 << 20, options).expect("mkfs");
        fill(&made);
        made.close().expect("close");
        directory
    }

    fn on(directory: TempDir, squash: Squash) -> Self {
        let image = Self::image(&directory);
        let nfs = NfsOptions { squash, insecure: true };
        let address: SocketAddr = ([127, 0, 0, 1], 0).into();
        let server = NfsServer::new(image.to_str().expect("text"), address, &MountOptions::default(), &nfs);
        let server = server.expect("it listens");
        let (stop, address) = (server.stop(), server.address());
        let thread = std::thread::spawn(move || server.serve().expect("it ends in order"));
        Self { directory: Some(directory), stop, address, thread: Some(thread) }
    }

    fn image(directory: &TempDir) -> PathBuf {
        directory.path().join("a.img")
    }

    fn end(&mut self) -> TempDir {
        self.stop.stop();
        self.thread.take().expect("it runs").join().expect("it does not panic");
        self.directory.take().expect("it is there")
    }

    /// Stop it, and start one on the same image.
    pub(crate) fn again(mut self) -> Self {
        Self::on(self.end(), Squash::default())
    }

    /// Stop it: the volume, which is clean.
    pub(crate) fn must_end_clean(mut self) {
        let directory = self.end();
        let filesystem = Filesystem::open(Self::image(&directory)).expect("open");
        assert!(filesystem.read_only_reason().is_none());
        let report = diorite::check::check(&**filesystem.device(), &CheckOptions::default(), &mut |_| {})
            .expect("it is read");
        assert!(report.problems.is_empty(), "{report:?}");
    }

    /// The volume as it would be if the server ended now, without a word.
    pub(crate) fn killed(&self) -> Filesystem {
        let image = Self::image(self.directory.as_ref().expect("it is there"));
        let copy = image.with_file_name("copy.img");
        std::fs::copy(image, &copy).expect("a copy");
        Filesystem::open(copy).expect("open")
    }

    /// The state that `diorite status` shows.
    pub(crate) fn status(&self) -> diorite_mount::status::Status {
        let directory = self.directory.as_ref().expect("it is there");
        diorite_mount::status::ask(&Self::image(directory)).expect("it answers")
    }

    pub(crate) fn stream(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("it listens")
    }

    /// A connection as a user.
    pub(crate) fn client(&self, uid: u32) -> Client {
        Self::client_by(self.stream(), uid)
    }

    /// A connection as the superuser, from another host.
    pub(crate) fn client_of(&self, host: [u8; 4]) -> Client {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&stream, &SocketAddr::from((host, 0))).expect("a host of the loopback");
        connect(&stream, &self.address).expect("it listens");
        Self::client_by(stream.into(), 0)
    }

    fn client_by(stream: TcpStream, uid: u32) -> Client {
        let auth = auth_unix { uid, gid: uid, ..auth_unix::default() };
        Client { stream, auth: opaque_auth::auth_unix(&auth), id: 0 }
    }
}

impl Client {
    /// Lose the connection, and connect again from the same port; the next call has the number of the last one.
    pub(crate) fn reconnect(&mut self) {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
        let (own, server) = (self.stream.local_addr(), self.stream.peer_addr());
        // Without a word, so that the port is free at once.
        sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO)).expect("an option");
        let next = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&next, true).expect("an option");
        drop(std::mem::replace(&mut self.stream, next.try_clone().expect("a descriptor").into()));
        bind(&next, &own.expect("an address")).expect("the port is free");
        connect(&next, &server.expect("an address")).expect("it listens");
        self.id -= 1;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.end();
        }
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    auth: opaque_auth<'static>,
    id: u32,
}

impl Client {
    /// Call a procedure; what comes after the head of the reply.
    pub(crate) fn call<R: Unpack>(&mut self, program: u32, procedure: u32, arguments: &impl Pack) -> R {
        self.id += 1;
        let cred = self.auth.borrow();
        let verf = opaque_auth::default();
        let call = call_body { rpcvers: 2, prog: program, vers: 3, proc: procedure, cred, verf };
        let mut message = vec![0; 4];
        rpc_msg { xid: self.id, body: msg_body::CALL(call) }.pack(&mut message).expect("it fits");
        arguments.pack(&mut message).expect("it fits");
        let len = message.len() as u32 - 4;
        message[..4].copy_from_slice(&(len | 1 << 31).to_be_bytes());
        self.stream.write_all(&message).expect("it takes calls");
        let reply = read_record(&mut self.stream);
        let mut reply = &reply[..];
        let mut number = || u32::unpack(&mut reply).expect("a number").0;
        let head = [number(), number(), number(), number(), number(), number()];
        assert_eq!(head, [self.id, 1, 0, 0, 0, 0], "accepted, and carried out");
        let (result, _) = R::unpack(&mut reply).expect("results");
        assert!(reply.is_empty(), "{} bytes too many", reply.len());
        result
    }

    /// A procedure of NFS, as it ends.
    pub(crate) fn result<R: Unpack>(&mut self, procedure: u32, arguments: &impl Pack) -> Result<R, nfsstat3> {
        match self.call::<Raw<R>>(NFS, procedure, arguments) {
            Raw::Ok(result) => Ok(result),
            Raw::Err(status) => Err(status),
        }
    }

    /// A procedure of NFS that succeeds.
    pub(crate) fn ok<R: Unpack>(&mut self, procedure: u32, arguments: &impl Pack) -> R {
        self.result(procedure, arguments).unwrap_or_else(|status| panic!("procedure {procedure}: {status:?}"))
    }

    /// A procedure of NFS that fails.
    pub(crate) fn fail<R: Unpack>(&mut self, procedure: u32, arguments: &impl Pack) -> nfsstat3 {
        let status = self.result::<R>(procedure, arguments).err();
        status.unwrap_or_else(|| panic!("procedure {procedure} succeeds"))
    }

    pub(crate) fn mount(&mut self, path: &str) -> nfs_fh3 {
        match self.call::<mountres3<'static>>(MOUNT, 1, &Opaque::borrowed(path.as_bytes())) {
            mountres3::Ok(mountres3_ok { fhandle, .. }) => {
                nfs_fh3 { data: Opaque::owned(fhandle.0.into_owned()) }
            }
            mountres3::Err(status) => panic!("{path}: {status}"),
        }
    }
}

pub(crate) fn read_record(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("a reply");
    let mut record = vec![0; (u32::from_be_bytes(head) & !(1 << 31)) as usize];
    stream.read_exact(&mut record).expect("a whole reply");
    record
}

/// Results, or a status with attributes that are left out.
enum Raw<R> {
    Ok(R),
    Err(nfsstat3),
}

impl<R: Unpack> Unpack for Raw<R> {
    fn unpack(input: &mut impl std::io::Read) -> nfs3_types::xdr_codec::Result<(Self, usize)> {
        let (status, len) = nfsstat3::unpack(input)?;
        if status == nfsstat3::NFS3_OK {
            let (result, more) = R::unpack(input)?;
            return Ok((Self::Ok(result), len + more));
        }
        let mut rest = Vec::new();
        input.read_to_end(&mut rest)?;
        assert!(rest.iter().all(|byte| *byte == 0), "nothing follows {status}: {rest:?}");
        Ok((Self::Err(status), len + rest.len()))
    }
}

/// Its words of failure are those that the protocol has.
pub(crate) type Whole<T, E> = Nfs3Result<T, E>;
