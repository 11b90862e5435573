//! The format of a file that is not a volume, by the library's table of formats.

use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use diorite::front_end::{ForeignFormat, foreign_format};

/// The format of the file or device at `path` and advice, if the format is known.
pub(crate) fn describe(path: &Path) -> Option<String> {
    format_of(path).map(|format| format!("it is {}; {}", format.name, format.advice))
}

/// The format of the file or device at `path`, if it is known.
pub(crate) fn format_of(path: &Path) -> Option<&'static ForeignFormat> {
    let kind = path.metadata().ok()?.file_type();
    // The open of a pipe would wait for a writer.
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    let file = std::fs::File::options().read(true).open(path).ok()?;
    foreign_format(|at, sign| {
        let mut found = vec![0; sign.len()];
        file.read_exact_at(&mut found, at).is_ok() && found == sign
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_signs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let write = |at: u64, bytes: &[u8]| {
            let file = std::fs::File::options().create(true).truncate(true).write(true).open(&path);
            file.expect("a file").write_all_at(bytes, at).expect("space");
        };
        write(0, b"QFI\xfb");
        let expected = "it is an image of QEMU (qcow2); convert it first (qemu-img convert -O raw)";
        assert_eq!(describe(&path).as_deref(), Some(expected));
        write(0x10040, b"_BHRfS_M");
        let expected = "it is a btrfs filesystem; only ext2, ext3 and ext4 are supported";
        assert_eq!(describe(&path).as_deref(), Some(expected));
        write(0, b"short");
        assert_eq!((describe(&path), describe(directory.path())), (None, None));
    }
}
