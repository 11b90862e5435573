//! Has the kernel forget names after a change of them failed that perhaps was made: a create or a removal whose log could not be written. The
//! kernel would believe for long that nothing has changed.
//!
//! Since Linux 6.16 one message makes it look all names up again, and takes no lock. Before, it is a message for each name, which waits for the
//! lock of the directory. The request that failed has that until it is answered, so the message comes from a thread of its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{Errno, IoSlice};
use zerocopy::IntoBytes;

use super::abi::{
    CreateIn, LinkIn, MkDirIn, MkNodIn, NOTIFY_INC_EPOCH, NOTIFY_INVAL_ENTRY, NotifyInvalEntry, Opcode,
    OutHeader, Rename2In, RenameIn,
};
use super::request::Arguments;

/// The first minor version of the protocol with [`NOTIFY_INC_EPOCH`].
const MINOR_MIN: u32 = 44;

/// A name in a directory, by its number in the protocol.
type Name = (u64, Vec<u8>);

/// The names that a request changes, of a directory and with these arguments; none for other requests.
pub(super) fn changed_names(opcode: Opcode, directory: u64, mut arguments: Arguments<'_>) -> Vec<Name> {
    let mut second = None;
    match opcode {
        Opcode::Create => _ = arguments.structure::<CreateIn>(),
        Opcode::MkNod => _ = arguments.structure::<MkNodIn>(),
        Opcode::MkDir => _ = arguments.structure::<MkDirIn>(),
        Opcode::Link => _ = arguments.structure::<LinkIn>(),
        Opcode::Rename => second = Some(arguments.structure::<RenameIn>().new_directory),
        Opcode::Rename2 => second = Some(arguments.structure::<Rename2In>().new_directory),
        Opcode::Symlink | Opcode::Unlink | Opcode::RmDir => {}
        _ => return Vec::new(),
    }
    let directories = std::iter::once(directory).chain(second);
    directories.map_while(|directory| Some((directory, arguments.name().ok()?.to_owned()))).collect()
}

/// Have a kernel that speaks this minor version forget these names.
pub(super) fn forget_names(device: &Arc<OwnedFd>, minor: u32, names: Vec<Name>) {
    if minor >= MINOR_MIN {
        let _ = send(device, NOTIFY_INC_EPOCH, &[]);
        return;
    }
    let device = Arc::clone(device);
    let body = move || {
        for name in &names {
            let _ = forget(&device, name);
        }
    };
    // Without a thread the kernel believes what it did.
    let _ = std::thread::Builder::new().name("fuse-names".to_owned()).spawn(body);
}

fn forget(device: &OwnedFd, (parent, name): &Name) -> Result<(), Errno> {
    let message = NotifyInvalEntry { parent: *parent, name_len: name.len() as u32, flags: 0 };
    send(device, NOTIFY_INVAL_ENTRY, &[message.as_bytes(), name, b"\0"].concat())
}

/// An error says that the kernel does not know the name, or that all is over.
fn send(device: &OwnedFd, kind: i32, body: &[u8]) -> Result<(), Errno> {
    let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error: kind, unique: 0 };
    rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(body)]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::request::Message;
    use super::*;

    #[test]
    fn the_names_of_requests_are_those_that_they_change() {
        let of = |opcode: Opcode, bytes: &[u8]| {
            let len = (size_of::<super::super::abi::InHeader>() + bytes.len()) as u32;
            let header = super::super::abi::InHeader { len, opcode: opcode as u32, ..Default::default() };
            let message = [header.as_bytes(), bytes].concat();
            changed_names(opcode, 7, Message::whole(&message).expect("whole").arguments)
        };
        let renamed = [RenameIn { new_directory: 9 }.as_bytes(), b"one\0two\0"].concat();
        assert_eq!(of(Opcode::Rename, &renamed), [(7, b"one".to_vec()), (9, b"two".to_vec())]);
        // The second one of a symbolic link is where it leads.
        assert_eq!(of(Opcode::Symlink, b"one\0two\0"), [(7, b"one".to_vec())]);
        let made = [CreateIn::default().as_bytes(), b"one\0"].concat();
        assert_eq!(of(Opcode::Create, &made), [(7, b"one".to_vec())]);
        assert!(of(Opcode::GetAttr, b"one\0").is_empty() && of(Opcode::Unlink, b"one").is_empty());
    }
}
