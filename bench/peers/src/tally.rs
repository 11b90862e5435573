//! What every reader counts and prints, so that all can be seen to have read the same.

use std::time::Instant;

/// What was read so far.
#[derive(Debug)]
pub struct Tally {
    files: u64,
    bytes: u64,
    /// The sum of the CRC-32 of all files, where that is asked for: not in runs that are timed.
    sum: Option<u64>,
    register: u32,
    start: Instant,
}

impl Tally {
    /// Start the clock. The arguments of each reader are `IMAGE DIRECTORY [verify]`; returns the first two.
    pub fn start() -> (String, String, Self) {
        let mut arguments = std::env::args().skip(1);
        let (Some(image), Some(directory)) = (arguments.next(), arguments.next()) else {
            eprintln!("usage: IMAGE DIRECTORY [verify]");
            std::process::exit(2);
        };
        let sum = arguments.next().map(|_| 0);
        (image, directory, Self { files: 0, bytes: 0, sum, register: !0, start: Instant::now() })
    }

    /// Whether the content counts, not only its length.
    pub fn is_verifying(&self) -> bool {
        self.sum.is_some()
    }

    /// A part of a file, in order.
    pub fn add(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        if self.sum.is_some() {
            self.register = part
                .iter()
                .fold(self.register, |crc, byte| (crc >> 8) ^ TABLE[usize::from((crc as u8) ^ byte)]);
        }
    }

    /// The file has ended.
    pub fn end_file(&mut self) {
        self.files += 1;
        let crc = !std::mem::replace(&mut self.register, !0);
        self.sum = self.sum.map(|sum| sum + u64::from(crc));
    }

    /// Print what was read, and how long it took.
    pub fn finish(self) {
        let seconds = self.start.elapsed().as_secs_f64();
        let sum = self.sum.unwrap_or(0);
        println!(
            "{{\"files\": {}, \"bytes\": {}, \"sum\": {sum}, \"seconds\": {seconds}}}",
            self.files, self.bytes
        );
    }
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};
