//! The superblock of a member of an MD array, version 1.
//!
//! On disk, little-endian, in sectors of 512 bytes: 8 KiB or more before the end (1.0), at the start (1.1) or 4 KiB after it (1.2). Magic at 0,
//! version at 4, features at 8, array at 16 (16 bytes), name at 32 (32 bytes), level at 72, layout at 76, chunk at 88, members at 92,
//! place of the bitmap at 96, start of data at 128, its length at 136, own place at 144, recovered up to at 152, number at 160,
//! events at 200, in sync up to at 208, checksum at 216, number of roles at 220, and from 256 the role of each number, 16 bits.

use diorite_block::{BioFlags, BlockDevice, IoError};

use super::{Result, read};
use crate::buffer::AlignedBuf;

const MAGIC: u32 = 0xa92b_4efc;
const HEADER_BYTES: usize = 256;
/// Roles of more members than this are no array.
const ROLES_MAX: u32 = 1920;
/// Bytes that are read and written: the roles follow the header.
const BYTES: usize = 4096;
const SECTOR: u64 = 512;
/// Everything is in sync.
pub(super) const IN_SYNC: u64 = u64::MAX;
/// Roles from here on are no members: spare, faulty, journal.
const NO_MEMBER: u16 = 0xfffd;

/// Features, as far as they matter.
const BITMAP: u32 = 1;
const RECOVERY: u32 = 2;
const RAID0_LAYOUT: u32 = 4096;

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    bytes: Vec<u8>,
    /// Its first byte on the member.
    place: u64,
}

impl Superblock {
    /// That of a device; none if there is none.
    pub(super) fn read(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let sectors = device.geometry().capacity_bytes / SECTOR;
        let near_end = sectors.checked_sub(16).map(|sector| (sector & !7) * SECTOR);
        for place in [Some(4096), Some(0), near_end].into_iter().flatten() {
            if place + BYTES as u64 > device.geometry().capacity_bytes {
                continue;
            }
            let bytes = read(device, place, BYTES).map_err(|error| error.to_string())?;
            let superblock = Self { bytes, place };
            if superblock.word(0) == MAGIC && superblock.word(4) == 1 {
                return superblock.check(device.geometry().capacity_bytes).map(Some);
            }
        }
        Ok(None)
    }

    fn check(self, capacity: u64) -> Result<Self> {
        if self.word(220) > ROLES_MAX || self.checksum() != self.word(216) {
            return Err("the checksum of its MD superblock is wrong".to_owned());
        }
        if self.long(144).checked_mul(SECTOR) != Some(self.place) {
            return Err("its MD superblock was made for another place".to_owned());
        }
        let end = self.long(128).checked_add(self.long(136)).and_then(|end| end.checked_mul(SECTOR));
        if end.is_none_or(|end| end > capacity) {
            return Err("the data of the MD array is not within it".to_owned());
        }
        Ok(self)
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        self.bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
    }

    /// The sum of all words but its own, folded once.
    fn checksum(&self) -> u32 {
        let len = HEADER_BYTES + 2 * self.word(220) as usize;
        let sum = self.bytes[..len].chunks(4).enumerate().filter(|(index, _)| *index != 216 / 4);
        let sum = sum.map(|(_, word)| word.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)));
        let sum: u64 = sum.sum();
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }

    pub(super) fn array(&self) -> &[u8] {
        &self.bytes[16..32]
    }

    pub(super) fn name(&self) -> String {
        let name = &self.bytes[32..64];
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..len]).into_owned()
    }

    pub(super) fn level(&self) -> i32 {
        self.word(72).cast_signed()
    }

    /// Of RAID-0 with members of several sizes: how the parts behind the smallest are laid out; 0 if it is not said.
    pub(super) fn layout(&self) -> u32 {
        if self.word(8) & RAID0_LAYOUT == 0 { 0 } else { self.word(76) }
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        u64::from(self.word(88)) * SECTOR
    }

    pub(super) fn members(&self) -> u32 {
        self.word(92)
    }

    pub(super) fn data_bytes(&self) -> (u64, u64) {
        (self.long(128) * SECTOR, self.long(136) * SECTOR)
    }

    /// Bytes of each member that a mirror uses.
    pub(super) fn used_bytes(&self) -> u64 {
        self.long(80).saturating_mul(SECTOR)
    }

    pub(super) fn events(&self) -> u64 {
        self.long(200)
    }

    pub(super) fn in_sync_to(&self) -> u64 {
        self.long(208)
    }

    /// Features of which nothing is known here: reshapes, bad blocks, replacements, clusters, journals.
    pub(super) fn unknown_features(&self) -> u32 {
        self.word(8) & !(BITMAP | RECOVERY | RAID0_LAYOUT)
    }

    pub(super) fn has_bitmap(&self) -> bool {
        self.word(8) & BITMAP != 0
    }

    /// Its place in the array; none for what is no member, or does not have everything yet.
    pub(super) fn role(&self) -> Option<u16> {
        let is_recovered = self.word(8) & RECOVERY == 0 || self.long(152) == IN_SYNC;
        self.role_of(self.word(160)).filter(|_| is_recovered)
    }

    fn role_of(&self, number: u32) -> Option<u16> {
        let at = HEADER_BYTES + 2 * number as usize;
        let role =
            (number < self.word(220)).then(|| u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))?;
        (role < NO_MEMBER).then_some(role)
    }

    /// Write it with another mark and number of events.
    pub(super) fn mark(
        &mut self,
        device: &dyn BlockDevice,
        events: u64,
        in_sync_to: u64,
    ) -> std::result::Result<(), IoError> {
        self.bytes[200..208].copy_from_slice(&events.to_le_bytes());
        self.bytes[208..216].copy_from_slice(&in_sync_to.to_le_bytes());
        let checksum = self.checksum();
        self.bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
        let mut memory = AlignedBuf::zeroed(BYTES, BYTES);
        memory.copy_from_slice(&self.bytes);
        device.write_bytes(self.place, &memory, BioFlags::SYNC | BioFlags::FUA)
    }
}
