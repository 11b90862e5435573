//! The acknowledgements of a workload: lines in a named pipe.
//!
//! A line counts from the moment at which it is read from the pipe. That is never too early.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use diorite_sim::crash::RecordingDevice;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::failure::{Failure, Result};

/// The line that ends the reader: no line of text has it.
const END: &[u8] = b"\0\n";

/// The pipe, and the thread that reads it.
pub(super) struct Promises {
    path: PathBuf,
    writer: File,
    reader: JoinHandle<Vec<String>>,
}

impl Promises {
    /// Make the pipe. Each line is recorded by `device`.
    pub(super) fn new(directory: &Path, device: &Arc<RecordingDevice>) -> Result<Self> {
        let failed =
            |error: std::io::Error| Failure::host("crash", "make the pipe of acknowledgements", &error);
        let path = directory.join("ack");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o622), 0)
            .map_err(|error| failed(error.into()))?;
        // Open for both, so that it has no end when a program closes it.
        let open = || OpenOptions::new().read(true).write(true).open(&path).map_err(failed);
        let (writer, pipe, device) = (open()?, open()?, Arc::clone(device));
        let reader = std::thread::Builder::new()
            .name("promises".to_owned())
            .spawn(move || read(pipe, &device))
            .map_err(failed)?;
        Ok(Self { path, writer, reader })
    }

    /// For `DIORITE_CRASH_ACK`.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All lines. The workload has ended.
    pub(super) fn end(mut self) -> Result<Vec<String>> {
        self.writer.write_all(END).map_err(|error| Failure::host("crash", "end the pipe", &error))?;
        Ok(self.reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

fn read(pipe: File, device: &RecordingDevice) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if pipe.read_until(b'\n', &mut bytes).is_err() {
            return lines;
        }
        let is_end = bytes.ends_with(END);
        let text = bytes.strip_suffix(if is_end { END } else { b"\n" }).unwrap_or(&bytes);
        if !is_end || !text.is_empty() {
            device.mark(lines.len() as u64);
            lines.push(String::from_utf8_lossy(text).into_owned());
        }
        if is_end {
            return lines;
        }
    }
}
