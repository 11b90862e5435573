//! The crate ext4-view: by path, each file whole, which is its fastest way.

use diorite_peers::Tally;
use ext4_view::{Ext4, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (image, directory, mut tally) = Tally::start();
    let filesystem = Ext4::load_from_path(image)?;
    let mut waiting = vec![PathBuf::try_from(directory.as_bytes())?];
    while let Some(directory) = waiting.pop() {
        for entry in filesystem.read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.as_ref() == b"." || name.as_ref() == b".." {
                continue;
            }
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.file_type().is_regular_file() {
                tally.add(&filesystem.read(&entry.path())?);
                tally.end_file();
            }
        }
    }
    tally.finish();
    Ok(())
}
