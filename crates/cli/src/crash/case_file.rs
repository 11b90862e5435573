//! One state as a file: a line of JSON, then the pages of the volume that are not zeros, compressed by gzip.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;

use diorite_crash::examine::{Failing, point_of};
use diorite_sim::image::SparseImage;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::record::Record;
use crate::args::{Crash, FilesystemType};
use crate::failure::{Failure, Result};

/// The version of the format.
const VERSION: u64 = 1;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Larger volumes are not rebuilt from a file.
const LEN_MAX: u64 = 1 << 40;

/// A state that can be rebuilt.
#[derive(Debug)]
pub(super) struct CaseFile {
    /// The command of the check.
    pub(super) check: String,
    /// The filesystem.
    pub(super) filesystem: String,
    /// The acknowledged lines before the power cut.
    pub(super) lines: Vec<String>,
    /// The words of the check.
    pub(super) why: String,
    /// The state in words of files.
    pub(super) explanation: String,
    /// The disk after the power cut.
    pub(super) image: SparseImage,
}

impl CaseFile {
    pub(super) fn of(
        arguments: &Crash,
        kind: FilesystemType,
        record: &Record,
        failing: &Failing,
        explanation: &str,
    ) -> Self {
        Self {
            check: arguments.check.clone().unwrap_or_default(),
            filesystem: kind.name().to_owned(),
            lines: record.lines[..failing.promises].to_vec(),
            why: failing.why.clone(),
            explanation: explanation.to_owned(),
            image: point_of(&record.recording, failing.case.event).image(&failing.case.fates),
        }
    }

    /// Write it.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Failure::host(path.display(), "write the case", &error);
        let head = json!({
            "diorite_crash": VERSION,
            "filesystem": self.filesystem,
            "bytes": self.image.len(),
            "check": self.check,
            "acknowledged": self.lines,
            "why": self.why,
            "explanation": self.explanation,
        });
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        writeln!(file, "{head}").map_err(failed)?;
        let mut pages = GzEncoder::new(file, Compression::default());
        self.image
            .parts_beside(Some(&SparseImage::new(self.image.len())))
            .try_for_each(|(start, part)| {
                let places = (start..).step_by(PAGE).zip(part.chunks(PAGE));
                places.filter(|(_, page)| page.iter().any(|byte| *byte != 0)).try_for_each(|(at, page)| {
                    pages.write_all(&at.to_le_bytes())?;
                    pages.write_all(&(page.len() as u32).to_le_bytes())?;
                    pages.write_all(page)
                })
            })
            .and_then(|()| pages.finish()?.flush())
            .map_err(failed)
    }

    /// Read it.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Failure::host(path.display(), "read the case", &error);
        let wrong = || {
            Failure::Failed(format!(
                "{}: not a case of `diorite crash`, or damaged: run the test again",
                path.display()
            ))
        };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let mut head = Vec::new();
        (&mut file).take(1 << 20).read_until(b'\n', &mut head).map_err(failed)?;
        let head: Value = serde_json::from_slice(&head).map_err(|_| wrong())?;
        if head["diorite_crash"] != VERSION {
            return Err(wrong());
        }
        let text = |name: &str| head[name].as_str().map(str::to_owned).ok_or_else(wrong);
        let len = head["bytes"].as_u64().filter(|len| *len <= LEN_MAX).ok_or_else(wrong)?;
        let lines = head["acknowledged"].as_array().ok_or_else(wrong)?;
        let lines = lines.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let mut image = SparseImage::new(len);
        let mut pages = GzDecoder::new(file);
        let mut page = [0; PAGE];
        loop {
            let mut place = [0; 12];
            match pages.read(&mut place[..1]) {
                Ok(0) => break,
                Ok(_) => pages.read_exact(&mut place[1..]).map_err(|_| wrong())?,
                Err(_) => return Err(wrong()),
            }
            let (at, size) = place.split_at(8);
            let at = u64::from_le_bytes(at.try_into().unwrap_or_default());
            let size = u32::from_le_bytes(size.try_into().unwrap_or_default()) as usize;
            let page = page.get_mut(..size).ok_or_else(wrong)?;
            pages.read_exact(page).map_err(|_| wrong())?;
            image.write(at, page);
        }
        Ok(Self {
            check: text("check")?,
            filesystem: text("filesystem")?,
            lines,
            why: text("why")?,
            explanation: text("explanation")?,
            image,
        })
    }
}
