//! Results of calls as the named tuples of `_records.py`.

use diorite::{Alignment, Attributes, Extent, ExtentKind, SpaceUse, Stats, Timestamp};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

const NANOSECONDS: i128 = 1_000_000_000;

/// The longest name in bytes.
const NAME_MAX: u64 = 255;

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds)
}

pub(crate) fn timestamp(nanoseconds: i128) -> PyResult<Timestamp> {
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOSECONDS))?;
    Ok(Timestamp { seconds, nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32 })
}

fn record<'py>(
    py: Python<'py>,
    name: &str,
    fields: impl PyCallArgs<'py>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("diorite._records")?.getattr(name)?.call(fields, named)
}

pub(crate) fn alignment<'py>(py: Python<'py>, needed: &Alignment) -> PyResult<Bound<'py, PyAny>> {
    let fields = (needed.offset, needed.memory, needed.max_transfer, needed.atomic_write);
    record(py, "Alignment", fields, None)
}

pub(crate) fn extent<'py>(py: Python<'py>, extent: &Extent) -> PyResult<Bound<'py, PyAny>> {
    let kind = match extent.kind {
        ExtentKind::Unwritten => "unwritten",
        ExtentKind::Delayed => "delayed",
        ExtentKind::Inline => "inline",
        _ => "data",
    };
    let device_offset = extent.sector.map(diorite::Sector::to_bytes);
    record(py, "Extent", (extent.offset, extent.len, device_offset, kind), None)
}

pub(crate) fn statvfs<'py>(py: Python<'py>, space: &SpaceUse) -> PyResult<Bound<'py, PyAny>> {
    let fields = (
        space.block_size,
        space.block_size,
        space.blocks,
        space.blocks_free,
        space.blocks_available,
        space.inodes,
        space.inodes_free,
        space.inodes_free,
        NAME_MAX,
    );
    record(py, "StatVfs", fields, None)
}

pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyAny>> {
    let device = &stats.device;
    let fields = [
        stats.bytes_copied,
        stats.bios,
        stats.direct_bios,
        stats.direct_read_bytes,
        stats.direct_write_bytes,
        stats.cache_hits,
        stats.cache_misses,
        stats.evictions,
        stats.readahead_pages,
        stats.writeback_pages,
        stats.writeback_bios,
        stats.invalidated_pages,
        stats.pages_scanned,
        stats.bounces,
        stats.flushes,
        device.reads,
        device.read_bytes,
        device.writes,
        device.write_bytes,
        device.flushes,
        device.discards,
    ];
    record(py, "Stats", PyTuple::new(py, fields)?, None)
}

pub(crate) fn stat<'py>(
    py: Python<'py>,
    attributes: &Attributes,
    block_size: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let (major, minor) = attributes.device;
    let fields = PyDict::new(py);
    fields.set_item("st_mode", u32::from(attributes.kind.mode_bits()) | u32::from(attributes.permissions))?;
    fields.set_item("st_ino", attributes.inode.0)?;
    fields.set_item("st_dev", 0)?;
    fields.set_item("st_nlink", attributes.links)?;
    fields.set_item("st_uid", attributes.owner.uid)?;
    fields.set_item("st_gid", attributes.owner.gid)?;
    fields.set_item("st_size", attributes.size)?;
    fields.set_item("st_blocks", attributes.sectors)?;
    fields.set_item("st_blksize", block_size)?;
    fields.set_item("st_rdev", rustix::fs::makedev(major, minor))?;
    fields.set_item("st_flags", attributes.flags)?;
    fields.set_item("st_gen", attributes.generation)?;
    fields.set_item("st_atime_ns", nanoseconds(attributes.accessed))?;
    fields.set_item("st_mtime_ns", nanoseconds(attributes.modified))?;
    fields.set_item("st_ctime_ns", nanoseconds(attributes.changed))?;
    fields.set_item("st_birthtime_ns", attributes.created.map(nanoseconds))?;
    record(py, "Stat", (), Some(&fields))
}
