//! The content of a device in memory: pieces that clones share until one of them writes.

use std::sync::Arc;

use crate::random::MARKER;

/// Bytes of a piece.
pub const PIECE: usize = 16 << 10;

/// Bytes of a fixed length.
#[derive(Clone)]
pub struct Image {
    pieces: Vec<Arc<[u8; PIECE]>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes)", self.len())
    }
}

impl Image {
    /// `len` bytes, rounded up to whole pieces, that no file contains.
    pub fn of_marker(len: u64) -> Self {
        let piece = Arc::new([MARKER; PIECE]);
        Self { pieces: vec![piece; (len as usize).div_ceil(PIECE)] }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        (self.pieces.len() * PIECE) as u64
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The pieces: equal pointers are equal content.
    pub fn pieces(&self) -> &[Arc<[u8; PIECE]>] {
        &self.pieces
    }

    /// Put a whole piece in place.
    pub fn set_piece(&mut self, index: usize, piece: Arc<[u8; PIECE]>) {
        self.pieces[index] = piece;
    }

    /// Copy out.
    pub fn read(&self, at: u64, memory: &mut [u8]) {
        let mut at = at as usize;
        let mut rest = memory;
        while !rest.is_empty() {
            let within = at % PIECE;
            let step = rest.len().min(PIECE - within);
            let (now, later) = rest.split_at_mut(step);
            now.copy_from_slice(&self.pieces[at / PIECE][within..within + step]);
            at += step;
            rest = later;
        }
    }

    /// Copy in.
    pub fn write(&mut self, at: u64, memory: &[u8]) {
        let mut at = at as usize;
        let mut rest = memory;
        while !rest.is_empty() {
            let within = at % PIECE;
            let step = rest.len().min(PIECE - within);
            let (now, later) = rest.split_at(step);
            Arc::make_mut(&mut self.pieces[at / PIECE])[within..within + step].copy_from_slice(now);
            at += step;
            rest = later;
        }
    }
}
