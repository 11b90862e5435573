"""``Path``: a path of a filesystem with the methods of ``pathlib``."""

import errno
import fnmatch
import re
import stat as _stat
from pathlib import PurePosixPath

from . import _diorite


def _note_directory(filesystem, seen, inode, path):
    """Note a directory of a walk in ``seen``, paths by inode; ``CorruptError`` if another path of the walk leads to it.

    A directory has one name unless the volume is damaged. A walk of a damaged volume might not end.
    """
    earlier = seen.get(inode)
    # If the directory was moved, or its inode was reused, its earlier path no longer leads to this inode.
    if earlier is not None and filesystem.exists(earlier) and filesystem.stat(earlier).st_ino == inode:
        message = f"inode {inode}: the directory has more than one name; check the volume with e2fsck"
        error = _diorite.CorruptError(errno.EUCLEAN, message, path)
        error.kind = "Corrupt"
        raise error
    seen[inode] = path


def _of_pure(name, text):
    return property(lambda path: getattr(path._pure, name), doc=text)


class Path:
    """A path of a filesystem: ``fs / "dir" / "file"``.

    It has the methods of ``pathlib.Path``. It is not ``os.PathLike``, so functions of the host reject it; the calls of
    ``Filesystem`` accept it.
    """

    __slots__ = ("_filesystem", "_pure")

    def __init__(self, filesystem, *parts):
        self._filesystem = filesystem
        self._pure = PurePosixPath(*(self._plain(part) for part in parts))

    def _plain(self, part):
        if not isinstance(part, Path):
            return part
        if part._filesystem is not self._filesystem:
            raise ValueError(f"{part!r}: the path belongs to another filesystem than {self._filesystem.target!r}; use str() of it")
        return part._pure

    def _with(self, pure):
        return Path(self._filesystem, pure)

    @property
    def _diorite_path_(self):
        return self._filesystem, str(self._pure)

    @property
    def filesystem(self):
        """The filesystem."""
        return self._filesystem

    def __str__(self):
        return str(self._pure)

    def __repr__(self):
        return f"diorite.Path({self._filesystem.target!r}, {str(self)!r})"

    def __eq__(self, other):
        if not isinstance(other, Path):
            return NotImplemented
        return self._filesystem is other._filesystem and self._pure == other._pure

    def __lt__(self, other):
        if not isinstance(other, Path):
            return NotImplemented
        return self._pure < other._pure

    def __hash__(self):
        return hash((id(self._filesystem), self._pure))

    def __truediv__(self, part):
        return self._with(self._pure / self._plain(part))

    # These calls do not use the volume.

    name = _of_pure("name", "The last part.")
    stem = _of_pure("stem", "The last part without its suffix.")
    suffix = _of_pure("suffix", "The suffix of the last part, with its dot.")
    suffixes = _of_pure("suffixes", "All suffixes of the last part.")
    parts = _of_pure("parts", "The parts.")

    @property
    def parent(self):
        """The path without its last part."""
        return self._with(self._pure.parent)

    @property
    def parents(self):
        """All parents, the nearest first."""
        return tuple(self._with(parent) for parent in self._pure.parents)

    def as_posix(self):
        """The path as text."""
        return self._pure.as_posix()

    def is_absolute(self):
        """Whether it begins with a slash. A relative path also starts at the root."""
        return self._pure.is_absolute()

    def is_relative_to(self, other):
        """Whether it is ``other`` or below it."""
        try:
            self.relative_to(other)
        except ValueError:
            return False
        return True

    def joinpath(self, *parts):
        """The path with more parts."""
        return self._with(self._pure.joinpath(*(self._plain(part) for part in parts)))

    def match(self, pattern):
        """Whether it matches a pattern."""
        return self._pure.match(pattern)

    def relative_to(self, other):
        """The path relative to ``other``, a ``pathlib.PurePosixPath``."""
        return self._pure.relative_to(self._plain(other))

    def with_name(self, name):
        """The path with another last part."""
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem):
        """The path with another stem."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix):
        """The path with another suffix."""
        return self._with(self._pure.with_suffix(suffix))

    # These calls use the volume.

    def stat(self, *, follow_symlinks=True):
        """Attributes, a ``Stat``."""
        return self._filesystem.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self):
        """Attributes, a ``Stat``. A symbolic link is not followed."""
        return self._filesystem.lstat(self)

    def exists(self, *, follow_symlinks=True):
        """Whether the path exists."""
        return self._filesystem.exists(self) if follow_symlinks else self._filesystem.lexists(self)

    def is_file(self):
        """Whether the path is a regular file or a link to one."""
        return self._filesystem.isfile(self)

    def is_dir(self):
        """Whether the path is a directory or a link to one."""
        return self._filesystem.isdir(self)

    def is_symlink(self):
        """Whether the path is a symbolic link."""
        return self._filesystem.islink(self)

    def samefile(self, other):
        """Whether both paths name the same file."""
        if not isinstance(other, Path):
            other = self._with(other)
        return self._filesystem is other._filesystem and self.stat().st_ino == other.stat().st_ino

    def open(self, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **options):
        """Open the file. The mode is text unless it has a ``b``, as in ``pathlib``. ``Filesystem.open`` describes ``options``."""
        return self._filesystem.open(self, mode, buffering, encoding, errors, newline, **options)

    def read_bytes(self):
        """The content."""
        return self._filesystem.read_bytes(self)

    def read_text(self, encoding=None, errors=None):
        """The content as text."""
        return self._filesystem.read_text(self, encoding, errors)

    def write_bytes(self, data):
        """Replace the content; returns the number of bytes."""
        return self._filesystem.write_bytes(self, data)

    def write_text(self, data, encoding=None, errors=None, newline=None):
        """Replace the content by text; returns the number of characters."""
        return self._filesystem.write_text(self, data, encoding, errors, newline)

    def iterdir(self):
        """The paths in the directory, in no particular order."""
        return iter([self / name for name in self._filesystem.listdir(self)])

    def walk(self, top_down=True, on_error=None, follow_symlinks=False):
        """As ``Filesystem.walk``, with ``Path`` objects."""
        for directory, names, others in self._filesystem.walk(self, top_down, on_error, follow_symlinks):
            yield self._with(directory), names, others

    def glob(self, pattern):
        """The paths below this directory that match a pattern; ``**`` matches any number of directories."""
        parts = PurePosixPath(pattern).parts
        if not parts or PurePosixPath(pattern).is_absolute():
            raise NotImplementedError("a pattern must be relative") if parts else ValueError("Unacceptable pattern: ''")
        seen = set()
        for path in self._select(parts):
            if path not in seen:
                seen.add(path)
                yield path

    def rglob(self, pattern):
        """As ``glob``, with ``**/`` before the pattern."""
        return self.glob(PurePosixPath("**") / pattern)

    def _entries(self):
        try:
            return list(self._filesystem.scandir(self))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _select(self, parts):
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._select_beneath(rest, {})
        elif not any(character in part for character in "*?["):
            path = self / part
            if path.exists(follow_symlinks=bool(rest)):
                yield from path._select(rest) if rest else (path,)
        else:
            matches = re.compile(fnmatch.translate(part)).match
            for entry in self._entries():
                if not matches(entry.name):
                    continue
                path = self / entry.name
                if not rest:
                    yield path
                elif entry.is_dir():
                    yield from path._select(rest)

    def _select_beneath(self, rest, seen):
        if not self.is_dir():
            return
        _note_directory(self._filesystem, seen, self.stat().st_ino, str(self))
        yield from self._select(rest) if rest else (self,)
        for entry in self._entries():
            if entry.is_dir(follow_symlinks=False):
                yield from (self / entry.name)._select_beneath(rest, seen)

    def mkdir(self, mode=0o755, parents=False, exist_ok=False):
        """Make a directory. ``parents`` also makes missing parents, with the default mode."""
        try:
            self._filesystem.mkdir(self, mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self._filesystem.makedirs(self, mode, exist_ok)
        except OSError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self):
        """Remove the empty directory."""
        self._filesystem.rmdir(self)

    def unlink(self, missing_ok=False):
        """Remove the file."""
        try:
            self._filesystem.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def touch(self, mode=0o644, exist_ok=True):
        """Create an empty file, or set the times of an existing one to now."""
        if exist_ok:
            try:
                self._filesystem.utime(self)
                return
            except FileNotFoundError:
                # The path may also be a dangling link, and another thread may create the file now.
                pass
        self._filesystem.open(self, "ab" if exist_ok else "xb", buffering=0, permissions=mode).close()

    def rename(self, target):
        """Rename; returns the new path. An existing file is replaced."""
        if not isinstance(target, Path):
            target = self._with(target)
        self._filesystem.rename(self, target)
        return target

    replace = rename

    def chmod(self, mode, *, follow_symlinks=True):
        """Set permission bits."""
        self._filesystem.chmod(self, mode, follow_symlinks=follow_symlinks)

    def symlink_to(self, target):
        """Make this path a symbolic link to ``target``."""
        self._filesystem.symlink(target, self)

    def hardlink_to(self, target):
        """Make this path a hard link to the file ``target``."""
        self._filesystem.link(target, self)

    def readlink(self):
        """The target of the symbolic link."""
        return self._with(self._filesystem.readlink(self))
