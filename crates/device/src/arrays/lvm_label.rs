//! Where LVM2's metadata is on a physical volume.
//!
//! On disk: in one of the first four sectors a label ("LABELONE", number of the sector, CRC, offset of the header, "LVM2 001"), with the
//! header of the physical volume: its identity (32 characters), its size, and two lists of areas (offset and size in bytes, ended by zeros): of
//! data, then of metadata. A metadata area begins with a header of 512 bytes (CRC, magic, version, its own place and size, and up to four
//! places of texts: offset, size, CRC, flags); the text goes around within the rest of the area. CRCs are CRC-32 with a start value of LVM2's.

use crc::{Algorithm, Crc};
use diorite_block::BlockDevice;

use super::{Result, read};

const CRC: Crc<u32> = Crc::<u32>::new(&Algorithm {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0xf597_a6cf_u32.reverse_bits(),
    refin: true,
    refout: true,
    xorout: 0,
    check: 0,
    residue: 0,
});
const SECTOR: usize = 512;
const LABEL_SECTORS: usize = 4;
const AREA_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const AREA_HEADER: u64 = 512;
/// The texts of large groups have a few MiB.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// A flag: the area is not used.
const IGNORED: u32 = 1;

/// A physical volume.
#[derive(Clone, Debug)]
pub(super) struct Label {
    /// Identity, without the hyphens of the text.
    pub(super) id: String,
    /// The metadata of its group; none if this volume has no copy.
    pub(super) text: Option<String>,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The label of a device; none if it is no physical volume.
pub(super) fn label(device: &dyn BlockDevice) -> Result<Option<Label>> {
    if device.geometry().capacity_bytes < (LABEL_SECTORS * SECTOR) as u64 {
        return Ok(None);
    }
    let sectors = read(device, 0, LABEL_SECTORS * SECTOR).map_err(|error| error.to_string())?;
    let is_label = |sector: &&[u8]| sector.starts_with(b"LABELONE") && &sector[24..32] == b"LVM2 001";
    let Some(sector) = sectors.chunks(SECTOR).find(is_label) else { return Ok(None) };
    if CRC.checksum(&sector[20..]) != word(sector, 16) {
        return Err("the checksum of its LVM2 label is wrong".to_owned());
    }
    let header = sector.get(word(sector, 20) as usize..).filter(|header| header.len() >= 40);
    let header = header.ok_or("its LVM2 label has no header")?;
    let id = String::from_utf8_lossy(&header[..32]).into_owned();
    let mut at = 40;
    let mut areas = || {
        let mut list = Vec::new();
        while at + 16 <= header.len() && number(header, at) != 0 {
            list.push((number(header, at), number(header, at + 8)));
            at += 16;
        }
        at += 16;
        list
    };
    let (_data, metadata) = (areas(), areas());
    // Two copies at most; the second is used where the first is damaged.
    let mut problem = None;
    for (start, size) in metadata {
        match text(device, start, size) {
            Ok(Some(text)) => return Ok(Some(Label { id, text: Some(text) })),
            Ok(None) => {}
            Err(why) => problem = Some(why),
        }
    }
    problem.map_or(Ok(Some(Label { id, text: None })), Err)
}

/// The text in a metadata area, if there is one.
fn text(device: &dyn BlockDevice, start: u64, size: u64) -> Result<Option<String>> {
    let capacity = device.geometry().capacity_bytes;
    if size <= AREA_HEADER || start.checked_add(size).is_none_or(|end| end > capacity) {
        return Err("its LVM2 metadata area is not within it".to_owned());
    }
    let failed = |error: diorite_block::IoError| error.to_string();
    let header = read(device, start, AREA_HEADER as usize).map_err(failed)?;
    if &header[4..20] != AREA_MAGIC || CRC.checksum(&header[4..]) != word(&header, 0) {
        return Err("the header of its LVM2 metadata is damaged".to_owned());
    }
    let (offset, len) = (number(&header, 40), number(&header, 48));
    let (checksum, flags) = (word(&header, 56), word(&header, 60));
    if offset == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    if number(&header, 24) != start
        || offset < AREA_HEADER
        || offset >= size
        || len > (size - AREA_HEADER).min(TEXT_BYTES_MAX)
    {
        return Err("the place of its LVM2 metadata is not within its area".to_owned());
    }
    let first = len.min(size - offset);
    let mut bytes = read(device, start + offset, first as usize).map_err(failed)?;
    bytes.extend(read(device, start + AREA_HEADER, (len - first) as usize).map_err(failed)?);
    if CRC.checksum(&bytes) != checksum {
        return Err("the checksum of its LVM2 metadata is wrong".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "its LVM2 metadata is no text")?;
    Ok(Some(text.trim_end_matches('\0').to_owned()))
}
