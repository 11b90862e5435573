//! Random reads at depth 32 from one thread: the memory of each completion goes into the next submission.
//!
//! ```text
//! cargo run --release -p diorite --example queue
//! ```

use std::error::Error;
use std::time::Instant;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{DirectIo, DirectQueue, Filesystem};

const DEPTH: u32 = 32;
const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 4096;
const READS: u64 = 8192;

/// The block of the `n`th read.
fn block(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (BLOCKS - 1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let options = MkfsOptions { block_size: Some(4096), ..MkfsOptions::new(Flavor::Ext4) };
    let filesystem = Filesystem::create(&image, 64 << 20, &options)?;
    let content: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK_BYTES]).collect();
    filesystem.write("/data", content)?;
    filesystem.drop_caches()?;
    let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/data")?;

    let mut queue = DirectQueue::new(DEPTH);
    let start = Instant::now();
    for n in 0..u64::from(DEPTH) {
        // The tag identifies the read in its completion.
        queue.read(&file, block(n) * BLOCK_BYTES as u64, file.buffer(BLOCK_BYTES)?, BLOCK_BYTES, n)?;
    }
    let mut next = u64::from(DEPTH);
    while let Some(finished) = queue.next_finished()? {
        finished.result?;
        assert!(finished.memory.iter().all(|byte| *byte == block(finished.tag) as u8));
        if next < READS {
            queue.read(&file, block(next) * BLOCK_BYTES as u64, finished.memory, BLOCK_BYTES, next)?;
            next += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{READS} reads of 4 KiB at depth {DEPTH}: {:.0} a second", READS as f64 / seconds);
    drop((queue, file));
    Ok(filesystem.close()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}
