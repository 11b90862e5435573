"""The filesystem `diorite` of fsspec."""

import errno

import pytest

import diorite

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (python3-fsspec)")


@pytest.fixture(autouse=True)
def registered():
    from diorite.fsspec import DioriteFileSystem, register

    register()
    yield
    for instance in list(DioriteFileSystem._cache.values()):
        instance.close()


@pytest.fixture
def filled(image):
    with diorite.Filesystem(image) as fs:
        fs.makedirs("/dir/sub")
        fs.write_text("/dir/table.csv", "a,b\n1,2\n")
        fs.write_bytes("/dir/sub/deep", b"0123456789")
        fs.symlink("nowhere", "/dir/broken")
    return image


def test_a_url_names_the_file_and_the_image(filled):
    with fsspec.open(f"diorite://dir/table.csv::file://{filled}", "r") as file:
        assert file.read() == "a,b\n1,2\n"
    with fsspec.open("diorite://dir/table.csv", "rb", fo=str(filled)) as file:
        assert file.read(3) == b"a,b"


def test_listings_and_ranges(filled):
    fs = fsspec.filesystem("diorite", fo=str(filled))
    assert fs.ls("/dir", detail=False) == ["/dir/broken", "/dir/sub", "/dir/table.csv"]
    assert fs.find("/dir") == ["/dir/broken", "/dir/sub/deep", "/dir/table.csv"]
    assert fs.glob("/dir/**/deep") == ["/dir/sub/deep"] and fs.glob("/dir/*.csv") == ["/dir/table.csv"]
    assert fs.info("dir/sub")["type"] == "directory" and fs.size("dir/sub/deep") == 10
    assert fs.cat_file("/dir/sub/deep", 2, 5) == b"234" and fs.cat_file("/dir/sub/deep", -3) == b"789"
    assert fs.cat("/dir/table.csv") == b"a,b\n1,2\n" and fs.isdir("dir") and fs.isfile("/dir/table.csv") and not fs.exists("/no")
    assert fs.modified("/dir/table.csv").year > 2000
    with pytest.raises(FileNotFoundError):
        fs.open("/no")
    with pytest.raises(OSError) as error:
        fs.pipe("/new", b"")
    assert error.value.errno == errno.EROFS


def test_changes(filled, tmp_path):
    fs = fsspec.filesystem("diorite", fo=str(filled), read_only=False)
    fs.makedirs("/new")
    fs.pipe("/new/file", b"content")
    fs.cp("/new/file", "/new/copy")
    fs.mv("/new/copy", "/new/moved")
    with fs.open("/new/text", "w") as file:
        file.write("text")
    assert sorted(fs.ls("/new", detail=False)) == ["/new/file", "/new/moved", "/new/text"]
    fs.get("/new", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out" / "moved").read_bytes() == b"content"
    fs.put(str(tmp_path / "out"), "/back", recursive=True)
    assert fs.cat("/back/text") == b"text"
    fs.rm("/new/file")
    fs.rm("/new", recursive=True)
    assert not fs.exists("/new")


def test_wrong_use(tmp_path):
    with pytest.raises(ValueError):
        fsspec.filesystem("diorite")
    with pytest.raises(FileNotFoundError):
        fsspec.filesystem("diorite", fo=str(tmp_path / "no.img"))


def test_no_walk_goes_through_links(image, tmp_path):
    """A link to itself hid its whole directory, and a link to a directory made walks endless."""
    with diorite.Filesystem(image) as volume:
        volume.makedirs("/dir/sub")
        volume.write_bytes("/dir/file", b"12345")
        volume.write_bytes("/dir/sub/deep", b"1")
        for target, name in (("x", "x"), ("file/z", "y"), (".", "d"), ("sub", "s"), ("file", "f"), ("nowhere", "n")):
            volume.symlink(target, f"/dir/{name}")
    fs = fsspec.filesystem("diorite", fo=str(image))
    assert fs.find("/dir") == ["/dir/" + name for name in ("d", "f", "file", "n", "s", "sub/deep", "x", "y")]
    rows = {row["name"]: row for row in fs.ls("/dir", detail=True)}
    assert {name: rows[f"/dir/{name}"]["type"] for name in ("d", "f", "sub", "x", "y")} == {
        "d": "link", "f": "file", "sub": "directory", "x": "link", "y": "link"
    }
    assert rows["/dir/f"]["size"] == 5
    assert fs.ls("/dir/s", detail=False) == ["/dir/s/deep"]


def test_a_transaction_is_committed_or_discarded(filled):
    fs = fsspec.filesystem("diorite", fo=str(filled), read_only=False)
    with fs.transaction:
        with fs.open("/dir/table.csv", "wb") as file:
            file.write(b"new")
        with fs.open("/dir/sub/deep", "ab") as file:
            file.write(b"more")
        with fs.open("/dir/text", "w") as file:
            file.write("text")
        left_open = fs.open("/dir/exclusive", "xb")
        left_open.write(b"x")
        fs.pipe("/dir/piped", b"piped")
        assert fs.cat("/dir/table.csv") == b"a,b\n1,2\n" and not fs.exists("/dir/text") and not fs.exists("/dir/piped")
    committed = {"table.csv": b"new", "sub/deep": b"0123456789more", "text": b"text", "exclusive": b"x", "piped": b"piped"}
    names = sorted([f"/dir/{name}" for name in committed] + ["/dir/broken"])
    assert fs.cat([f"/dir/{name}" for name in committed]) == {f"/dir/{name}": content for name, content in committed.items()}
    assert fs.find("/dir") == names and not fs._intrans
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open("/dir/table.csv", "wb") as file:
            file.write(b"newer")
        fs.open("/dir/other", "wb").write(b"other")
        fs.pipe("/dir/piped", b"other")
        1 / 0
    assert fs.cat("/dir/table.csv") == b"new" and fs.cat("/dir/piped") == b"piped" and fs.find("/dir") == names and not fs._intrans
