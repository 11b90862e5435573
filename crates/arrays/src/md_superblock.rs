//! The superblock of a member of an MD array: version 1, and version 0.90, which is converted to version 1 in memory.
//!
//! On disk, little-endian, in sectors of 512 bytes: 8 KiB or more before the end (1.0), at the start (1.1) or 4 KiB after it (1.2). Magic at 0,
//! version at 4, features at 8, array at 16 (16 bytes), name at 32 (32 bytes), level at 72, layout at 76, chunk at 88, members at 92,
//! offset of the bitmap at 96, start of data at 128, its length at 136, own offset at 144, recovered up to at 152, number at 160, flags of the
//! member at 184, events at 200, in sync up to at 208, checksum at 216, number of roles at 220, and from 256 the role of each number, 16 bits.
//!
//! Version 0.90, in words of 32 bits, in the last 64 KiB that begin at a multiple of 64 KiB: magic at 0, version at 1 and 2, array at 5 and 13 to 15,
//! level at 7, KiB of a member at 8, members at 10, number of the array at 11, state at 33, checksum at 38, events at 39 and 40, bytes of
//! a chunk at 65, from 128 on 32 words of each of 27 disks (number, two of the device, role, state), and at 992 the words of this disk.

use diorite_block::{BioFlags, BlockDevice, IoError};

use crate::parts::{Result, long, word};
use diorite_device::AlignedBuf;
use diorite_device::read_unaligned as read;

const MAGIC: u32 = 0xa92b_4efc;
const HEADER_BYTES: usize = 256;
/// Most roles of a superblock.
const ROLES_MAX: u32 = 1920;
/// Bytes that are read and written: the roles follow the header.
const BYTES: usize = 4096;
const SECTOR: u64 = 512;
/// All of the array is in sync.
pub(crate) const IN_SYNC: u64 = u64::MAX;
/// Roles from here on are no members: spare, faulty, journal.
const NO_MEMBER: u16 = 0xfffd;

/// Known features.
const BITMAP: u32 = 1;
const RECOVERY: u32 = 2;
const RAID0_LAYOUT: u32 = 4096;

/// Version 0.90: alignment, and bits of the states of an array and of a disk.
const OLD_ALIGNMENT: u64 = 64 << 10;
const OLD_DISKS: usize = 27;
const OLD_CLEAN: u32 = 1;
const OLD_BITMAP: u32 = 1 << 8;
const OLD_DISK_STATES: u32 = 0b1111;
const OLD_DISK_IN_SYNC: u32 = 0b0110;
const OLD_DISK_WRITE_MOSTLY: u32 = 1 << 9;
/// A flag of a member.
const WRITE_MOSTLY: u8 = 1;

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Superblock {
    bytes: Vec<u8>,
    /// Its offset on the member.
    offset: u64,
    /// Whether it is of version 0.90.
    is_old: bool,
}

impl Superblock {
    /// The superblock of a device, if there is one.
    pub(crate) fn read(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let sectors = device.geometry().capacity_bytes / SECTOR;
        let near_end = sectors.checked_sub(16).map(|sector| (sector & !7) * SECTOR);
        for offset in [Some(4096), Some(0), near_end].into_iter().flatten() {
            if offset + BYTES as u64 > device.geometry().capacity_bytes {
                continue;
            }
            let bytes = read(device, offset, BYTES).map_err(|error| error.to_string())?;
            let superblock = Self { bytes, offset, is_old: false };
            if superblock.word(0) == MAGIC && superblock.word(4) == 1 {
                return superblock.check(device.geometry().capacity_bytes).map(Some);
            }
        }
        Self::read_old(device)
    }

    /// A superblock of version 0.90.
    fn read_old(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let capacity = device.geometry().capacity_bytes;
        let Some(offset) = (capacity / OLD_ALIGNMENT * OLD_ALIGNMENT).checked_sub(OLD_ALIGNMENT) else {
            return Ok(None);
        };
        let bytes = read(device, offset, BYTES).map_err(|error| error.to_string())?;
        let old = Self { bytes, offset, is_old: true };
        let is_old = |version: u32| old.word(0) == MAGIC && old.word(4) == 0 && old.word(8) == version;
        if old.word(0) == MAGIC.swap_bytes() {
            return Err("its MD superblock (version 0.90) has the other byte order".to_owned());
        }
        if is_old(91) {
            return Err("its MD array (version 0.90) is being reshaped".to_owned());
        }
        if !is_old(90) {
            return Ok(None);
        }
        let words = (0..BYTES / 4).filter(|word| *word != 38).map(|word| u64::from(old.word(4 * word)));
        let sum: u64 = words.sum();
        if (sum as u32).wrapping_add((sum >> 32) as u32) != old.word(4 * 38) {
            return Err("the checksum of its MD superblock (version 0.90) is wrong".to_owned());
        }
        Ok(Some(old.translated()))
    }

    /// Convert a superblock of version 0.90 to version 1.
    fn translated(self) -> Self {
        let old = |word: usize| self.word(4 * word);
        let mut bytes = vec![0; BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        put(8, &(if old(33) & OLD_BITMAP == 0 { 0 } else { BITMAP }).to_le_bytes());
        for (at, word) in [5, 13, 14, 15].into_iter().enumerate() {
            put(16 + 4 * at, &old(word).to_le_bytes());
        }
        put(32, format!("md{}", old(11)).as_bytes());
        put(72, &old(7).to_le_bytes());
        put(80, &(2 * u64::from(old(8))).to_le_bytes());
        put(88, &(old(65) / SECTOR as u32).to_le_bytes());
        put(92, &old(10).to_le_bytes());
        // Its data begins where the member begins, and ends before the superblock.
        put(136, &(self.offset / SECTOR).to_le_bytes());
        put(144, &(self.offset / SECTOR).to_le_bytes());
        put(160, &old(992).to_le_bytes());
        put(184, &[if old(996) & OLD_DISK_WRITE_MOSTLY == 0 { 0 } else { WRITE_MOSTLY }]);
        put(200, &(u64::from(old(39)) | u64::from(old(40)) << 32).to_le_bytes());
        put(208, &(if old(33) & OLD_CLEAN == 0 { 0 } else { IN_SYNC }).to_le_bytes());
        put(220, &(OLD_DISKS as u32).to_le_bytes());
        for disk in 0..OLD_DISKS {
            let (role, state) = (old(128 + 32 * disk + 3), old(128 + 32 * disk + 4));
            let is_member = state & OLD_DISK_STATES == OLD_DISK_IN_SYNC;
            let role = u16::try_from(role).ok().filter(|_| is_member).unwrap_or(u16::MAX);
            put(HEADER_BYTES + 2 * disk, &role.to_le_bytes());
        }
        Self { bytes, ..self }
    }

    /// Whether it is of version 0.90.
    pub(crate) fn is_old(&self) -> bool {
        self.is_old
    }

    fn check(self, capacity: u64) -> Result<Self> {
        if self.word(220) > ROLES_MAX || self.checksum() != self.word(216) {
            return Err("the checksum of its MD superblock is wrong".to_owned());
        }
        if self.long(144).checked_mul(SECTOR) != Some(self.offset) {
            return Err("its MD superblock belongs to another offset".to_owned());
        }
        let end = self.long(128).checked_add(self.long(136)).and_then(|end| end.checked_mul(SECTOR));
        let Some(end) = end.filter(|end| *end <= capacity) else {
            return Err("the data of the MD array is not within it".to_owned());
        };
        // mdadm reserves these bytes, even if the superblock is shorter.
        if self.data_bytes().0 < self.offset + BYTES as u64 && end > self.offset {
            return Err("the data of the MD array overlaps its superblock".to_owned());
        }
        Ok(self)
    }

    fn word(&self, at: usize) -> u32 {
        word(&self.bytes, at)
    }

    fn long(&self, at: usize) -> u64 {
        long(&self.bytes, at)
    }

    /// The sum of all words except the checksum, folded once.
    fn checksum(&self) -> u32 {
        let len = HEADER_BYTES + 2 * self.word(220) as usize;
        let sum = self.bytes[..len].chunks(4).enumerate().filter(|(index, _)| *index != 216 / 4);
        let sum = sum.map(|(_, word)| word.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)));
        let sum: u64 = sum.sum();
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }

    pub(crate) fn array(&self) -> &[u8] {
        &self.bytes[16..32]
    }

    pub(crate) fn name(&self) -> String {
        let name = &self.bytes[32..64];
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..len]).into_owned()
    }

    pub(crate) fn level(&self) -> i32 {
        self.word(72).cast_signed()
    }

    /// The layout of a RAID-0 with members of several sizes; 0 if it is not given.
    pub(crate) fn layout(&self) -> u32 {
        if self.word(8) & RAID0_LAYOUT == 0 { 0 } else { self.word(76) }
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        u64::from(self.word(88)) * SECTOR
    }

    pub(crate) fn members(&self) -> u32 {
        self.word(92)
    }

    pub(crate) fn data_bytes(&self) -> (u64, u64) {
        (self.long(128) * SECTOR, self.long(136) * SECTOR)
    }

    /// Whether the data of the array begins at the start of the member, so that the member looks like the array.
    pub(crate) fn begins_with_data(&self) -> bool {
        self.data_bytes().0 == 0 && self.role().is_some()
    }

    /// Bytes of each member that a mirror uses.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.long(80).saturating_mul(SECTOR)
    }

    pub(crate) fn events(&self) -> u64 {
        self.long(200)
    }

    pub(crate) fn in_sync_to(&self) -> u64 {
        self.long(208)
    }

    /// Unsupported features: reshapes, bad blocks, replacements, clusters, journals.
    pub(crate) fn unknown_features(&self) -> u32 {
        self.word(8) & !(BITMAP | RECOVERY | RAID0_LAYOUT)
    }

    /// Whether other members are preferred for reads.
    pub(crate) fn is_write_mostly(&self) -> bool {
        self.bytes[184] & WRITE_MOSTLY != 0
    }

    pub(crate) fn has_bitmap(&self) -> bool {
        self.word(8) & BITMAP != 0
    }

    /// Its role in the array; none if it is no active member or is still being rebuilt.
    pub(crate) fn role(&self) -> Option<u16> {
        let is_recovered = self.word(8) & RECOVERY == 0 || self.long(152) == IN_SYNC;
        self.role_of(self.word(160)).filter(|_| is_recovered)
    }

    /// The role of this member in another superblock of the array.
    pub(crate) fn role_in(&self, other: &Self) -> Option<u16> {
        other.role_of(self.word(160))
    }

    /// Whether this superblock has a member with that role.
    pub(crate) fn has_role(&self, role: Option<u16>) -> bool {
        (0..self.word(220)).any(|number| self.role_of(number).is_some_and(|known| Some(known) == role))
    }

    fn role_of(&self, number: u32) -> Option<u16> {
        let at = HEADER_BYTES + 2 * number as usize;
        let role =
            (number < self.word(220)).then(|| u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))?;
        (role < NO_MEMBER).then_some(role)
    }

    /// Write it with another mark and number of events.
    pub(crate) fn mark(
        &mut self,
        device: &dyn BlockDevice,
        events: u64,
        in_sync_to: u64,
    ) -> Result<(), IoError> {
        self.bytes[200..208].copy_from_slice(&events.to_le_bytes());
        self.bytes[208..216].copy_from_slice(&in_sync_to.to_le_bytes());
        let checksum = self.checksum();
        self.bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
        let mut memory = AlignedBuf::zeroed(BYTES, BYTES);
        memory.copy_from_slice(&self.bytes);
        device.write_bytes(self.offset, &memory, BioFlags::SYNC | BioFlags::FUA)
    }
}
