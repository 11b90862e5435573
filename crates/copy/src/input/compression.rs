//! Compressed streams: gzip (RFC 1952) and zstd (RFC 8878), each with any number of parts in a row.

use std::io::{self, BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that show the compression.
pub(super) const MARK_BYTES: usize = 4;
/// Size of a read of compressed data.
const BUFFER_BYTES: usize = 256 << 10;

/// A compression that is read directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The compression of a stream that begins with `start`.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame, or one that is skipped.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The decompressed stream.
    pub(super) fn decompress<'r>(self, stream: impl Read + 'r) -> Box<dyn Read + 'r> {
        let stream = BufReader::with_capacity(BUFFER_BYTES, stream);
        let decoder: Box<dyn Read + 'r> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(stream)),
            Self::Zstd => Box::new(Frames { stream, decoder: FrameDecoder::new(), is_in_frame: false }),
        };
        Box::new(Decompressed { decoder, compression: self })
    }
}

/// A decoder whose errors name the compression.
struct Decompressed<'r> {
    decoder: Box<dyn Read + 'r>,
    compression: Compression,
}

impl Read for Decompressed<'_> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(memory).map_err(|error| {
            let what = match error.kind() {
                io::ErrorKind::UnexpectedEof => "ends too early".to_owned(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => format!("is damaged: {error}"),
                _ => return error,
            };
            let why = format!("its {} data {what}; copy the archive again", self.compression.name());
            io::Error::new(error.kind(), why)
        })
    }
}

/// Frames of zstd.
struct Frames<R> {
    stream: BufReader<R>,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

fn damaged(error: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl<R: Read> Frames<R> {
    /// Begin the next frame that has data. Returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.stream.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.stream) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.stream).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
        Ok(false)
    }

    /// The frame is complete.
    fn end(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a checksum is wrong"));
        }
        Ok(())
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        if memory.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame {
                self.is_in_frame = self.begin()?;
                if !self.is_in_frame {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                if self.stream.fill_buf()?.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.decoder
                    .decode_blocks(&mut self.stream, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| damaged(&error))?;
            }
            match Read::read(&mut self.decoder, memory)? {
                0 => self.end()?,
                count => return Ok(count),
            }
        }
    }
}
