"""The functions of `os`, also compared with the host."""

import errno
import os
import stat

import pytest

import diorite


def test_names_and_attributes(fs):
    fs.makedirs("/a/b/c")
    with pytest.raises(FileExistsError):
        fs.makedirs("/a/b/c")
    fs.makedirs("/a/b/c", exist_ok=True)
    fs.write_bytes("/a/file", b"12345")
    fs.chmod("/a/file", 0o640)
    fs.chown("/a/file", 10, -1)
    fs.utime("/a/file", ns=(1_000_000_007, 2_500_000_009))
    found = fs.stat("/a/file")
    assert (found.st_size, found.st_uid, found.st_gid, found.st_nlink) == (5, 10, 0, 1)
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_007, 2_500_000_009)
    assert found.st_mtime == 2.500000009 and found.st_birthtime_ns > 10**18 and found.st_ctime > 1e9
    fs.utime("/a/file", (1, -2.25))
    assert fs.stat("/a/file").st_mtime_ns == -2_250_000_000
    fs.utime("/a/file")
    assert fs.stat("/a/file").st_mtime > 1e9
    fs.link("/a/file", "/a/other")
    assert fs.stat("/a/other").st_ino == fs.stat("/a/file").st_ino and fs.stat("/a/file").st_nlink == 2
    fs.symlink("file", "/a/soft")
    assert fs.readlink("/a/soft") == "file" and fs.readlink(b"/a/soft") == b"file"
    assert stat.S_ISLNK(fs.lstat("/a/soft").st_mode) and fs.isfile("/a/soft") and fs.islink("/a/soft")
    fs.symlink("nowhere", "/a/broken")
    assert fs.lexists("/a/broken") and not fs.exists("/a/broken")
    fs.symlink("loop", "/a/loop")
    assert not fs.exists("/a/loop")
    fs.replace("/a/other", "/a/b/moved")
    assert sorted(fs.listdir("/a")) == ["b", "broken", "file", "loop", "soft"]
    fs.truncate("/a/file", 3)
    assert fs.read_bytes("/a/b/moved") == b"123" and fs.getsize("/a/file") == 3
    fs.exchange("/a/file", "/a/b")
    assert fs.isdir("/a/file") and fs.isfile("/a/b")
    fs.mknod("/a/pipe", stat.S_IFIFO | 0o600)
    fs.mknod("/a/device", stat.S_IFBLK | 0o600, os.makedev(8, 17))
    assert stat.S_ISFIFO(fs.stat("/a/pipe").st_mode) and os.minor(fs.stat("/a/device").st_rdev) == 17
    assert fs.copyfile("/a/b", "/copy") == 3
    fs.rmtree("/a")
    assert not fs.exists("/a")
    with pytest.raises(FileNotFoundError):
        fs.rmtree("/a")
    fs.rmtree("/a", ignore_errors=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda o: o.mkdir("d"), lambda o: o.mkdir("no/d"), lambda o: o.rmdir("f"), lambda o: o.rmdir("full"), lambda o: o.rmdir("no"),
        lambda o: o.remove("no"), lambda o: o.remove("d"), lambda o: o.unlink("d"), lambda o: o.rename("no", "x"),
        lambda o: o.rename("f", "d"), lambda o: o.rename("d", "f"), lambda o: o.rename("d", "full"), lambda o: o.rename("full", "full/in"),
        lambda o: o.link("d", "x"), lambda o: o.link("f", "d"), lambda o: o.symlink("x", "f"), lambda o: o.readlink("f"),
        lambda o: o.stat("f/x"), lambda o: o.stat("no"), lambda o: o.stat("loop"), lambda o: o.stat("n" * 256), lambda o: o.listdir("f"),
        lambda o: o.listdir("no"), lambda o: o.chmod("no", 0), lambda o: o.utime("no"), lambda o: o.truncate("d", 1),
        lambda o: o.getxattr("f", "user.no"), lambda o: o.removexattr("f", "user.no"),
        lambda o: o.setxattr("f", "user.a", b"", os.XATTR_REPLACE), lambda o: o.setxattr("f", "user.was", b"", os.XATTR_CREATE),
    ],
)
def test_errors_are_those_of_the_host(fs, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    for system in (fs, os):
        system.mkdir("d")
        system.makedirs("full/in")
        system.symlink("loop", "loop")
    fs.write_bytes("f", b"")
    (tmp_path / "f").write_bytes(b"")
    ends = []
    for system in (os, fs):
        try:
            system.setxattr("f", "user.was", b"1")
        except OSError:
            pytest.skip("the host's filesystem has no extended attributes")
        with pytest.raises(OSError) as error:
            call(system)
        ends.append((type(error.value), error.value.errno))
    assert ends[0] == ends[1]
    assert error.value.kind and error.value.strerror and error.value.filename


def test_names_that_are_not_utf8(fs):
    name = os.fsdecode(b"\xff\xfe name")
    with fs.open("/" + name, "wb") as file:
        file.write(b"x")
    assert fs.listdir("/") and name in fs.listdir("/") and b"\xff\xfe name" in fs.listdir(b"/")
    assert fs.read_bytes(b"/\xff\xfe name") == b"x"
    (entry,) = [entry for entry in fs.scandir(b"/") if entry.is_file()]
    assert entry.path == b"/\xff\xfe name" and entry.stat().st_size == 1
    assert (fs / name).read_bytes() == b"x"
    with pytest.raises(FileNotFoundError) as error:
        fs.open(b"/\xfe")
    assert error.value.filename == os.fsdecode(b"/\xfe")
    assert list(fs.walk(b"/"))[0][2] == [b"\xff\xfe name"]


def test_scandir_and_walk(fs, tmp_path):
    for system in (fs, None):
        for directory in ("x", "x/y", "x/z", "x/y/deep"):
            fs.mkdir(directory) if system else (tmp_path / directory).mkdir()
        for file in ("x/1", "x/y/2", "x/y/deep/3"):
            fs.write_bytes(file, b"") if system else (tmp_path / file).write_bytes(b"")
        (fs if system else os).symlink("y", "x/link" if system else tmp_path / "x/link")
    for topdown in (True, False):
        for followlinks in (True, False):
            ours = [(d, sorted(n), sorted(o)) for d, n, o in fs.walk("x", topdown, followlinks=followlinks)]
            host = [(os.path.relpath(d, tmp_path), sorted(n), sorted(o)) for d, n, o in os.walk(tmp_path / "x", topdown, followlinks=followlinks)]
            assert sorted(ours) == sorted(host)
            assert (ours[0][0] == "x") == topdown
    pruned = []
    for directory, names, _ in fs.walk("x"):
        pruned.append(directory)
        names[:] = [name for name in names if name != "y"]
    assert sorted(pruned) == ["x", "x/z"]
    with fs.scandir("/x") as entries:
        kinds = {entry.name: (entry.is_dir(), entry.is_file(), entry.is_symlink(), entry.inode() > 0) for entry in entries}
    assert kinds["1"] == (False, True, False, True) and kinds["link"] == (True, False, True, True)
    errors = []
    assert list(fs.walk("/missing", onerror=errors.append)) == [] and isinstance(errors[0], FileNotFoundError)


def test_extended_attributes(fs):
    fs.write_bytes("/f", b"")
    fs.symlink("f", "/l")
    fs.setxattr("/l", "user.a", b"value")
    fs.setxattr("/f", b"user.\xff", b"")
    assert fs.getxattr("/f", "user.a") == b"value"
    assert sorted(fs.listxattr("/f")) == ["user.a", os.fsdecode(b"user.\xff")] and fs.listxattr("/l", follow_symlinks=False) == []
    fs.removexattr("/f", "user.a")
    with pytest.raises(OSError) as error:
        fs.getxattr("/f", "user.a")
    assert error.value.errno == errno.ENODATA and error.value.kind == "NoAttribute"


def test_paths_like_pathlib(fs, tmp_path):
    for root in (fs / "p", tmp_path / "p"):
        (root / "q" / "r").mkdir(parents=True)
        (root / "a.txt").write_text("a\n")
        (root / "q" / "b.txt").write_text("b")
        (root / "q" / "r" / "c.bin").write_bytes(b"c")
        (root / "q" / "r" / ".hidden").touch()
    for pattern in ("*", "*.txt", "**/*.txt", "**", "q/*", "q/r", "*/r/*", "**/r/**/*", "no/*", "[aq]*", "a.txt", "q/../a.txt"):
        ours = sorted(str(path.relative_to(fs / "p")) for path in (fs / "p").glob(pattern))
        host = sorted(str(path.relative_to(tmp_path / "p")) for path in (tmp_path / "p").glob(pattern))
        assert ours == host, pattern
    path = fs / "p" / "a.txt"
    assert (path.name, path.stem, path.suffix, str(path.parent)) == ("a.txt", "a", ".txt", "/p")
    assert path.read_text() == "a\n" and path.exists() and path.is_file() and not path.is_dir() and path.stat().st_size == 2
    with path.open() as file:
        assert file.readline() == "a\n"
    moved = path.rename(path.with_name("moved"))
    assert moved.exists() and not path.exists() and path == fs / "p" / "a.txt" and len({path, fs / "p/a.txt"}) == 1
    with pytest.raises(FileExistsError):
        (fs / "p").mkdir()
    with pytest.raises(FileExistsError):
        moved.mkdir(exist_ok=True)
    (fs / "p").mkdir(exist_ok=True)
    moved.unlink()
    moved.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        moved.unlink()
    link = fs / "link"
    link.symlink_to("/p/q")
    assert link.is_symlink() and str(link.readlink()) == "/p/q" and sorted(p.name for p in link.iterdir()) == ["b.txt", "r"]
    assert fs.open(fs / "p" / "q" / "b.txt").read() == b"b"
    with pytest.raises(TypeError):
        open(link)


def test_a_full_volume(tmp_path):
    image = tmp_path / "small.img"
    with diorite.Filesystem.create(image, 4 << 20, "ext2") as fs:
        with pytest.raises(OSError) as error, fs.open("/big", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 65536)
        assert error.value.errno == errno.ENOSPC and error.value.kind == "StorageFull"
        with pytest.raises(OSError) as error, fs.open("/buffered", "wb") as file:
            file.write(b"y" * (8 << 20))
        assert error.value.errno == errno.ENOSPC
        fs.remove("/big")
        fs.write_bytes("/again", b"z" * 100_000)
        space = fs.statvfs()
        assert 0 < space.f_bavail <= space.f_bfree < space.f_blocks and space.f_frsize == 1024
    from conftest import e2fsck

    e2fsck(image)


def test_how_a_volume_is_opened(tmp_path, image):
    with pytest.raises(FileNotFoundError) as error:
        diorite.Filesystem(tmp_path / "no.img")
    assert "no.img" in str(error.value)
    with pytest.raises(FileExistsError):
        diorite.Filesystem.create(image, 1 << 20)
    with diorite.Filesystem(image) as fs:
        with pytest.raises(OSError) as error:
            diorite.Filesystem(image)
        assert error.value.errno in (errno.EBUSY, errno.EAGAIN), error.value
        fs.write_bytes("/x", b"1")
    fs.close()
    assert fs.closed and "closed" in repr(fs)
    with pytest.raises(ValueError, match="closed filesystem"):
        fs.listdir()
    with diorite.Filesystem(image, read_only=True, cache_bytes=1 << 20, scheduler="deadline", device_direct=False) as fs:
        assert fs.read_bytes("/x") == b"1" and fs.read_only_reason and fs.defects == []
        with pytest.raises(OSError) as error:
            fs.write_bytes("/x", b"2")
        assert error.value.errno == errno.EROFS and error.value.kind == "ReadOnly"
    with pytest.raises(ValueError, match="scheduler|unknown"):
        diorite.Filesystem(image, scheduler="no-such")
    with pytest.raises(ValueError):
        diorite.Filesystem(image, direct="sometimes")
    with pytest.raises(TypeError):
        diorite.Filesystem(image, no_such_option=1)
    noise = tmp_path / "noise.img"
    noise.write_bytes(bytes(1 << 20))
    with pytest.raises(diorite.CorruptError) as error:
        diorite.Filesystem(noise)
    assert error.value.kind == "Corrupt" and isinstance(error.value, OSError)
    diorite.mkfs(noise, type="ext2", label="noise")
    with pytest.raises(OSError, match="force"):
        diorite.mkfs(noise)
    diorite.mkfs(noise, force=True, type="ext2")
    with pytest.raises(ValueError):
        diorite.mkfs(noise, force=True, type="xfs")


def test_mkfs_keeps_what_is_known(tmp_path, image):
    """A partition table, a physical volume and the content of the second of two joined images were overwritten without force."""
    empty = tmp_path / "empty.img"
    empty.write_bytes(bytes(4 << 20))
    table = bytearray(4 << 20)
    table[446:462] = b"\0\0\0\0\x83\0\0\0" + (2048).to_bytes(4, "little") + (2048).to_bytes(4, "little")
    table[510:512] = b"\x55\xaa"
    label = bytearray(4 << 20)
    label[512:520] = b"LABELONE"
    swap = bytearray(4 << 20)
    swap[4086:4096] = b"SWAPSPACE2"
    for number, (content, what) in enumerate([(table, "partition table"), (label, "LVM2"), (swap, "swap")]):
        path = tmp_path / f"{number}.img"
        path.write_bytes(content)
        for target in (path, f"linear:{empty},{path}"):
            with pytest.raises(FileExistsError, match=f"{what}.*force=True"):
                diorite.mkfs(target)
            assert path.read_bytes() == content
        diorite.mkfs(path, force=True)
    diorite.mkfs(f"{tmp_path}/0.img", force=True)
    diorite.mkfs(empty)
    with pytest.raises(FileExistsError, match="a filesystem already.*force=True"):
        diorite.mkfs(empty)


def test_names_and_owners_as_os_has_them(fs):
    fs.write_bytes("/x", b"")
    assert not fs.exists("/" + "n" * 256) and not fs.lexists("/" + "n" * 256) and not fs.isdir("/" + "n" * 256)
    fs.chown("/x", 1000, 2000)
    fs.chown("/x", 2**32 - 1, -1)
    fs.chown("/x", -1, 2**32 - 1)
    assert (fs.stat("/x").st_uid, fs.stat("/x").st_gid) == (1000, 2000)
    with pytest.raises((OverflowError, ValueError)):
        fs.chown("/x", -2, 0)


def test_a_partition(tmp_path, image):
    disk = tmp_path / "disk.raw"
    with open(image, "rb") as volume, open(disk, "wb") as file:
        file.write(bytes(1 << 20))
        file.write(volume.read())
    with diorite.Filesystem(f"{disk}?offset=1M") as fs:
        fs.write_bytes("/in", b"a part")
    with diorite.open_raw(f"{disk}?offset=1M", buffering=0) as file:
        assert file.pread(2, 1080) == b"\x53\xef"


def test_a_close_flushes_and_closes_what_is_open(image):
    with diorite.Filesystem(image) as fs:
        text = fs.open("/text", "w")
        text.write("not flushed")
        raw = fs.open("/raw", "wb", buffering=0)
    assert text.closed and raw.closed
    with pytest.raises(ValueError):
        raw.write(b"")
    with diorite.Filesystem(image) as fs:
        assert fs.read_text("/text") == "not flushed"
        fs.write_bytes("/raw", bytes(8192))
        file = fs.open("/raw", "rb", buffering=0, direct=True)
        queue = diorite.Queue(file, 4)
        queue.submit_read(file.buffer(4096), 0)
        with pytest.raises(OSError) as error:
            fs.close()
        assert error.value.errno == errno.EBUSY and not fs.closed
        assert fs.listdir("/")
        queue.close()


def test_a_new_owner_takes_the_privileges(fs):
    """Also for root, as in chown(2). Set-group-ID without group execution is kept."""
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    for uid, gid, before, after in ((7, -1, 0o6755, 0o755), (-1, 7, 0o6755, 0o755), (-1, -1, 0o6755, 0o755), (7, 7, 0o6745, 0o2745)):
        fs.write_bytes("/program", b"")
        fs.chmod("/program", before)
        fs.setxattr("/program", "security.capability", capability)
        fs.chown("/program", uid, gid)
        assert stat.S_IMODE(fs.stat("/program").st_mode) == after and fs.listxattr("/program") == []
    fs.mkdir("/dir", 0o6755)
    fs.chown("/dir", 7, 7)
    assert stat.S_IMODE(fs.stat("/dir").st_mode) == 0o6755


def test_what_exists_comes_before_a_read_only_volume(image):
    """As in Linux an existing directory is EEXIST; it was EROFS."""
    with diorite.Filesystem(image) as fs:
        fs.makedirs("/d/e")
        fs.write_bytes("/f", b"")
    with diorite.Filesystem(image, read_only=True) as fs:
        fs.makedirs("/d/e", exist_ok=True)
        fs.makedirs("/", exist_ok=True)
        (fs / "d" / "e").mkdir(parents=True, exist_ok=True)
        for call in (
            lambda name: fs.mkdir(name), lambda name: fs.symlink("x", name), lambda name: fs.mknod(name), lambda name: fs.link("/f", name),
            lambda name: fs.link("/d", name), lambda name: fs.open(name, "xb"),
        ):
            for name, expected in (("/d/e", errno.EEXIST), ("/f", errno.EEXIST), ("/new", errno.EROFS)):
                with pytest.raises(OSError) as error:
                    call(name)
                assert error.value.errno == expected, name


def test_parents_have_the_default_mode(fs):
    fs.makedirs("/a/b/c", 0o700)
    (fs / "p" / "q" / "r").mkdir(0o1700, parents=True)
    modes = [stat.S_IMODE(fs.stat(path).st_mode) for path in ("/a", "/a/b", "/a/b/c", "/p", "/p/q", "/p/q/r")]
    assert modes == [0o755, 0o755, 0o700, 0o755, 0o755, 0o1700]


def test_touch_goes_through_links(fs):
    (fs / "link").symlink_to("target")
    (fs / "link").touch(0o600)
    assert stat.S_IMODE(fs.lstat("/target").st_mode) == 0o600 and fs.islink("/link")
    fs.utime("/target", ns=(0, 0))
    (fs / "link").touch()
    assert fs.stat("/target").st_mtime > 1e9
    for name in ("link", "target"):
        with pytest.raises(FileExistsError):
            (fs / name).touch(exist_ok=False)


def test_touch_in_a_race(fs, monkeypatch):
    """Another thread creates the file between the check and the creation."""
    def utime(path):
        fs.write_bytes("/new", b"kept")
        raise FileNotFoundError

    monkeypatch.setattr(diorite.Filesystem, "utime", lambda self, path: utime(path), raising=True)
    (fs / "new").touch()
    assert fs.read_bytes("/new") == b"kept"


def test_no_image_is_left_where_it_cannot_be_opened(tmp_path):
    image = tmp_path / "new.img"
    for options, kind in (({"no_such_option": 1}, TypeError), ({"scheduler": "no"}, ValueError), ({"dirty_age": -1.0}, ValueError)):
        with pytest.raises(kind):
            diorite.Filesystem.create(image, 8 << 20, **options)
        assert not image.exists()
    image.write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        diorite.Filesystem.create(image, 8 << 20, no_such_option=1)
    assert image.read_bytes() == b"kept"
