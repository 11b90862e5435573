//! Bonnie on one target, as the seeds' program.

use super::series::Series;
use super::target::Target;
use super::workload::{Seeking, Workload};
use super::{CHUNK_BYTES, Test};
use crate::error::Error;
use crate::host::FileIo;
use crate::rows::{Mode, Row};
use crate::watch::{Cancel, Observer};

/// Options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Size of the file in units of 2^20 bytes (`-s`).
    pub size_mib: u32,
    /// Path of the data in block tests (`-o_direct`).
    pub io: FileIo,
    /// The seek test; `None` skips it (`-fast`).
    pub seeking: Option<Seeking>,
}

impl Settings {
    /// Size of the file in bytes.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.size_mib) * CHUNK_BYTES as u64
    }
}

/// Run the tests on `target` and remove its file. Returns a row for each test.
///
/// CPU time is the machine's, because kernel threads work for host files and images.
pub fn run(
    target: &dyn Target,
    settings: &Settings,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<Vec<Row>, Error> {
    let size = settings.size_bytes();
    let seeking = settings.seeking.unwrap_or_default();
    let workload = Workload { target, io: settings.io, size, seeking, cancel };
    let rows = rows(&workload, settings, observer);
    // The file is removed after an error too; the first error is returned.
    let removed = target.remove();
    let rows = rows?;
    removed?;
    Ok(rows)
}

fn rows(workload: &Workload<'_>, settings: &Settings, observer: &dyn Observer) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for test in Test::ALL {
        if test == Test::Seeks && settings.seeking.is_none() {
            continue;
        }
        if matches!(test, Test::Rewrite | Test::Getc | Test::BlockRead | Test::Seeks) {
            workload.target.forget_cached()?;
        }
        let bytes = if test == Test::Seeks {
            u64::from(workload.seeking.seeks) * CHUNK_BYTES as u64
        } else {
            workload.size
        };
        observer.begin(test.doing(), bytes);
        let sample = workload.run(test, observer);
        observer.end();
        let mut series = Series::default();
        series.push(sample?);
        let mode = if test.is_per_byte() { Mode::Buffered } else { workload.target.mode(settings.io) };
        rows.extend(series.row(workload.target.engine(), mode));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bonnie::target::HostTarget;
    use crate::rows::Engine;
    use crate::watch::Silent;

    #[test]
    fn host_run_gives_every_row_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let target = HostTarget::new(directory.path(), "t").unwrap();
        let seeking = Some(Seeking { seeks: 20, seekers: 3, update_every: 10 });
        let settings = Settings { size_mib: 8, io: FileIo::Buffered, seeking };
        let rows = run(&target, &settings, &Cancel::default(), &Silent).unwrap();
        let tests: Vec<_> = rows.iter().map(|row| row.test.as_str()).collect();
        assert_eq!(tests, ["putc", "rewrite", "block_write", "getc", "block_read", "seeks"]);
        assert!(rows.iter().all(|row| row.engine == Engine::Host && row.mode == Mode::Buffered));
        for row in &rows[..5] {
            assert_eq!(row.bytes, 8 << 20, "{row:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn interrupted_run_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let target = HostTarget::new(directory.path(), "t").unwrap();
        let settings = Settings { size_mib: 8, io: FileIo::Buffered, seeking: None };
        let cancel = Cancel::default();
        cancel.cancel();
        let error = run(&target, &settings, &cancel, &Silent).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
