//! Files whose data is in pieces of an archive, with holes between them.

use std::io;
use std::rc::Rc;

use crate::Error;
use crate::tree::{Piece, ReadFile};

/// A file of an archive that is read.
pub(super) struct PiecesFile {
    pub(super) archive: Rc<dyn ReadFile>,
    pub(super) pieces: Rc<[Piece]>,
    pub(super) size: u64,
    /// The archive in messages.
    pub(super) name: String,
}

/// The archive was changed or cut while it was read.
fn cut(name: &str) -> Error {
    let why = "its end is missing now; leave it as it is until it is read";
    Error::Archive { archive: name.to_owned(), source: io::Error::new(io::ErrorKind::UnexpectedEof, why) }
}

impl PiecesFile {
    /// The number of the first piece that ends after `offset`.
    fn first_after(&self, offset: u64) -> usize {
        self.pieces.partition_point(|piece| piece.end() <= offset)
    }
}

impl ReadFile for PiecesFile {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        let len = (memory.len() as u64).min(self.size.saturating_sub(offset)) as usize;
        let (mut done, mut number) = (0, self.first_after(offset));
        while done < len {
            let at = offset + done as u64;
            let rest = &mut memory[done..len];
            match self.pieces.get(number) {
                Some(piece) if piece.start <= at => {
                    let most = rest.len().min((piece.end() - at) as usize);
                    let count = self.archive.read_at(&mut rest[..most], piece.from + (at - piece.start))?;
                    if count < most {
                        return Err(cut(&self.name));
                    }
                    done += most;
                    number += 1;
                }
                next => {
                    let hole = next.map_or(rest.len(), |piece| rest.len().min((piece.start - at) as usize));
                    rest[..hole].fill(0);
                    done += hole;
                }
            }
        }
        Ok(len)
    }

    fn size(&self) -> Result<u64, Error> {
        Ok(self.size)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
        let mut following = self.pieces[self.first_after(offset)..].iter();
        let Some(first) = following.next() else { return Ok(None) };
        let mut end = first.end();
        for piece in following.take_while(|piece| piece.start == end).collect::<Vec<_>>() {
            end = piece.end();
        }
        Ok(Some((first.start.max(offset), end)))
    }
}
