//! Processes that share a buffer pool and are killed at random: the remaining pages are whole, current and not pinned.
//!
//! Every page is one number, many times over. Children add one to pages under exclusive guards, word by word, and acknowledge on their output the changes that they
//! have made. After a kill every page must be of one number, which never goes back and is at least the acknowledged one; every frame must be
//! free again; and from time to time, with no child left, the file must match the pool.
//!
//! The data of a case is not decided by its number: when the signal comes is not.

use std::io::{Read, Write};
use std::ops::DerefMut;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use diorite::{DirectIo, HostFile};
use diorite_pool::{BufferPool, FileId, PageFile};

use crate::random::Random;

const PAGES: u64 = 64;
const FRAMES: usize = 24;
/// Changes that a child makes between two acknowledgements, at most.
const UNACKNOWLEDGED: u64 = 8;

type Error = Box<dyn std::error::Error>;

/// The pool, its file, and the children that use them.
#[derive(Debug)]
pub struct Arena {
    program: PathBuf,
    _directory: tempfile::TempDir,
    path: PathBuf,
    page_bytes: usize,
    pool: BufferPool,
    file: FileId,
    children: Vec<Running>,
    /// The least that each page must be.
    known: Arc<Mutex<Vec<u64>>>,
    direct: DirectIo,
}

#[derive(Debug)]
struct Running {
    child: Child,
    acknowledged: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Arena {
    /// A pool, and no child yet. `program` becomes a child by the arguments of [`child`].
    ///
    /// # Errors
    /// There is no place for the file, or no memory.
    pub fn new(program: impl Into<PathBuf>, number: u64) -> Result<Self, Error> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("pages");
        let page_bytes = if number.is_multiple_of(2) { 4096 } else { 16384 };
        let direct = if number % 4 < 3 { DirectIo::Preferred } else { DirectIo::Off };
        let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
        made.set_len(PAGES * page_bytes as u64)?;
        drop(made);
        let pool = BufferPool::options().page_bytes(page_bytes).pages(FRAMES).shared(true).create()?;
        let file = pool.open_file("pages", PageFile::shared(&path, direct)?)?;
        Ok(Self {
            program: program.into(),
            _directory: directory,
            path,
            page_bytes,
            pool,
            file,
            children: Vec::new(),
            known: Arc::new(Mutex::new(vec![0; PAGES as usize])),
            direct,
        })
    }

    fn start_child(&mut self, seed: u64) -> Result<(), Error> {
        let memory = format!("/proc/{}/fd/{}", std::process::id(), self.pool.as_fd().as_raw_fd());
        let mut child = Command::new(&self.program)
            .arg("pool-child")
            .args([memory.as_ref(), self.path.as_os_str()])
            .args([seed.to_string().as_str(), if self.direct == DirectIo::Off { "cached" } else { "direct" }])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = child.stdout.take().ok_or("a child without output")?;
        let mut first = [0; 16];
        output.read_exact(&mut first)?;
        let known = Arc::clone(&self.known);
        let acknowledged = std::thread::spawn(move || {
            let mut record = [0; 16];
            while output.read_exact(&mut record).is_ok() {
                let [page, value] =
                    [0, 8].map(|at| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes")));
                let mut known = known.lock().expect("lock");
                known[page as usize] = known[page as usize].max(value);
            }
        });
        self.children.push(Running { child, acknowledged: Some(acknowledged) });
        Ok(())
    }

    /// Kill one child among several that work, and judge. Returns the number of kills.
    ///
    /// # Errors
    /// The fault.
    pub fn run(&mut self, case: u64) -> Result<u64, String> {
        let mut random = Random::new(case);
        self.case(&mut random).map_err(|error| format!("kill {case}: {error}; {:?}", self.pool.stats()))
    }

    fn case(&mut self, random: &mut Random) -> Result<u64, Error> {
        while self.children.len() < 3 {
            self.start_child(random.number())?;
        }
        let working = random.below(3000);
        std::thread::sleep(Duration::from_micros(working));
        let at = random.index(self.children.len());
        let mut victim = self.children.swap_remove(at);
        victim.child.kill()?;
        // Dead, but still in the table of processes for a while.
        if random.one_in(2) {
            self.judge(random)?;
        }
        victim.child.wait()?;
        if random.one_in(4) {
            self.pool.recover();
        }
        self.judge(random)?;
        if random.one_in(40) {
            let mut kills = 1;
            for mut child in self.children.drain(..) {
                child.child.kill()?;
                child.child.wait()?;
                kills += 1;
                if let Some(acknowledged) = child.acknowledged.take() {
                    acknowledged.join().map_err(|_| "the reader of a child panicked")?;
                }
            }
            self.judge_alone(random)?;
            return Ok(kills);
        }
        Ok(1)
    }

    /// Every page is whole and current; some are changed by this process, too.
    fn judge(&self, random: &mut Random) -> Result<(), Error> {
        for number in 0..PAGES {
            let least = self.known.lock().expect("lock")[number as usize];
            let value = if random.one_in(4) {
                let mut guard = self.pool.fetch_exclusive(self.file.page(number))?;
                let value = whole(&guard, number)? + 1;
                set(&mut guard, value, random);
                value
            } else {
                whole(&self.pool.fetch(self.file.page(number))?, number)?
            };
            if value < least {
                return Err(format!("page {number} is {value} again, and was {least}").into());
            }
            let mut known = self.known.lock().expect("lock");
            known[number as usize] = known[number as usize].max(value);
        }
        Ok(())
    }

    /// No child is left: nothing is held, and the file matches the pool.
    fn judge_alone(&self, random: &mut Random) -> Result<(), Error> {
        self.pool.recover();
        let stats = self.pool.stats();
        if stats.processes != 1 {
            return Err("a dead process is still attached".into());
        }
        self.pool.check_invariants()?;
        self.judge(random)?;
        let pins: Result<Vec<_>, _> =
            (0..FRAMES as u64).map(|number| self.pool.pin(self.file.page(number))).collect();
        drop(pins.map_err(|error| format!("a frame is lost: {error}"))?);
        self.pool.flush(self.file)?;
        let file = HostFile::options().read(true).open(&self.path)?;
        let mut page = vec![0; self.page_bytes];
        for number in 0..PAGES {
            file.read_exact_at(&mut page, number * self.page_bytes as u64)?;
            let (on_disk, here) =
                (whole(&page, number)?, whole(&self.pool.fetch(self.file.page(number))?, number)?);
            if on_disk != here {
                return Err(format!("page {number} is {on_disk} on the disk and {here} in the pool").into());
            }
        }
        Ok(())
    }
}

fn whole(page: &[u8], number: u64) -> Result<u64, Error> {
    let words = page.as_chunks::<8>().0;
    match words.iter().find(|word| **word != words[0]) {
        None => Ok(u64::from_le_bytes(words[0])),
        Some(other) => Err(format!(
            "page {number} is torn: {} and {}",
            u64::from_le_bytes(words[0]),
            u64::from_le_bytes(*other)
        )
        .into()),
    }
}

/// Write a number all over a page, from a random place on.
fn set(page: &mut impl DerefMut<Target = [u8]>, value: u64, random: &mut Random) {
    let words = page.as_chunks_mut::<8>().0;
    let start = random.index(words.len());
    words[start..].fill(value.to_le_bytes());
    if random.one_in(8) {
        // A good moment for the signal.
        std::thread::sleep(Duration::from_micros(200));
    }
    words[..start].fill(value.to_le_bytes());
}

/// The loop of a child until it is killed: `memory path seed direct|cached`.
///
/// # Errors
/// An error, or the parent has ended.
pub fn child(arguments: &[String]) -> Result<(), Error> {
    let [memory, path, seed, direct] = arguments else { return Err("memory, path, seed and mode".into()) };
    let memory = std::fs::OpenOptions::new().read(true).write(true).open(memory)?;
    let pool = BufferPool::attach(memory.as_fd().try_clone_to_owned()?)?;
    let direct = if direct == "cached" { DirectIo::Off } else { DirectIo::Preferred };
    let file = pool.open_file("pages", PageFile::shared(Path::new(path), direct)?)?;
    let mut random = Random::new(seed.parse()?);
    let mut output = std::io::stdout().lock();
    output.write_all(&[0; 16])?;
    output.flush()?;
    let mut acknowledged = Vec::new();
    loop {
        let number = random.below(PAGES);
        let page = file.page(number);
        match random.below(10) {
            0 => drop(pool.prefetch((0..6).map(|step| file.page((number + step) % PAGES)))),
            1 => {
                let pin = pool.pin(page)?;
                whole(&pin.read(), number)?;
                let value = change(&mut pin.write()?, number, &mut random)?;
                acknowledge(number, value, &mut acknowledged);
            }
            2 if random.one_in(8) => pool.flush(file)?,
            2..5 => drop(whole(&pool.fetch(page)?, number)?),
            _ => {
                let value = change(&mut pool.fetch_exclusive(page)?, number, &mut random)?;
                acknowledge(number, value, &mut acknowledged);
            }
        }
        if acknowledged.len() as u64 > random.below(16 * UNACKNOWLEDGED) {
            output.write_all(&acknowledged)?;
            output.flush()?;
            acknowledged.clear();
        }
    }
}

/// Add one to a page.
fn change(guard: &mut diorite_pool::PageMut<'_>, number: u64, random: &mut Random) -> Result<u64, Error> {
    let value = whole(guard, number)? + 1;
    set(guard, value, random);
    Ok(value)
}

/// The guard is dropped: the change stays.
fn acknowledge(number: u64, value: u64, acknowledged: &mut Vec<u8>) {
    acknowledged.extend(number.to_le_bytes());
    acknowledged.extend(value.to_le_bytes());
}
