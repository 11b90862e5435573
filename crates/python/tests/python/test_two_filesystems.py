"""A `diorite.Path` belongs to its filesystem. Calls of another filesystem, or of the host, used the same path there."""

import errno

import pytest

import diorite


@pytest.fixture
def two(tmp_path):
    """Two volumes with the same names."""
    with diorite.Filesystem.create(tmp_path / "1.img", 8 << 20) as one, diorite.Filesystem.create(tmp_path / "2.img", 8 << 20) as two:
        for fs in (one, two):
            fs.write_bytes("/a", fs.target.encode())
            fs.mkdir("/d")
        yield one, two


@pytest.mark.parametrize(
    "call",
    [
        lambda fs, path: fs.remove(path), lambda fs, path: fs.read_bytes(path), lambda fs, path: fs.open(path), lambda fs, path: fs.stat(path),
        lambda fs, path: fs.write_bytes(path, b""), lambda fs, path: fs.copyfile(path, "/new"), lambda fs, path: fs.copyfile("/a", path),
        lambda fs, path: fs.chmod(path, 0), lambda fs, path: fs.makedirs(path), lambda fs, path: fs.scandir(path), lambda fs, path: fs.rmtree(path),
        lambda fs, path: fs.listdir(path), lambda fs, path: fs.truncate(path, 0), lambda fs, path: fs.symlink(path, "/new"),
        lambda fs, path: list(fs.walk(path)), lambda fs, path: fs / path, lambda fs, path: (fs / "d").joinpath(path),
    ],
)
def test_a_path_of_another_filesystem_is_refused(two, call):
    one, other = two
    with pytest.raises(ValueError, match="another filesystem"):
        call(one, other / "a")
    assert one.read_bytes("/a") == one.target.encode() and sorted(one.listdir()) == ["a", "d", "lost+found"]


def test_nothing_is_renamed_or_linked_across(two):
    one, other = two
    for call in (
        lambda: (one / "a").rename(other / "b"), lambda: (one / "a").replace(other / "b"), lambda: one.rename(other / "a", "/b"),
        lambda: (one / "b").hardlink_to(other / "a"), lambda: one.link("/a", other / "b"), lambda: one.exchange("/a", other / "d"),
    ):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EXDEV and error.value.filename and error.value.filename2
    for fs in two:
        assert sorted(fs.listdir()) == ["a", "d", "lost+found"]


def test_no_file_of_two_filesystems_is_the_same(two):
    one, other = two
    assert one.stat("/a").st_ino == other.stat("/a").st_ino
    assert not (one / "a").samefile(other / "a") and (one / "a").samefile(one / "a") and (one / "a").samefile("/a")
    assert not (one / "a").is_relative_to(other / "/")


def test_the_host_takes_no_path_of_a_filesystem(two, tmp_path):
    one = two[0]
    for path in (tmp_path / "host", tmp_path / "1.img"):
        path.exists() or path.write_bytes(b"host")
        before = path.read_bytes()[:4096]
        inside = one / str(path)
        for call in (
            lambda: diorite.mkfs(inside, force=True), lambda: diorite.mkfs(inside, 8 << 20), lambda: diorite.Filesystem(inside),
            lambda: diorite.Filesystem.create(inside, 8 << 20), lambda: diorite.open_raw(inside, "r+b"), lambda: diorite.open_host(inside, "wb"),
        ):
            with pytest.raises(TypeError):
                call()
        assert path.read_bytes()[:4096] == before
