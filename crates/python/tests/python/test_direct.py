"""Direct I/O between the disk and memory of Python objects."""

import errno
import gc
import mmap
import threading
import weakref

import pytest

import diorite

MIB = 1 << 20


def test_nothing_is_copied(fs, data):
    """ARCHITECTURE invariant 1, through Python."""
    memory, mapped = data.buffer(MIB), mmap.mmap(-1, MIB)
    before = fs.stats()
    for at in range(0, 4 * MIB, MIB):
        assert data.readinto_at(memory, at) == MIB
        assert memory[0] == (at // 4096) & 0xFF and bytes(memory[4096:4100]) == (at // 4096 + 1).to_bytes(4, "little")
        assert data.readinto_at(mapped, at) == MIB and mapped[4096:4100] == bytes(memory[4096:4100])
        assert data.pwrite(mapped, at) == MIB
        assert data.readinto_at(memoryview(memory)[8192:12288], at) == 4096
    data.seek(0)
    assert data.readinto(memory) == MIB and data.tell() == MIB
    with diorite.Queue(data, 4) as queue:
        queue.submit_read(memory, 0)
        queue.submit_write(mapped, MIB)
        while queue.in_flight:
            assert all(done.result() == MIB for done in queue.reap())
    after = fs.stats()
    assert after.bytes_copied == before.bytes_copied
    assert after.direct_read_bytes - before.direct_read_bytes == 10 * MIB + 4 * 4096
    assert after.direct_write_bytes - before.direct_write_bytes == 5 * MIB


def test_arrays_of_numpy_show_the_memory(data):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed (python3-numpy)")
    memory = data.buffer(MIB)
    array = numpy.frombuffer(memory, dtype="<u4")
    assert array.flags.writeable and array.ctypes.data == memory.address
    assert data.readinto_at(memory, MIB) == MIB
    assert array[0] == 256 and array[1024] == 257
    array[0] = 7
    assert data.pwrite(memory, 0) == MIB
    # Any array with aligned memory works, with any type and shape.
    whole = numpy.zeros(2 * MIB // 8 + 512, dtype="f8")
    skip = -whole.ctypes.data % 4096 // 8
    aligned = whole[skip : skip + MIB // 8].reshape(-1, 16)
    assert data.readinto_at(aligned, 0) == MIB and aligned.view("u4").ravel()[0] == 7
    with pytest.raises(TypeError):
        data.readinto_at(aligned[:, ::2], 0)
    with pytest.raises(TypeError):
        data.readinto_at(bytes(4096), 0)


def test_alignment_is_named(fs, data):
    needed = data.alignment
    assert needed.offset == 512 and needed.memory >= 1 and needed.max_transfer >= 4096
    memory = data.buffer(4096)
    for call in (
        lambda: data.readinto_at(memory, 100),
        lambda: data.readinto_at(memory[:100], 0),
        lambda: data.pwrite(memory[:511], 0),
        lambda: data.pread(100, 0),
        lambda: diorite.Queue(data).submit_read(memory, 1),
    ):
        with pytest.raises(diorite.AlignmentError) as error:
            call()
        assert error.value.errno == errno.EINVAL and error.value.kind == "InvalidAlignment"
        assert error.value.needed == 512 and error.value.given % 512 and error.value.part in ("the offset", "the length")
    with fs.open("/data", "r+b", buffering=0, direct=True, unaligned="bounce") as bounced:
        assert bounced.pread(4, 4096) == (1).to_bytes(4, "little")
        assert bounced.pwrite(b"odd", 4097) == 3
    with fs.open("/data", "rb", buffering=0, direct="preferred") as preferred:
        assert preferred.direct == "preferred" and preferred.pread(4096, 4096)[1:4] == b"odd"


def test_set_direct(fs, data):
    assert data.direct is True
    data.set_direct(False)
    assert data.direct is False and data.pread(3, 4096) == b"\1\0\0"
    data.pwrite(b"cached", 1)
    data.set_direct(True)
    assert data.pread(4096, 0)[1:7] == b"cached"
    data.drop_cached()


def test_space_and_holes(data):
    data.truncate(8 * MIB)
    assert data.size == 8 * MIB and data.seek_hole(0) == 4 * MIB
    with pytest.raises(OSError) as error:
        data.seek_data(4 * MIB)
    assert error.value.errno == errno.ENXIO
    data.punch_hole(MIB, MIB)
    assert data.seek_hole(0) == MIB and data.seek_data(MIB) == 2 * MIB
    data.fallocate(8 * MIB, MIB)
    assert data.size == 9 * MIB
    data.fallocate(9 * MIB, MIB, keep_size=True)
    assert data.size == 9 * MIB and {extent.kind for extent in data.extents()} == {"data", "unwritten"}
    data.zero_range(0, 4096)
    assert data.pread(4096, 0) == bytes(4096)
    data.collapse_range(0, 4096)
    data.insert_range(0, 4096)
    assert data.size == 9 * MIB
    data.fdatasync()
    data.fsync()
    assert data.stat().st_size == 9 * MIB and data.max_size > 1 << 40


def test_a_buffer_outlives_its_file_and_a_view_its_buffer(image):
    with diorite.Filesystem(image) as fs:
        fs.write_bytes("/x", b"kept" * 1024)
        file = fs.open("/x", "rb", buffering=0, direct=True)
        buffer = file.buffer(4096)
        file.readinto_at(buffer, 0)
        gone = weakref.ref(buffer)
        view = memoryview(buffer)[:8]
        del buffer
        gc.collect()
        assert gone() is not None and bytes(view) == b"keptkept"
        view.release()
        assert gone() is None
        with pytest.raises(MemoryError):
            diorite.Buffer(1 << 60)
    assert len(diorite.Buffer(0)) == 0 and bytes(diorite.Buffer(3)) == bytes(3)
    with pytest.raises(ValueError):
        diorite.Buffer(4096, 3)


def test_a_bytearray_cannot_be_resized_under_a_transfer(fs, data):
    fs.write_bytes("/c", bytes(4 * MIB))
    memory, ends, refused = bytearray(MIB), [], 0

    def read():
        with fs.open("/c", "rb", buffering=0) as file:
            for _ in range(50):
                ends.append(file.readinto_at(memory, 0))

    thread = threading.Thread(target=read)
    thread.start()
    while thread.is_alive():
        try:
            memory.extend(bytes(1 << 20))
            del memory[MIB:]
        except BufferError:
            refused += 1
    thread.join()
    assert len(ends) == 50 and min(ends) >= MIB


def test_host_files_and_devices(tmp_path):
    path = tmp_path / "host"
    with diorite.open_host(path, "x+b", buffering=0) as file:
        assert file.write(b"on the host") == 11 and file.pread(4, 3) == b"the "
        assert file.stat().st_size == 11
        file.fsync()
    assert path.read_bytes() == b"on the host"
    with diorite.open_host(path, "r", encoding="ascii") as file:
        assert file.read() == "on the host" and file.name == str(path)
    with pytest.raises(FileExistsError):
        diorite.open_host(path, "xb")
    with pytest.raises(FileNotFoundError):
        diorite.open_host(tmp_path / "no")
    device = tmp_path / "device"
    device.write_bytes(bytes(MIB))
    with diorite.open_raw(device, "r+b", buffering=0) as file:
        memory = file.buffer(4096)
        memory[:5] = b"bytes"
        assert file.pwrite(memory, 8192) == 4096 and file.size == MIB
        with pytest.raises(OSError):
            file.truncate(5)
        file.fsync()
    assert device.read_bytes()[8192:8197] == b"bytes"
    with pytest.raises(ValueError):
        diorite.open_raw(device, "wb")
