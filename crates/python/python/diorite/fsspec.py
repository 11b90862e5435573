"""A filesystem for fsspec, so that pandas, pyarrow and dask read files in images.

    fsspec.open("diorite://dir/table.csv::disk.img")                 # the image is a file of the host
    fsspec.filesystem("diorite", fo="nbd://HOST/EXPORT")             # any target of the library
    pandas.read_csv("diorite://dir/table.csv", storage_options={"fo": "disk.img?partition=2"})
"""

import errno
import secrets
import stat as _stat

from fsspec.spec import AbstractFileSystem

from ._filesystem import Filesystem
from ._path import _note_directory


class DioriteFileSystem(AbstractFileSystem):
    """The filesystem ``diorite`` of fsspec: ``fo`` is the image or device, opened read-only unless ``read_only`` is false.

    ``options`` are options of ``diorite.Filesystem``; ``direct`` is also the default of each file.
    """

    protocol = "diorite"
    root_marker = "/"
    cachable = True

    def __init__(self, fo=None, read_only=True, target_protocol=None, target_options=None, **options):
        names = ("cache_bytes", "metadata_cache_bytes", "read_ahead_bytes", "dirty_age", "commit_interval", "data_mode", "quota_limits",
                 "direct", "device_direct", "scheduler")
        of_volume = {name: options.pop(name) for name in names if name in options}
        super().__init__(fo=fo, read_only=read_only, **options)
        if not fo:
            raise ValueError("no image: give it as fo=, or in the URL: diorite://PATH::IMAGE")
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"target_protocol {target_protocol!r}: an image must be a file of the host or a target of diorite")
        self.filesystem = Filesystem(fo, read_only=read_only, **of_volume)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(part) for part in path]
        path = super()._strip_protocol(str(path))
        return "/" + path.strip("/")

    def close(self):
        """Close the volume and raise its errors. fsspec caches the instance until then."""
        self.filesystem.close()
        type(self).clear_instance_cache()

    def _details(self, path, stat):
        kind = {_stat.S_IFDIR: "directory", _stat.S_IFREG: "file", _stat.S_IFLNK: "link"}
        return {
            "name": path,
            "size": stat.st_size,
            "type": kind.get(_stat.S_IFMT(stat.st_mode), "other"),
            "mode": stat.st_mode,
            "uid": stat.st_uid,
            "gid": stat.st_gid,
            "ino": stat.st_ino,
            "nlink": stat.st_nlink,
            "mtime": stat.st_mtime,
            "created": stat.st_birthtime or stat.st_ctime,
        }

    def info(self, path, **kwargs):
        """Attributes of a file, as a dictionary."""
        path = self._strip_protocol(path)
        return self._details(path, self.filesystem.stat(path))

    def _entry_details(self, entry):
        """Details of an entry. A link to a regular file has the details of its target; other links are not followed, so no walk leaves the tree."""
        if entry.is_symlink():
            try:
                target = entry.stat()
                if _stat.S_ISREG(target.st_mode):
                    return self._details(entry.path, target)
            except OSError:
                pass
        return self._details(entry.path, entry.stat(follow_symlinks=False))

    def ls(self, path, detail=True, **kwargs):
        """What is in a directory, or the file itself."""
        path = self._strip_protocol(path)
        if self.filesystem.isdir(path):
            entries = sorted(self.filesystem.scandir(path), key=lambda entry: entry.name)
            details = [self._entry_details(entry) for entry in entries]
        else:
            details = [self.info(path)]
        return details if detail else [row["name"] for row in details]

    def walk(self, path, maxdepth=None, *, _seen=None, **kwargs):
        """As fsspec's; ``CorruptError`` if a directory has more than one name, as only on a damaged volume."""
        seen = {} if _seen is None else _seen
        directory = self._strip_protocol(path)
        if self.filesystem.isdir(directory):
            _note_directory(self.filesystem, seen, self.filesystem.stat(directory).st_ino, directory)
        return super().walk(path, maxdepth, _seen=seen, **kwargs)

    def exists(self, path, **kwargs):
        """Whether the path leads to something."""
        return self.filesystem.exists(self._strip_protocol(path))

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        options = {name: kwargs[name] for name in ("direct", "unaligned", "sync", "buffering") if name in kwargs}
        path = self._strip_protocol(path)
        if autocommit or not set(mode) & set("wxa"):
            return self.filesystem.open(path, mode, **options)
        return self._open_deferred(path, mode, options)

    def _open_deferred(self, path, mode, options):
        """A file under a temporary name in the same directory, with the methods ``commit`` and ``discard``."""
        filesystem = self.filesystem
        is_new = not filesystem.exists(path)
        if "x" in mode and not is_new:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        temporary = f"{path.rpartition('/')[0]}/.diorite-{secrets.token_hex(8)}"
        if "a" in mode and not is_new:
            filesystem.copyfile(path, temporary)
        if not is_new:
            stat = filesystem.stat(path)
            options |= {"permissions": _stat.S_IMODE(stat.st_mode), "owner": (stat.st_uid, stat.st_gid)}
        file = filesystem.open(temporary, mode, **options)

        def commit():
            file.close()
            if "x" in mode:
                filesystem.link(temporary, path)
                filesystem.remove(temporary)
            else:
                filesystem.rename(temporary, path)

        def discard():
            try:
                file.close()
            finally:
                filesystem.remove(temporary)

        file.commit, file.discard = commit, discard
        return file

    def cat_file(self, path, start=None, end=None, **kwargs):
        """The bytes of a file, or of a range of it."""
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.filesystem.read_bytes(path)
        with self.filesystem.open(path, "rb", buffering=0, unaligned="bounce") as file:
            size = file.size
            start = max(size + start, 0) if (start or 0) < 0 else start or 0
            end = size if end is None else size + end if end < 0 else end
            return file.pread(max(end - start, 0), start)

    def pipe_file(self, path, value, **kwargs):
        """Create a file with these bytes; in a transaction, when it is committed."""
        with self.open(path, "wb") as file:
            file.write(value)

    def mkdir(self, path, create_parents=True, **kwargs):
        """Make a directory."""
        path = self._strip_protocol(path)
        if create_parents:
            self.filesystem.makedirs(path)
        else:
            self.filesystem.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        """Make a directory and all missing parents."""
        self.filesystem.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        """Remove an empty directory."""
        self.filesystem.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        """Remove a file."""
        self.filesystem.remove(self._strip_protocol(path))

    def _rm(self, path):
        self.rm_file(path)

    def rm(self, path, recursive=False, maxdepth=None):
        """Remove files; ``recursive`` also removes directories and their content."""
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if self.filesystem.isdir(one) and not self.filesystem.islink(one):
                if recursive:
                    self.filesystem.rmtree(one)
                else:
                    self.filesystem.rmdir(one)
            else:
                self.filesystem.remove(one)

    def cp_file(self, path1, path2, **kwargs):
        """Copy a file."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.filesystem.isdir(path1):
            self.filesystem.makedirs(path2, exist_ok=True)
        else:
            self.filesystem.copyfile(path1, path2)

    def mv(self, path1, path2, **kwargs):
        """Rename."""
        self.filesystem.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def created(self, path):
        """The creation time."""
        return _datetime(self.info(path)["created"])

    def modified(self, path):
        """The time of the last change of the content."""
        return _datetime(self.info(path)["mtime"])


def _datetime(seconds):
    import datetime

    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)


def register():
    """Register ``diorite://`` with fsspec. An installed package needs no registration."""
    import fsspec

    fsspec.register_implementation("diorite", DioriteFileSystem, clobber=True)
