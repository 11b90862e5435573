"""Files on ext2, ext3 and ext4 images and disks without a mount, with direct I/O between the disk and Python's memory.

    import diorite

    with diorite.Filesystem("disk.img") as fs:
        print(fs.listdir("/"))
        with fs.open("/data", buffering=0, direct=True) as file:
            memory = file.buffer(1 << 20)          # memoryview(memory), numpy.frombuffer(memory)
            n = file.readinto_at(memory, 0)        # no copy, no cache

``Filesystem`` has the calls of ``os`` and ``shutil``, and ``fs / "dir"`` has the methods of ``pathlib``. ``Queue`` keeps many direct transfers in flight,
and ``AsyncQueue`` and ``AsyncFile`` do so for asyncio. ``open_host`` opens a file of the host, and ``open_raw`` a whole device.
``load`` reads the tensors of model files into arrays.

Errors are ``OSError`` and its subclasses; the attribute ``kind`` has the library's error kind. An object belongs to the process that
opened it. A forked child gets a ``RuntimeError`` and must open the image itself.
"""

from ._aio import AsyncFile, AsyncQueue
from ._diorite import (
    AlignmentError,
    Buffer,
    Completion,
    CorruptError,
    Queue,
    Tensor,
    __version__,
    mkfs,
)
from ._file import File, open_host, open_raw
from ._filesystem import DirEntry, Filesystem
from ._load import Tensors, load, load_header
from ._path import Path
from ._records import Alignment, Extent, LoadStats, Stat, Stats, StatVfs, TensorInfo

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
    "LoadStats",
    "Path",
    "Queue",
    "Stat",
    "StatVfs",
    "Stats",
    "Tensor",
    "TensorInfo",
    "Tensors",
    "load",
    "load_header",
    "mkfs",
    "open_host",
    "open_raw",
]
