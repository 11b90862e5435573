//! A volume as clients see it: their users, their handles, and the dispatch of each call to its procedure.

use std::sync::Arc;

use diorite::{Attributes, ErrorKind, FileKind, InodeNumber, NodeRef};

use super::open_files::OpenFiles;
use super::procedures::{PROCEDURES, Procedure};
use super::protocol::{Failure, Handle, STRING_MAX, Status, write_attributes};
use super::rpc::{Refusal, UnixAuth};
use super::xdr::{Reader, Writer};
use crate::operations::permissions::{Credentials, EXECUTE, READ, WRITE};
use crate::operations::{Caller, Entry, NO_ID, Operations};
use crate::service::accounting::{Accounting, Client, Processes};
use crate::service::log::LimitedLog;

/// Flavors of authentication that a mount is offered: by user and group, and none.
const FLAVORS: [u32; 2] = [1, 0];

/// The mapping of users, in the words of `exports(5)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squash {
    /// User 0 is mapped to the anonymous user, and group 0, of any user, to the anonymous group.
    pub root: bool,
    /// All are the anonymous user.
    pub all: bool,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// The anonymous user's group.
    pub anonymous_gid: u32,
}

impl Default for Squash {
    /// The superuser of a client is the superuser. Calls without credentials are those of user 65534.
    fn default() -> Self {
        Self { root: false, all: false, anonymous_uid: 65_534, anonymous_gid: 65_534 }
    }
}

impl Squash {
    fn credentials(&self, auth: Option<UnixAuth>) -> Credentials {
        let Self { root, all, anonymous_uid, anonymous_gid } = *self;
        match auth {
            Some(UnixAuth { uid, gid, groups }) if !(all || root && uid == 0 || uid == NO_ID) => {
                let squashed = |gid| if root && gid == 0 || gid == NO_ID { anonymous_gid } else { gid };
                Credentials { uid, gid: squashed(gid), groups: groups.into_iter().map(squashed).collect() }
            }
            _ => Credentials { uid: anonymous_uid, gid: anonymous_gid, groups: Vec::new() },
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) operations: Arc<Operations>,
    pub(super) files: OpenFiles,
    pub(super) uuid: [u8; 16],
    pub(super) accounting: Accounting,
    squash: Squash,
    /// Errors of the volume.
    pub(super) errors: LimitedLog,
}

/// A call that is being carried out.
pub(super) struct Request<'a> {
    pub(super) export: &'a Export,
    pub(super) credentials: Credentials,
    pub(super) arguments: Reader<'a>,
    pub(super) reply: &'a mut Writer,
    /// Bytes of content that were read or written.
    pub(super) moved: u64,
    /// The inodes of the call: while one is held, its number is not given to another.
    held: Vec<NodeRef>,
}

pub(super) type Done = Result<(), Failure>;

/// In place of results, which began at `start`.
fn answer_failure(procedure: &Procedure, Status(status): Status, start: usize, reply: &mut Writer) {
    reply.bytes.truncate(start);
    reply.u32(status);
    reply.words(vec![0; procedure.words_of_failure]);
}

impl Export {
    pub(super) fn new(operations: Operations, uuid: [u8; 16], squash: Squash, errors: LimitedLog) -> Self {
        let operations = Arc::new(operations);
        let accounting = Accounting::new(Processes::OfOthers);
        Self { files: OpenFiles::new(Arc::clone(&operations)), operations, uuid, accounting, squash, errors }
    }

    /// Carry out a procedure of NFS; its results are added to `reply`.
    pub(super) fn call(
        &self,
        procedure: u32,
        (client, auth): (&Client, Option<UnixAuth>),
        arguments: Reader<'_>,
        reply: &mut Writer,
    ) -> Result<(), Refusal> {
        if procedure == 0 {
            return Ok(());
        }
        let procedure = PROCEDURES.get(procedure as usize).ok_or(Refusal::ProcedureUnavailable)?;
        let start = reply.bytes.len();
        reply.u32(0);
        let credentials = self.squash.credentials(auth);
        let begun = self.accounting.begin_of(procedure.name, client);
        let mut request = Request { export: self, credentials, arguments, reply, moved: 0, held: Vec::new() };
        let done = request.carry_out(procedure);
        self.accounting.finish(&begun, procedure.class, request.moved);
        log::debug!("{}: {done:?}", procedure.name);
        match done {
            Ok(()) => Ok(()),
            Err(Failure::Garbage) => Err(Refusal::GarbageArguments),
            Err(Failure::Status(status)) => {
                answer_failure(procedure, status, start, reply);
                Ok(())
            }
            Err(Failure::Error(error)) => {
                if matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
                    self.errors.say(&error.to_string());
                }
                answer_failure(procedure, Status::from(&error), start, reply);
                Ok(())
            }
        }
    }

    /// Carry out a procedure of the mount protocol.
    pub(super) fn mount_call(
        &self,
        procedure: u32,
        mut arguments: Reader<'_>,
        reply: &mut Writer,
    ) -> Result<(), Refusal> {
        match procedure {
            // NULL, UMNT and UMNTALL: no list of mounts is kept.
            0 | 3 | 4 => {}
            2 => reply.u32(0),
            1 => match self.find(arguments.opaque(STRING_MAX)?) {
                Ok(root) => {
                    reply.u32(0);
                    root.write(&self.uuid, reply);
                    reply.u32(FLAVORS.len() as u32);
                    reply.words(FLAVORS);
                }
                Err(status) => reply.u32(status.0),
            },
            // One export, for everyone.
            5 => {
                reply.u32(1);
                reply.opaque(b"/");
                reply.words([0, 0]);
            }
            _ => return Err(Refusal::ProcedureUnavailable),
        }
        Ok(())
    }

    /// The directory of a path: clients may mount a part of the volume.
    fn find(&self, path: &[u8]) -> Result<Handle, Status> {
        let status = |error: diorite::Error| Status::from(&error);
        let mut at = self.operations.attributes(InodeNumber::ROOT).map_err(status)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            if name == b".." {
                return Err(Status::ACCES);
            }
            at = self.operations.lookup(at.inode, name).map_err(status)?.attributes;
        }
        if at.kind == FileKind::Directory { Ok(Handle::of(&at)) } else { Err(Status::NOTDIR) }
    }

    /// The volume as attributes name it.
    pub(super) fn volume_id(&self) -> u64 {
        self.uuid[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl Request<'_> {
    fn carry_out(&mut self, procedure: &Procedure) -> Done {
        let _right = self.operations().reserved_blocks(&self.caller()).enter();
        (procedure.carry_out)(self)
    }

    pub(super) fn attributes(&mut self) -> Done {
        let attributes = self.node()?;
        write_attributes(&attributes, self.export.volume_id(), self.reply);
        Ok(())
    }

    pub(super) fn operations(&self) -> &Operations {
        &self.export.operations
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { uid: self.credentials.uid, gid: self.credentials.gid, pid: 0 }
    }

    /// The inode of the next argument, a handle.
    pub(super) fn node(&mut self) -> Result<Attributes, Failure> {
        let handle = Handle::read(&self.export.uuid, &mut self.arguments)?;
        let found = self.operations().found(handle.number).map_err(|error| {
            // Whatever is wrong with the number, the client has had it from here.
            if error.is_not_found() { Failure::from(Status::STALE) } else { error.into() }
        })?;
        let attributes = self.hold(found);
        // An inode without a name exists only while calls hold it.
        let is_there = attributes.generation == handle.generation && attributes.links > 0;
        if is_there { Ok(attributes) } else { Err(Status::STALE.into()) }
    }

    /// The call is about this inode.
    pub(super) fn hold(&mut self, entry: Entry) -> Attributes {
        self.held.push(entry.node);
        entry.attributes
    }

    /// The same; it must be a directory in which the caller may search, and with `more` do that.
    pub(super) fn directory(&mut self, more: u16) -> Result<Attributes, Failure> {
        let attributes = self.node()?;
        if attributes.kind != FileKind::Directory {
            return Err(Status::NOTDIR.into());
        }
        self.must_be_granted(&attributes, EXECUTE | more)?;
        Ok(attributes)
    }

    pub(super) fn must_be_granted(&self, attributes: &Attributes, wanted: u16) -> Done {
        let granted = self.operations().granted(attributes, &self.credentials)?;
        if granted & wanted == wanted { Ok(()) } else { Err(Status::ACCES.into()) }
    }

    /// Check that the caller may read or write the content. The owner may: the file may have been opened before its permissions were changed.
    pub(super) fn must_have_content(&self, attributes: &Attributes, wanted: u16) -> Done {
        if self.credentials.owns(attributes) {
            return Ok(());
        }
        let granted = self.operations().granted(attributes, &self.credentials)?;
        // A program is read to be executed.
        let granted = if granted & EXECUTE != 0 { granted | READ } else { granted };
        if granted & wanted == wanted { Ok(()) } else { Err(Status::ACCES.into()) }
    }

    /// Attributes, in a place where they may be left out.
    pub(super) fn push_attributes(&mut self, attributes: &Attributes) {
        self.reply.u32(1);
        write_attributes(attributes, self.export.volume_id(), self.reply);
    }

    /// The attributes of an inode after the operation, and none from before it.
    pub(super) fn push_after(&mut self, number: InodeNumber) {
        self.reply.u32(0);
        match self.operations().attributes(number) {
            Ok(attributes) => self.push_attributes(&attributes),
            Err(_) => self.reply.u32(0),
        }
    }

    /// A new inode, and its directory after that.
    pub(super) fn push_made(&mut self, made: &Attributes, directory: InodeNumber) -> Done {
        // With its name, which the same transaction made.
        self.operations().sync_node(made.inode)?;
        self.reply.u32(1);
        Handle::of(made).write(&self.export.uuid, self.reply);
        self.push_attributes(made);
        self.push_after(directory);
        Ok(())
    }

    pub(super) fn access(&mut self) -> Done {
        const READ_BIT: u32 = 1;
        const LOOKUP: u32 = 2;
        const MODIFY: u32 = 4;
        const EXTEND: u32 = 8;
        const DELETE: u32 = 0x10;
        const EXECUTE_BIT: u32 = 0x20;
        let attributes = self.node()?;
        let wanted = self.arguments.u32()?;
        let granted = self.operations().granted(&attributes, &self.credentials)?;
        let is_directory = attributes.kind == FileKind::Directory;
        let mut answer = if granted & READ != 0 { READ_BIT } else { 0 };
        if granted & EXECUTE != 0 {
            answer |= if is_directory { LOOKUP } else { EXECUTE_BIT };
        }
        if granted & WRITE != 0 {
            answer |= MODIFY | EXTEND | if is_directory { DELETE } else { 0 };
        }
        self.push_attributes(&attributes);
        self.reply.u32(answer & wanted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Settings;
    use diorite::Filesystem;
    use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
    use diorite_block::Op;
    use diorite_sim::crash::RecordingDevice;
    use diorite_sim::faults::{Effect, Fault};
    use diorite_sim::image::SparseImage;
    use std::sync::Mutex;

    #[test]
    fn users_are_squashed_as_asked() {
        let auth = |uid| Some(UnixAuth { uid, gid: uid, groups: vec![7] });
        let uid = |squash: Squash, auth| squash.credentials(auth).uid;
        assert_eq!(uid(Squash::default(), auth(0)), 0);
        assert_eq!(uid(Squash::default(), None), 65_534);
        let root = Squash { root: true, ..Squash::default() };
        assert_eq!((uid(root, auth(0)), uid(root, auth(5))), (65_534, 5));
        let of_root_group = Some(UnixAuth { uid: 5, gid: 0, groups: vec![0, 7] });
        let squashed = Credentials { uid: 5, gid: 65_534, groups: vec![65_534, 7] };
        assert_eq!(
            root.credentials(of_root_group),
            squashed,
            "what is of the group 0 is not for users of a client"
        );
        let none = Some(UnixAuth { uid: 5, gid: NO_ID, groups: vec![NO_ID] });
        let none = Squash::default().credentials(none);
        assert_eq!(
            (uid(Squash::default(), auth(NO_ID)), none.gid, &none.groups[..]),
            (65_534, 65_534, &[65_534][..])
        );
        let all = Squash { all: true, anonymous_uid: 3, ..Squash::default() };
        assert_eq!(all.credentials(auth(5)), Credentials { uid: 3, gid: 65_534, groups: Vec::new() });
    }

    /// Each call to a device that is gone was a line in the system's log.
    #[test]
    fn a_device_that_fails_at_each_call_does_not_fill_the_log() {
        let device = RecordingDevice::on_image(SparseImage::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let volume = Filesystem::options().open_device(Arc::clone(&device) as _).expect("open");
        let (said, uuid) = (Arc::new(Mutex::new(Vec::new())), [1; 16]);
        let lines = Arc::clone(&said);
        let log =
            LimitedLog::new(Arc::new(move |line: &str| lines.lock().expect("lines").push(line.to_owned())));
        let export = Export::new(Operations::new(volume, Settings::default()), uuid, Squash::default(), log);
        let mut handle = Writer::default();
        // In a block of inodes that was not read yet.
        Handle { number: InodeNumber(200), generation: 0 }.write(&uuid, &mut handle);
        device.add(Fault::on(Op::Read, Effect::Error(5)).times(u64::MAX));
        let client = Client { number: 1, name: "client".to_owned() };
        for _ in 0..1000 {
            let mut reply = Writer::default();
            export.call(1, (&client, None), Reader::new(&handle.bytes), &mut reply).expect("it is answered");
            assert_eq!(reply.bytes, 5_u32.to_be_bytes(), "NFS3ERR_IO");
        }
        let lines = said.lock().expect("lines").len();
        assert!((1..50).contains(&lines), "{lines} lines");
    }
}
