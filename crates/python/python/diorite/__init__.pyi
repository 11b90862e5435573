import io
import os
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, Generic, IO, Literal, TypeVar, overload

from _typeshed import (
    OpenBinaryMode,
    OpenBinaryModeReading,
    OpenBinaryModeUpdating,
    OpenBinaryModeWriting,
    OpenTextMode,
    ReadableBuffer,
)
from typing_extensions import Self

_AnyStr = TypeVar("_AnyStr", str, bytes)
_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes] | Path
_Direct = bool | Literal["preferred"]
_Unaligned = Literal["error", "bounce"]
_Sync = Literal["data", "all"]
_Type = Literal["ext2", "ext3", "ext4"]
_Owner = tuple[int, int]
_AnyBuffer = ReadableBuffer | Buffer

__all__: list[str]
__version__: str

class CorruptError(OSError):
    """The volume contradicts itself, or there is none. The message has the place of the damage."""

    kind: str

class AlignmentError(OSError):
    """A direct transfer is not aligned.

    Attributes: `part` says which argument (`the offset`, `the length`, `the memory address`), `given` is its value, and `needed` what it must be a multiple of. Open the file with `unaligned="bounce"` to have such transfers copied through aligned memory."""

    kind: str
    part: str
    given: int
    needed: int

class Alignment:
    """What direct I/O on a file needs: ``offset`` (offsets and lengths are multiples of it), ``memory`` (so are addresses of memory),
    ``max_transfer`` (the largest transfer that the device takes as one), ``atomic_write`` (the largest write that is all or nothing after a power
    failure, 0 where none is)."""

    @property
    def offset(self) -> int:
        """Offsets and lengths are multiples of this many bytes."""
    @property
    def memory(self) -> int:
        """Addresses of memory are multiples of this many bytes."""
    @property
    def max_transfer(self) -> int:
        """The largest transfer that the device takes as one."""
    @property
    def atomic_write(self) -> int:
        """The largest write that is all or nothing after a power failure; 0 where none is."""

class Extent:
    """A range of a file and its place on the device; holes are left out."""

    @property
    def offset(self) -> int:
        """First byte in the file."""
    @property
    def length(self) -> int:
        """Length in bytes."""
    @property
    def device_offset(self) -> int | None:
        """First byte on the device; ``None`` where it has no place yet."""
    @property
    def kind(self) -> Literal["data", "unwritten", "delayed", "inline"]:
        """``"data"``, ``"unwritten"``, ``"delayed"`` or ``"inline"``."""

class Stat:
    """What ``stat`` returns: the attributes of ``os.stat_result``, and the time of creation."""

    @property
    def st_mode(self) -> int:
        """Type and permission bits."""
    @property
    def st_ino(self) -> int:
        """Inode number."""
    @property
    def st_dev(self) -> int:
        """Always 0: a volume in an image has no device number."""
    @property
    def st_nlink(self) -> int:
        """Number of hard links."""
    @property
    def st_uid(self) -> int:
        """User of the file."""
    @property
    def st_gid(self) -> int:
        """Group of the file."""
    @property
    def st_size(self) -> int:
        """Size in bytes."""
    @property
    def st_blocks(self) -> int:
        """Number of allocated blocks of 512 bytes."""
    @property
    def st_blksize(self) -> int:
        """Block size of the filesystem in bytes."""
    @property
    def st_rdev(self) -> int:
        """Device number of a device node, as ``os.major`` and ``os.minor`` take it."""
    @property
    def st_flags(self) -> int:
        """Inode flags as ``lsattr`` shows them."""
    @property
    def st_gen(self) -> int:
        """Generation of the inode."""
    @property
    def st_atime(self) -> float:
        """Last access, in seconds."""
    @property
    def st_mtime(self) -> float:
        """Last change of the content, in seconds."""
    @property
    def st_ctime(self) -> float:
        """Last change of the inode, in seconds."""
    @property
    def st_birthtime(self) -> float | None:
        """Creation, in seconds; ``None`` where the inode has no place for it."""
    @property
    def st_atime_ns(self) -> int:
        """Last access, in nanoseconds."""
    @property
    def st_mtime_ns(self) -> int:
        """Last change of the content, in nanoseconds."""
    @property
    def st_ctime_ns(self) -> int:
        """Last change of the inode, in nanoseconds."""
    @property
    def st_birthtime_ns(self) -> int | None:
        """Creation, in nanoseconds; ``None`` where the inode has no place for it."""

class StatVfs:
    """What ``statvfs`` returns: the attributes of ``os.statvfs_result``."""

    @property
    def f_bsize(self) -> int:
        """Block size in bytes."""
    @property
    def f_frsize(self) -> int:
        """Unit of the numbers of blocks in bytes."""
    @property
    def f_blocks(self) -> int:
        """Blocks for files."""
    @property
    def f_bfree(self) -> int:
        """Free blocks."""
    @property
    def f_bavail(self) -> int:
        """Free blocks that any user may use."""
    @property
    def f_files(self) -> int:
        """Inodes."""
    @property
    def f_ffree(self) -> int:
        """Free inodes."""
    @property
    def f_favail(self) -> int:
        """Free inodes that any user may use."""
    @property
    def f_namemax(self) -> int:
        """Longest name in bytes."""

class Stats:
    """What was done so far on a volume or device."""

    @property
    def bytes_copied(self) -> int:
        """Bytes of file data that the CPU copied; stays as it is for direct I/O."""
    @property
    def bios(self) -> int:
        """Transfers of file data."""
    @property
    def direct_bios(self) -> int:
        """Transfers of direct I/O among those."""
    @property
    def direct_read_bytes(self) -> int:
        """Bytes read directly."""
    @property
    def direct_write_bytes(self) -> int:
        """Bytes written directly."""
    @property
    def cache_hits(self) -> int:
        """Pages that cached reads and writes found."""
    @property
    def cache_misses(self) -> int:
        """Pages that they had to read or make."""
    @property
    def evictions(self) -> int:
        """Pages that were evicted."""
    @property
    def readahead_pages(self) -> int:
        """Pages read ahead."""
    @property
    def writeback_pages(self) -> int:
        """Pages written back."""
    @property
    def writeback_bios(self) -> int:
        """Transfers of write-back."""
    @property
    def invalidated_pages(self) -> int:
        """Pages dropped because their range was written directly, cut off or punched."""
    @property
    def pages_scanned(self) -> int:
        """Cached pages looked at by write-back and invalidation."""
    @property
    def bounces(self) -> int:
        """Transfers copied through aligned memory."""
    @property
    def flushes(self) -> int:
        """Flushes that file data needed."""
    @property
    def device_reads(self) -> int:
        """Reads of the device."""
    @property
    def device_read_bytes(self) -> int:
        """Bytes of those."""
    @property
    def device_writes(self) -> int:
        """Writes of the device."""
    @property
    def device_write_bytes(self) -> int:
        """Bytes of those."""
    @property
    def device_flushes(self) -> int:
        """Flushes of the device."""
    @property
    def device_discards(self) -> int:
        """Discards of the device."""

class Buffer:
    """Memory that direct I/O takes as it is: zeroed, aligned, on huge pages where the system has them.

    It has the writable buffer protocol: ``memoryview(buffer)``, ``numpy.frombuffer(buffer)`` and ``torch.frombuffer(buffer)`` show the
    memory without a copy, and ``buffer[10:20] = b"..."`` stores to it. ``File.buffer`` makes one with the alignment of a file.

    While a transfer reads into it, it is exported to no one and used by no other transfer (``BufferError``). Views that were made
    before show the bytes as they arrive."""

    def __new__(cls, size: int, alignment: int = 4096) -> Self: ...
    @property
    def address(self) -> int:
        """The address of the memory, a multiple of the alignment."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> memoryview: ...
    @overload
    def __setitem__(self, key: int, value: int) -> None: ...
    @overload
    def __setitem__(self, key: slice, value: _AnyBuffer) -> None: ...
    def __buffer__(self, flags: int) -> memoryview: ...

class Completion:
    """A transfer of a ``Queue`` that has ended."""

    @property
    def data(self) -> Any:
        """What was given at the submission."""
    @property
    def buffer(self) -> Any:
        """The memory of the transfer."""
    @property
    def nbytes(self) -> int:
        """Number of bytes: of a read fewer only at the end of the file. 0 if the transfer failed."""
    @property
    def error(self) -> OSError | None:
        """Why the transfer failed; ``None`` if it did not."""
    def result(self) -> int:
        """Number of bytes; raises what went wrong with the transfer."""

class Queue:
    """Many direct transfers in flight from one thread, on ``file`` or any other file of diorite.

    Offsets, lengths and memory must fit ``file.alignment``; ``file.buffer(n)`` makes such memory. A transfer holds its range of the file
    until it is reaped: do not wait for the same range in another way (``readinto_at``, ``fsync``) before. Threads can share a queue."""

    def __new__(cls, file: File | IO[Any] | None = None, depth: int = 32) -> Self: ...
    @property
    def depth(self) -> int:
        """Most transfers in flight."""
    @property
    def in_flight(self) -> int:
        """Transfers submitted and not yet reaped."""
    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
    def submit_read(self, buffer: _AnyBuffer, offset: int, data: Any = None, *, file: File | IO[Any] | None = None) -> None:
        """Read into all of ``buffer`` from ``offset``. ``data`` comes back with the completion. ``BlockingIOError`` if ``depth`` transfers are in flight."""
    def submit_write(self, buffer: _AnyBuffer, offset: int, data: Any = None, *, file: File | IO[Any] | None = None) -> None:
        """Write all of ``buffer`` at ``offset``. ``data`` comes back with the completion. ``BlockingIOError`` if ``depth`` transfers are in flight."""
    def reap(self, min: int = 1, timeout: float | None = None) -> list[Completion]:
        """The transfers that have ended: waits for at least ``min`` (or all, if fewer are in flight), at most ``timeout`` seconds."""
    def fileno(self) -> int:
        """A descriptor that is readable when a transfer can be reaped, for ``selectors``; call ``reap(0)`` then."""
    def close(self) -> None:
        """Wait for everything in flight, whose results are lost, and close the queue."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...

class AsyncQueue:
    """Many direct transfers in flight from an event loop, on ``file`` or any other file of diorite.

    With ``depth`` transfers in flight, and while a range of the file is not free, a transfer waits its turn. Offsets, lengths and memory must fit
    ``file.alignment``; ``file.buffer(n)`` makes such memory."""

    def __init__(self, file: File | IO[Any] | None = None, depth: int = 32) -> None: ...
    async def read(self, buffer: _AnyBuffer, offset: int, *, file: File | IO[Any] | None = None) -> int:
        """Read into all of ``buffer`` from ``offset``; returns the number of bytes, fewer only at the end of the file."""
    async def write(self, buffer: _AnyBuffer, offset: int, *, file: File | IO[Any] | None = None) -> int:
        """Write all of ``buffer`` at ``offset``; returns the number of bytes."""
    @property
    def depth(self) -> int:
        """Most transfers in flight."""
    @property
    def in_flight(self) -> int:
        """Transfers submitted and not yet ended."""
    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
    def close(self) -> None:
        """Wait for what is in flight, and close the queue. Transfers that are awaited fail with ``ValueError``."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: Any) -> None: ...

class AsyncFile:
    """A file for asyncio: transfers go through an ``AsyncQueue``, what has no queue through the event loop's threads.

    ``file`` is what ``open(..., buffering=0, direct=True)`` returned; closing the ``AsyncFile`` closes it."""

    def __init__(self, file: File | IO[Any], depth: int = 32) -> None: ...
    @property
    def file(self) -> File:
        """The file."""
    @property
    def queue(self) -> AsyncQueue:
        """The queue."""
    def buffer(self, size: int) -> Buffer:
        """A ``Buffer`` that fits the file."""
    async def readinto_at(self, buffer: _AnyBuffer, offset: int) -> int:
        """Read into all of ``buffer`` from ``offset``; returns the number of bytes."""
    async def pread(self, size: int, offset: int) -> bytes:
        """The bytes at ``offset``: a transfer, and a copy into a ``bytes`` object."""
    async def pwrite(self, buffer: _AnyBuffer, offset: int) -> int:
        """Write all of ``buffer`` at ``offset``; returns the number of bytes."""
    async def fsync(self) -> None:
        """Make data and attributes durable."""
    async def fdatasync(self) -> None:
        """Make data durable, and what is needed to read it."""
    async def truncate(self, size: int) -> int:
        """Set the size."""
    async def close(self) -> None:
        """Wait for what is in flight, and close the queue and the file."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: Any) -> None: ...

class File(io.RawIOBase):
    """An open file, unbuffered: ``io.RawIOBase``, and transfers at offsets that leave the position alone.

    It is returned by ``open(..., buffering=0)``, and is the attribute ``raw`` of a buffered file. Threads can use one at once; each call takes effect whole."""

    name: str | bytes
    @property
    def mode(self) -> str:
        """The mode, as Python's own raw files name it."""
    def readable(self) -> bool:
        """Whether the file is open for reading."""
    def writable(self) -> bool:
        """Whether the file is open for writing."""
    def seekable(self) -> bool:
        """True."""
    def fileno(self) -> int:
        """Raises ``io.UnsupportedOperation``: the file has no descriptor of the host."""
    def isatty(self) -> bool:
        """False."""
    def close(self) -> None:
        """Close the file; closing it again does nothing. Raises OSError if something could not be written back. Call ``fsync`` before
        to know that everything is on the disk."""
    def read(self, size: int | None = -1) -> bytes:
        """Read at most ``size`` bytes from the position, all of the rest with -1."""
    def readall(self) -> bytes:
        """Read all from the position to the end."""
    def readinto(self, buffer: _AnyBuffer) -> int:
        """Read from the position into ``buffer``; returns the number of bytes, 0 at the end."""
    def write(self, data: _AnyBuffer) -> int:
        """Write at the position; returns the number of bytes, fewer only where the volume filled up."""
    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position; ``whence`` is also ``os.SEEK_DATA`` and ``os.SEEK_HOLE``."""
    def tell(self) -> int:
        """The position."""
    def truncate(self, size: int | None = None) -> int:
        """Set the size, to the position if none is given."""
    def readinto_at(self, buffer: _AnyBuffer, offset: int) -> int:
        """Read from ``offset`` into ``buffer``, any object with writable memory; returns the number of bytes, fewer only at the end.

        A direct file moves the data from the disk into that memory, without a copy. Address, length and offset must fit ``alignment`` then."""
    def pread(self, size: int, offset: int) -> bytes:
        """Read at most ``size`` bytes from ``offset``."""
    def pwrite(self, data: _AnyBuffer, offset: int) -> int:
        """Write ``data`` at ``offset``; returns the number of bytes, fewer only where the volume filled up."""
    def append(self, data: _AnyBuffer) -> int:
        """Write all of ``data`` at the end, wherever that is at the moment; returns the offset where it went."""
    def buffer(self, size: int) -> Buffer:
        """A ``Buffer`` of ``size`` zeroed bytes that direct I/O on this file takes as it is."""
    def fsync(self) -> None:
        """Make data and attributes durable."""
    def fdatasync(self) -> None:
        """Make data durable, and what is needed to read it."""
    def fallocate(self, offset: int, length: int, *, keep_size: bool = False) -> None:
        """Give a range blocks; the file grows to its end unless ``keep_size`` is true."""
    def punch_hole(self, offset: int, length: int) -> None:
        """Make a range a hole: it reads as zeros, and its blocks are free."""
    def zero_range(self, offset: int, length: int) -> None:
        """Make a range read as zeros; it has blocks afterwards."""
    def collapse_range(self, offset: int, length: int) -> None:
        """Take a range of whole blocks out of the file; what follows moves to the front."""
    def insert_range(self, offset: int, length: int) -> None:
        """Insert a hole of whole blocks; what follows moves towards the end."""
    def seek_hole(self, offset: int) -> int:
        """The first hole at or after ``offset``; the end of the file is one. ``OSError`` with ``ENXIO`` from the end on."""
    def seek_data(self, offset: int) -> int:
        """The first data at or after ``offset``. ``OSError`` with ``ENXIO`` if there is none."""
    def extents(self) -> list[Extent]:
        """Where the data is, a list of ``Extent``."""
    def drop_cached(self, offset: int = 0, length: int | None = None) -> None:
        """Write back what is dirty of a range, and drop it from the cache."""
    def stat(self) -> Stat:
        """Attributes, a ``Stat``."""
    def stats(self) -> Stats:
        """What was done so far on the volume or device, a ``Stats``."""
    def set_direct(self, direct: _Direct) -> None:
        """Bypass the cache from the next call on (``True``, ``"preferred"``), or not (``False``)."""
    @property
    def size(self) -> int:
        """Size in bytes."""
    @property
    def max_size(self) -> int:
        """The largest size that the file can have."""
    @property
    def alignment(self) -> Alignment:
        """What direct I/O needs, an ``Alignment``."""
    @property
    def direct(self) -> _Direct:
        """Whether the cache is bypassed: ``False``, ``True`` or ``"preferred"``."""

class DirEntry(Generic[_AnyStr]):
    """An entry of a directory, as ``scandir`` returns it: ``name`` and ``path``, and calls that seldom ask the volume."""

    name: _AnyStr
    path: _AnyStr
    def inode(self) -> int:
        """Inode number."""
    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Attributes, asked once."""

class Path:
    """A path of a filesystem: ``fs / "dir" / "file"``.

    Its methods are those of ``pathlib.Path``. It is not ``os.PathLike``, so that no function of the host takes it for a path of the host; calls of a
    ``Filesystem`` take it."""

    def __init__(self, filesystem: Filesystem, *parts: str | PurePosixPath | Path) -> None: ...
    @property
    def filesystem(self) -> Filesystem:
        """The filesystem."""
    def __truediv__(self, part: str | PurePosixPath | Path) -> Path: ...
    def __lt__(self, other: Path) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def name(self) -> str:
        """The last part."""
    @property
    def stem(self) -> str:
        """The last part without its suffix."""
    @property
    def suffix(self) -> str:
        """The suffix of the last part, with its dot."""
    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the last part."""
    @property
    def parts(self) -> tuple[str, ...]:
        """The parts."""
    @property
    def parent(self) -> Path:
        """The path without its last part."""
    @property
    def parents(self) -> tuple[Path, ...]:
        """All parents, the nearest first."""
    def as_posix(self) -> str:
        """The path as text."""
    def is_absolute(self) -> bool:
        """Whether it begins with a slash; a relative path begins at the root as well."""
    def is_relative_to(self, other: str | PurePosixPath | Path) -> bool:
        """Whether it lies beneath ``other``."""
    def joinpath(self, *parts: str | PurePosixPath | Path) -> Path:
        """The path with more parts."""
    def match(self, pattern: str) -> bool:
        """Whether it matches a pattern."""
    def relative_to(self, other: str | PurePosixPath | Path) -> PurePosixPath:
        """What follows ``other``, a ``pathlib.PurePosixPath``."""
    def with_name(self, name: str) -> Path:
        """The path with another last part."""
    def with_stem(self, stem: str) -> Path:
        """The path with another last part, but for the suffix."""
    def with_suffix(self, suffix: str) -> Path:
        """The path with another suffix."""
    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Attributes, a ``Stat``."""
    def lstat(self) -> Stat:
        """Attributes, of the link itself if it is one."""
    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is something."""
    def is_file(self) -> bool:
        """Whether the path leads to a regular file."""
    def is_dir(self) -> bool:
        """Whether the path leads to a directory."""
    def is_symlink(self) -> bool:
        """Whether there is a symbolic link."""
    def samefile(self, other: _Path) -> bool:
        """Whether both paths lead to one file."""
    @overload
    def open(
        self,
        mode: OpenBinaryMode,
        buffering: Literal[0],
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        **options: Any,
    ) -> File:
        """Open the file; the mode is text unless it says ``b``, as in ``pathlib``. ``options`` are those of ``Filesystem.open``."""
    @overload
    def open(
        self,
        mode: OpenTextMode = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **options: Any,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(
        self,
        mode: OpenBinaryModeReading,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        **options: Any,
    ) -> io.BufferedReader: ...
    @overload
    def open(
        self,
        mode: OpenBinaryModeWriting,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        **options: Any,
    ) -> io.BufferedWriter: ...
    @overload
    def open(
        self,
        mode: OpenBinaryModeUpdating,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        **options: Any,
    ) -> io.BufferedRandom: ...
    @overload
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **options: Any,
    ) -> File | IO[Any]: ...
    def read_bytes(self) -> bytes:
        """The content."""
    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """The content as text."""
    def write_bytes(self, data: _AnyBuffer) -> int:
        """Replace the content; returns the number of bytes."""
    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> int:
        """Replace the content by text; returns the number of characters."""
    def iterdir(self) -> Iterator[Path]:
        """The paths in the directory, in no particular order."""
    def walk(
        self, top_down: bool = True, on_error: Callable[[OSError], object] | None = None, follow_symlinks: bool = False
    ) -> Iterator[tuple[Path, list[str], list[str]]]:
        """As ``Filesystem.walk``, with paths."""
    def glob(self, pattern: str) -> Iterator[Path]:
        """The paths beneath this directory that match a pattern, in which ``**`` is any number of directories."""
    def rglob(self, pattern: str) -> Iterator[Path]:
        """As ``glob``, with ``**/`` before the pattern."""
    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory; with ``parents`` also those that are missing, with the default mode."""
    def rmdir(self) -> None:
        """Remove the empty directory."""
    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Make an empty file, or set the times of one to now."""
    def rename(self, target: str | PurePosixPath | Path) -> Path:
        """Rename; returns the new path. A file there is replaced."""
    def replace(self, target: str | PurePosixPath | Path) -> Path:
        """Rename; returns the new path. A file there is replaced."""
    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set permission bits."""
    def symlink_to(self, target: str | PurePosixPath | Path) -> None:
        """Make this path a symbolic link that says ``target``."""
    def hardlink_to(self, target: _Path) -> None:
        """Make this path a hard link to the file ``target``."""
    def readlink(self) -> Path:
        """What the symbolic link says."""

class Filesystem:
    """An ext2, ext3 or ext4 volume: ``Filesystem("disk.img")``.

    ``target`` is an image or a device, or what else the library opens: ``"disk.img?partition=2"``, ``"nbd://HOST/EXPORT"``,
    ``"lvm:A,B?volume=NAME"``.

    Options: ``read_only``; ``cache_bytes`` (64 MiB), ``metadata_cache_bytes`` (64 MiB) and ``read_ahead_bytes`` (8 MiB); ``dirty_age`` and
    ``commit_interval`` in seconds (5); ``data_mode``; ``quota_limits``, whether quotas hold; ``direct``, whether files bypass the cache where
    ``open`` does not say; ``device_direct``, whether the image bypasses the host's cache; ``scheduler``: ``"none"``, ``"deadline"``,
    ``"cfq"`` or ``"inject"``.

    Paths are text, bytes, ``os.PathLike`` or ``diorite.Path``. Names that are not UTF-8 have escaped bytes, as with ``os.fsdecode``. A filesystem is a
    context manager; ``close`` reports errors. Threads can use it at once; a forked process cannot."""

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        read_only: bool = False,
        cache_bytes: int | None = None,
        metadata_cache_bytes: int | None = None,
        read_ahead_bytes: int | None = None,
        dirty_age: float | None = None,
        commit_interval: float | None = None,
        data_mode: Literal["ordered", "writeback", "journal"] | None = None,
        quota_limits: bool = False,
        direct: _Direct | None = None,
        device_direct: _Direct | None = None,
        scheduler: str | None = None,
    ) -> None: ...
    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        size: int,
        type: _Type = "ext4",
        *,
        block_size: int | None = None,
        label: str = "",
        features: str = "",
        inodes: int | None = None,
        bytes_per_inode: int | None = None,
        reserved_percent: float = 5.0,
        owner: _Owner = (0, 0),
        **options: Any,
    ) -> Self:
        """Make a volume in a new image of ``size`` bytes, which is sparse, and open it with ``options``.

        ``FileExistsError`` if the file exists; it stays as it is then. After any other error there is no image. ``mkfs`` has the other arguments."""
    @property
    def target(self) -> str:
        """The image or device, as it was given."""
    @property
    def closed(self) -> bool:
        """Whether the filesystem was closed."""
    @property
    def read_only_reason(self) -> str | None:
        """Why the volume is read-only; ``None`` if it is not."""
    @property
    def defects(self) -> list[str]:
        """What was found damaged or missing when the volume was opened, so that what is read may not be the newest, nor everything."""
    def close(self) -> None:
        """Close all files that are open, sync, and mark the volume clean. Closing it again does nothing.

        Reports what could not be written. ``OSError`` with ``EBUSY`` while a ``Queue`` uses it: it stays open then."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...
    def __truediv__(self, path: str | PurePosixPath | Path) -> Path: ...
    def path(self, *parts: str | PurePosixPath | Path) -> Path:
        """A ``Path`` of this filesystem."""
    @overload
    def open(
        self,
        path: _Path,
        mode: OpenBinaryMode,
        buffering: Literal[0],
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> File:
        """Open a file, as the builtin ``open`` does; only the default mode differs, which is binary.

        ``buffering=0`` returns a ``File``; otherwise there is a buffer of the module ``io`` around it, whose attribute ``raw`` it is.
        ``direct``: ``True`` bypasses the cache, ``"preferred"`` where it is possible. ``unaligned``: what a direct file does with a
        transfer that is not aligned: ``"error"`` (with ``buffering=0``), or ``"bounce"``, which copies. ``sync``: ``"data"`` or ``"all"``
        makes each write durable. ``permissions`` and ``owner`` are those of a new file."""
    @overload
    def open(
        self,
        path: _Path,
        mode: OpenBinaryMode = "rb",
        *,
        buffering: Literal[0],
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> File: ...
    @overload
    def open(
        self,
        path: _Path,
        mode: OpenTextMode,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(
        self,
        path: _Path,
        mode: OpenBinaryModeReading = "rb",
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> io.BufferedReader: ...
    @overload
    def open(
        self,
        path: _Path,
        mode: OpenBinaryModeWriting,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> io.BufferedWriter: ...
    @overload
    def open(
        self,
        path: _Path,
        mode: OpenBinaryModeUpdating,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> io.BufferedRandom: ...
    @overload
    def open(
        self,
        path: _Path,
        mode: str = "rb",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        direct: _Direct | None = None,
        unaligned: _Unaligned | None = None,
        sync: _Sync | None = None,
        permissions: int = 0o644,
        owner: _Owner | None = None,
    ) -> File | IO[Any]: ...
    def listdir(self, path: _Path = "/") -> list[Any]:
        """The names in a directory, in no particular order; bytes if ``path`` is bytes."""
    def scandir(self, path: _Path = "/") -> Iterator[DirEntry[Any]]:
        """An iterator of ``DirEntry``, also a context manager."""
    def walk(
        self,
        top: _Path = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """Directories beneath ``top`` as tuples (path, names of directories, names of others), as ``os.walk``.

        ``CorruptError`` if a directory has more than one name, as only on a damaged volume."""
    def makedirs(self, name: _Path, mode: int = 0o755, exist_ok: bool = False, *, owner: _Owner | None = None) -> None:
        """Make a directory, and all missing parents with the default mode."""
    def removedirs(self, name: _Path) -> None:
        """Remove an empty directory, and then parents that are empty by that."""
    def rmtree(self, path: _Path, ignore_errors: bool = False) -> None:
        """Remove a directory and everything in it."""
    def exists(self, path: _Path) -> bool:
        """Whether the path leads to something; damage and failures of the device are errors."""
    def lexists(self, path: _Path) -> bool:
        """Whether there is something, also a symbolic link that leads nowhere."""
    def isfile(self, path: _Path) -> bool:
        """Whether the path leads to a regular file."""
    def isdir(self, path: _Path) -> bool:
        """Whether the path leads to a directory."""
    def islink(self, path: _Path) -> bool:
        """Whether there is a symbolic link."""
    def getsize(self, path: _Path) -> int:
        """Size of a file in bytes."""
    def read_text(self, path: _Path, encoding: str | None = None, errors: str | None = None) -> str:
        """The content of a file as text."""
    def write_text(
        self, path: _Path, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Make a file of this text, or replace the content of one; returns the number of characters."""
    def sync(self) -> None:
        """Make everything durable."""
    def drop_caches(self) -> None:
        """Sync, and drop everything that is cached of files."""
    def trim(self, shortest: int = 0) -> int:
        """Discard free space in runs of at least ``shortest`` bytes; returns the number of bytes."""
    def statvfs(self) -> StatVfs:
        """Space and inodes, as ``os.statvfs`` returns them."""
    def stats(self) -> Stats:
        """What was done so far."""
    def stat(self, path: _Path, *, follow_symlinks: bool = True) -> Stat:
        """Attributes of a file."""
    def lstat(self, path: _Path) -> Stat:
        """Attributes of a file, or of the link itself if it is one."""
    def mkdir(self, path: _Path, mode: int = 0o755, *, owner: _Owner | None = None) -> None:
        """Make a directory."""
    def mknod(self, path: _Path, mode: int = 0o100644, device: int = 0, *, owner: _Owner | None = None) -> None:
        """Make a file, a device node, a FIFO or a socket, as the type bits of ``mode`` say."""
    def rmdir(self, path: _Path) -> None:
        """Remove an empty directory."""
    def remove(self, path: _Path) -> None:
        """Remove a name of anything but a directory."""
    def unlink(self, path: _Path) -> None:
        """Remove a name of anything but a directory."""
    def rename(self, src: _Path, dst: _Path) -> None:
        """Rename; a file at ``dst`` is replaced."""
    def replace(self, src: _Path, dst: _Path) -> None:
        """Rename; a file at ``dst`` is replaced."""
    def exchange(self, a: _Path, b: _Path) -> None:
        """Let two files or directories change places."""
    def link(self, src: _Path, dst: _Path) -> None:
        """Make a hard link ``dst`` to the file ``src``."""
    def symlink(self, src: _Path, dst: _Path) -> None:
        """Make a symbolic link ``dst`` that says ``src``."""
    def readlink(self, path: _Path) -> Any:
        """What a symbolic link says."""
    def chmod(self, path: _Path, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set permission bits."""
    def chown(self, path: _Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Set user and group; -1, as it is or as 32 bits without a sign, leaves one as it is. Set-user-ID, set-group-ID and capabilities of a regular
        file go."""
    def utime(
        self,
        path: _Path,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Set times of access and modification: ``times`` in seconds or ``ns`` in nanoseconds, both now if neither is given."""
    def truncate(self, path: _Path, length: int) -> None:
        """Set the size of a file."""
    def getxattr(self, path: _Path, attribute: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """The value of an extended attribute."""
    def setxattr(
        self, path: _Path, attribute: str | bytes, value: _AnyBuffer, flags: int = 0, *, follow_symlinks: bool = True
    ) -> None:
        """Set an extended attribute. ``flags`` as in ``os``: ``XATTR_CREATE`` fails if it exists, ``XATTR_REPLACE`` if it does not."""
    def listxattr(self, path: _Path | None = None, *, follow_symlinks: bool = True) -> list[str]:
        """The names of all extended attributes."""
    def removexattr(self, path: _Path, attribute: str | bytes, *, follow_symlinks: bool = True) -> None:
        """Remove an extended attribute."""
    def copyfile(self, src: _Path, dst: _Path) -> int:
        """Copy the content and the permissions of a file to another one; holes stay holes. Returns the number of bytes."""
    def read_bytes(self, path: _Path) -> bytes:
        """The content of a file."""
    def write_bytes(self, path: _Path, data: _AnyBuffer) -> int:
        """Make a file of this content, or replace the content of one; returns the number of bytes."""

def mkfs(
    target: str | os.PathLike[str],
    size: int | None = None,
    *,
    type: _Type = "ext4",
    block_size: int | None = None,
    label: str = "",
    features: str = "",
    inodes: int | None = None,
    bytes_per_inode: int | None = None,
    reserved_percent: float = 5.0,
    owner: _Owner = (0, 0),
    force: bool = False,
) -> None:
    """Make a volume: in a new image of ``size`` bytes, or without a size on an existing image or device.

    Everything that was on it is lost. One that holds something known (a volume, a partition table, a member of an array or a volume group, another
    format) is refused with ``FileExistsError`` unless ``force`` is true.
    ``type`` is ``"ext2"``, ``"ext3"`` or ``"ext4"``; ``features`` are changes of the features as ``mke2fs -O`` takes them."""
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: OpenBinaryMode,
    buffering: Literal[0],
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File:
    """Open a file of the host's filesystem, with the cache and the direct I/O of the library.

    The arguments are those of ``Filesystem.open``."""
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: OpenBinaryMode = "rb",
    *,
    buffering: Literal[0],
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File: ...
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: OpenTextMode,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.TextIOWrapper: ...
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: OpenBinaryModeReading = "rb",
    buffering: Literal[-1, 1] = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.BufferedReader: ...
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: OpenBinaryModeWriting,
    buffering: Literal[-1, 1] = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.BufferedWriter: ...
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: OpenBinaryModeUpdating,
    buffering: Literal[-1, 1] = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.BufferedRandom: ...
@overload
def open_host(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File | IO[Any]: ...
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: OpenBinaryMode,
    buffering: Literal[0],
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File:
    """Open a whole image, device or other target as one file: byte N of the file is byte N of the device.

    The arguments are those of ``Filesystem.open``; the modes are ``"r"`` and ``"r+"``, binary or text."""
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: OpenBinaryMode = "rb",
    *,
    buffering: Literal[0],
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File: ...
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: OpenTextMode,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.TextIOWrapper: ...
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: OpenBinaryModeReading = "rb",
    buffering: Literal[-1, 1] = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.BufferedReader: ...
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: OpenBinaryModeWriting,
    buffering: Literal[-1, 1] = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.BufferedWriter: ...
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: OpenBinaryModeUpdating,
    buffering: Literal[-1, 1] = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> io.BufferedRandom: ...
@overload
def open_raw(
    target: str | os.PathLike[str],
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    direct: _Direct = False,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File | IO[Any]: ...
