//! Files whose data is in pieces of an archive, with holes between them.

use std::io;
use std::rc::Rc;

use crate::Error;
use crate::tree::{Piece, ReadFile};

/// Chunks of this size that are all zeros become holes.
const ZERO_CHUNK_BYTES: u64 = 1 << 20;
/// Size of the first read of a chunk. Most data has another byte than zero there.
const FIRST_BYTES: u64 = 4096;
/// Size of the other reads.
const READ_BYTES: u64 = 64 << 10;

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

/// The pieces without empty ones, and without chunks of nothing but zeros.
pub(super) fn without_zeros(
    archive: &dyn ReadFile,
    name: &str,
    pieces: &[Piece],
) -> Result<Vec<Piece>, Error> {
    let mut kept: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let mut done = 0;
        while done < piece.len {
            let len = (piece.len - done).min(ZERO_CHUNK_BYTES);
            let chunk = Piece { start: piece.start + done, len, from: piece.from + done };
            done += len;
            if is_zero(archive, name, &chunk)? {
                continue;
            }
            match kept.last_mut() {
                Some(last) if last.end() == chunk.start && last.from + last.len == chunk.from => {
                    last.len += chunk.len;
                }
                _ => kept.push(chunk),
            }
        }
    }
    Ok(kept)
}

fn is_zero(archive: &dyn ReadFile, name: &str, chunk: &Piece) -> Result<bool, Error> {
    let mut first = [0; FIRST_BYTES as usize];
    let (mut larger, mut done) = (Vec::new(), 0);
    while done < chunk.len {
        let memory = if done == 0 {
            &mut first[..]
        } else {
            larger.resize(READ_BYTES as usize, 0);
            &mut larger[..]
        };
        let most = (chunk.len - done).min(memory.len() as u64) as usize;
        let memory = &mut memory[..most];
        if archive.read_at(memory, chunk.from + done)? < most {
            return Err(cut(name));
        }
        if memory.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        done += most as u64;
    }
    Ok(true)
}
