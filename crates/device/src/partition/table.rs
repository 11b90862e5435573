//! Partition tables: GPT, and MBR with its chain of logical partitions.
//!
//! Where it sits: read when a partition is opened or listed, and never written.
//!
//! On disk: GPT as in the UEFI specification (header in block 1 and in the last block), read by the `gpt` crate after its
//! sizes were checked here. MBR: boot signature 0x55AA at byte 510; four entries of 16 bytes from byte 446 (type
//! at 4, first sector at 8, sectors at 12, little-endian, in sectors of the disk); an extended partition (type 0x05, 0x0F or 0x85)
//! starts a chain of boot records, each with one logical partition and the address of the next.
//!
//! As in the kernel, a GPT counts only if the MBR has a protective entry. Otherwise a newer MBR has replaced it.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

use diorite_block::{BlockDevice, IoError, SECTOR_SIZE, Sector};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;

use crate::error::OpenError;
use crate::memory::buffer::AlignedBuf;

/// Most entries of a GPT; 128 are usual. A larger table is an attack.
const GPT_ENTRIES_MAX: u32 = 4096;
const GPT_ENTRY_BYTES: u32 = 128;
/// Type of the protective MBR entry of a GPT.
const PROTECTIVE: u8 = 0xee;
/// Linux has partitions up to sda255.
const LOGICAL_PARTITIONS_MAX: u32 = 255;

/// The type of a partition in its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// Type of an MBR entry.
    Mbr(u8),
    /// Type GUID of a GPT entry.
    Gpt(String),
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self {
            Self::Mbr(0x83) => "Linux",
            Self::Mbr(0x82) => "Linux swap",
            Self::Mbr(0x8e) => "Linux LVM",
            Self::Mbr(0x0b | 0x0c) => "FAT32",
            Self::Mbr(0x07) => "NTFS or exFAT",
            Self::Mbr(0xef) => "EFI system",
            Self::Mbr(other) => return write!(f, "type {other:#04x}"),
            Self::Gpt(guid) => match guid.to_ascii_uppercase().as_str() {
                "0FC63DAF-8483-4772-8E79-3D69D8477DE4" => "Linux filesystem",
                "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709" => "Linux root (x86-64)",
                "B921B045-1DF0-41C3-AF44-4C6F280D3FAE" => "Linux root (ARM64)",
                "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F" => "Linux swap",
                "E6D6D379-F507-44C2-A23C-238F2A3DF928" => "Linux LVM",
                "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" => "EFI system",
                "21686148-6449-6E6F-744E-656564454649" => "BIOS boot",
                "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7" => "Microsoft basic data",
                _ => return write!(f, "type {guid}"),
            },
        };
        f.write_str(known)
    }
}

/// An entry of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The number for `?partition=`: 1 to 4 and from 5 on (logical) for MBR, the index in the table for GPT.
    pub number: u32,
    /// Its type.
    pub kind: PartitionKind,
    /// Its name; empty for MBR.
    pub name: String,
    /// First sector on the device.
    pub start: Sector,
    /// Length in bytes.
    pub len_bytes: u64,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} MiB", self.number, self.kind, self.len_bytes >> 20)?;
        if !self.name.is_empty() {
            write!(f, ", {:?}", self.name)?;
        }
        f.write_str(")")
    }
}

/// The partitions in words, for messages.
fn describe(partitions: &[Partition]) -> String {
    if partitions.is_empty() {
        return "the table has none".to_owned();
    }
    let list: Vec<_> = partitions.iter().map(Partition::to_string).collect();
    format!("there is {}", list.join(", "))
}

/// A partition table.
struct Table {
    partitions: Vec<Partition>,
    /// Why partitions may be missing: the chain of logical partitions ends too early.
    cut: Option<String>,
}

/// Read the partition table of a device.
///
/// # Errors
/// There is no table, it is damaged, or the device failed.
pub fn partitions(device: &dyn BlockDevice) -> Result<Vec<Partition>, OpenError> {
    let table = read(device)?;
    let whole = "repair the table with fdisk, or name one of the partitions before that";
    table.cut.map_or(Ok(table.partitions), |why| Err(no_table(device, format!("{why}; {whole}"))))
}

/// Whether the device has a partition table with entries, or a damaged one.
pub fn has_partitions(device: &dyn BlockDevice) -> bool {
    match find(device) {
        Ok(Some(table)) => !table.partitions.is_empty() || table.cut.is_some(),
        Ok(None) => false,
        Err(error) => matches!(error, OpenError::NoPartitionTable { .. }),
    }
}

/// The partition with this number. A truncated chain of logical partitions counts up to the break.
pub(crate) fn partition(device: &dyn BlockDevice, number: u32) -> Result<Partition, OpenError> {
    let Table { mut partitions, cut } = read(device)?;
    if let Some(index) = partitions.iter().position(|partition| partition.number == number) {
        return Ok(partitions.swap_remove(index));
    }
    let mut existing = describe(&partitions);
    if let Some(why) = cut {
        existing = format!("{why}; {existing}");
    }
    Err(OpenError::NoSuchPartition { device: device.name(), number, existing })
}

fn read(device: &dyn BlockDevice) -> Result<Table, OpenError> {
    let none = "neither a GPT nor an MBR signature was found; open the device without ?partition";
    find(device)?.ok_or_else(|| no_table(device, none.to_owned()))
}

/// The table of a device, if it has one.
fn find(device: &dyn BlockDevice) -> Result<Option<Table>, OpenError> {
    let Some(mut reader) = Reader::new(device) else { return Ok(None) };
    let mut boot = [0; 512];
    reader.read_at(0, &mut boot)?;
    let mbr = Entry::all_of(&boot);
    let has = |test: fn(Entry) -> bool| mbr.is_some_and(|entries| entries.into_iter().any(test));
    if has(|entry| entry.kind == PROTECTIVE) {
        let block = reader.gpt_block()?;
        // The protective entry covers the whole disk.
        let block = block.ok_or_else(|| damaged_gpt(device, "both of its headers are missing"))?;
        return Ok(Some(Table { partitions: read_gpt(&mut reader, block)?, cut: None }));
    }
    if !has(Entry::is_used) && reader.primary_header()?.is_some() {
        return Err(damaged_gpt(device, "the MBR has no protective entry"));
    }
    Ok(mbr.map(|entries| read_mbr(&mut reader, entries)))
}

fn damaged_gpt(device: &dyn BlockDevice, why: impl fmt::Display) -> OpenError {
    no_table(device, format!("its GPT is damaged ({why}); repair it with gdisk or sgdisk"))
}

fn no_table(device: &dyn BlockDevice, why: String) -> OpenError {
    OpenError::NoPartitionTable { device: device.name(), why }
}

fn read_gpt(reader: &mut Reader<'_>, block: LogicalBlockSize) -> Result<Vec<Partition>, OpenError> {
    let device = reader.device;
    // The crate allocates memory for these numbers without a check.
    let last = (reader.len() / block.as_u64()).saturating_sub(1) * block.as_u64();
    for header in [block.as_u64(), last] {
        if reader.signature_at(header)? {
            let mut sizes = [0; 8];
            reader.read_at(header + 80, &mut sizes)?;
            let [entries, entry_bytes] = [number_at(&sizes, 0), number_at(&sizes, 4)];
            if entries > GPT_ENTRIES_MAX || entry_bytes != GPT_ENTRY_BYTES {
                let why = format!("that at byte {header} claims {entries} entries of {entry_bytes} bytes");
                return Err(damaged_gpt(device, why));
            }
        }
    }
    let config = GptConfig::new().writable(false).logical_block_size(block);
    let disk = config.open_from_device(&mut *reader).map_err(|error| damaged_gpt(device, error))?;
    let mut found = Vec::new();
    for (number, entry) in disk.partitions().iter().filter(|(_, entry)| entry.is_used()) {
        let range = entry.bytes_start(block).and_then(|start| Ok((start, entry.bytes_len(block)?)));
        let (start, len_bytes) =
            range.map_err(|error| damaged_gpt(device, format!("partition {number}: {error}")))?;
        let kind = PartitionKind::Gpt(entry.part_type_guid.guid.to_string());
        let start = Sector::containing(start);
        found.push(Partition { number: *number, kind, name: entry.name.clone(), start, len_bytes });
    }
    Ok(found)
}

/// An entry of an MBR or of a boot record in the chain of logical partitions.
#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    /// The four entries of a boot record, if it has the signature.
    fn all_of(boot: &[u8; 512]) -> Option<[Self; 4]> {
        (boot[510..] == [0x55, 0xaa]).then(|| {
            std::array::from_fn(|index| {
                let at = 446 + 16 * index;
                Self { kind: boot[at + 4], start: number_at(boot, at + 8), sectors: number_at(boot, at + 12) }
            })
        })
    }

    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    /// `sector_units` is the number of 512-byte units in a sector of the disk.
    fn partition(self, number: u32, base: u64, sector_units: u64) -> Partition {
        Partition {
            number,
            kind: PartitionKind::Mbr(self.kind),
            name: String::new(),
            start: Sector((base + u64::from(self.start)) * sector_units),
            len_bytes: u64::from(self.sectors) * sector_units * SECTOR_SIZE,
        }
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn read_mbr(reader: &mut Reader<'_>, entries: [Entry; 4]) -> Table {
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        if entry.is_used() && !entry.is_extended() {
            partitions.push(entry.partition(number, 0, reader.sector_units()));
        }
    }
    let mut cut = None;
    // DOS and Linux use only the first extended partition.
    if let Some(extended) = entries.into_iter().find(|entry| entry.is_used() && entry.is_extended()) {
        cut = read_logical(reader, u64::from(extended.start), &mut partitions).err();
    }
    Table { partitions, cut }
}

/// Append the logical partitions. The error says in words where the chain is cut.
fn read_logical(reader: &mut Reader<'_>, base: u64, found: &mut Vec<Partition>) -> Result<(), String> {
    let (primary, mut at) = (found.len(), base);
    let units = reader.sector_units();
    for number in 5..=LOGICAL_PARTITIONS_MAX {
        let mut boot = [0; 512];
        let record = format!("a logical partition's record at sector {at}");
        let Some(offset) = at.checked_mul(units * SECTOR_SIZE).filter(|offset| *offset < reader.len()) else {
            return Err(format!("{record} is past the end"));
        };
        reader.read_at(offset, &mut boot).map_err(|error| format!("{record} cannot be read: {error}"))?;
        let Some(entries) = Entry::all_of(&boot) else {
            return Err(format!("{record} has no signature"));
        };
        let [logical, next, ..] = entries;
        if logical.is_used() && !logical.is_extended() {
            found.push(logical.partition(number, at, units));
        }
        if !next.is_used() || !next.is_extended() {
            return Ok(());
        }
        at = base + u64::from(next.start);
    }
    // Some of them were read repeatedly.
    found.truncate(primary);
    Err(format!("more than {LOGICAL_PARTITIONS_MAX} partitions, so their chain may be circular"))
}

/// A device as a file, read through one block of aligned memory.
#[derive(Debug)]
struct Reader<'a> {
    device: &'a dyn BlockDevice,
    position: u64,
    block: AlignedBuf,
    /// The offset of the block in memory.
    loaded: Option<u64>,
}

impl<'a> Reader<'a> {
    /// A reader; none if the device is too small for a table.
    fn new(device: &'a dyn BlockDevice) -> Option<Self> {
        let geometry = device.geometry();
        let len = (geometry.logical_block_size as usize).max(4096);
        let is_large_enough = geometry.capacity_bytes >= 4096;
        is_large_enough.then(|| Self {
            device,
            position: 0,
            block: AlignedBuf::zeroed(len, len),
            loaded: None,
        })
    }

    fn len(&self) -> u64 {
        self.device.geometry().capacity_bytes
    }

    /// Fill `memory` from `offset`; beyond the end there are zeros.
    fn read_at(&mut self, mut offset: u64, mut memory: &mut [u8]) -> Result<(), IoError> {
        let block_bytes = self.block.len() as u64;
        while !memory.is_empty() {
            let (start, within) = (offset - offset % block_bytes, (offset % block_bytes) as usize);
            if self.loaded != Some(start) {
                self.load(start)?;
            }
            let len = memory.len().min(self.block.len() - within);
            let (now, later) = memory.split_at_mut(len);
            now.copy_from_slice(&self.block[within..within + len]);
            offset += len as u64;
            memory = later;
        }
        Ok(())
    }

    fn load(&mut self, start: u64) -> Result<(), IoError> {
        self.loaded = None;
        let there = self.len().saturating_sub(start).min(self.block.len() as u64) as usize;
        self.block[there..].fill(0);
        if there > 0 {
            self.device.read_bytes(start, &mut self.block[..there])?;
        }
        self.loaded = Some(start);
        Ok(())
    }

    fn signature_at(&mut self, offset: u64) -> Result<bool, IoError> {
        let mut signature = [0; 8];
        self.read_at(offset, &mut signature)?;
        Ok(&signature == b"EFI PART")
    }

    /// The number of 512-byte units in a sector of the disk.
    fn sector_units(&self) -> u64 {
        u64::from(self.device.table_sector_bytes()) / SECTOR_SIZE
    }

    /// Block sizes that a GPT may have, that of the disk first. An image does not record the block size of its disk.
    fn gpt_blocks(&self) -> [LogicalBlockSize; 2] {
        match self.device.table_sector_bytes() {
            512 => [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096],
            _ => [LogicalBlockSize::Lb4096, LogicalBlockSize::Lb512],
        }
    }

    /// The block size of a GPT whose primary header is present.
    fn primary_header(&mut self) -> Result<Option<LogicalBlockSize>, IoError> {
        for block in self.gpt_blocks() {
            if self.signature_at(block.as_u64())? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// The block size of a GPT with a primary or backup header.
    fn gpt_block(&mut self) -> Result<Option<LogicalBlockSize>, IoError> {
        if let Some(block) = self.primary_header()? {
            return Ok(Some(block));
        }
        for block in self.gpt_blocks() {
            let last = (self.len() / block.as_u64()).saturating_sub(1);
            if self.signature_at(last * block.as_u64())? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let len = self.len().saturating_sub(self.position).min(memory.len() as u64) as usize;
        self.read_at(self.position, &mut memory[..len]).map_err(io::Error::other)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// The `gpt` crate requires it, even for reads.
impl Write for Reader<'_> {
    fn write(&mut self, _memory: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
