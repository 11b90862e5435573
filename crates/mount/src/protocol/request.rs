//! A parsed request: header, structures and names.

use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::{InHeader, Opcode, WriteIn};

/// A request as a transport delivers it: its bytes, nothing of it understood but the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) header: InHeader,
    pub(crate) arguments: Arguments<'a>,
}

/// The rest of a request's arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    /// The first structure, by transports that have it apart.
    first: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message that lies in one piece.
    ///
    /// # Errors
    /// `EIO`: it is shorter than a header, or than its length field.
    pub(crate) fn whole(message: &'a [u8]) -> Result<Self, Errno> {
        let (header, bytes) = InHeader::read_from_prefix(message).map_err(|_| Errno::IO)?;
        if header.len as usize != message.len() {
            return Err(Errno::IO);
        }
        Ok(Self { header, arguments: Arguments { first: None, bytes } })
    }

    /// A message in two pieces. If it is a write, the second begins with the data.
    ///
    /// # Errors
    /// As [`Self::whole`].
    pub(crate) fn of_pieces(first: &'a mut Vec<u8>, second: &'a [u8]) -> Result<Self, Errno> {
        let (header, structure) = InHeader::read_from_prefix(first).map_err(|_| Errno::IO)?;
        if Opcode::from_number(header.opcode) != Some(Opcode::Write) {
            first.extend(second);
            return Self::whole(first);
        }
        if header.len as usize != first.len() + second.len() || structure.len() != size_of::<WriteIn>() {
            return Err(Errno::IO);
        }
        Ok(Self { header, arguments: Arguments::apart(&first[size_of::<InHeader>()..], second) })
    }

    /// The operation, if it is known.
    pub(crate) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_number(self.header.opcode)
    }
}

impl<'a> Arguments<'a> {
    /// Arguments with the first structure in separate memory.
    pub(crate) fn apart(first: &'a [u8], others: &'a [u8]) -> Self {
        Self { first: Some(first), bytes: others }
    }

    /// The next structure; fields that an older protocol lacks are zero.
    pub(crate) fn structure<T: FromBytes + FromZeros + IntoBytes>(&mut self) -> T {
        let mut value = T::new_zeroed();
        let from = self.first.take().unwrap_or_else(|| {
            let (structure, rest) = self.bytes.split_at(size_of::<T>().min(self.bytes.len()));
            self.bytes = rest;
            structure
        });
        let len = size_of::<T>().min(from.len());
        value.as_mut_bytes()[..len].copy_from_slice(&from[..len]);
        value
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.bytes.is_empty()
    }

    /// The next name, which ends with a zero byte.
    ///
    /// # Errors
    /// `EIO`: it has no end.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.bytes.iter().position(|&byte| byte == 0).ok_or(Errno::IO)?;
        let name = &self.bytes[..end];
        self.bytes = &self.bytes[end + 1..];
        Ok(name)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `EIO`: there are fewer.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.bytes.split_at_checked(len).ok_or(Errno::IO)?;
        self.bytes = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::{MkNodIn, SetXattrIn};
    use super::*;

    fn message(opcode: u32, arguments: &[u8]) -> Vec<u8> {
        let len = (size_of::<InHeader>() + arguments.len()) as u32;
        let mut message = InHeader { len, opcode, ..InHeader::default() }.as_bytes().to_vec();
        message.extend(arguments);
        message
    }

    #[test]
    fn a_message_is_taken_apart() {
        let mut bytes = MkNodIn { mode: 0o644, ..MkNodIn::default() }.as_bytes().to_vec();
        bytes.extend(b"name\0rest");
        let bytes = message(8, &bytes);
        let mut message = Message::whole(&bytes).expect("whole");
        assert_eq!(message.opcode(), Some(Opcode::MkNod));
        let arguments = &mut message.arguments;
        assert_eq!(arguments.structure::<MkNodIn>().mode, 0o644);
        assert_eq!(arguments.name(), Ok(&b"name"[..]));
        assert_eq!(arguments.bytes(4), Ok(&b"rest"[..]));
        assert_eq!(arguments.bytes(1), Err(Errno::IO));
    }

    #[test]
    fn a_first_structure_that_is_apart_is_not_in_the_way_of_what_follows() {
        let mut arguments = Arguments::apart(&[1; 128], b"name\0rest");
        assert_eq!(arguments.structure::<SetXattrIn>().size, 0x0101_0101);
        assert_eq!((arguments.name(), arguments.bytes(4)), (Ok(&b"name"[..]), Ok(&b"rest"[..])));
        // Requests that begin with a name have none.
        assert_eq!(Arguments::apart(&[0; 128], b"name\0").name(), Ok(&b"name"[..]));
    }

    #[test]
    fn the_data_of_a_write_stays_where_it_is() {
        let whole = message(16, &[WriteIn { size: 4, ..WriteIn::default() }.as_bytes(), b"data"].concat());
        let (first, second) = whole.split_at(80);
        let mut first = first.to_vec();
        let mut arguments = Message::of_pieces(&mut first, second).expect("whole").arguments;
        let len = arguments.structure::<WriteIn>().size as usize;
        assert!(std::ptr::eq(arguments.bytes(len).expect("all"), second));
        assert!(Message::of_pieces(&mut whole[..80].to_vec(), &second[..3]).is_err());
        let name = message(10, &[b'n'; 100]);
        let mut first = name[..80].to_vec();
        assert!(Message::of_pieces(&mut first, &name[80..]).is_ok() && first == name);
    }

    #[test]
    fn what_is_cut_short_is_zero_or_an_error() {
        let bytes = message(21, &[7, 0, 0, 0]);
        let mut arguments = Message::whole(&bytes).expect("whole").arguments;
        let structure: SetXattrIn = arguments.structure();
        assert_eq!((structure.size, structure.flags), (7, 0));
        assert_eq!(arguments.name(), Err(Errno::IO));
        assert!(Message::whole(&bytes[..bytes.len() - 1]).is_err() && Message::whole(&[]).is_err());
    }
}
