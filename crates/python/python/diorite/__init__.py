"""Files on ext2, ext3 and ext4 images and disks without a mount, with direct I/O between the disk and Python's memory.

    import diorite

    with diorite.Filesystem("disk.img") as fs:
        print(fs.listdir("/"))
        with fs.open("/data", buffering=0, direct=True) as file:
            memory = file.buffer(1 << 20)          # memoryview(memory), numpy.frombuffer(memory)
            n = file.readinto_at(memory, 0)        # no copy, no cache

``Filesystem`` has the calls of ``os`` and ``shutil``, ``fs / "dir"`` those of ``pathlib``. ``Queue`` keeps many direct transfers in flight,
``AsyncQueue`` and ``AsyncFile`` do so for asyncio. ``open_host`` and ``open_raw`` give a file of the host and a whole device the same calls.

Errors are ``OSError`` and its subclasses; the attribute ``kind`` has the library's name of the failure. An object belongs to the process that
opened it: a forked child gets ``RuntimeError`` and opens its own.
"""

from ._aio import AsyncFile, AsyncQueue
from ._diorite import (
    AlignmentError,
    Alignment,
    Buffer,
    Completion,
    CorruptError,
    Extent,
    Queue,
    Stat,
    Stats,
    StatVfs,
    __version__,
    mkfs,
)
from ._file import File, open_host, open_raw
from ._filesystem import DirEntry, Filesystem
from ._path import Path

__all__ = [
    "Alignment",
    "AlignmentError",
    "AsyncFile",
    "AsyncQueue",
    "Buffer",
    "Completion",
    "CorruptError",
    "DirEntry",
    "Extent",
    "File",
    "Filesystem",
    "Path",
    "Queue",
    "Stat",
    "StatVfs",
    "Stats",
    "mkfs",
    "open_host",
    "open_raw",
]
