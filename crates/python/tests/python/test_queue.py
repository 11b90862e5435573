"""Many transfers in flight."""

import errno
import gc
import selectors
import threading
import time
import weakref

import pytest

import diorite


def test_random_reads_at_depth(data):
    with diorite.Queue(data, depth=16) as queue:
        free = [data.buffer(4096) for _ in range(16)]
        todo = [(block * 37) % 1024 for block in range(1000)]
        done = 0
        while done < 1000:
            while free and todo:
                block = todo.pop()
                queue.submit_read(free.pop(), block * 4096, block)
            for completion in queue.reap():
                assert completion.nbytes == 4096 and completion.error is None
                assert int.from_bytes(completion.buffer[:4], "little") == completion.data
                free.append(completion.buffer)
                done += 1
        assert queue.in_flight == 0 and queue.reap() == [] and queue.reap(5, timeout=0) == []


def test_a_queue_keeps_its_file_open(fs, data):
    """A queue of a temporary object said that its file was closed."""
    memory = data.buffer(4096)
    queue = diorite.Queue(fs.open(data.name, "rb", buffering=0, direct=True))
    gc.collect()
    queue.submit_read(memory, 0)
    assert queue.reap()[0].result() == 4096
    queue.close()


def test_limits_and_misuse(fs, data):
    for depth in (0, 5000):
        with pytest.raises(ValueError):
            diorite.Queue(data, depth)
    memory, other = data.buffer(4096), data.buffer(4096)
    queue = diorite.Queue(depth=2)
    with pytest.raises(TypeError):
        queue.submit_read(memory, 0)
    with pytest.raises(TypeError):
        diorite.Queue("no file")
    queue.submit_read(memory, 0, "data", file=data)
    for call in (lambda: memoryview(memory), lambda: memory[0], lambda: queue.submit_read(memory, 0, file=data),
                 lambda: data.readinto_at(memory, 0), lambda: data.pwrite(memory, 0)):
        with pytest.raises(BufferError):
            call()
    queue.submit_read(other, 0, file=data)
    with pytest.raises(BlockingIOError) as error:
        queue.submit_read(data.buffer(4096), 0, file=data)
    assert error.value.errno == errno.EAGAIN
    assert len(queue.reap(2)) == 2 and memory[0] == 0
    # Many writes can use the same memory at once.
    queue.submit_write(memory, 0, file=data)
    queue.submit_write(memory, 4096, file=data)
    assert bytes(memory[:1]) == b"\0"
    assert [end.result() for end in queue.reap(2)] == [4096, 4096]
    with fs.open("/data", "rb", buffering=0) as only_read, pytest.raises(OSError) as error:
        queue.submit_write(memory, 0, file=only_read)
    assert error.value.errno == errno.EBADF
    with pytest.raises(TypeError):
        queue.submit_read(b"constant" * 512, 0, file=data)
    queue.submit_read(memory, 4 << 20, file=data)
    assert queue.reap()[0].result() == 0
    queue.close()
    queue.close()
    assert queue.closed
    for call in (queue.reap, queue.fileno, lambda: queue.submit_read(memory, 0, file=data)):
        with pytest.raises(ValueError):
            call()


def test_memory_and_objects_in_flight_are_kept(data):
    class Data:
        pass

    queue = diorite.Queue(data, 32)
    for block in range(32):
        queue.submit_read(data.buffer(4096), block * 4096, Data())
    gc.collect()
    ends = queue.reap(32)
    kept = weakref.ref(ends[0].data)
    assert sorted(int.from_bytes(end.buffer[:4], "little") for end in ends) == list(range(32))
    del ends
    assert kept() is None
    for block in range(32):
        queue.submit_write(bytes_of(data), block * 4096)
    del queue
    gc.collect()
    assert data.pread(4096, 0) == bytes(4096)


def bytes_of(data):
    return data.buffer(4096)


def test_a_closed_file_is_used_to_the_end_of_its_transfers(fs, data):
    file = fs.open("/data", "rb", buffering=0, direct=True)
    with diorite.Queue(file, 4) as queue:
        queue.submit_read(data.buffer(4096), 4096)
        file.close()
        assert queue.reap()[0].buffer[0] == 1
        queue.submit_read(data.buffer(4096), 4096)
        assert queue.reap()[0].buffer[0] == 1


def test_the_descriptor_is_readable_when_something_has_ended(data):
    with diorite.Queue(data, 8) as queue, selectors.DefaultSelector() as selector:
        selector.register(queue, selectors.EVENT_READ)
        assert selector.select(0) == []
        for block in range(8):
            queue.submit_read(data.buffer(4096), block * 4096)
        done = 0
        while done < 8:
            assert selector.select(10), "not readable in ten seconds"
            done += len(queue.reap(0))


def test_threads_share_a_queue(data):
    queue, ended, lock = diorite.Queue(data, 64), [], threading.Lock()

    def submit(first):
        for block in range(first, 1024, 4):
            while True:
                try:
                    queue.submit_read(data.buffer(4096), block * 4096, block)
                    break
                except BlockingIOError:
                    time.sleep(0.001)

    def reap():
        while len(ended) < 1024:
            done = queue.reap(1, timeout=0.05)
            with lock:
                ended.extend((end.data, int.from_bytes(end.buffer[:4], "little")) for end in done)

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(4)] + [threading.Thread(target=reap) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(ended) == [(block, block) for block in range(1024)]


def test_a_full_volume_is_an_error_of_the_submission_or_its_end(tmp_path):
    with diorite.Filesystem.create(tmp_path / "small.img", 4 << 20, "ext2") as fs:
        with fs.open("/big", "wb", buffering=0, direct=True) as file, diorite.Queue(file, 4) as queue:
            memory, errors, at = file.buffer(65536), [], 0
            while not errors and at < 8 << 20:
                try:
                    queue.submit_write(memory, at)
                except OSError as error:
                    errors.append(error)
                at += 65536
                for end in queue.reap(0 if queue.in_flight < 4 else 1):
                    if end.error or end.nbytes < 65536:
                        errors.append(end.error)
            assert errors and all(error is None or error.errno == errno.ENOSPC for error in errors)
    from conftest import e2fsck

    e2fsck(tmp_path / "small.img")
