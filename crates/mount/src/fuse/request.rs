//! A request, taken apart: header, structures and names.

use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::{InHeader, Opcode};

/// What is left of a request's arguments.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    bytes: &'a [u8],
}

/// The header of a message, and what it asks for where that is known.
///
/// # Errors
/// `EIO`: the message is shorter than a header, or than it says.
pub(crate) fn header(message: &[u8]) -> Result<(InHeader, Option<Opcode>), Errno> {
    let (header, _) = InHeader::read_from_prefix(message).map_err(|_| Errno::IO)?;
    if header.len as usize != message.len() {
        return Err(Errno::IO);
    }
    Ok((header, Opcode::from_number(header.opcode)))
}

impl<'a> Arguments<'a> {
    /// The arguments of a message, which has a header.
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { bytes: message.get(size_of::<InHeader>()..).unwrap_or_default() }
    }

    /// The next structure; what an older protocol leaves out of it is zero.
    pub(crate) fn structure<T: FromBytes + FromZeros + IntoBytes>(&mut self) -> T {
        let mut value = T::new_zeroed();
        let len = size_of::<T>().min(self.bytes.len());
        value.as_mut_bytes()[..len].copy_from_slice(&self.bytes[..len]);
        self.bytes = &self.bytes[len..];
        value
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

    /// The next so many bytes.
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
        let message = message(8, &bytes);
        let (_, opcode) = header(&message).expect("whole");
        assert_eq!(opcode, Some(Opcode::MkNod));
        let mut arguments = Arguments::of(&message);
        assert_eq!(arguments.structure::<MkNodIn>().mode, 0o644);
        assert_eq!(arguments.name(), Ok(&b"name"[..]));
        assert_eq!(arguments.bytes(4), Ok(&b"rest"[..]));
        assert_eq!(arguments.bytes(1), Err(Errno::IO));
    }

    #[test]
    fn what_is_cut_short_is_zero_or_an_error() {
        let message = message(21, &[7, 0, 0, 0]);
        let mut arguments = Arguments::of(&message);
        let structure: SetXattrIn = arguments.structure();
        assert_eq!((structure.size, structure.flags), (7, 0));
        assert_eq!(arguments.name(), Err(Errno::IO));
        assert!(header(&message[..message.len() - 1]).is_err() && header(&[]).is_err());
    }
}
