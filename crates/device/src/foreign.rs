//! What a device holds that this program does not read: filesystems, swap, encrypted volumes, images of virtual disks. So that nothing
//! overwrites it unasked.
//!
//! Known by the magic bytes that each format documents. The list is of what is met on disks today; what is not in it is not found.

use diorite_block::BlockDevice;

use crate::arrays::read;

/// A format: what it is called, and bytes at an offset of which each alone is a sign of it.
struct Format(&'static str, &'static [(u64, &'static [u8])]);

const FORMATS: &[Format] = &[
    Format("an XFS filesystem", &[(0, b"XFSB")]),
    Format("a btrfs filesystem", &[(0x10040, b"_BHRfS_M")]),
    Format(
        "swap space",
        // At the end of the first page, whose size is the machine's.
        &[
            (0xff6, b"SWAPSPACE2"),
            (0x1ff6, b"SWAPSPACE2"),
            (0x3ff6, b"SWAPSPACE2"),
            (0xfff6, b"SWAPSPACE2"),
            (0xff6, b"SWAP-SPACE"),
        ],
    ),
    Format("an encrypted volume (LUKS)", &[(0, b"LUKS\xba\xbe")]),
    Format("an encrypted volume (BitLocker)", &[(3, b"-FVE-FS-")]),
    Format("an NTFS filesystem", &[(3, b"NTFS    ")]),
    Format("a ReFS filesystem", &[(3, b"ReFS\0\0\0\0")]),
    Format("an exFAT filesystem", &[(3, b"EXFAT   ")]),
    Format("a FAT filesystem", &[(54, b"FAT12   "), (54, b"FAT16   "), (82, b"FAT32   ")]),
    Format("an F2FS filesystem", &[(1024, &0xf2f5_2010_u32.to_le_bytes())]),
    Format("an EROFS filesystem", &[(1024, &0xe0f5_e1e2_u32.to_le_bytes())]),
    Format("a SquashFS filesystem", &[(0, b"hsqs")]),
    Format(
        "a bcache device",
        &[(0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")],
    ),
    Format(
        "a bcachefs filesystem",
        &[(0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")],
    ),
    Format("an ISO 9660 filesystem", &[(0x8001, b"CD001")]),
    Format("a UDF filesystem", &[(0x8001, b"BEA01")]),
    Format("a JFS filesystem", &[(0x8000, b"JFS1")]),
    Format(
        "a ReiserFS filesystem",
        &[(0x10034, b"ReIsErFs"), (0x10034, b"ReIsEr2Fs"), (0x10034, b"ReIsEr3Fs")],
    ),
    Format("a GFS2 filesystem", &[(0x10000, &0x0116_1970_u32.to_be_bytes())]),
    Format(
        "an OCFS2 filesystem",
        &[(1024, b"OCFSV2"), (2048, b"OCFSV2"), (4096, b"OCFSV2"), (8192, b"OCFSV2")],
    ),
    Format(
        "a UFS filesystem",
        &[(0x1055c, &0x1954_0119_u32.to_le_bytes()), (0x255c, &0x0001_1954_u32.to_le_bytes())],
    ),
    Format("an APFS container", &[(32, b"NXSB")]),
    Format("an HFS+ filesystem", &[(1024, b"H+\0\x04"), (1024, b"HX\0\x05")]),
    Format("a VDO device", &[(0, b"dmvdo001")]),
    Format("a device of Ceph", &[(0, b"bluestore block device")]),
    Format("an image of QEMU", &[(0, b"QFI\xfb")]),
    Format("an image of Hyper-V", &[(0, b"vhdxfile")]),
    Format("an image of VMware", &[(0, b"KDMV")]),
];

/// Where the uberblocks of ZFS's first label lie, and the distance between them.
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 128 << 10..256 << 10;
const ZFS_STEP: usize = 1024;
const ZFS_MAGIC: u64 = 0x00ba_b10c;

/// What a device holds that is none of our formats, if it is known; what cannot be read is not.
pub fn foreign_content(device: &dyn BlockDevice) -> Option<&'static str> {
    let has = |offset: u64, magic: &[u8]| {
        offset + magic.len() as u64 <= device.geometry().capacity_bytes
            && read(device, offset, magic.len()).is_ok_and(|found| found == magic)
    };
    let is_there = |format: &&Format| format.1.iter().any(|(offset, magic)| has(*offset, magic));
    let found = FORMATS.iter().find(is_there).map(|format| format.0);
    found.or_else(|| is_zfs(device).then_some("a pool of ZFS"))
}

fn is_zfs(device: &dyn BlockDevice) -> bool {
    if device.geometry().capacity_bytes < ZFS_UBERBLOCKS.end {
        return false;
    }
    let len = (ZFS_UBERBLOCKS.end - ZFS_UBERBLOCKS.start) as usize;
    let has_magic = |block: &[u8]| {
        let word = block[..8].try_into().expect("eight bytes");
        [u64::from_le_bytes(word), u64::from_be_bytes(word)].contains(&ZFS_MAGIC)
    };
    read(device, ZFS_UBERBLOCKS.start, len).is_ok_and(|found| found.chunks(ZFS_STEP).any(has_magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, MemoryDevice};

    /// Each sign is found where it stands, and nothing in an empty device or one that is too small.
    #[test]
    fn formats_are_known_by_their_signs() {
        const ZFS: Format = Format("a pool of ZFS", &[((128 << 10) + 5 * 1024, &ZFS_MAGIC.to_le_bytes())]);
        for format in FORMATS.iter().chain([&ZFS]) {
            for (offset, magic) in format.1 {
                let device: std::sync::Arc<dyn BlockDevice> = MemoryDevice::new(1 << 20);
                assert_eq!(foreign_content(&*device), None);
                let start = offset / 4096 * 4096;
                let mut block = AlignedBuf::zeroed(8192, 4096);
                block[(offset - start) as usize..][..magic.len()].copy_from_slice(magic);
                device.write_bytes(start, &block, diorite_block::BioFlags::NONE).expect("write");
                assert_eq!(foreign_content(&*device), Some(format.0));
            }
        }
        assert_eq!(foreign_content(&*MemoryDevice::new(4096)), None);
    }
}
