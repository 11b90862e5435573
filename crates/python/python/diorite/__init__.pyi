import io
import os
from collections.abc import Callable, Iterable, Iterator
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
_Value = TypeVar("_Value")
_ModelPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_ModelPaths = _ModelPath | Iterable[_ModelPath]
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
    """The volume is damaged, the target is not a volume, or a file of tensors is damaged. The message says where the damage is."""

    kind: str

class AlignmentError(OSError):
    """A direct transfer is not aligned.

    Attributes: `part` names the argument (`the offset`, `the length`, `the memory address`), `given` is its value, and `needed` the required multiple. A file opened with `unaligned="bounce"` copies such transfers through aligned memory."""

    kind: str
    part: str
    given: int
    needed: int

class Alignment:
    """The requirements of direct I/O on a file, in bytes."""

    @property
    def offset(self) -> int:
        """Offsets and lengths must be multiples of this number."""
    @property
    def memory(self) -> int:
        """Addresses of memory must be multiples of this number."""
    @property
    def max_transfer(self) -> int:
        """The largest single transfer of the device."""
    @property
    def atomic_write(self) -> int:
        """The largest write that is all or nothing after a power failure; 0 if the device has no atomic writes."""

class Extent:
    """A range of a file and its offset on the device. Holes have no extent."""

    @property
    def offset(self) -> int:
        """First byte in the file."""
    @property
    def length(self) -> int:
        """Length in bytes."""
    @property
    def device_offset(self) -> int | None:
        """First byte on the device; ``None`` if no block is allocated yet."""
    @property
    def kind(self) -> Literal["data", "unwritten", "delayed", "inline"]:
        """``"data"``, ``"unwritten"``, ``"delayed"`` or ``"inline"``."""

class TensorInfo:
    """A tensor of a file, as the header describes it."""

    @property
    def dtype(self) -> str:
        """The type of the elements: ``"F32"``, ``"BF16"``, ``"Q4_K"``, or the ``descr`` of another dtype of NumPy."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
    @property
    def file(self) -> str:
        """The file."""
    @property
    def offset(self) -> int:
        """First byte in the file."""
    @property
    def compressed(self) -> bool:
        """Whether the bytes in the file are compressed."""

class LoadStats:
    """How the bytes of a load moved."""

    @property
    def bytes_direct(self) -> int:
        """Read from the disk into their place."""
    @property
    def bytes_mapped(self) -> int:
        """Mapped from the host's page cache."""
    @property
    def bytes_buffered(self) -> int:
        """Read through the host's page cache, from which the kernel copied them."""
    @property
    def bytes_decompressed(self) -> int:
        """Decompressed."""
    @property
    def bytes_copied(self) -> int:
        """Bytes that the CPU copied or decompressed. 0 if all were read directly or mapped."""

class Tensor:
    """A loaded tensor: its memory, dtype and shape.

    It has ``__array_interface__`` for ``numpy.asarray(tensor)`` and DLPack for ``torch.from_dlpack(tensor)``. All share the memory, which lives
    as long as one of them. A store changes the memory and never the file."""

    @property
    def name(self) -> str:
        """Its name in the file."""
    @property
    def dtype(self) -> str:
        """The type of the elements: ``"F32"``, ``"BF16"``, ``"Q4_K"``, or the ``descr`` of another dtype of NumPy."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Tensors(dict[str, _Value]):
    """The result of ``load`` and ``load_header``: a ``dict`` by the names of the tensors, in the order of the files.

    Arrays share the memory of the load. It is released when the last of them is gone."""

    @property
    def metadata(self) -> dict[str, str | int | float | bool]:
        """Text and numbers that the headers have beside the tensors. Arrays of GGUF are left out."""
    @property
    def stats(self) -> LoadStats | None:
        """How the bytes moved; ``None`` after ``load_header``."""

class Stat:
    """The result of ``stat``: the attributes of ``os.stat_result``, and the creation time."""

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
        """User ID of the owner."""
    @property
    def st_gid(self) -> int:
        """Group ID of the owner."""
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
        """Device number of a device node, for ``os.major`` and ``os.minor``."""
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
        """Creation, in seconds; ``None`` if the inode does not store it."""
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
        """Creation, in nanoseconds; ``None`` if the inode does not store it."""

class StatVfs:
    """The result of ``statvfs``: the attributes of ``os.statvfs_result``."""

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
    """Counters of a volume or device since it was opened."""

    @property
    def bytes_copied(self) -> int:
        """Bytes of file data that the CPU copied. Direct I/O does not raise it."""
    @property
    def bios(self) -> int:
        """Transfers of file data."""
    @property
    def direct_bios(self) -> int:
        """Transfers of direct I/O, a part of ``bios``."""
    @property
    def direct_read_bytes(self) -> int:
        """Bytes read directly."""
    @property
    def direct_write_bytes(self) -> int:
        """Bytes written directly."""
    @property
    def cache_hits(self) -> int:
        """Pages that cached reads and writes found in the cache."""
    @property
    def cache_misses(self) -> int:
        """Pages that cached reads and writes did not find in the cache."""
    @property
    def evictions(self) -> int:
        """Evicted pages."""
    @property
    def readahead_pages(self) -> int:
        """Pages read ahead."""
    @property
    def writeback_pages(self) -> int:
        """Pages written back."""
    @property
    def writeback_bios(self) -> int:
        """Transfers of writeback."""
    @property
    def invalidated_pages(self) -> int:
        """Pages dropped because their range was written directly, truncated or punched."""
    @property
    def pages_scanned(self) -> int:
        """Cached pages that writeback and invalidation visited."""
    @property
    def bounces(self) -> int:
        """Transfers copied through aligned memory."""
    @property
    def flushes(self) -> int:
        """Flushes for file data."""
    @property
    def device_reads(self) -> int:
        """Reads of the device."""
    @property
    def device_read_bytes(self) -> int:
        """Bytes read from the device."""
    @property
    def device_writes(self) -> int:
        """Writes to the device."""
    @property
    def device_write_bytes(self) -> int:
        """Bytes written to the device."""
    @property
    def device_flushes(self) -> int:
        """Flushes of the device."""
    @property
    def device_discards(self) -> int:
        """Discards of the device."""

class Buffer:
    """Memory for direct I/O: zeroed, aligned, on huge pages if the system has them.

    It has the writable buffer protocol: ``memoryview(buffer)``, ``numpy.frombuffer(buffer)`` and ``torch.frombuffer(buffer)`` share the
    memory without a copy, and ``buffer[10:20] = b"..."`` stores to it. ``File.buffer`` returns one with the alignment of a file.

    During a read into it, a new view or another transfer raises ``BufferError``. Older views show the bytes as they arrive."""

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
    """A completed transfer of a ``Queue``."""

    @property
    def data(self) -> Any:
        """The ``data`` of the submission."""
    @property
    def buffer(self) -> Any:
        """The memory of the transfer."""
    @property
    def nbytes(self) -> int:
        """Number of bytes; a read has fewer than requested only at the end of the file. 0 if the transfer failed."""
    @property
    def error(self) -> OSError | None:
        """The error of a failed transfer, else ``None``."""
    def result(self) -> int:
        """Number of bytes; raises the error of a failed transfer."""

class Queue:
    """Many direct transfers in flight from one thread, on ``file`` or any other file of diorite.

    Offsets, lengths and memory must meet ``file.alignment``; ``file.buffer(n)`` returns such memory. A transfer locks its range of the file
    until it is reaped, so reap it before another call (``readinto_at``, ``fsync``) uses the range. Threads can share a queue."""

    def __new__(cls, file: File | IO[Any] | None = None, depth: int = 32) -> Self: ...
    @property
    def depth(self) -> int:
        """The maximum number of transfers in flight."""
    @property
    def in_flight(self) -> int:
        """Transfers that are submitted and not yet reaped."""
    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
    def submit_read(self, buffer: _AnyBuffer, offset: int, data: Any = None, *, file: File | IO[Any] | None = None) -> None:
        """Fill ``buffer`` from ``offset``. The completion has ``data``. ``BlockingIOError`` if ``depth`` transfers are in flight."""
    def submit_write(self, buffer: _AnyBuffer, offset: int, data: Any = None, *, file: File | IO[Any] | None = None) -> None:
        """Write all of ``buffer`` at ``offset``. The completion has ``data``. ``BlockingIOError`` if ``depth`` transfers are in flight."""
    def reap(self, min: int = 1, timeout: float | None = None) -> list[Completion]:
        """The completed transfers. Waits for at least ``min`` (or all, if fewer are in flight), at most ``timeout`` seconds."""
    def fileno(self) -> int:
        """A descriptor for ``selectors``, readable when a transfer can be reaped. Then call ``reap(0)``."""
    def close(self) -> None:
        """Wait for the transfers in flight, discard their results, and close the queue, which releases its file."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...

class AsyncQueue:
    """Many direct transfers in flight from an event loop, on ``file`` or any other file of diorite.

    A transfer waits while ``depth`` transfers are in flight, or while its range of the file is locked. Offsets, lengths and memory must meet
    ``file.alignment``; ``file.buffer(n)`` returns such memory."""

    def __init__(self, file: File | IO[Any] | None = None, depth: int = 32) -> None: ...
    async def read(self, buffer: _AnyBuffer, offset: int, *, file: File | IO[Any] | None = None) -> int:
        """Fill ``buffer`` from ``offset``; returns the number of bytes, fewer only at the end of the file."""
    async def write(self, buffer: _AnyBuffer, offset: int, *, file: File | IO[Any] | None = None) -> int:
        """Write all of ``buffer`` at ``offset``; returns the number of bytes."""
    @property
    def depth(self) -> int:
        """The maximum number of transfers in flight."""
    @property
    def in_flight(self) -> int:
        """Transfers submitted and not yet complete."""
    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
    def close(self) -> None:
        """Wait for the transfers in flight, and close the queue. Awaited transfers fail with ``ValueError``."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: Any) -> None: ...

class AsyncFile:
    """A file for asyncio. Transfers go through an ``AsyncQueue``, other calls through the event loop's threads.

    ``file`` is the result of ``open(..., buffering=0, direct=True)``; closing the ``AsyncFile`` closes it."""

    def __init__(self, file: File | IO[Any], depth: int = 32) -> None: ...
    @property
    def file(self) -> File:
        """The file."""
    @property
    def queue(self) -> AsyncQueue:
        """The queue."""
    def buffer(self, size: int) -> Buffer:
        """A ``Buffer`` with the alignment of the file."""
    async def readinto_at(self, buffer: _AnyBuffer, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; returns the number of bytes."""
    async def pread(self, size: int, offset: int) -> bytes:
        """Read at ``offset`` into a new ``bytes`` object, which costs one copy."""
    async def pwrite(self, buffer: _AnyBuffer, offset: int) -> int:
        """Write all of ``buffer`` at ``offset``; returns the number of bytes."""
    async def fsync(self) -> None:
        """Make data and attributes durable."""
    async def fdatasync(self) -> None:
        """Make the data durable, and the metadata needed to read it."""
    async def truncate(self, size: int) -> int:
        """Set the size."""
    async def close(self) -> None:
        """Wait for the transfers in flight, and close the queue and the file."""
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: Any) -> None: ...

class File(io.RawIOBase):
    """An open file, unbuffered: ``io.RawIOBase``, and transfers at offsets that leave the position alone.

    ``open(..., buffering=0)`` returns it, and it is the attribute ``raw`` of a buffered file. Threads can share one; each call is atomic."""

    name: str | bytes
    @property
    def mode(self) -> str:
        """The mode, in the form of Python's own raw files."""
    def readable(self) -> bool:
        """Whether the file is open for reading."""
    def writable(self) -> bool:
        """Whether the file is open for writing."""
    def seekable(self) -> bool:
        """True."""
    def fileno(self) -> int:
        """Raise ``io.UnsupportedOperation``: the file has no descriptor of the host."""
    def isatty(self) -> bool:
        """False."""
    def close(self) -> None:
        """Close the file; closing it again does nothing. Raises ``OSError`` if cached data could not be written back. Call ``fsync`` first
        to make the data durable."""
    def read(self, size: int | None = -1) -> bytes:
        """Read at most ``size`` bytes from the position; -1 reads to the end."""
    def readall(self) -> bytes:
        """Read from the position to the end."""
    def readinto(self, buffer: _AnyBuffer) -> int:
        """Read from the position into ``buffer``; returns the number of bytes, 0 at the end."""
    def write(self, data: _AnyBuffer) -> int:
        """Write at the position; returns the number of bytes, fewer only if the volume is full."""
    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position; ``whence`` is also ``os.SEEK_DATA`` and ``os.SEEK_HOLE``."""
    def tell(self) -> int:
        """The position."""
    def truncate(self, size: int | None = None) -> int:
        """Set the size; the default is the position."""
    def readinto_at(self, buffer: _AnyBuffer, offset: int) -> int:
        """Read from ``offset`` into ``buffer``, any object with writable memory; returns the number of bytes, fewer only at the end.

        A direct file reads from the disk into that memory without a copy. Address, length and offset must then meet ``alignment``."""
    def pread(self, size: int, offset: int) -> bytes:
        """Read at most ``size`` bytes from ``offset``."""
    def pwrite(self, data: _AnyBuffer, offset: int) -> int:
        """Write ``data`` at ``offset``; returns the number of bytes, fewer only if the volume is full."""
    def append(self, data: _AnyBuffer) -> int:
        """Write all of ``data`` at the current end of the file; returns its offset."""
    def buffer(self, size: int) -> Buffer:
        """A ``Buffer`` of ``size`` zeroed bytes with the alignment of this file."""
    def fsync(self) -> None:
        """Make data and attributes durable."""
    def fdatasync(self) -> None:
        """Make the data durable, and the metadata needed to read it."""
    def fallocate(self, offset: int, length: int, *, keep_size: bool = False) -> None:
        """Allocate the blocks of a range; the file grows to the end of the range unless ``keep_size`` is true."""
    def punch_hole(self, offset: int, length: int) -> None:
        """Free the blocks of a range, which reads as zeros afterwards."""
    def zero_range(self, offset: int, length: int) -> None:
        """Make a range read as zeros, with blocks allocated."""
    def collapse_range(self, offset: int, length: int) -> None:
        """Remove a range of whole blocks from the file; the content after it moves towards the start."""
    def insert_range(self, offset: int, length: int) -> None:
        """Insert a hole of whole blocks; the content after it moves towards the end."""
    def seek_hole(self, offset: int) -> int:
        """The first hole at or after ``offset``; the end of the file counts as a hole. ``OSError`` with ``ENXIO`` if ``offset`` is at or after the end."""
    def seek_data(self, offset: int) -> int:
        """The first data at or after ``offset``. ``OSError`` with ``ENXIO`` if there is none."""
    def extents(self) -> list[Extent]:
        """The extents of the file, a list of ``Extent``."""
    def drop_cached(self, offset: int = 0, length: int | None = None) -> None:
        """Write back the dirty pages of a range, and drop the range from the cache."""
    def stat(self) -> Stat:
        """Attributes, a ``Stat``."""
    def stats(self) -> Stats:
        """Counters of the volume or device since it was opened, a ``Stats``."""
    def set_direct(self, direct: _Direct) -> None:
        """Whether later calls bypass the cache: ``True``, ``"preferred"`` or ``False``."""
    @property
    def size(self) -> int:
        """Size in bytes."""
    @property
    def max_size(self) -> int:
        """The largest possible size of the file."""
    @property
    def alignment(self) -> Alignment:
        """The requirements of direct I/O, an ``Alignment``."""
    @property
    def direct(self) -> _Direct:
        """Whether calls bypass the cache: ``False``, ``True`` or ``"preferred"``."""
    @property
    def direct_refusal(self) -> str | None:
        """Why direct transfers of a host file go through the host's page cache: its filesystem refuses direct I/O. ``None`` if they bypass it."""

class DirEntry(Generic[_AnyStr]):
    """An entry of a directory, the result of ``scandir``: ``name`` and ``path``. Its calls seldom read the volume."""

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
        """Attributes. The result is cached."""

class Path:
    """A path of a filesystem: ``fs / "dir" / "file"``.

    It has the methods of ``pathlib.Path``. It is not ``os.PathLike``, so functions of the host reject it; the calls of
    ``Filesystem`` accept it."""

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
        """Whether it begins with a slash. A relative path also starts at the root."""
    def is_relative_to(self, other: str | PurePosixPath | Path) -> bool:
        """Whether it is ``other`` or below it."""
    def joinpath(self, *parts: str | PurePosixPath | Path) -> Path:
        """The path with more parts."""
    def match(self, pattern: str) -> bool:
        """Whether it matches a pattern."""
    def relative_to(self, other: str | PurePosixPath | Path) -> PurePosixPath:
        """The path relative to ``other``, a ``pathlib.PurePosixPath``."""
    def with_name(self, name: str) -> Path:
        """The path with another last part."""
    def with_stem(self, stem: str) -> Path:
        """The path with another stem."""
    def with_suffix(self, suffix: str) -> Path:
        """The path with another suffix."""
    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Attributes, a ``Stat``."""
    def lstat(self) -> Stat:
        """Attributes, a ``Stat``. A symbolic link is not followed."""
    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the path exists."""
    def is_file(self) -> bool:
        """Whether the path is a regular file or a link to one."""
    def is_dir(self) -> bool:
        """Whether the path is a directory or a link to one."""
    def is_symlink(self) -> bool:
        """Whether the path is a symbolic link."""
    def samefile(self, other: _Path) -> bool:
        """Whether both paths name the same file."""
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
        """Open the file. The mode is text unless it has a ``b``, as in ``pathlib``. ``Filesystem.open`` describes ``options``."""
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
        """As ``Filesystem.walk``, with ``Path`` objects."""
    def glob(self, pattern: str) -> Iterator[Path]:
        """The paths below this directory that match a pattern; ``**`` matches any number of directories."""
    def rglob(self, pattern: str) -> Iterator[Path]:
        """As ``glob``, with ``**/`` before the pattern."""
    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory. ``parents`` also makes missing parents, with the default mode."""
    def rmdir(self) -> None:
        """Remove the empty directory."""
    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Create an empty file, or set the times of an existing one to now."""
    def rename(self, target: str | PurePosixPath | Path) -> Path:
        """Rename; returns the new path. An existing file is replaced."""
    def replace(self, target: str | PurePosixPath | Path) -> Path:
        """Rename; returns the new path. An existing file is replaced."""
    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set permission bits."""
    def symlink_to(self, target: str | PurePosixPath | Path) -> None:
        """Make this path a symbolic link to ``target``."""
    def hardlink_to(self, target: _Path) -> None:
        """Make this path a hard link to the file ``target``."""
    def readlink(self) -> Path:
        """The target of the symbolic link."""

class Filesystem:
    """An ext2, ext3 or ext4 volume: ``Filesystem("disk.img")``.

    ``target`` is an image, a device or another name that the library opens: ``"disk.img?partition=2"``, ``"nbd://HOST/EXPORT"``,
    ``"lvm:A,B?volume=NAME"``.

    Options: ``read_only``; ``cache_bytes`` (64 MiB), ``metadata_cache_bytes`` (64 MiB) and ``read_ahead_bytes`` (8 MiB); ``dirty_age`` and
    ``commit_interval`` in seconds (5); ``data_mode``; ``quota_limits``, whether quotas are enforced; ``direct``, the default of ``open``;
    ``device_direct``, whether the image bypasses the host's cache; ``scheduler``: ``"none"``, ``"deadline"``, ``"cfq"`` or ``"inject"``.

    Paths are text, bytes, ``os.PathLike`` or ``diorite.Path``. Names that are not UTF-8 have escaped bytes, as with ``os.fsdecode``. A filesystem is a
    context manager; ``close`` reports errors. Threads can share it; a forked process cannot use it."""

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

        ``FileExistsError`` if the file exists; the file is not changed. Any other error leaves no image. ``mkfs`` describes the other arguments."""
    @property
    def target(self) -> str:
        """The name of the image or device."""
    @property
    def closed(self) -> bool:
        """Whether the filesystem was closed."""
    @property
    def read_only_reason(self) -> str | None:
        """Why the volume is read-only; ``None`` if it is not."""
    @property
    def defects(self) -> list[str]:
        """Damage that the open found. Data read from such a volume may be old or incomplete."""
    def close(self) -> None:
        """Close all files that are open, sync, and mark the volume clean. Closing it again does nothing.

        Raises the errors of failed writes. ``OSError`` with ``EBUSY`` if a ``Queue`` uses the filesystem, which then stays open."""
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
        """Open a file, as the builtin ``open`` does, except that the default mode is binary.

        ``buffering=0`` returns a ``File``; otherwise the result is a buffered file of the module ``io`` whose attribute ``raw`` is the ``File``.
        ``direct``: ``True`` bypasses the cache, ``"preferred"`` if the device and the alignment allow it. ``unaligned``: an unaligned direct
        transfer is an ``"error"`` (the default with ``buffering=0``) or goes through a copy, ``"bounce"``. ``sync``: ``"data"`` or ``"all"``
        makes each write durable. ``permissions`` and ``owner`` apply to a new file."""
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

        ``CorruptError`` if a directory has more than one name, which happens only on a damaged volume."""
    def makedirs(self, name: _Path, mode: int = 0o755, exist_ok: bool = False, *, owner: _Owner | None = None) -> None:
        """Make a directory, and all missing parents with the default mode."""
    def removedirs(self, name: _Path) -> None:
        """Remove an empty directory, and then each parent that is empty."""
    def rmtree(self, path: _Path, ignore_errors: bool = False) -> None:
        """Remove a directory and everything in it."""
    def exists(self, path: _Path) -> bool:
        """Whether the path exists. Damage and device failures raise an error."""
    def lexists(self, path: _Path) -> bool:
        """Whether the path exists; a dangling symbolic link counts."""
    def isfile(self, path: _Path) -> bool:
        """Whether the path is a regular file or a link to one."""
    def isdir(self, path: _Path) -> bool:
        """Whether the path is a directory or a link to one."""
    def islink(self, path: _Path) -> bool:
        """Whether the path is a symbolic link."""
    def getsize(self, path: _Path) -> int:
        """Size of a file in bytes."""
    def read_text(self, path: _Path, encoding: str | None = None, errors: str | None = None) -> str:
        """The content of a file as text."""
    def write_text(
        self, path: _Path, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Create a file with this text, or replace its content; returns the number of characters."""
    def sync(self) -> None:
        """Make everything durable."""
    def drop_caches(self) -> None:
        """Sync, and drop all cached file data."""
    def trim(self, shortest: int = 0) -> int:
        """Discard free extents of at least ``shortest`` bytes; returns the number of discarded bytes."""
    def statvfs(self) -> StatVfs:
        """Space and inodes, a ``StatVfs``."""
    def stats(self) -> Stats:
        """Counters of the volume since the open, a ``Stats``."""
    def stat(self, path: _Path, *, follow_symlinks: bool = True) -> Stat:
        """Attributes of a file, a ``Stat``."""
    def lstat(self, path: _Path) -> Stat:
        """Attributes of a file, a ``Stat``. A symbolic link is not followed."""
    def mkdir(self, path: _Path, mode: int = 0o755, *, owner: _Owner | None = None) -> None:
        """Make a directory."""
    def mknod(self, path: _Path, mode: int = 0o100644, device: int = 0, *, owner: _Owner | None = None) -> None:
        """Make a file, a device node, a FIFO or a socket, according to the type bits of ``mode``."""
    def rmdir(self, path: _Path) -> None:
        """Remove an empty directory."""
    def remove(self, path: _Path) -> None:
        """Remove a file, a link or a special file. A directory needs ``rmdir``."""
    def unlink(self, path: _Path) -> None:
        """Remove a file, a link or a special file. A directory needs ``rmdir``."""
    def rename(self, src: _Path, dst: _Path) -> None:
        """Rename; a file at ``dst`` is replaced."""
    def replace(self, src: _Path, dst: _Path) -> None:
        """Rename; a file at ``dst`` is replaced."""
    def exchange(self, a: _Path, b: _Path) -> None:
        """Exchange two files or directories."""
    def link(self, src: _Path, dst: _Path) -> None:
        """Make a hard link ``dst`` to the file ``src``."""
    def symlink(self, src: _Path, dst: _Path) -> None:
        """Make a symbolic link ``dst`` to ``src``."""
    def readlink(self, path: _Path) -> Any:
        """The target of a symbolic link."""
    def chmod(self, path: _Path, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set permission bits."""
    def chown(self, path: _Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Set user and group; -1 (or 0xffffffff) leaves one unchanged. A regular file loses its set-user-ID bit, set-group-ID bit and capabilities."""
    def utime(
        self,
        path: _Path,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Set the times of access and modification: ``times`` in seconds or ``ns`` in nanoseconds. The default is now."""
    def truncate(self, path: _Path, length: int) -> None:
        """Set the size of a file."""
    def getxattr(self, path: _Path, attribute: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """The value of an extended attribute."""
    def setxattr(
        self, path: _Path, attribute: str | bytes, value: _AnyBuffer, flags: int = 0, *, follow_symlinks: bool = True
    ) -> None:
        """Set an extended attribute. ``flags`` as for ``os.setxattr``: ``XATTR_CREATE`` fails if the attribute exists, ``XATTR_REPLACE`` if it does not."""
    def listxattr(self, path: _Path | None = None, *, follow_symlinks: bool = True) -> list[str]:
        """The names of all extended attributes."""
    def removexattr(self, path: _Path, attribute: str | bytes, *, follow_symlinks: bool = True) -> None:
        """Remove an extended attribute."""
    def copyfile(self, src: _Path, dst: _Path) -> int:
        """Copy the content and the permissions of a file; holes stay holes. Returns the number of bytes."""
    def read_bytes(self, path: _Path) -> bytes:
        """The content of a file."""
    def write_bytes(self, path: _Path, data: _AnyBuffer) -> int:
        """Create a file with this content, or replace its content; returns the number of bytes."""

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

    The previous content is lost. A target with known content (a volume, a partition table, a member of an array or a volume group, another
    format) raises ``FileExistsError`` unless ``force`` is true.
    ``type`` is ``"ext2"``, ``"ext3"`` or ``"ext4"``; ``features`` has the syntax of ``mke2fs -O``."""
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
    cache: bool | None = None,
    unaligned: _Unaligned | None = None,
    sync: _Sync | None = None,
) -> File:
    """Open a file of the host's filesystem, as the builtin ``open`` does: the result has the same class for the same mode and ``buffering``.

    ``cache=True`` uses the library's page cache in place of the host's. ``cache=False`` uses none: reads and writes of any alignment go to the
    disk, and those that follow each other have readahead and write-behind. The default is a cache, unless ``direct`` is given.
    ``direct=True`` also makes a filesystem without direct I/O an error; otherwise ``File.direct_refusal`` has the reason.

    All files that a process opens on one file of the host share their content. ``Filesystem.open`` describes the other arguments."""
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
    cache: bool | None = None,
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
    cache: bool | None = None,
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
    cache: bool | None = None,
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
    cache: bool | None = None,
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
    cache: bool | None = None,
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
    cache: bool | None = None,
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

    ``Filesystem.open`` describes the arguments; the modes are ``"r"`` and ``"r+"``, binary or text."""
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
@overload
def load(
    path: _ModelPaths,
    names: str | Iterable[str] | None = None,
    *,
    framework: None,
    direct: _Direct | None = None,
    progress: Callable[[int, int], object] | None = None,
    pin: bool | None = None,
) -> Tensors[Tensor]:
    """Load tensors of ``.safetensors``, GGUF, ``.npy`` and ``.npz`` files, directly from the disk into their memory.

    ``path`` is a file, or several: of the host, or ``disk.img:/model.safetensors`` for a file in an image. An index
    (``model.safetensors.index.json``) stands for its files. ``names`` selects tensors by name or by patterns with ``*``, ``?`` and ``[...]``.

    ``framework`` is ``"numpy"`` (arrays), ``"torch"`` (tensors) or ``None`` (``diorite.Tensor``). Arrays are writable, and never change the
    file. NumPy has ``BF16`` and ``F8`` only with the package ``ml_dtypes``; without it they are ``uint16`` and ``uint8`` with the same bits.
    Quantized types are ``uint8`` blocks, the last dimension in bytes.

    ``direct=None`` maps files that are mostly in the host's page cache, and reads all others past it. ``True`` reads all past it, ``False``
    none. ``progress(done, total)`` is called with bytes. ``pin=None`` uses pinned memory for torch if it has a CUDA device; ``True``
    requires it.

    Raises ``CorruptError`` for a damaged file and ``KeyError`` for a name that selects nothing."""
@overload
def load(
    path: _ModelPaths,
    names: str | Iterable[str] | None = None,
    *,
    framework: Literal["numpy", "torch"] = "numpy",
    direct: _Direct | None = None,
    progress: Callable[[int, int], object] | None = None,
    pin: bool | None = None,
) -> Tensors[Any]: ...
def load_header(path: _ModelPaths) -> Tensors[TensorInfo]:
    """The names, dtypes and shapes of tensors, without their data: a ``TensorInfo`` by name. ``load`` describes ``path``."""
