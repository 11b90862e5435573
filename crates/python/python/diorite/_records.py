"""Results of calls, as named tuples."""

from collections import namedtuple


def _record(name, doc, **fields):
    """A class of named tuples, with a docstring for each field."""
    record = namedtuple(name, fields, module="diorite")
    record.__doc__ = doc
    for field, text in fields.items():
        getattr(record, field).__doc__ = text
    return record


Alignment = _record(
    "Alignment",
    "The requirements of direct I/O on a file, in bytes.",
    offset="Offsets and lengths must be multiples of this number.",
    memory="Addresses of memory must be multiples of this number.",
    max_transfer="The largest single transfer of the device.",
    atomic_write="The largest write that is all or nothing after a power failure; 0 if the device has no atomic writes.",
)

Extent = _record(
    "Extent",
    "A range of a file and its offset on the device. Holes have no extent.",
    offset="First byte in the file.",
    length="Length in bytes.",
    device_offset="First byte on the device; ``None`` if no block is allocated yet.",
    kind='``"data"``, ``"unwritten"``, ``"delayed"`` or ``"inline"``.',
)

TensorInfo = _record(
    "TensorInfo",
    "A tensor of a file, as the header describes it.",
    dtype='The type of the elements: ``"F32"``, ``"BF16"``, ``"Q4_K"``, or the ``descr`` of another dtype of NumPy.',
    shape="The dimensions.",
    nbytes="Bytes in memory.",
    file="The file.",
    offset="First byte in the file.",
    compressed="Whether the bytes in the file are compressed.",
)

LoadStats = _record(
    "LoadStats",
    "How the bytes of a load moved.",
    bytes_direct="Read from the disk into their place.",
    bytes_mapped="Mapped from the host's page cache.",
    bytes_buffered="Read through the host's page cache, from which the kernel copied them.",
    bytes_decompressed="Decompressed.",
    bytes_copied="Bytes that the CPU copied or decompressed. 0 if all were read directly or mapped.",
)

StatVfs = _record(
    "StatVfs",
    "The result of ``statvfs``: the attributes of ``os.statvfs_result``.",
    f_bsize="Block size in bytes.",
    f_frsize="Unit of the numbers of blocks in bytes.",
    f_blocks="Blocks for files.",
    f_bfree="Free blocks.",
    f_bavail="Free blocks that any user may use.",
    f_files="Inodes.",
    f_ffree="Free inodes.",
    f_favail="Free inodes that any user may use.",
    f_namemax="Longest name in bytes.",
)

Stats = _record(
    "Stats",
    "Counters of a volume or device since it was opened.",
    bytes_copied="Bytes of file data that the CPU copied. Direct I/O does not raise it.",
    bios="Transfers of file data.",
    direct_bios="Transfers of direct I/O, a part of ``bios``.",
    direct_read_bytes="Bytes read directly.",
    direct_write_bytes="Bytes written directly.",
    cache_hits="Pages that cached reads and writes found in the cache.",
    cache_misses="Pages that cached reads and writes did not find in the cache.",
    evictions="Evicted pages.",
    readahead_pages="Pages read ahead.",
    writeback_pages="Pages written back.",
    writeback_bios="Transfers of writeback.",
    invalidated_pages="Pages dropped because their range was written directly, truncated or punched.",
    pages_scanned="Cached pages that writeback and invalidation visited.",
    bounces="Transfers copied through aligned memory.",
    flushes="Flushes for file data.",
    device_reads="Reads of the device.",
    device_read_bytes="Bytes read from the device.",
    device_writes="Writes to the device.",
    device_write_bytes="Bytes written to the device.",
    device_flushes="Flushes of the device.",
    device_discards="Discards of the device.",
)


def _seconds(field, text):
    """A time of ``Stat`` in seconds."""

    def get(stat):
        time = getattr(stat, field + "_ns")
        return None if time is None else time / 1_000_000_000

    return property(get, doc=text)


class Stat(
    _record(
        "Stat",
        None,
        st_mode="Type and permission bits.",
        st_ino="Inode number.",
        st_dev="Always 0: a volume in an image has no device number.",
        st_nlink="Number of hard links.",
        st_uid="User ID of the owner.",
        st_gid="Group ID of the owner.",
        st_size="Size in bytes.",
        st_blocks="Number of allocated blocks of 512 bytes.",
        st_blksize="Block size of the filesystem in bytes.",
        st_rdev="Device number of a device node, for ``os.major`` and ``os.minor``.",
        st_flags="Inode flags as ``lsattr`` shows them.",
        st_gen="Generation of the inode.",
        st_atime_ns="Last access, in nanoseconds.",
        st_mtime_ns="Last change of the content, in nanoseconds.",
        st_ctime_ns="Last change of the inode, in nanoseconds.",
        st_birthtime_ns="Creation, in nanoseconds; ``None`` if the inode does not store it.",
    )
):
    """The result of ``stat``: the attributes of ``os.stat_result``, and the creation time."""

    __slots__ = ()
    __module__ = "diorite"

    st_atime = _seconds("st_atime", "Last access, in seconds.")
    st_mtime = _seconds("st_mtime", "Last change of the content, in seconds.")
    st_ctime = _seconds("st_ctime", "Last change of the inode, in seconds.")
    st_birthtime = _seconds("st_birthtime", "Creation, in seconds; ``None`` if the inode does not store it.")
