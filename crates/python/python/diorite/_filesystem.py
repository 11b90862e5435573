"""``Filesystem``: an open volume with the names of ``os`` and ``shutil``."""

import atexit
import errno
import os
import stat as _stat
import sys
import time

from . import _diorite
from ._file import _close_open_objects, _open_with, _OpenFiles, _WeakObjects
from ._path import Path, _note_directory

_open_filesystems = _WeakObjects()
os.register_at_fork(after_in_child=_open_filesystems.clear)


# Attempts to close a filesystem at exit while threads still open files, and the pause between them.
_CLOSE_TRIES, _CLOSE_PAUSE = 20, 0.05


def _report(name, error):
    print(f"diorite: {name}: not closed cleanly: {error}", file=sys.stderr)


def _close_at_exit(filesystem):
    for _ in range(_CLOSE_TRIES):
        try:
            return filesystem.close()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(_CLOSE_PAUSE)
        _close_open_objects(lambda thing, error: None)
    filesystem.sync()
    raise OSError(errno.EBUSY, "a thread still uses it; the written data is on the disk")


@atexit.register
def _close_all():
    _diorite._close_queues()
    _close_open_objects(lambda thing, error: _report(getattr(thing, "name", thing), error))
    for filesystem in _open_filesystems:
        try:
            _close_at_exit(filesystem)
        except Exception as error:
            _report(filesystem.target, error)


def _join(directory, name):
    separator = b"/" if isinstance(name, bytes) else "/"
    return directory + name if directory.endswith(separator) else directory + separator + name


def _leads_to_directory(entry):
    try:
        return entry.is_dir()
    except OSError:
        return False


class DirEntry:
    """An entry of a directory, the result of ``scandir``: ``name`` and ``path``. Its calls seldom read the volume."""

    __slots__ = ("_filesystem", "_inode", "_stat", "_type", "name", "path")

    def __init__(self, filesystem, directory, name, inode, kind):
        self._filesystem = filesystem
        self._inode = inode
        self._type = kind
        self._stat = {}
        self.name = name
        self.path = _join(directory, name)

    def inode(self):
        """Inode number."""
        return self._inode

    def _has_type(self, kind, follow_symlinks):
        known = self._type
        if known is None or (follow_symlinks and known == _stat.S_IFLNK):
            try:
                known = _stat.S_IFMT(self.stat(follow_symlinks=follow_symlinks).st_mode)
            except FileNotFoundError:
                return False
        return known == kind

    def is_dir(self, *, follow_symlinks=True):
        """Whether it is a directory."""
        return self._has_type(_stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        """Whether it is a regular file."""
        return self._has_type(_stat.S_IFREG, follow_symlinks)

    def is_symlink(self):
        """Whether it is a symbolic link."""
        return self._has_type(_stat.S_IFLNK, False)

    def stat(self, *, follow_symlinks=True):
        """Attributes. The result is cached."""
        if follow_symlinks not in self._stat:
            self._stat[follow_symlinks] = self._filesystem.stat(self.path, follow_symlinks=follow_symlinks)
        return self._stat[follow_symlinks]

    def __repr__(self):
        return f"<diorite.DirEntry {self.name!r}>"


class _Scan:
    """The iterator of ``scandir``, which is also a context manager."""

    def __init__(self, entries):
        self._entries = iter(entries)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def close(self):
        self._entries = iter(())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class Filesystem(_diorite.Volume):
    """An ext2, ext3 or ext4 volume: ``Filesystem("disk.img")``.

    ``target`` is an image, a device or another name that the library opens: ``"disk.img?partition=2"``, ``"nbd://HOST/EXPORT"``,
    ``"lvm:A,B?volume=NAME"``.

    Options: ``read_only``; ``cache_bytes`` (64 MiB), ``metadata_cache_bytes`` (64 MiB) and ``read_ahead_bytes`` (8 MiB); ``dirty_age`` and
    ``commit_interval`` in seconds (5); ``data_mode``; ``quota_limits``, whether quotas are enforced; ``direct``, the default of ``open``;
    ``device_direct``, whether the image bypasses the host's cache; ``scheduler``: ``"none"``, ``"deadline"``, ``"cfq"`` or ``"inject"``.

    Paths are text, bytes, ``os.PathLike`` or ``diorite.Path``. Names that are not UTF-8 have escaped bytes, as with ``os.fsdecode``. A filesystem is a
    context manager; ``close`` reports errors. Threads can share it; a forked process cannot use it.
    """

    replace = _diorite.Volume.rename
    unlink = _diorite.Volume.remove

    def __init__(self, target, **options):
        super().__init__()
        self._files = _OpenFiles()
        _open_filesystems.add(self)

    @classmethod
    def create(cls, path, size, type="ext4", *, block_size=None, label="", features="", inodes=None, bytes_per_inode=None,
               reserved_percent=5.0, owner=(0, 0), **options):
        """Make a volume in a new image of ``size`` bytes, which is sparse, and open it with ``options``.

        ``FileExistsError`` if the file exists; the file is not changed. Any other error leaves no image. ``mkfs`` describes the other arguments.
        """
        _diorite.mkfs(path, size, type=type, block_size=block_size, label=label, features=features, inodes=inodes,
                      bytes_per_inode=bytes_per_inode, reserved_percent=reserved_percent, owner=owner)
        try:
            return cls(path, **options)
        except BaseException:
            os.remove(path)
            raise

    def close(self):
        """Close all files that are open, sync, and mark the volume clean. Closing it again does nothing.

        Raises the errors of failed writes. ``OSError`` with ``EBUSY`` if a ``Queue`` uses the filesystem, which then stays open.
        """
        first = self._files.close()
        self._close()
        if first is not None:
            raise first

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        state = " closed" if self.closed else ""
        return f"<diorite.Filesystem {self.target!r}{state}>"

    def __truediv__(self, path):
        """``fs / "dir"`` is a ``Path``."""
        return Path(self, "/") / path

    def path(self, *parts):
        """A ``Path`` of this filesystem."""
        return Path(self, *(parts or ("/",)))

    def _plain(self, path):
        """A path of this filesystem as text or bytes."""
        if not isinstance(path, Path):
            return os.fspath(path)
        return str(Path(self, path))

    def open(self, path, mode="rb", buffering=-1, encoding=None, errors=None, newline=None, *, direct=None, unaligned=None,
             sync=None, permissions=0o644, owner=None):
        """Open a file, as the builtin ``open`` does, except that the default mode is binary.

        ``buffering=0`` returns a ``File``; otherwise the result is a buffered file of the module ``io`` whose attribute ``raw`` is the ``File``.
        ``direct``: ``True`` bypasses the cache, ``"preferred"`` if the device and the alignment allow it. ``unaligned``: an unaligned direct
        transfer is an ``"error"`` (the default with ``buffering=0``) or goes through a copy, ``"bounce"``. ``sync``: ``"data"`` or ``"all"``
        makes each write durable. ``permissions`` and ``owner`` apply to a new file.
        """
        def handle(access, how):
            return self._open(path, (access, direct, how, sync), permissions, owner)

        name = self._plain(path)
        return self._files.add(_open_with(handle, name, mode, buffering, encoding, errors, newline, unaligned))

    def listdir(self, path="/"):
        """The names in a directory, in no particular order; bytes if ``path`` is bytes."""
        return [name for name, _, _ in self._list(path)]

    def scandir(self, path="/"):
        """An iterator of ``DirEntry``, also a context manager."""
        directory = self._plain(path)
        return _Scan([DirEntry(self, directory, *entry) for entry in self._list(directory)])

    def walk(self, top="/", topdown=True, onerror=None, followlinks=False):
        """Directories beneath ``top`` as tuples (path, names of directories, names of others), as ``os.walk``.

        ``CorruptError`` if a directory has more than one name, which happens only on a damaged volume.
        """
        # Directories to list, each with the directories seen since the last followed link; or tuples to yield.
        stack = [(self._plain(top), {})]
        while stack:
            directory, seen, *rest = stack.pop()
            if rest:
                yield directory, seen, *rest
                continue
            try:
                entries = list(self.scandir(directory))
                inode = self.stat(directory).st_ino
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            _note_directory(self, seen, inode, directory)
            directories = [entry for entry in entries if _leads_to_directory(entry)]
            names = [entry.name for entry in directories]
            links = {entry.name for entry in directories if entry.is_symlink()}
            others = [entry.name for entry in entries if entry.name not in set(names)]
            if topdown:
                yield directory, names, others
            else:
                stack.append((directory, names, others))
            for name in reversed(names):
                if followlinks or name not in links:
                    stack.append((_join(directory, name), {} if name in links else seen))

    def makedirs(self, name, mode=0o755, exist_ok=False, *, owner=None):
        """Make a directory, and all missing parents with the default mode."""
        path = self._plain(name)
        separator = b"/" if isinstance(path, bytes) else "/"
        parent = path.rstrip(separator).rpartition(separator)[0]
        if parent and not self.exists(parent):
            self.makedirs(parent, exist_ok=True, owner=owner)
        try:
            self.mkdir(path, mode, owner=owner)
        except OSError:
            # An existing name does not always give FileExistsError.
            if not exist_ok or not self.isdir(path):
                raise

    def removedirs(self, name):
        """Remove an empty directory, and then each parent that is empty."""
        path = self._plain(name)
        separator = b"/" if isinstance(path, bytes) else "/"
        self.rmdir(path)
        parent = path.rstrip(separator).rpartition(separator)[0]
        while parent.strip(separator):
            try:
                self.rmdir(parent)
            except OSError:
                return
            parent = parent.rpartition(separator)[0]

    def rmtree(self, path, ignore_errors=False):
        """Remove a directory and everything in it."""
        try:
            if not _stat.S_ISDIR(self.lstat(path).st_mode):
                raise NotADirectoryError(20, "not a directory", self._plain(path))
            self._remove_tree(path)
        except OSError:
            if not ignore_errors:
                raise

    def _type(self, path, follow_symlinks=True):
        try:
            return _stat.S_IFMT(self.stat(path, follow_symlinks=follow_symlinks).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            # No file can have such a name.
            if error.kind == "FilesystemLoop" or error.errno == errno.ENAMETOOLONG:
                return None
            raise

    def exists(self, path):
        """Whether the path exists. Damage and device failures raise an error."""
        return self._type(path) is not None

    def lexists(self, path):
        """Whether the path exists; a dangling symbolic link counts."""
        return self._type(path, False) is not None

    def isfile(self, path):
        """Whether the path is a regular file or a link to one."""
        return self._type(path) == _stat.S_IFREG

    def isdir(self, path):
        """Whether the path is a directory or a link to one."""
        return self._type(path) == _stat.S_IFDIR

    def islink(self, path):
        """Whether the path is a symbolic link."""
        return self._type(path, False) == _stat.S_IFLNK

    def getsize(self, path):
        """Size of a file in bytes."""
        return self.stat(path).st_size

    def read_text(self, path, encoding=None, errors=None):
        """The content of a file as text."""
        with self.open(path, "rt", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(self, path, data, encoding=None, errors=None, newline=None):
        """Create a file with this text, or replace its content; returns the number of characters."""
        with self.open(path, "wt", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)
