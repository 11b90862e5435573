//! The host's own view of a mounted image: the kernel's ext4, or fuse2fs. IMAGE is the mount point.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use diorite_peers::{CHUNK_BYTES, Tally};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mount, directory, mut tally) = Tally::start();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut waiting = vec![PathBuf::from(mount).join(directory.trim_start_matches('/'))];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.is_file() {
                let mut file = File::open(entry.path())?;
                loop {
                    let got = file.read(&mut buffer)?;
                    if got == 0 {
                        break;
                    }
                    tally.add(&buffer[..got]);
                }
                tally.end_file();
            }
        }
    }
    tally.finish();
    Ok(())
}
