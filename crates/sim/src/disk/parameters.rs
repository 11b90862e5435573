//! The named disks, and disks described in a TOML file.
//!
//! A file names a base disk, and then the differences:
//! ```toml
//! base = "sata-2009"
//! rpm = 5400
//! write_cache_kib = 0
//! ```
//! An unknown key, a value of the wrong type and a number out of range are errors with file, line and cure.

use std::sync::Arc;

use diorite_block::Geometry;
use serde::{Deserialize, Serialize};

use super::Model;
use super::flash::Flash;
use super::link::SharedLink;
use super::rotational::Rotational;

/// The names of disks.
pub const DISK_NAMES: [&str; 8] =
    ["sata-2009", "sata-2009-stall", "sata-2009-nocache", "sata-2020", "fc-2002", "ssd", "ide-2001", "ideal"];

/// A disk that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// No disk has this name.
    #[error("unknown simulated disk '{0}': use one of {names}", names = DISK_NAMES.join(", "))]
    UnknownName(String),
    /// A file has an error.
    #[error("{file}:{line}: {problem}: {cure}")]
    InFile {
        /// The name of the file.
        file: String,
        /// From 1.
        line: usize,
        /// The reason.
        problem: String,
        /// The cure.
        cure: String,
    },
    /// A number is out of range.
    #[error("{key}: {problem}: {cure}")]
    Impossible {
        /// The key of the number.
        key: &'static str,
        /// The reason.
        problem: String,
        /// The cure.
        cure: String,
    },
}

/// A drive with an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotationalParameters {
    /// Size in 10^9 bytes.
    pub capacity_gb: f64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Surfaces.
    pub heads: f64,
    /// Media rate at the first byte, 10^6 bytes a second.
    pub outer_mb_per_s: f64,
    /// Media rate at the last byte.
    pub inner_mb_per_s: f64,
    /// Seek time over one cylinder, a third of all, and all, in milliseconds.
    pub seek_ms: [f64; 3],
    /// Bus (or shared link), 10^6 bytes a second.
    pub bus_mb_per_s: f64,
    /// Firmware time for a read.
    pub read_command_us: f64,
    /// Firmware time for a write.
    pub write_command_us: f64,
    /// Time from the end of the transfer to its completion at the host.
    pub completion_us: f64,
    /// Limit of dirty data, at which destaging is forced; 0 writes through.
    pub write_cache_kib: f64,
    /// Dirty data is written when the arm has been idle for this long.
    pub destage_idle_ms: f64,
    /// Dirty data older than this is written by force; 0 never.
    pub destage_age_ms: f64,
    /// Ranges written on one trip of the arm.
    pub destage_ranges: f64,
    /// Whether the stream from the medium stops while the firmware takes a write into the cache (without a lost revolution).
    pub media_stalls: bool,
    /// Most commands in the drive. 1 is a drive without NCQ, which takes no write while it destages.
    pub queue_depth: f64,
    /// A command that has waited this long for the arm goes before nearer ones. Firmware is not documented here.
    pub queue_age_ms: f64,
    /// Streams that the drive remembers for read-ahead.
    pub read_segments: f64,
    /// Read-ahead of each stream; 0 is none.
    pub read_ahead_kib: f64,
    /// Largest transfer of one bio.
    pub max_transfer_kib: f64,
}

/// A drive without an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParameters {
    /// Size in 10^9 bytes.
    pub capacity_gb: f64,
    /// Data rate, 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Latency of a read.
    pub read_us: f64,
    /// Latency of a write into the drive's buffer.
    pub write_us: f64,
    /// Time of a flush.
    pub flush_us: f64,
    /// Commands that make progress at once.
    pub units: f64,
    /// Largest transfer of one bio.
    pub max_transfer_kib: f64,
}

/// A disk.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskParameters {
    /// With an arm.
    Rotational(RotationalParameters),
    /// Without.
    Flash(FlashParameters),
}

impl RotationalParameters {
    /// The 7200 rpm drive that reproduces seed 001's rows. The time of a write is fitted to them, and includes the work of the host of 2009
    /// between two writes, because the hosts here are today's. It streams for a reader while its cache takes writes. That is a choice of the
    /// model, which the published rows do not decide (see `sata-2009-stall`).
    fn sata_2009() -> Self {
        Self {
            capacity_gb: 1000.0,
            rpm: 7200.0,
            heads: 4.0,
            outer_mb_per_s: 145.0,
            inner_mb_per_s: 70.0,
            seek_ms: [0.8, 8.5, 17.0],
            bus_mb_per_s: 300.0,
            read_command_us: 50.0,
            write_command_us: 420.0,
            completion_us: 15.0,
            write_cache_kib: 8192.0,
            destage_idle_ms: 5.0,
            destage_age_ms: 0.0,
            destage_ranges: 256.0,
            media_stalls: false,
            queue_depth: 31.0,
            queue_age_ms: 300.0,
            read_segments: 12.0,
            read_ahead_kib: 3072.0,
            max_transfer_kib: 512.0,
        }
    }

    /// A 7200 rpm drive of 8 TB with NCQ, as data sheets of about 2020 describe them: 250 MB/s outside, 256 MB of memory. It writes
    /// a few ranges at a time, between reads.
    fn sata_2020() -> Self {
        Self {
            capacity_gb: 8000.0,
            heads: 10.0,
            outer_mb_per_s: 250.0,
            inner_mb_per_s: 115.0,
            seek_ms: [0.5, 8.0, 16.0],
            bus_mb_per_s: 550.0,
            read_command_us: 25.0,
            write_command_us: 40.0,
            completion_us: 10.0,
            write_cache_kib: 65_536.0,
            destage_age_ms: 2000.0,
            destage_ranges: 16.0,
            queue_depth: 32.0,
            read_segments: 64.0,
            read_ahead_kib: 2048.0,
            max_transfer_kib: 1024.0,
            ..Self::sata_2009()
        }
    }

    /// One of seed 004's eight: 15,000 rpm, 18 GB.
    fn fc_2002() -> Self {
        Self {
            capacity_gb: 18.0,
            rpm: 15_000.0,
            heads: 6.0,
            outer_mb_per_s: 75.0,
            inner_mb_per_s: 58.0,
            seek_ms: [0.5, 3.8, 7.5],
            bus_mb_per_s: 200.0,
            read_command_us: 100.0,
            write_command_us: 150.0,
            completion_us: 30.0,
            write_cache_kib: 0.0,
            read_segments: 4.0,
            read_ahead_kib: 128.0,
            queue_depth: 16.0,
            ..Self::sata_2009()
        }
    }

    /// The disk of seeds 000 and 003, whose bonnie measured 13.5 MB/s.
    fn ide_2001() -> Self {
        Self {
            capacity_gb: 20.0,
            rpm: 5400.0,
            heads: 4.0,
            outer_mb_per_s: 13.9,
            inner_mb_per_s: 13.9,
            seek_ms: [1.5, 9.5, 18.0],
            bus_mb_per_s: 33.0,
            read_command_us: 100.0,
            write_command_us: 150.0,
            completion_us: 30.0,
            write_cache_kib: 1024.0,
            read_segments: 2.0,
            read_ahead_kib: 256.0,
            queue_depth: 2.0,
            max_transfer_kib: 128.0,
            ..Self::sata_2009()
        }
    }
}

impl DiskParameters {
    /// The parameters of a named disk.
    pub fn named(name: &str) -> Result<Self, ParameterError> {
        let sata = RotationalParameters::sata_2009();
        Ok(match name {
            "sata-2009" => Self::Rotational(sata),
            "sata-2009-stall" => Self::Rotational(RotationalParameters { media_stalls: true, ..sata }),
            "sata-2009-nocache" => Self::Rotational(RotationalParameters { write_cache_kib: 0.0, ..sata }),
            "sata-2020" => Self::Rotational(RotationalParameters::sata_2020()),
            "fc-2002" => Self::Rotational(RotationalParameters::fc_2002()),
            "ide-2001" => Self::Rotational(RotationalParameters::ide_2001()),
            "ssd" => Self::Flash(FlashParameters {
                capacity_gb: 512.0,
                mb_per_s: 3000.0,
                read_us: 80.0,
                write_us: 25.0,
                flush_us: 500.0,
                units: 32.0,
                max_transfer_kib: 1024.0,
            }),
            "ideal" => Self::Flash(FlashParameters {
                capacity_gb: 100.0,
                mb_per_s: 1000.0,
                read_us: 0.0,
                write_us: 0.0,
                flush_us: 0.0,
                units: 1.0,
                max_transfer_kib: 1024.0,
            }),
            _ => return Err(ParameterError::UnknownName(name.to_owned())),
        })
    }

    /// The disk of the text of a TOML file; `file` is its name in messages.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, ParameterError> {
        let in_file = |line: usize, problem: String, cure: String| ParameterError::InFile {
            file: file.to_owned(),
            line,
            problem,
            cure,
        };
        let line_of_key = |key: &str| line_of(text, key).unwrap_or(1);
        let mut table: toml::Table = toml::from_str(text).map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.get(..start).unwrap_or_default().matches('\n').count();
            in_file(line, error.message().to_owned(), "write it as TOML: key = value".to_owned())
        })?;
        let names = || format!("write base = \"NAME\" with one of {}", DISK_NAMES.join(", "));
        let base = match table.remove("base") {
            Some(toml::Value::String(name)) => Self::named(&name)
                .map_err(|_| in_file(line_of_key("base"), format!("unknown base '{name}'"), names()))?,
            Some(_) => return Err(in_file(line_of_key("base"), "base is not a name".to_owned(), names())),
            None => return Err(in_file(1, "no base is given".to_owned(), names())),
        };
        let mut disk = base;
        let mut whole = disk.to_table();
        for (key, value) in table {
            let problem = format!("{key} = {value}");
            let line = line_of_key(&key);
            whole.insert(key, value);
            let parsed = match disk {
                Self::Rotational(_) => whole.clone().try_into().map(Self::Rotational),
                Self::Flash(_) => whole.clone().try_into().map(Self::Flash),
            };
            disk = parsed
                .map_err(|error: toml::de::Error| in_file(line, problem, error.message().to_owned()))?;
        }
        disk.check().map_err(|error| match error {
            ParameterError::Impossible { key, problem, cure } => {
                // A rate can be impossible because of the other one.
                let line = line_of(text, key).or_else(|| line_of(text, "outer_mb_per_s")).unwrap_or(1);
                in_file(line, format!("{key}: {problem}"), cure)
            }
            other => other,
        })?;
        Ok(disk)
    }

    /// Check the ranges of all numbers.
    pub fn check(&self) -> Result<(), ParameterError> {
        let table = self.to_table();
        for (key, least, most, must_be_whole) in RANGES {
            let values = table.get(key).map_or(&[][..], |value| match value {
                toml::Value::Array(values) => values.as_slice(),
                value => std::slice::from_ref(value),
            });
            for value in values.iter().filter_map(toml::Value::as_float) {
                let is_right = (least..=most).contains(&value) && !(must_be_whole && value.fract() != 0.0);
                if !is_right {
                    let number = if must_be_whole { "whole number" } else { "number" };
                    let cure = format!("give a {number} from {least} to {most}");
                    let problem = format!("{value} is impossible");
                    return Err(ParameterError::Impossible { key, problem, cure });
                }
            }
        }
        let Self::Rotational(p) = self else { return Ok(()) };
        let (key, problem, cure) = if p.inner_mb_per_s > p.outer_mb_per_s {
            let problem =
                format!("{} is faster than outer_mb_per_s = {}", p.inner_mb_per_s, p.outer_mb_per_s);
            ("inner_mb_per_s", problem, "the inner rate is at most the outer rate")
        } else if p.seek_ms[0] > p.seek_ms[1] || p.seek_ms[1] > p.seek_ms[2] {
            let problem = format!("{:?} does not rise", p.seek_ms);
            ("seek_ms", problem, "give the times for one cylinder, a third and all, in this order")
        } else {
            return Ok(());
        };
        Err(ParameterError::Impossible { key, problem, cure: cure.to_owned() })
    }

    pub(super) fn bus_bytes_per_s(&self) -> f64 {
        match self {
            Self::Rotational(p) => p.bus_mb_per_s * 1e6,
            Self::Flash(p) => p.mb_per_s * 1e6,
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        let (capacity_gb, max_transfer_kib, rotational, volatile_cache) = match self {
            Self::Rotational(p) => (p.capacity_gb, p.max_transfer_kib, true, p.write_cache_kib > 0.0),
            Self::Flash(p) => (p.capacity_gb, p.max_transfer_kib, false, p.flush_us > 0.0),
        };
        Geometry {
            capacity_bytes: (capacity_gb * 1e9) as u64 / 4096 * 4096,
            max_transfer_bytes: (max_transfer_kib as u32 / 4).max(1) * 4096,
            rotational,
            volatile_cache,
            ..crate::image::plain_geometry()
        }
    }

    pub(super) fn model(&self, seed: u64, link: Option<Arc<SharedLink>>) -> Box<dyn Model> {
        match self {
            Self::Rotational(p) => Box::new(Rotational::new(p.clone(), seed, link)),
            Self::Flash(p) => Box::new(Flash::new(p.clone(), link)),
        }
    }

    fn to_table(&self) -> toml::Table {
        let table = match self {
            Self::Rotational(p) => toml::Table::try_from(p),
            Self::Flash(p) => toml::Table::try_from(p),
        };
        table.expect("plain numbers can be written as TOML")
    }
}

/// Least and most of each number, and whether it must be whole.
const RANGES: [(&str, f64, f64, bool); 24] = [
    ("capacity_gb", 0.001, 100_000.0, false),
    ("rpm", 100.0, 100_000.0, false),
    ("heads", 1.0, 64.0, true),
    ("outer_mb_per_s", 0.1, 10_000.0, false),
    ("inner_mb_per_s", 0.1, 10_000.0, false),
    ("seek_ms", 0.0, 1000.0, false),
    ("bus_mb_per_s", 0.1, 100_000.0, false),
    ("read_command_us", 0.0, 1e6, false),
    ("write_command_us", 0.0, 1e6, false),
    ("completion_us", 0.0, 1e6, false),
    ("write_cache_kib", 0.0, 1e7, false),
    ("destage_idle_ms", 0.0, 1e6, false),
    ("destage_age_ms", 0.0, 1e6, false),
    ("destage_ranges", 1.0, 65_536.0, true),
    ("queue_depth", 1.0, 1024.0, true),
    ("queue_age_ms", 0.0, 1e6, false),
    ("read_segments", 1.0, 1024.0, true),
    ("read_ahead_kib", 0.0, 1e6, false),
    ("max_transfer_kib", 4.0, 65_536.0, false),
    ("mb_per_s", 0.1, 1e6, false),
    ("read_us", 0.0, 1e6, false),
    ("write_us", 0.0, 1e6, false),
    ("flush_us", 0.0, 1e7, false),
    ("units", 1.0, 4096.0, true),
];

/// The line of a key or of a table's heading, from 1.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let name = |line: &str| {
        line.trim_start_matches([' ', '\t', '[']).split(['=', '.', ']', ' ', '\t']).next() == Some(key)
    };
    text.lines().position(name).map(|line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_disk_is_possible() {
        for name in DISK_NAMES {
            DiskParameters::named(name).unwrap().check().unwrap();
        }
    }

    #[test]
    fn a_file_changes_what_it_names() {
        let text = "base = \"sata-2009\"\nrpm = 5400\nseek_ms = [1, 9.5, 20]\nmedia_stalls = true\n";
        let DiskParameters::Rotational(disk) = DiskParameters::from_toml("disk.toml", text).unwrap() else {
            panic!("a rotating disk")
        };
        assert!((disk.rpm - 5400.0).abs() < 1e-9 && disk.media_stalls);
        assert_eq!(disk.seek_ms.map(|ms| (ms * 10.0) as u32), [10, 95, 200]);
    }

    #[test]
    fn errors_have_file_line_and_cure() {
        let message = |text: &str| DiskParameters::from_toml("d.toml", text).unwrap_err().to_string();
        let cases = [
            ("rpm = 1\n", "d.toml:1: no base is given: write base"),
            ("base = \"sata\"\n", "d.toml:1: unknown base 'sata': write base"),
            ("base = \"ssd\"\n\nrpm = 7200\n", "d.toml:3: rpm = 7200: unknown field `rpm`, expected one of"),
            ("base = \"sata-2009\"\nrpm = -1\n", "d.toml:2: rpm: -1 is impossible: give a number from 100"),
            (
                "base = \"sata-2009\"\nrpm = \"fast\"\n",
                "d.toml:2: rpm = \"fast\": invalid type: string \"fast\", expected f64",
            ),
            (
                "base = \"sata-2009\"\nseek_ms = [1, 2]\n",
                "d.toml:2: seek_ms = [1, 2]: invalid length 2, expected an array of",
            ),
            ("base = \"sata-2009\"\nseek_ms = [\"a\", 1, 2]\n", "d.toml:2: seek_ms = "),
            (
                "base = \"sata-2009\"\nmedia_stalls = 1\n",
                "d.toml:2: media_stalls = 1: invalid type: integer `1`, expected a boolean",
            ),
            (
                "base = \"sata-2009\"\n\nheads = 1.5\n",
                "d.toml:3: heads: 1.5 is impossible: give a whole number",
            ),
            ("base = \"sata-2009\"\nrpm = nan\n", "d.toml:2: rpm: NaN is impossible"),
            (
                "base = \"sata-2009\"\nouter_mb_per_s = 10\n",
                "d.toml:2: inner_mb_per_s: 70 is faster than outer",
            ),
            ("base = \"ssd\"\nbase = \"ssd\"\n", "d.toml:2: duplicate key"),
            ("base = \"ssd\"\n[zones]\n", "d.toml:2: zones = {}: unknown field `zones`"),
            (
                "base = \"sata-2009\"\nseek_ms = [9, 8, 7]\n",
                "d.toml:2: seek_ms: [9.0, 8.0, 7.0] does not rise",
            ),
            (
                "base = \"sata-2009\"\ninner_mb_per_s = 200\n",
                "d.toml:2: inner_mb_per_s: 200 is faster than outer",
            ),
            ("base = \"sata-2009\"\nrpm 7200\n", "d.toml:2: "),
        ];
        for (text, expected) in cases {
            let got = message(text);
            assert!(got.starts_with(expected), "{got}");
        }
        assert!(DiskParameters::named("floppy").unwrap_err().to_string().contains("sata-2009-stall"));
    }
}
