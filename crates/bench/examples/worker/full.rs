//! A volume is filled to the last block, used at 99 % with fragmented free space, and filled again.
//!
//! `full` leaves the volume 99 % full for `rest`, which runs with the library and with the kernel on copies of it. Both should write
//! the same number of blocks.

use diorite::Filesystem;

use crate::place::Place;
use crate::scale::{Steps, filesystem};
use crate::{Failure, Figures};

/// Bytes of a file that fills.
const SMALL: usize = 64 << 10;
/// One of this many files is removed.
const REMOVED: usize = 128;
/// Bytes of the files that replace a removed one, and leave a hole of two blocks.
const HALF: usize = 28 << 10;
/// Bytes of the file that replaces these, which no hole can hold.
const LARGER: usize = 60 << 10;
/// How often the blocks of removed files are reused.
const ROUNDS: usize = 4;
/// `ENOSPC`
const NO_SPACE: i32 = 28;

/// Content of a file: unique by its first bytes, and without zeros.
fn content(seed: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at / 512 + seed) as u8 | 1).collect();
    bytes[..8].copy_from_slice(&(seed as u64).to_le_bytes());
    bytes
}

/// Percent of used blocks, as `df` counts, without the superuser's reserve.
fn used_percent(filesystem: &Filesystem) -> f64 {
    let space = filesystem.statfs();
    let used = (space.blocks - space.blocks_free) as f64;
    100.0 * used / (used + space.blocks_available as f64)
}

/// Files, by path, with the seeds and lengths of their contents.
#[derive(Default)]
struct Files(Vec<(String, usize, usize)>);

impl Files {
    /// Make a file; `false` without space, and then there is no file.
    fn make(&mut self, filesystem: &Filesystem, path: String, len: usize) -> Result<bool, Failure> {
        let seed = self.0.len();
        let file = filesystem.create_file(&path)?;
        match file.write_all_at(&content(seed, len), 0) {
            Ok(()) => self.0.push((path, seed, len)),
            Err(error) if error.kind() == diorite::ErrorKind::StorageFull => {
                drop(file);
                filesystem.remove_file(&path)?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Remove the files for which `which` is true.
    fn remove(&mut self, filesystem: &Filesystem, which: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let (gone, left) = std::mem::take(&mut self.0).into_iter().partition(|file| which(&file.0));
        self.0 = left;
        let gone: Vec<(String, usize, usize)> = gone;
        gone.iter().try_for_each(|(path, ..)| Ok(filesystem.remove_file(path)?))
    }

    /// Every file has its written content.
    fn verify(&self, filesystem: &Filesystem) -> Result<(), Failure> {
        let mut found = vec![0; SMALL];
        for (path, seed, len) in &self.0 {
            let file = filesystem.open_file(path)?;
            let read = file.read_at(&mut found, 0)?;
            if file.metadata()?.size != *len as u64 || found[..read] != content(*seed, *len) {
                return Err(format!("{path} has lost what was written to it").into());
            }
        }
        Ok(())
    }
}

/// Fill the volume, remove one of 128 files, and reuse their blocks with files that do not fit.
pub(crate) fn full(place: &Place) -> Result<Figures, Failure> {
    let filesystem = filesystem(place)?;
    let mut files = Files::default();
    filesystem.create_dir("/fill")?;
    let mut steps = Steps::new();
    let mut count = 0;
    while files.make(filesystem, format!("/fill/{count}"), SMALL)? {
        count += 1;
    }
    filesystem.sync()?;
    steps.rate("fill_files", count as u64);
    steps.note("filled_percent", used_percent(filesystem));
    let slots: Vec<usize> = (0..count).step_by(REMOVED).collect();
    for slot in &slots {
        let path = format!("/fill/{slot}");
        files.remove(filesystem, |other| other == path)?;
    }
    filesystem.sync()?;
    let least = used_percent(filesystem);
    if least < 99.0 {
        return Err(format!("only {least} percent are used").into());
    }
    steps.note("used_percent", least);
    steps.skip();
    let mut made = 0;
    for round in 0..ROUNDS {
        for slot in &slots {
            for half in 0..2 {
                made += usize::from(files.make(filesystem, format!("/half-{slot}-{half}"), HALF)?);
            }
        }
        files.remove(filesystem, |path| path.starts_with("/half-") && path.ends_with("-1"))?;
        filesystem.sync()?;
        for slot in slots.iter().step_by(2) {
            made += usize::from(files.make(filesystem, format!("/larger-{slot}"), LARGER)?);
        }
        if round + 1 < ROUNDS {
            files.remove(filesystem, |path| path.starts_with("/half-") || path.starts_with("/larger-"))?;
        }
        filesystem.sync()?;
    }
    steps.rate("churn_files", made as u64);
    let larger: Vec<_> = files.0.iter().filter(|file| file.0.starts_with("/larger-")).collect();
    let mut pieces = 0;
    for (path, ..) in &larger {
        pieces += filesystem.open_file(path)?.extents()?.len();
    }
    steps.note("extents_per_file", pieces as f64 / larger.len() as f64);
    filesystem.drop_caches()?;
    steps.skip();
    files.verify(filesystem)?;
    steps.rate("verify_files", files.0.len() as u64);
    // Fragmented space for the threads that fill the volume again.
    files.remove(filesystem, |path| path.starts_with("/half-"))?;
    filesystem.sync()?;
    steps.note("left_percent", used_percent(filesystem));
    steps.end()
}

/// Append single blocks to one file until there is no space.
pub(crate) fn rest(place: &Place) -> Result<Figures, Failure> {
    const BLOCK: usize = 4096;
    let data = [3; BLOCK];
    let mut steps = Steps::new();
    let mut bytes = 0;
    match place {
        Place::Image(filesystem) => {
            let file = filesystem.create_file("/last")?;
            let error = loop {
                match file.write_all_at(&data, bytes) {
                    Ok(()) => bytes += BLOCK as u64,
                    Err(error) => break error,
                }
            };
            if error.kind() != diorite::ErrorKind::StorageFull {
                return Err(error.into());
            }
            file.sync_all()?;
            filesystem.sync()?;
            steps.seconds("until_no_space");
            let space = filesystem.statfs();
            steps.note("blocks_left", space.blocks_available as f64);
            // Existing files can be changed, and freed blocks can be used.
            file.write_all_at(&[4; BLOCK], 0)?;
            file.sync_all()?;
        }
        Place::Host => {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open("last")?;
            let error = loop {
                match std::io::Write::write(&mut file, &data) {
                    Ok(BLOCK) => bytes += BLOCK as u64,
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            if error.raw_os_error() != Some(NO_SPACE) {
                return Err(error.into());
            }
            file.sync_all()?;
            steps.seconds("until_no_space");
        }
    }
    steps.note("bytes", bytes as f64);
    steps.end()
}
