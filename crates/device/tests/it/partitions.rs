//! Partition tables: GPT as the `gpt` crate writes it, MBR by hand, and damaged ones.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{Cursor, Write};
use std::sync::Arc;

use diorite_block::{Bio, BioFlags, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Sector};
use diorite_device::{OpenError, PartitionDevice, PartitionKind, has_partitions, partitions};
use diorite_sim::image::ImageDevice;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::{GptConfig, partition_types};

const DISK: usize = 16 << 20;

fn device_of(content: &[u8], logical_block_size: u32) -> Arc<ImageDevice> {
    let geometry = Geometry { logical_block_size, ..ImageDevice::geometry_for(content.len() as u64) };
    let device = ImageDevice::zeroed_with(geometry);
    (&*device as &dyn BlockDevice).write_bytes(0, content, BioFlags::SYNC).unwrap();
    device
}

fn gpt_disk(block: LogicalBlockSize) -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; DISK]);
    let blocks = (DISK as u64 / block.as_u64()) as u32;
    ProtectiveMBR::with_lb_size(blocks - 1).overwrite_lba0(&mut disk).unwrap();
    let config = GptConfig::new().writable(true).logical_block_size(block);
    let mut table = config.create_from_device(disk, None).unwrap();
    table.add_partition("boot", 1 << 20, partition_types::EFI, 0, None).unwrap();
    table.add_partition("data", 8 << 20, partition_types::LINUX_FS, 0, None).unwrap();
    table.write().unwrap().into_inner()
}

fn list(content: &[u8]) -> Result<Vec<diorite_device::Partition>, OpenError> {
    partitions(&*device_of(content, 512))
}

#[test]
fn gpt_of_both_block_sizes_is_read() {
    for (block, logical) in [(LogicalBlockSize::Lb512, 512), (LogicalBlockSize::Lb4096, 4096)] {
        let device = device_of(&gpt_disk(block), logical);
        let found = partitions(&*device).unwrap();
        let facts: Vec<_> = found.iter().map(|p| (p.number, p.name.as_str(), p.len_bytes)).collect();
        assert_eq!(facts, [(1, "boot", 1 << 20), (2, "data", 8 << 20)]);
        assert_eq!(found[1].kind.to_string(), "Linux filesystem");
        let data = PartitionDevice::open(device.clone(), 2).unwrap();
        assert_eq!(
            (data.geometry().capacity_bytes, data.part_of().expect("a window").1),
            (8 << 20, found[1].start)
        );
        assert_eq!(data.name(), "image in memory?partition=2");
    }
}

#[test]
fn missing_partition_lists_those_that_exist() {
    let error = PartitionDevice::open(device_of(&gpt_disk(LogicalBlockSize::Lb512), 512), 7).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no partition 7") && text.contains("1 (EFI system, 1 MiB, \"boot\")"), "{text}");
    assert!(text.contains("2 (Linux filesystem, 8 MiB, \"data\")"), "{text}");
}

#[test]
fn damaged_primary_gpt_is_read_from_the_backup() {
    let mut disk = gpt_disk(LogicalBlockSize::Lb512);
    disk[512..1024].fill(0);
    assert_eq!(list(&disk).unwrap().len(), 2);
}

/// It was taken for an MBR disk with one partition, on which `mkfs` made a filesystem over the whole disk.
#[test]
fn gpt_without_its_headers_is_damaged() {
    for block in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let size = block.as_u64() as usize;
        let mut disk = gpt_disk(block);
        disk[size..2 * size].fill(0);
        disk[DISK - size..].fill(0);
        let device = device_of(&disk, 512);
        for text in [
            partitions(&*device).unwrap_err().to_string(),
            PartitionDevice::open(device.clone(), 1).unwrap_err().to_string(),
        ] {
            assert!(text.contains("its GPT is damaged") && text.contains("sgdisk"), "{text}");
        }
        assert!(has_partitions(&*device), "what it had is not overwritten unasked");
    }
}

/// Numbers that size an allocation are checked first.
#[test]
fn hostile_gpt_sizes_are_refused() {
    for header in [512, DISK - 512] {
        for (at, value) in [(80, u32::MAX), (80, 5000), (84, 0), (84, 129), (84, u32::MAX)] {
            let mut disk = gpt_disk(LogicalBlockSize::Lb512);
            disk[header + at..header + at + 4].copy_from_slice(&value.to_le_bytes());
            let text = list(&disk).unwrap_err().to_string();
            assert!(text.contains("claims"), "{text}");
        }
    }
}

/// No bit of the first 40 sectors can bring the reader down.
#[test]
fn flipped_bits_give_a_table_or_an_error() {
    for block in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let content = gpt_disk(block);
        let device = device_of(&content, 512);
        let write = |at: usize, bytes: &[u8]| {
            (&*device as &dyn BlockDevice).write_bytes(at as u64, bytes, BioFlags::SYNC).unwrap();
        };
        for at in (440..2048).chain(4096..4096 + 92).chain(8192..8192 + 256) {
            let start = at / 512 * 512;
            let mut sector = content[start..start + 512].to_vec();
            sector[at - start] ^= 1 << (at % 8);
            write(start, &sector);
            let _ = partitions(&*device);
            write(start, &content[start..start + 512]);
        }
        assert_eq!(partitions(&*device).unwrap().len(), 2);
    }
}

fn mbr_entry(disk: &mut [u8], record: usize, index: usize, kind: u8, start: u32, sectors: u32) {
    let at = record * 512 + 446 + 16 * index;
    disk[at + 4] = kind;
    disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
    disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    disk[record * 512 + 510..record * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
}

/// Two primaries and a chain of three logical ones.
fn mbr_disk() -> Vec<u8> {
    let mut disk = vec![0; DISK];
    mbr_entry(&mut disk, 0, 0, 0x83, 63, 2048);
    mbr_entry(&mut disk, 0, 1, 0x05, 4096, 20000);
    mbr_entry(&mut disk, 0, 3, 0x82, 30000, 1000);
    for (index, record) in [4096, 8192, 12288].into_iter().enumerate() {
        mbr_entry(&mut disk, record, 0, 0x83, 64, 2000 + index as u32);
        if record < 12288 {
            mbr_entry(&mut disk, record, 1, 0x05, (record + 4096 - 4096) as u32, 4096);
        }
    }
    disk
}

#[test]
fn mbr_with_logical_partitions_is_read() {
    let found = list(&mbr_disk()).unwrap();
    let facts: Vec<_> = found.iter().map(|p| (p.number, p.start.0, p.len_bytes / 512)).collect();
    let expected = [(1, 63, 2048), (4, 30000, 1000), (5, 4160, 2000), (6, 8256, 2001), (7, 12352, 2002)];
    assert_eq!(facts, expected);
    assert_eq!(found[1].kind, PartitionKind::Mbr(0x82));
}

/// A disk with sectors of its own size.
#[derive(Debug)]
struct Disk(Arc<ImageDevice>, u32);

impl BlockDevice for Disk {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }
    fn counters(&self) -> &IoCounters {
        self.0.counters()
    }
    fn name(&self) -> String {
        self.0.name()
    }
    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        self.0.execute(bios)
    }
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Arc::clone(&self.0).open_queue(depth)
    }
    fn table_sector_bytes(&self) -> u32 {
        self.1
    }
}

/// Partitions of such a disk were placed at an eighth of where they are, and a write to one destroyed what lies there.
#[test]
fn mbr_counts_in_sectors_of_the_disk() {
    let mut content = vec![0; DISK];
    mbr_entry(&mut content, 0, 0, 0x83, 16, 256);
    mbr_entry(&mut content, 0, 1, 0x05, 512, 2048);
    mbr_entry(&mut content, 512 * 8, 0, 0x83, 8, 128);
    mbr_entry(&mut content, 512 * 8, 1, 0x05, 256, 512);
    mbr_entry(&mut content, 768 * 8, 0, 0x83, 8, 64);
    // Whether it is used directly or not.
    for logical in [512, 4096] {
        let disk = Arc::new(Disk(device_of(&content, logical), 4096));
        let found = partitions(&*disk).unwrap();
        let facts: Vec<_> = found.iter().map(|p| (p.number, p.start.0 / 8, p.len_bytes / 4096)).collect();
        assert_eq!(facts, [(1, 16, 256), (5, 520, 128), (6, 776, 64)]);
        assert_eq!(PartitionDevice::open(disk, 5).unwrap().part_of().expect("a window").1, Sector(520 * 8));
    }
}

/// A GPT that an MBR was written over (`fdisk` of old wrote one sector) was used all the same.
#[test]
fn a_gpt_under_another_table_is_not_used() {
    let mut disk = gpt_disk(LogicalBlockSize::Lb512);
    disk[..512].fill(0);
    mbr_entry(&mut disk, 0, 0, 0x83, 2048, 4096);
    let found = list(&disk).unwrap();
    assert_eq!(found.iter().map(|p| (p.number, p.start.0)).collect::<Vec<_>>(), [(1, 2048)]);
    // Beside its own entry there may be others.
    mbr_entry(&mut disk, 0, 1, 0xee, 1, 2047);
    assert_eq!(list(&disk).unwrap().len(), 2);
    // Without any table over it, it is damaged: not used, and not overwritten unasked.
    disk[..512].fill(0);
    let text = list(&disk).unwrap_err().to_string();
    assert!(text.contains("no protective entry") && text.contains("sgdisk"), "{text}");
    assert!(has_partitions(&*device_of(&disk, 512)));
}

#[test]
fn circular_chain_of_logical_partitions_ends() {
    let mut disk = mbr_disk();
    mbr_entry(&mut disk, 12288, 1, 0x05, 0, 4096);
    let text = list(&disk).unwrap_err().to_string();
    assert!(text.contains("circular"), "{text}");
    mbr_entry(&mut disk, 12288, 1, 0x05, u32::MAX, 4096);
    assert!(list(&disk).unwrap_err().to_string().contains("past the end"));
}

#[test]
fn no_table_is_told_with_the_cure() {
    let text = list(&vec![0; DISK]).unwrap_err().to_string();
    assert!(text.contains("neither a GPT nor an MBR") && text.contains("without ?partition"), "{text}");
    assert!(list(&[0; 512]).is_err());
}

#[test]
fn partition_behind_the_end_or_between_blocks_is_refused() {
    let mut disk = mbr_disk();
    mbr_entry(&mut disk, 0, 0, 0x83, 40000, 2048);
    let text = PartitionDevice::open(device_of(&disk, 512), 1).unwrap_err().to_string();
    assert!(
        text.contains("partition 1 ends beyond the device") && text.contains("correct the table"),
        "{text}"
    );
    let text = PartitionDevice::open(device_of(&mbr_disk(), 4096), 1).unwrap_err().to_string();
    assert!(text.contains("not a multiple") && text.contains("without --direct"), "{text}");
}

#[test]
fn partition_shows_its_own_bytes() {
    let mut content = mbr_disk();
    (&mut content[63 * 512..]).write_all(b"first bytes of the partition").unwrap();
    let part = PartitionDevice::open(device_of(&content, 512), 1).unwrap();
    assert_eq!(part.part_of().expect("a window").1, Sector(63));
    let mut block = [0; 512];
    (&*part as &dyn BlockDevice).read_bytes(0, &mut block).unwrap();
    assert!(block.starts_with(b"first bytes of the partition"));
}

/// A chain that is cut takes nothing from the partitions before the cut.
#[test]
fn partitions_before_a_cut_chain_are_opened() {
    let mut disk = mbr_disk();
    disk[12288 * 512 + 510] = 0;
    let device = device_of(&disk, 512);
    assert!(partitions(&*device).unwrap_err().to_string().contains("sector 12288 has no signature"));
    assert!(has_partitions(&*device) && !has_partitions(&*device_of(&vec![0; DISK], 512)));
    for (number, start) in [(1, 63), (4, 30000), (5, 4160), (6, 8256)] {
        assert_eq!(
            PartitionDevice::open(device.clone(), number).unwrap().part_of().expect("a window").1,
            Sector(start)
        );
    }
    let text = PartitionDevice::open(device, 7).unwrap_err().to_string();
    assert!(text.contains("sector 12288 has no signature") && text.contains("6 (Linux"), "{text}");
}
