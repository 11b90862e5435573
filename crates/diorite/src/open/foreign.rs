//! Foreign formats: other filesystems, swap, encrypted volumes, images of virtual disks, archives. They are detected for messages, and so that a
//! command does not overwrite them by mistake.
//!
//! Detection is by the magic bytes that each format documents. The list has the formats common on disks today.

use diorite_block::BlockDevice;

use diorite_device::read_unaligned;

/// A foreign format.
#[derive(Debug)]
pub struct ForeignFormat {
    /// Its name: "an XFS filesystem".
    pub name: &'static str,
    /// The way to get a volume from it, or the reason why that is not possible.
    pub advice: &'static str,
    /// Magic bytes at offsets. One of them identifies the format.
    signs: &'static [(u64, &'static [u8])],
}

const fn format(
    name: &'static str,
    advice: &'static str,
    signs: &'static [(u64, &'static [u8])],
) -> ForeignFormat {
    ForeignFormat { name, advice, signs }
}

const NOT_READ: &str = "only ext2, ext3 and ext4 are supported";
const CONVERT: &str = "convert it first (qemu-img convert -O raw)";
const UNLOCK: &str = "unlock it first (cryptsetup open) and give the new device";

const FORMATS: &[ForeignFormat] = &[
    format("an XFS filesystem", NOT_READ, &[(0, b"XFSB")]),
    format("a btrfs filesystem", NOT_READ, &[(0x10040, b"_BHRfS_M")]),
    format(
        "swap space",
        NOT_READ,
        // At the end of the first page of the machine.
        &[
            (0xff6, b"SWAPSPACE2"),
            (0x1ff6, b"SWAPSPACE2"),
            (0x3ff6, b"SWAPSPACE2"),
            (0xfff6, b"SWAPSPACE2"),
            (0xff6, b"SWAP-SPACE"),
        ],
    ),
    format("an encrypted volume (LUKS)", UNLOCK, &[(0, b"LUKS\xba\xbe")]),
    format("an encrypted volume (BitLocker)", UNLOCK, &[(3, b"-FVE-FS-")]),
    format("an NTFS filesystem", NOT_READ, &[(3, b"NTFS    ")]),
    format("a ReFS filesystem", NOT_READ, &[(3, b"ReFS\0\0\0\0")]),
    format("an exFAT filesystem", NOT_READ, &[(3, b"EXFAT   ")]),
    format("a FAT filesystem", NOT_READ, &[(54, b"FAT12   "), (54, b"FAT16   "), (82, b"FAT32   ")]),
    format("an F2FS filesystem", NOT_READ, &[(1024, &0xf2f5_2010_u32.to_le_bytes())]),
    format("an EROFS filesystem", NOT_READ, &[(1024, &0xe0f5_e1e2_u32.to_le_bytes())]),
    format("a SquashFS filesystem", NOT_READ, &[(0, b"hsqs")]),
    format(
        "a bcache device",
        NOT_READ,
        &[(0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")],
    ),
    format(
        "a bcachefs filesystem",
        NOT_READ,
        &[(0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")],
    ),
    format("an ISO 9660 filesystem", NOT_READ, &[(0x8001, b"CD001")]),
    format("a UDF filesystem", NOT_READ, &[(0x8001, b"BEA01")]),
    format("a JFS filesystem", NOT_READ, &[(0x8000, b"JFS1")]),
    format(
        "a ReiserFS filesystem",
        NOT_READ,
        &[(0x10034, b"ReIsErFs"), (0x10034, b"ReIsEr2Fs"), (0x10034, b"ReIsEr3Fs")],
    ),
    format("a GFS2 filesystem", NOT_READ, &[(0x10000, &0x0116_1970_u32.to_be_bytes())]),
    format(
        "an OCFS2 filesystem",
        NOT_READ,
        &[(1024, b"OCFSV2"), (2048, b"OCFSV2"), (4096, b"OCFSV2"), (8192, b"OCFSV2")],
    ),
    format(
        "a UFS filesystem",
        NOT_READ,
        &[(0x1055c, &0x1954_0119_u32.to_le_bytes()), (0x255c, &0x0001_1954_u32.to_le_bytes())],
    ),
    format("an APFS container", NOT_READ, &[(32, b"NXSB")]),
    format("an HFS+ filesystem", NOT_READ, &[(1024, b"H+\0\x04"), (1024, b"HX\0\x05")]),
    format("a VDO device", NOT_READ, &[(0, b"dmvdo001")]),
    format("a device of Ceph", NOT_READ, &[(0, b"bluestore block device")]),
    format("an image of QEMU (qcow2)", CONVERT, &[(0, b"QFI\xfb")]),
    format("an image of Hyper-V (VHDX)", CONVERT, &[(0, b"vhdxfile")]),
    format("an image of VMware (VMDK)", CONVERT, &[(0, b"KDMV")]),
    format("an image of VirtualBox (VDI)", CONVERT, &[(64, b"\x7f\x10\xda\xbe")]),
    format("an Android sparse image", "convert it first (simg2img)", &[(0, b"\x3a\xff\x26\xed")]),
    format("compressed", "decompress it first (gunzip)", &[(0, b"\x1f\x8b\x08")]),
    format("compressed", "decompress it first (unxz)", &[(0, b"\xfd7zXZ\0")]),
    format("compressed", "decompress it first (unzstd)", &[(0, b"\x28\xb5\x2f\xfd")]),
    format("compressed", "decompress it first (bunzip2)", &[(0, b"BZh")]),
    format("a zip archive", "unpack it first (unzip)", &[(0, b"PK\x03\x04")]),
    format("a tar archive", "`diorite mkfs -d` makes an image of one", &[(257, b"ustar")]),
];

/// The uberblocks of the first label of ZFS, and the distance between them.
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 128 << 10..256 << 10;
const ZFS_STEP: usize = 1024;
const ZFS_MAGIC: u64 = 0x00ba_b10c;

/// The format of a content. `has` tells whether the bytes are at the offset.
pub fn foreign_format(has: impl Fn(u64, &[u8]) -> bool) -> Option<&'static ForeignFormat> {
    FORMATS.iter().find(|format| format.signs.iter().any(|(offset, sign)| has(*offset, sign)))
}

/// The foreign format on a device, if it is known and can be read.
pub(crate) fn foreign_content(device: &dyn BlockDevice) -> Option<&'static str> {
    let has = |offset: u64, sign: &[u8]| {
        offset + sign.len() as u64 <= device.geometry().capacity_bytes
            && read_unaligned(device, offset, sign.len()).is_ok_and(|found| found == sign)
    };
    foreign_format(has).map(|format| format.name).or_else(|| is_zfs(device).then_some("a pool of ZFS"))
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
    read_unaligned(device, ZFS_UBERBLOCKS.start, len).is_ok_and(|found| found.chunks(ZFS_STEP).any(has_magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_device::AlignedBuf;
    use diorite_sim::image::ImageDevice;

    /// Each sign is found where it stands, and nothing in an empty device or one that is too small.
    #[test]
    fn formats_are_known_by_their_signs() {
        const ZFS: ForeignFormat =
            format("a pool of ZFS", NOT_READ, &[((128 << 10) + 5 * 1024, &ZFS_MAGIC.to_le_bytes())]);
        for format in FORMATS.iter().chain([&ZFS]) {
            for (offset, magic) in format.signs {
                let device: std::sync::Arc<dyn BlockDevice> = ImageDevice::zeroed(1 << 20);
                assert_eq!(foreign_content(&*device), None);
                let start = offset / 4096 * 4096;
                let mut block = AlignedBuf::zeroed(8192, 4096);
                block[(offset - start) as usize..][..magic.len()].copy_from_slice(magic);
                device.write_bytes(start, &block, diorite_block::BioFlags::NONE).expect("write");
                assert_eq!(foreign_content(&*device), Some(format.name));
            }
        }
        assert_eq!(foreign_content(&*ImageDevice::zeroed(4096)), None);
    }
}
