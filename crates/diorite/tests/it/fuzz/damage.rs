//! Damage: fields set to harmful values, structures copied over others, bits flipped.

use diorite_ext::layout::{DiskInode, GroupDescriptor, directory, extent, htree, orphan, xattr};
use diorite_ext::{FsBlock, GroupNumber, InodeNumber};

use super::Random;
use super::places::{Kind, Place, Places};

/// Change the image in a few places; returns where and how.
pub(super) fn damage(bytes: &mut [u8], places: &Places, random: &mut Random) -> Vec<String> {
    let most = if random.one_in(3) { 12 } else { 3 };
    let count = 1 + random.below(most);
    (0..count).map(|_| one(bytes, places, random)).collect()
}

fn one(bytes: &mut [u8], places: &Places, random: &mut Random) -> String {
    let class = &places.classes[random.index(places.classes.len())];
    let place = class[random.index(class.len())];
    let what = match random.below(10) {
        0 => flip(bytes, place, random),
        1 => {
            let from = class[random.index(class.len())];
            let len = place.len.min(from.len);
            bytes.copy_within(from.offset..from.offset + len, place.offset);
            format!("{:?} copied from {:#x}", place.kind, from.offset)
        }
        2 if random.one_in(3) => {
            let fill = [0, 0xff, random.next() as u8][random.index(3)];
            bytes[place.offset..place.offset + place.len].fill(fill);
            format!("{:?} filled with {fill:#x}", place.kind)
        }
        _ => set_field(bytes, place, places, random),
    };
    if !random.one_in(5) {
        seal(bytes, place, places);
    }
    what
}

/// Offsets within a structure: mostly its head, where the fields that steer are.
fn offset_in(place: Place, unit: usize, random: &mut Random) -> usize {
    let reach = if random.one_in(3) { place.len } else { place.len.min(64) };
    place.offset + random.index(reach / unit) * unit
}

fn flip(bytes: &mut [u8], place: Place, random: &mut Random) -> String {
    let (at, bit) = (offset_in(place, 1, random), random.below(8));
    bytes[at] ^= 1 << bit;
    format!("{:?} +{:#x} bit {bit} flipped", place.kind, at - place.offset)
}

fn set_field(bytes: &mut [u8], place: Place, places: &Places, random: &mut Random) -> String {
    let width = [1, 2, 4, 4][random.index(4)];
    let at = offset_in(place, width, random);
    let mut field = [0; 8];
    field[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(field);
    let value = match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ (1 << random.below(width as u64 * 8)),
        5 => 1 << random.below(width as u64 * 8),
        6 => places.superblock.blocks_count().wrapping_add(random.below(3)).wrapping_sub(1),
        7 => {
            // The block of another structure.
            let class = &places.classes[random.index(places.classes.len())];
            class[random.index(class.len())].offset as u64 / places.superblock.block_size().bytes()
        }
        8 => random.below(64),
        _ => random.next(),
    };
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    format!("{:?} +{:#x} {width} bytes {old:#x} -> {value:#x}", place.kind, at - place.offset)
}

/// Make a structure's checksum right again, so that the damage is met after it.
fn seal(bytes: &mut [u8], place: Place, places: &Places) {
    let superblock = &places.superblock;
    let of_inode = |bytes: &[u8], number: u32| {
        let inode = places.classes.iter().flatten().find(|place| place.kind == Kind::Inode { number });
        let at = inode.expect("owners are found before what they own").offset + 0x64;
        let generation = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        superblock.checksum_seed().of_inode(InodeNumber(number), generation)
    };
    if let Kind::Descriptor { group } = place.kind {
        let record = &mut bytes[place.offset..place.offset + place.len];
        if let Some(checksum) = GroupDescriptor::checksum(record, GroupNumber(group), superblock) {
            record[0x1e..0x20].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    if !superblock.features().metadata_csum() {
        return;
    }
    let range = place.offset..place.offset + place.len;
    match place.kind {
        Kind::Superblock => {
            let checksum = diorite_ext::layout::checksum::crc32c(!0, &bytes[1024..1024 + 1020]);
            bytes[1024 + 1020..2048].copy_from_slice(&checksum.to_le_bytes());
        }
        Kind::Inode { number } => {
            DiskInode::set_checksum(InodeNumber(number), &mut bytes[range], superblock);
        }
        Kind::Extents { number } => {
            let seed = of_inode(bytes, number);
            if extent::Header::parse(&bytes[range.clone()]).is_ok() {
                extent::set_checksum(&mut bytes[range], seed);
            }
        }
        Kind::Directory { number } => {
            let seed = of_inode(bytes, number);
            let block = &mut bytes[range];
            if directory::is_tail(block) {
                directory::set_checksum(block, seed);
            }
            for entries in [htree::NODE_ENTRIES, htree::ROOT_ENTRIES] {
                if htree::CountLimit::parse(block, entries, true).is_ok() {
                    htree::set_checksum(block, entries, seed);
                }
            }
        }
        Kind::Xattr { block } => {
            xattr::set_checksum(&mut bytes[range], FsBlock(block), superblock.checksum_seed());
        }
        Kind::Orphans { number, block } => {
            let seed = of_inode(bytes, number);
            orphan::write_tail(&mut bytes[range], FsBlock(block), Some(seed));
        }
        Kind::Descriptor { .. } | Kind::Bitmap | Kind::Pointers | Kind::Journal | Kind::Data => {}
    }
}
