//! `.npz`: a zip archive of `.npy` members, stored or deflated.
//!
//! Stored members are read where they are. Overlapping members are refused, and so are sizes that the compressed bytes cannot have.

use std::io::Read;

use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, ZipArchive, ZipLocator};

use super::npy;
use crate::HEADER_BYTES_MAX;
use crate::error::{Damage, InFile, LoadError, Result, Unsupported};
use crate::reading::FileBytes;
use crate::tensor::{Checksum, Data, TensorInfo, check_ranges};

/// The first bytes of a file: a member, or the end of an empty archive.
pub(super) const MAGICS: [&[u8; 4]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Bytes of one step in the directory.
const BUFFER_BYTES: usize = rawzip::RECOMMENDED_BUFFER_SIZE;
/// Name and extra fields of a member at most.
const LOCAL_HEADER_BYTES_MAX: usize = 2 << 16;
/// Deflate makes at most so many bytes of one.
const DEFLATE_RATIO_MAX: u64 = 1032;

/// A member, as the directory describes it.
struct Member {
    name: String,
    /// The name in the directory, with the extension.
    path: Vec<u8>,
    method: CompressionMethod,
    entry: rawzip::ZipArchiveEntryWayfinder,
    checksum: u32,
    bytes: u64,
    packed_bytes: u64,
}

/// Read the directory and the headers of all arrays.
pub(super) fn read(bytes: &FileBytes<'_>) -> Result<Vec<TensorInfo>> {
    let zip = |error: rawzip::Error| Damage::Zip(error.to_string()).at(bytes.name(), None);
    let mut buffer = vec![0; BUFFER_BYTES];
    let archive = ZipLocator::new()
        .locate_in_reader(bytes, &mut buffer, bytes.size())
        .map_err(|(_, error)| zip(error))?;
    let members = members(&archive, bytes).map_err(|wrong| wrong.error(bytes))?;
    if members.is_empty() && archive.entries_hint() > 0 {
        return Err(Unsupported::NoArrays.at(bytes.name(), None));
    }
    let mut tensors = Vec::with_capacity(members.len());
    buffer.resize(LOCAL_HEADER_BYTES_MAX, 0);
    for member in &members {
        check_local_header(&archive, bytes, member, &mut buffer)?;
        tensors.push(tensor(&archive, bytes, member)?);
    }
    check_members(&tensors, bytes)?;
    Ok(tensors)
}

/// An error of the directory.
enum Wrong {
    Zip(rawzip::Error),
    Load(LoadError),
}

impl Wrong {
    fn error(self, bytes: &FileBytes<'_>) -> LoadError {
        match self {
            Self::Zip(error) => Damage::Zip(error.to_string()).at(bytes.name(), None),
            Self::Load(error) => error,
        }
    }
}

impl From<rawzip::Error> for Wrong {
    fn from(error: rawzip::Error) -> Self {
        Self::Zip(error)
    }
}

fn members(archive: &ZipArchive<&FileBytes<'_>>, bytes: &FileBytes<'_>) -> Result<Vec<Member>, Wrong> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut entries = archive.entries(&mut buffer);
    let mut members = Vec::new();
    let mut used: u64 = 0;
    while let Some(entry) = entries.next_entry()? {
        let path = entry.file_path();
        let name = path.as_bytes();
        used += 46 + name.len() as u64;
        if used > HEADER_BYTES_MAX {
            return Err(Wrong::Load(Damage::LongHeader { bytes: used }.at(bytes.name(), None)));
        }
        // Other members are no arrays; NumPy returns them as bytes.
        let Some(stem) = name.strip_suffix(b".npy") else { continue };
        let path = name.to_vec();
        let name = String::from_utf8_lossy(stem).into_owned();
        if entry.flags().is_encrypted() {
            return Err(Wrong::Load(Unsupported::Encrypted.at(bytes.name(), Some(&name))));
        }
        members.push(Member {
            name,
            path,
            method: entry.compression_method(),
            entry: entry.wayfinder(),
            checksum: entry.crc32(),
            bytes: entry.uncompressed_size_hint(),
            packed_bytes: entry.compressed_size_hint(),
        });
    }
    Ok(members)
}

/// Check that the header of a member agrees with the directory. Otherwise readers that follow the one or the other see different archives.
fn check_local_header(
    archive: &ZipArchive<&FileBytes<'_>>,
    file: &FileBytes<'_>,
    member: &Member,
    buffer: &mut [u8],
) -> Result<()> {
    let damaged = |damage: Damage| damage.at(file.name(), Some(&member.name));
    let zip = |error: rawzip::Error| damaged(Damage::Zip(error.to_string()));
    let entry = archive.get_entry(member.entry).map_err(zip)?;
    let local = entry.local_header(buffer).map_err(zip)?;
    if local.file_path().as_bytes() != member.path || local.compression_method() != member.method {
        return Err(damaged(Damage::Form(
            "the directory of the archive contradicts the header of the member",
        )));
    }
    Ok(())
}

fn tensor(archive: &ZipArchive<&FileBytes<'_>>, file: &FileBytes<'_>, member: &Member) -> Result<TensorInfo> {
    let name = &*member.name;
    let damaged = |damage: Damage| damage.at(file.name(), Some(name));
    let zip = |error: rawzip::Error| damaged(Damage::Zip(error.to_string()));
    let entry = archive.get_entry(member.entry).map_err(zip)?;
    let (start, end) = entry.compressed_data_range();
    if end > file.size() || start > end {
        return Err(damaged(Damage::BeyondEnd { end, size: file.size() }));
    }
    let packed = end - start;
    let is_stored = match member.method {
        CompressionMethod::STORE => true,
        CompressionMethod::DEFLATE => false,
        _ => return Err(Unsupported::Compression.at(file.name(), Some(name))),
    };
    let bytes_max = if is_stored { packed } else { packed.saturating_mul(DEFLATE_RATIO_MAX) };
    if member.bytes > bytes_max || (is_stored && member.bytes != packed) || packed != member.packed_bytes {
        return Err(damaged(Damage::Length { needed: member.bytes, given: packed }));
    }
    let (parsed, skip, before) = if is_stored {
        read_header(&mut file.reader(start, end), member, file)?
    } else {
        read_header(&mut DeflateDecoder::new(file.reader(start, end)), member, file)?
    };
    let checksum = Checksum { before: (before, skip), whole: member.checksum };
    let data = if is_stored {
        Data::Stored { offset: start + skip, checksum: Some(checksum) }
    } else {
        Data::Deflated { offset: start, deflated_bytes: packed, skip, checksum }
    };
    let tensor = parsed.tensor(name.to_owned(), data).in_tensor(file.name(), name)?;
    if tensor.bytes.checked_add(skip) != Some(member.bytes) {
        let given = member.bytes.saturating_sub(skip);
        return Err(damaged(Damage::Length { needed: tensor.bytes, given }));
    }
    Ok(tensor)
}

/// Read the header of a member. Also its length and its checksum.
fn read_header(
    stream: &mut dyn Read,
    member: &Member,
    file: &FileBytes<'_>,
) -> Result<(npy::Header, u64, u32)> {
    let name = &*member.name;
    let wrong = |wrong: npy::Wrong| match wrong {
        npy::Wrong::Damage(damage) => damage.at(file.name(), Some(name)),
        npy::Wrong::Unsupported(what) => what.at(file.name(), Some(name)),
    };
    let mut all = Vec::new();
    let mut more = |len: usize| -> Result<Vec<u8>> {
        let mut piece = vec![0; len];
        stream.read_exact(&mut piece).map_err(|_| {
            Damage::Form("the member ends in the header of its array").at(file.name(), Some(name))
        })?;
        all.extend_from_slice(&piece);
        Ok(piece)
    };
    let mut begin = [0; 8];
    begin.copy_from_slice(&more(8)?);
    let (version, width) = npy::check_begin(begin).map_err(wrong)?;
    let len = more(width)?.iter().rev().fold(0, |len, byte| len << 8 | u64::from(*byte));
    npy::check_length(len).map_err(wrong)?;
    let text = more(len as usize)?;
    let parsed = npy::parse(&text, version).map_err(wrong)?;
    Ok((parsed, all.len() as u64, crc32fast::hash(&all)))
}

/// Check that members do not overlap.
fn check_members(tensors: &[TensorInfo], file: &FileBytes<'_>) -> Result<()> {
    let packed = |tensor: &TensorInfo| match tensor.data {
        Data::Deflated { deflated_bytes, .. } => TensorInfo { bytes: deflated_bytes, ..tensor.clone() },
        Data::Stored { .. } => tensor.clone(),
    };
    let packed: Vec<TensorInfo> = tensors.iter().map(packed).collect();
    match check_ranges(&packed, file.size()) {
        Ok(_) => Ok(()),
        Err((number, damage)) => Err(damage.at(file.name(), Some(&tensors[number].name))),
    }
}
