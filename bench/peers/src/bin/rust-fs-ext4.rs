//! The crate rust-fs-ext4: by inode, parts of 1 MiB into one buffer, its block cache as it comes.

use std::sync::Arc;

use diorite_peers::{CHUNK_BYTES, Tally};
use fs_ext4::Filesystem;
use fs_ext4::block_io::FileDevice;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (image, directory, mut tally) = Tally::start();
    let filesystem = Filesystem::mount(Arc::new(FileDevice::open(&image)?))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut waiting = vec![filesystem.lookup_path_bytes(directory.as_bytes())?];
    while let Some(directory) = waiting.pop() {
        for entry in filesystem.read_dir_ino(directory)? {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let inode = filesystem.stat_ino(entry.inode)?;
            if inode.is_dir() {
                waiting.push(entry.inode);
            } else if inode.is_file() {
                let mut offset = 0;
                while offset < inode.size {
                    let got = filesystem.read_ino(entry.inode, offset, &mut buffer)?;
                    tally.add(&buffer[..got]);
                    offset += got as u64;
                    if got == 0 {
                        return Err("a file that ends early".into());
                    }
                }
                tally.end_file();
            }
        }
    }
    tally.finish();
    Ok(())
}
