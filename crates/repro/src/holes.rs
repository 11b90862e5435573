//! Unwritten parts of an image. Reads of them do not reach the disk, so they would be measured at the rate of memory.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use diorite_bench::disk_of;

/// Bytes of an image, or of a loop device's image, that are holes or preallocated and never written. 0 if the host does not report
/// them.
///
/// # Errors
/// The image cannot be opened.
pub fn unwritten_bytes(path: &Path) -> io::Result<u64> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        return image_of_loop(path).map_or(Ok(0), |image| unwritten_bytes(&image));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let (mut at, mut written) = (0, 0);
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // The filesystem does not report holes.
            Err(_) => return Ok(0),
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(start))?.min(size).max(start + 1);
        written += at - start;
    }
    Ok(size.saturating_sub(written))
}

fn image_of_loop(device: &Path) -> Option<PathBuf> {
    let image = std::fs::read_to_string(disk_of(device)?.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(image.trim_end_matches('\n')))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_and_reserved_space_were_never_written() {
        let file = tempfile::NamedTempFile::new_in(".").expect("a file");
        let bytes = || unwritten_bytes(file.path()).expect("opens");
        assert_eq!(bytes(), 0);
        file.as_file().set_len(8 << 20).expect("a size");
        if rustix::fs::seek(file.as_file(), SeekFrom::Data(0)) != Err(Errno::NXIO) {
            println!("SKIPPED: this filesystem does not tell holes");
            return;
        }
        assert_eq!(bytes(), 8 << 20);
        file.as_file().write_all_at(&vec![0; 1 << 20], 2 << 20).expect("written");
        assert_eq!(bytes(), 7 << 20);
        file.as_file().write_all_at(&vec![1; 8 << 20], 0).expect("written");
        assert_eq!(bytes(), 0);
    }
}
