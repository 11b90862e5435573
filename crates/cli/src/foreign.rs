//! What a file is that is no volume: the formats that people most often take for one, by the bytes that they begin with.

use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// A format: where its mark is, the mark, and what to say.
type Format = (u64, &'static [u8], &'static str);

const FORMATS: &[Format] = &[
    (0, b"QFI\xfb", "it is an image of QEMU (qcow2); convert it first (qemu-img convert -O raw)"),
    (0, b"KDMV", "it is an image of VMware (VMDK); convert it first (qemu-img convert -O raw)"),
    (0, b"vhdxfile", "it is a VHDX image; convert it first (qemu-img convert -O raw)"),
    (
        64,
        b"\x7f\x10\xda\xbe",
        "it is an image of VirtualBox (VDI); convert it first (qemu-img convert -O raw)",
    ),
    (0, b"\x1f\x8b", "it is compressed; decompress it first (gunzip)"),
    (0, b"\xfd7zXZ\0", "it is compressed; decompress it first (unxz)"),
    (0, b"\x28\xb5\x2f\xfd", "it is compressed; decompress it first (unzstd)"),
    (0, b"BZh", "it is compressed; decompress it first (bunzip2)"),
    (0, b"PK\x03\x04", "it is a zip archive; unpack it first (unzip)"),
    (0, b"\x3a\xff\x26\xed", "it is an Android sparse image; convert it first (simg2img)"),
    (257, b"ustar", "it is a tar archive; `diorite mkfs -d` makes an image of one"),
    (0, b"XFSB", "it is an XFS filesystem, and only ext2, ext3 and ext4 are read here"),
    (65600, b"_BHRfS_M", "it is a Btrfs filesystem, and only ext2, ext3 and ext4 are read here"),
    (1024, b"\x10\x20\xf5\xf2", "it is an F2FS filesystem, and only ext2, ext3 and ext4 are read here"),
    (3, b"NTFS    ", "it is an NTFS filesystem, and only ext2, ext3 and ext4 are read here"),
    (3, b"EXFAT   ", "it is an exFAT filesystem, and only ext2, ext3 and ext4 are read here"),
    (54, b"FAT1", "it is a FAT filesystem, and only ext2, ext3 and ext4 are read here"),
    (82, b"FAT32", "it is a FAT filesystem, and only ext2, ext3 and ext4 are read here"),
    (0, b"hsqs", "it is a SquashFS filesystem, and only ext2, ext3 and ext4 are read here"),
    (32769, b"CD001", "it is an ISO 9660 filesystem, and only ext2, ext3 and ext4 are read here"),
    (
        0,
        b"LUKS\xba\xbe",
        "it is encrypted (LUKS); unlock it first (cryptsetup open) and name the device that this makes",
    ),
];

/// What the file or device at `path` is, and what to do about it, if that is known.
pub(crate) fn describe(path: &Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    // A pipe would wait for a writer.
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    let file = std::fs::File::options().read(true).open(path).ok()?;
    let has = |(at, mark, _): &&Format| {
        let mut found = [0; 16];
        let found = &mut found[..mark.len()];
        file.read_exact_at(found, *at).is_ok() && found == *mark
    };
    FORMATS.iter().find(has).map(|(_, _, reported)| *reported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_marks() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let write = |bytes: &[u8]| {
            let file = std::fs::File::options().create(true).truncate(true).write(true).open(&path);
            file.expect("a file").write_all_at(bytes, 0).expect("space");
        };
        for (at, mark, reported) in FORMATS {
            let mut bytes = vec![0; 70_000];
            let at = usize::try_from(*at).expect("small");
            bytes[at..at + mark.len()].copy_from_slice(mark);
            write(&bytes);
            assert_eq!(describe(&path), Some(*reported));
        }
        write(b"short");
        assert_eq!((describe(&path), describe(directory.path())), (None, None));
    }
}
