"""Open files: ``File``, an ``io.RawIOBase``, and the buffered and text files over it."""

import io
import os
import warnings
import weakref

from . import _diorite


class _WeakObjects:
    """A set of weak references.

    A thread may add an object while another one iterates, which ``weakref.WeakSet`` does not allow.
    """

    def __init__(self):
        self._references = {}

    def add(self, thing):
        references, key = self._references, id(thing)
        references[key] = weakref.ref(thing, lambda _: references.pop(key, None))

    def clear(self):
        self._references.clear()

    def __iter__(self):
        things = [reference() for reference in list(self._references.values())]
        return iter([thing for thing in things if thing is not None])


# Files and their buffers that a program may leave open. They are closed when the interpreter exits.
_open_objects = _WeakObjects()
os.register_at_fork(after_in_child=_open_objects.clear)


def _close_open_objects(report):
    """Close all. ``report`` is called with each object that fails and its error. Buffers are closed before their files."""
    for thing in sorted(_open_objects, key=lambda thing: isinstance(thing, File)):
        try:
            thing.close()
        except Exception as error:
            report(thing, error)


def _closed():
    return ValueError("I/O operation on closed file")


def _check_memory(memory, is_filled):
    """Raise ``TypeError`` if it is not memory. Python's own files check this first."""
    with memoryview(memory) as view:
        if is_filled and view.readonly:
            raise TypeError(f"a writable bytes-like object is needed, not {type(memory).__name__}")
        if not view.c_contiguous:
            raise BufferError("a contiguous bytes-like object is needed")


class File(io.RawIOBase):
    """An open file, unbuffered: ``io.RawIOBase``, and transfers at offsets that leave the position alone.

    ``open(..., buffering=0)`` returns it, and it is the attribute ``raw`` of a buffered file. Threads can share one; each call is atomic.
    """

    def __init__(self, handle, name, mode):
        self._handle = handle
        self._access = mode
        self.name = name
        _open_objects.add(self)
        if "a" in mode:
            handle.seek(0, os.SEEK_END)

    def _open(self):
        if self.closed:
            raise _closed()
        return self._handle

    def _for_reading(self):
        handle = self._open()
        if not ("r" in self._access or "+" in self._access):
            raise io.UnsupportedOperation("File not open for reading")
        return handle

    def _for_writing(self):
        handle = self._open()
        if "r" in self._access and "+" not in self._access:
            raise io.UnsupportedOperation("File not open for writing")
        return handle

    @property
    def mode(self):
        """The mode, in the form of Python's own raw files."""
        kind = self._access.rstrip("+")
        if "+" not in self._access:
            return kind + "b"
        return ("r" if kind == "w" else kind) + "b+"

    def readable(self):
        """Whether the file is open for reading."""
        self._open()
        return "r" in self._access or "+" in self._access

    def writable(self):
        """Whether the file is open for writing."""
        self._open()
        return "r" not in self._access or "+" in self._access

    def seekable(self):
        """True."""
        self._open()
        return True

    def fileno(self):
        """Raise ``io.UnsupportedOperation``: the file has no descriptor of the host."""
        self._open()
        raise io.UnsupportedOperation(
            "a file of diorite has no descriptor; use readinto(): instead of numpy.fromfile call numpy.empty and file.readinto(array)"
        )

    def isatty(self):
        """False."""
        self._open()
        return False

    def close(self):
        """Close the file; closing it again does nothing. Raises ``OSError`` if cached data could not be written back. Call ``fsync`` first
        to make the data durable."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._handle.close()

    def read(self, size=-1):
        """Read at most ``size`` bytes from the position; -1 reads to the end."""
        handle = self._for_reading()
        return handle.read(-1 if size is None else size)

    def readall(self):
        """Read from the position to the end."""
        return self._open().read(-1)

    def readinto(self, buffer):
        """Read from the position into ``buffer``; returns the number of bytes, 0 at the end."""
        if self.closed or not self.readable():
            _check_memory(buffer, True)
        return self._for_reading().readinto(buffer)

    def write(self, data):
        """Write at the position; returns the number of bytes, fewer only if the volume is full."""
        if self.closed or not self.writable():
            _check_memory(data, False)
        return self._for_writing().write(data)

    def seek(self, offset, whence=os.SEEK_SET):
        """Set the position; ``whence`` is also ``os.SEEK_DATA`` and ``os.SEEK_HOLE``."""
        handle = self._open()
        if whence == os.SEEK_DATA:
            offset, whence = handle.seek_data(offset), os.SEEK_SET
        elif whence == os.SEEK_HOLE:
            offset, whence = handle.seek_hole(offset), os.SEEK_SET
        return handle.seek(offset, whence)

    def tell(self):
        """The position."""
        return self._open().tell()

    def truncate(self, size=None):
        """Set the size; the default is the position."""
        handle = self._for_writing()
        if size is None:
            size = handle.tell()
        handle.truncate(size)
        return size

    # At offsets.

    def readinto_at(self, buffer, offset):
        """Read from ``offset`` into ``buffer``, any object with writable memory; returns the number of bytes, fewer only at the end.

        A direct file reads from the disk into that memory without a copy. Address, length and offset must then meet ``alignment``.
        """
        return self._for_reading().readinto_at(buffer, offset)

    def pread(self, size, offset):
        """Read at most ``size`` bytes from ``offset``."""
        return self._for_reading().pread(size, offset)

    def pwrite(self, data, offset):
        """Write ``data`` at ``offset``; returns the number of bytes, fewer only if the volume is full."""
        return self._for_writing().pwrite(data, offset)

    def append(self, data):
        """Write all of ``data`` at the current end of the file; returns its offset."""
        return self._for_writing().append(data)

    def buffer(self, size):
        """A ``Buffer`` of ``size`` zeroed bytes with the alignment of this file."""
        return self._open().buffer(size)

    def fsync(self):
        """Make data and attributes durable."""
        self._open().fsync()

    def fdatasync(self):
        """Make the data durable, and the metadata needed to read it."""
        self._open().fdatasync()

    def fallocate(self, offset, length, *, keep_size=False):
        """Allocate the blocks of a range; the file grows to the end of the range unless ``keep_size`` is true."""
        self._for_writing().fallocate(offset, length, keep_size)

    def punch_hole(self, offset, length):
        """Free the blocks of a range, which reads as zeros afterwards."""
        self._for_writing().punch_hole(offset, length)

    def zero_range(self, offset, length):
        """Make a range read as zeros, with blocks allocated."""
        self._for_writing().zero_range(offset, length)

    def collapse_range(self, offset, length):
        """Remove a range of whole blocks from the file; the content after it moves towards the start."""
        self._for_writing().collapse_range(offset, length)

    def insert_range(self, offset, length):
        """Insert a hole of whole blocks; the content after it moves towards the end."""
        self._for_writing().insert_range(offset, length)

    def seek_hole(self, offset):
        """The first hole at or after ``offset``; the end of the file counts as a hole. ``OSError`` with ``ENXIO`` if ``offset`` is at or after the end."""
        return self._open().seek_hole(offset)

    def seek_data(self, offset):
        """The first data at or after ``offset``. ``OSError`` with ``ENXIO`` if there is none."""
        return self._open().seek_data(offset)

    def extents(self):
        """The extents of the file, a list of ``Extent``."""
        return self._open().extents()

    def drop_cached(self, offset=0, length=None):
        """Write back the dirty pages of a range, and drop the range from the cache."""
        self._open().drop_cached(offset, length)

    def stat(self):
        """Attributes, a ``Stat``."""
        return self._open().stat()

    def stats(self):
        """Counters of the volume or device since it was opened, a ``Stats``."""
        return self._open().stats()

    def set_direct(self, direct):
        """Whether later calls bypass the cache: ``True``, ``"preferred"`` or ``False``."""
        self._open().set_direct(direct)

    @property
    def size(self):
        """Size in bytes."""
        return self._open().size()

    @property
    def max_size(self):
        """The largest possible size of the file."""
        return self._open().max_size()

    @property
    def alignment(self):
        """The requirements of direct I/O, an ``Alignment``."""
        return self._open().alignment()

    @property
    def direct(self):
        """Whether calls bypass the cache: ``False``, ``True`` or ``"preferred"``."""
        return self._open().direct()

    @property
    def direct_refusal(self):
        """Why direct transfers of a host file go through the host's page cache: its filesystem refuses direct I/O. ``None`` if they bypass it."""
        return self._open().direct_refusal()

    def __repr__(self):
        state = "closed" if self.closed else f"mode={self.mode!r}"
        return f"<diorite.File name={self.name!r} {state}>"


def _parse_mode(mode, buffering, encoding, errors, newline):
    """The mode without ``b`` and ``t``, and whether it is binary. Raises the errors of the builtin ``open``."""
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    letters = set(mode)
    if letters - set("rwxabt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    binary = "b" in letters
    if "t" in letters and binary:
        raise ValueError("can't have text and binary mode at once")
    kinds = [kind for kind in "rwxa" if kind in letters]
    if len(kinds) != 1:
        raise ValueError("must have exactly one of read/write/create/append mode")
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if binary and value is not None:
            raise ValueError(f"binary mode doesn't take {'an' if name[0] == 'e' else 'a'} {name} argument")
    if buffering == 0 and not binary:
        raise ValueError("can't have unbuffered text I/O")
    return kinds[0] + ("+" if "+" in letters else ""), binary


def _open_with(open_handle, name, mode, buffering, encoding, errors, newline, unaligned):
    """Open a raw file and the buffered or text file over it. ``open_handle(access, unaligned)`` returns the handle."""
    access, binary = _parse_mode(mode, buffering, encoding, errors, newline)
    if unaligned is None:
        # Python's buffers are not aligned.
        unaligned = "error" if buffering == 0 else "bounce"
    raw = File(open_handle(access, unaligned), name, access)
    opened = raw
    try:
        line_buffering = buffering == 1 and not binary
        if buffering == 0:
            return raw
        if buffering == 1 and binary:
            message = "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        if buffering < 0 or buffering == 1:
            buffering = max(io.DEFAULT_BUFFER_SIZE, 4096)
        if "+" in access:
            opened = io.BufferedRandom(raw, buffering)
        elif access == "r":
            opened = io.BufferedReader(raw, buffering)
        else:
            opened = io.BufferedWriter(raw, buffering)
        if not binary:
            opened = io.TextIOWrapper(opened, encoding, errors, newline, line_buffering)
            opened.mode = mode
        _open_objects.add(opened)
        return opened
    except BaseException:
        opened.close()
        raise


def open_host(
    path, mode="rb", buffering=-1, encoding=None, errors=None, newline=None, *, direct=False, cache=None, unaligned=None, sync=None
):
    """Open a file of the host's filesystem, as the builtin ``open`` does: the result has the same class for the same mode and ``buffering``.

    ``cache=True`` uses the library's page cache in place of the host's. ``cache=False`` uses none: reads and writes of any alignment go to the
    disk, and those that follow each other have readahead and write-behind. The default is a cache, unless ``direct`` is given.
    ``direct=True`` also makes a filesystem without direct I/O an error; otherwise ``File.direct_refusal`` has the reason.

    All files that a process opens on one file of the host share their content. ``Filesystem.open`` describes the other arguments.
    """
    if cache and direct:
        raise ValueError("direct I/O bypasses the cache; use cache=False with direct=True")
    if cache is False:
        direct, unaligned = direct or "preferred", unaligned or "bounce"

    def handle(access, how):
        return _diorite.open_host_handle(path, (access, direct, how, sync))

    return _open_with(handle, os.fspath(path), mode, buffering, encoding, errors, newline, unaligned)


def open_raw(target, mode="rb", buffering=-1, encoding=None, errors=None, newline=None, *, direct=False, unaligned=None, sync=None):
    """Open a whole image, device or other target as one file: byte N of the file is byte N of the device.

    ``Filesystem.open`` describes the arguments; the modes are ``"r"`` and ``"r+"``, binary or text.
    """

    def handle(access, how):
        return _diorite.open_raw_handle(target, (access, direct, how, sync))

    return _open_with(handle, os.fspath(target), mode, buffering, encoding, errors, newline, unaligned)


class _OpenFiles:
    """The open files of a filesystem, which its ``close`` closes."""

    def __init__(self):
        self._files = _WeakObjects()

    def add(self, file):
        self._files.add(file)
        return file

    def close(self):
        """Close all; returns the first error."""
        first = None
        for file in self._files:
            try:
                file.close()
            except Exception as error:
                first = first or error
        return first
