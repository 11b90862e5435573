//! The label of a physical volume of LVM2, and the copies of its metadata.
//!
//! On disk: in one of the first four sectors a label ("LABELONE", number of the sector, CRC, offset of the header, "LVM2 001"), with the
//! header of the physical volume: its identity (32 characters), its size, and two lists of areas (offset and size in bytes, ended by zeros): of
//! data, then of metadata. A metadata area begins with a header of 512 bytes (CRC, magic, version, its own offset and size, and up to four
//! locations of texts: offset, size, CRC, flags); the text goes around within the rest of the area. CRCs are CRC-32 with a start value of LVM2's.

use crc::{Algorithm, Crc};
use diorite_block::BlockDevice;

use crate::parts::{Result, long, word};
use diorite_device::read_unaligned as read;

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
const LABEL_MAGIC: &[u8; 8] = b"LABELONE";
const LABEL_TYPE: &[u8; 8] = b"LVM2 001";
const AREA_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const AREA_HEADER: u64 = 512;
/// The texts of large groups have a few MiB.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// One at the start and one at the end.
const COPIES_MAX: usize = 2;
/// A flag: the area is not used.
const IGNORED: u32 = 1;

/// A physical volume.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    /// Identity, without the hyphens of the text.
    pub(crate) id: String,
    /// The copies of its group's metadata on it, up to two. They differ where writing one of them failed.
    pub(crate) texts: Vec<String>,
}

/// Whether one of the first sectors begins like a label, valid or not.
pub(crate) fn has_label(device: &dyn BlockDevice) -> bool {
    let is_large_enough = device.geometry().capacity_bytes >= (LABEL_SECTORS * SECTOR) as u64;
    is_large_enough
        && read(device, 0, LABEL_SECTORS * SECTOR)
            .is_ok_and(|sectors| sectors.chunks(SECTOR).any(|sector| sector.starts_with(LABEL_MAGIC)))
}

/// The first valid label of the first sectors; none if no sector begins like one.
fn valid_label(sectors: &[u8]) -> Result<Option<&[u8]>> {
    let mut damage = None;
    for (number_of, sector) in (0_u64..).zip(sectors.chunks(SECTOR)) {
        if !sector.starts_with(LABEL_MAGIC) {
            continue;
        }
        let problem = if CRC.checksum(&sector[20..]) != word(sector, 16) {
            "the checksum of its LVM2 label is wrong"
        } else if long(sector, 8) != number_of {
            "its LVM2 label was written for another sector"
        } else if &sector[24..32] != LABEL_TYPE {
            "its LVM2 label is of an unknown type"
        } else {
            return Ok(Some(sector));
        };
        damage.get_or_insert_with(|| format!("{problem} (sector {number_of})"));
    }
    damage.map_or(Ok(None), Err)
}

/// The label of a device; none if it is no physical volume.
pub(crate) fn label(device: &dyn BlockDevice) -> Result<Option<Label>> {
    if device.geometry().capacity_bytes < (LABEL_SECTORS * SECTOR) as u64 {
        return Ok(None);
    }
    let sectors = read(device, 0, LABEL_SECTORS * SECTOR).map_err(|error| error.to_string())?;
    let Some(sector) = valid_label(&sectors)? else { return Ok(None) };
    let header = sector.get(word(sector, 20) as usize..).filter(|header| header.len() >= 40);
    let header = header.ok_or("its LVM2 label has no header")?;
    let id = String::from_utf8_lossy(&header[..32]).into_owned();
    let mut at = 40;
    let mut areas = || {
        let mut list = Vec::new();
        while at + 16 <= header.len() && long(header, at) != 0 {
            list.push((long(header, at), long(header, at + 8)));
            at += 16;
        }
        at += 16;
        list
    };
    let (_data, metadata) = (areas(), areas());
    let (mut texts, mut problem) = (Vec::new(), None);
    for (start, size) in metadata.into_iter().take(COPIES_MAX) {
        match text(device, start, size) {
            Ok(Some(text)) if !texts.contains(&text) => texts.push(text),
            Ok(_) => {}
            Err(why) => problem = Some(why),
        }
    }
    // If one copy is damaged, the other is used.
    problem.filter(|_| texts.is_empty()).map_or(Ok(Some(Label { id, texts })), Err)
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
    let (offset, len) = (long(&header, 40), long(&header, 48));
    let (checksum, flags) = (word(&header, 56), word(&header, 60));
    if offset == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    if long(&header, 24) != start
        || offset < AREA_HEADER
        || offset >= size
        || len > (size - AREA_HEADER).min(TEXT_BYTES_MAX)
    {
        return Err("its LVM2 metadata is not within its area".to_owned());
    }
    let first = len.min(size - offset);
    let mut bytes = read(device, start + offset, first as usize).map_err(failed)?;
    bytes.extend(read(device, start + AREA_HEADER, (len - first) as usize).map_err(failed)?);
    if CRC.checksum(&bytes) != checksum {
        return Err("the checksum of its LVM2 metadata is wrong".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "its LVM2 metadata is not text")?;
    Ok(Some(text.trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_device::AlignedBuf;
    use diorite_sim::image::ImageDevice;

    fn labelled(number_in_it: u64) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        sector[..8].copy_from_slice(LABEL_MAGIC);
        sector[8..16].copy_from_slice(&number_in_it.to_le_bytes());
        sector[20..24].copy_from_slice(&32_u32.to_le_bytes());
        sector[24..32].copy_from_slice(LABEL_TYPE);
        sector[32..64].fill(b'a');
        let checksum = CRC.checksum(&sector[20..]);
        sector[16..20].copy_from_slice(&checksum.to_le_bytes());
        sector
    }

    fn device(sectors: &[(usize, [u8; SECTOR])]) -> std::sync::Arc<dyn BlockDevice> {
        let mut start = AlignedBuf::zeroed(4096, 4096);
        for (at, sector) in sectors {
            start[at * SECTOR..][..SECTOR].copy_from_slice(sector);
        }
        let device: std::sync::Arc<dyn BlockDevice> = ImageDevice::zeroed(1 << 20);
        device.write_bytes(0, &start, diorite_block::BioFlags::NONE).expect("written");
        device
    }

    /// A volume with a damaged label was taken for none, and overwritten unasked.
    #[test]
    fn a_damaged_label_is_one_all_the_same() {
        let mut damaged = labelled(1);
        damaged[100] ^= 1;
        for (sectors, why) in [(vec![(1, damaged)], "checksum"), (vec![(2, labelled(1))], "another sector")] {
            let device = device(&sectors);
            assert!(label(&*device).expect_err("damaged").contains(why));
            let described = crate::array_of(&*device).expect("a physical volume");
            assert!(described.contains("damaged") && described.contains("sector "), "{described}");
        }
        // A sound one after it is the label.
        let found = label(&*device(&[(0, damaged), (3, labelled(3))])).expect("sound").expect("a label");
        assert_eq!(found.id, "a".repeat(32));
        // The fifth sector has none.
        assert!(label(&*device(&[(4, labelled(4))])).expect("none").is_none());
        assert_eq!(crate::array_of(&*device(&[(4, labelled(4))])), None);
    }
}
