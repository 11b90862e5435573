"""Threads, forked processes, and signals."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import diorite


def test_threads_read_and_write_one_file(data):
    wrong = []

    def work(first):
        memory = data.buffer(4096)
        for block in range(first, 1024, 4):
            data.readinto_at(memory, block * 4096)
            if int.from_bytes(memory[:4], "little") != block:
                wrong.append(block)
            memory[8:12] = memory[:4]
            data.pwrite(memory, block * 4096)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []
    assert all(data.pread(512, block * 4096)[8:12] == block.to_bytes(4, "little") for block in range(0, 1024, 101))


def test_a_close_waits_for_calls_of_other_threads(image):
    """A call after the close is an error, never a crash."""
    ends = []
    fs = diorite.Filesystem(image)
    file = fs.open("/x", "w+b", buffering=0)

    started = threading.Barrier(5)

    def work():
        file.pwrite(b"x" * 65536, 0)
        started.wait(60)
        try:
            while True:
                file.pwrite(b"x" * 65536, 0)
                fs.stat("/x")
        except ValueError:
            ends.append("closed")

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    started.wait(60)
    fs.close()
    [thread.join(30) for thread in threads]
    assert ends == ["closed"] * 4


def test_other_threads_run_during_a_call(fs):
    """The GIL is released: a thread counts while another one writes."""
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    content = bytes(32 << 20)
    thread = threading.Thread(target=count)
    with fs.open("/big", "wb", buffering=0) as file:
        thread.start()
        before = counted[0]
        file.write(content)
        file.fsync()
        after = counted[0]
    stop.set()
    thread.join()
    assert after - before > 100


def test_a_forked_child_is_refused_and_harms_nothing(image):
    with diorite.Filesystem(image) as fs:
        fs.write_bytes("/before", b"1")
        file = fs.open("/x", "w+b", buffering=0, direct=True)
        buffer = file.buffer(4096)
        queue = diorite.Queue(file, 4)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (fs.listdir, file.fsync, lambda: file.pwrite(buffer, 0), lambda: queue.reap(0), fs.sync):
                try:
                    call()
                except RuntimeError as error:
                    refused += "before the fork" in str(error)
            fs.close()
            file.close()
            del fs, file, queue
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 5
        file.pwrite(buffer, 0)
        queue.close()
        fs.write_bytes("/after", b"2")
    with diorite.Filesystem(image, read_only=True) as fs:
        assert fs.read_bytes("/before") + fs.read_bytes("/after") == b"12"


def test_a_child_of_multiprocessing_opens_its_own(image):
    program = f"""
import multiprocessing, diorite
def work(number):
    with diorite.Filesystem({str(image)!r}, read_only=True) as fs:
        return fs.read_bytes("/x") * number
if __name__ == "__main__":
    with diorite.Filesystem({str(image)!r}) as fs:
        fs.write_bytes("/x", b"x")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(work, range(8)) == [b"x" * number for number in range(8)]
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_what_a_program_leaves_open_is_written_at_its_end(image):
    program = f"""
import diorite
fs = diorite.Filesystem({str(image)!r})
text = fs.open("/left", "w")
text.write("open")
cycle = [fs]; cycle.append(cycle)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    with diorite.Filesystem(image, read_only=True) as fs:
        assert fs.read_text("/left") == "open"


def test_a_daemon_thread_that_waits_for_a_queue_does_not_hold_up_the_end(image):
    """The exit closed the files first, which waited for the thread, which waited for the range locked by the queue."""
    program = f"""
import threading, time, diorite
fs = diorite.Filesystem({str(image)!r})
file = fs.open("/x", "w+b", buffering=0, direct=True)
queue, other = diorite.Queue(file, 4), diorite.Queue(file, 4)
queue.submit_write(file.buffer(4096), 0)
memory, more = file.buffer(4096), file.buffer(4096)
threads = [threading.Thread(target=call, daemon=True) for call in (lambda: file.pwrite(memory, 0), lambda: other.submit_write(more, 0))]
[thread.start() for thread in threads]

def switches():
    # A thread that waits for the GIL wakes every 5 ms.
    lines = [open(f"/proc/self/task/{{thread.native_id}}/status").read().split("\\n") for thread in threads]
    return [line for each in lines for line in each if line.startswith("voluntary_ctxt")]

before, limit = None, time.monotonic() + 60
while (now := switches()) != before and time.monotonic() < limit:
    before = now
    time.sleep(0.03)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_ctrl_c_ends_the_wait_of_a_queue(tmp_path):
    """On a device that takes seconds for a read, also if the tests run with SIGINT ignored, as in a background job."""
    if shutil.which("nbdkit") is None:
        pytest.skip("nbdkit is not installed")
    path = tmp_path / "socket"
    arguments = ["nbdkit", "--foreground", "--unix", str(path), "--filter=delay", "memory", "8M", "rdelay=10"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as server:
        try:
            for _ in range(100):
                if path.exists():
                    break
                time.sleep(0.1)
            with diorite.open_raw(f"nbd+unix:///?socket={path}", "rb", buffering=0, direct="preferred") as file:
                queue = diorite.Queue(file, 2)
                queue.submit_read(file.buffer(4096), 0, "kept")
                start = time.monotonic()
                assert queue.reap(1, timeout=0.2) == []
                threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                with pytest.raises(KeyboardInterrupt):
                    queue.reap(1)
                assert time.monotonic() - start < 9
                (end,) = queue.reap(1)
                assert (end.data, end.result()) == ("kept", 4096)
                queue.close()
        finally:
            signal.signal(signal.SIGINT, before)
            # With SIGTERM it would wait for the connection of a failed test.
            server.kill()


def ends_silently(program, *paths):
    """Run a program, which must print nothing."""
    ran = subprocess.run([sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_files_without_a_filesystem_are_written_at_the_end(image, tmp_path):
    """Files of the host, and of a `Filesystem` without a reference. Leaked references keep the files alive."""
    host = tmp_path / "host"
    ends_silently("""
import ctypes, sys, diorite
left = [diorite.open_host(sys.argv[2], "wb"), diorite.Filesystem(sys.argv[1]).open("/left", "wb")]
left += [diorite.open_host(sys.argv[2] + "2", "wb", buffering=0)]
for file in left:
    file.write(b"left")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(file))
""", image, host)
    assert host.read_bytes() == b"left" and (tmp_path / "host2").read_bytes() == b"left"
    with diorite.Filesystem(image, read_only=True) as fs:
        assert fs.read_bytes("/left") == b"left"


def test_a_thread_that_opens_files_does_not_keep_what_was_written_from_the_disk(image):
    """A file opened during the exit made the close fail, and cached data was lost."""
    program = """
import sys, diorite
fs = diorite.Filesystem(sys.argv[1])
fs.write_bytes("/before", b"before")
core = fs._open("/held", ("w", None, "bounce", None), 0o644, None)  # What no close finds.
"""
    ran = subprocess.run([sys.executable, "-c", program, str(image)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "still uses it" in ran.stderr and ran.stderr.count("\n") == 1
    with diorite.Filesystem(image) as fs:
        assert fs.read_bytes("/before") == b"before"
    ends_silently("""
import sys, threading, time, diorite
fs = diorite.Filesystem(sys.argv[1])
fs.write_bytes("/after", b"after")
kept = []
def work():
    try:
        while True:
            kept.append(fs.open("/thread", "wb", buffering=0))
            time.sleep(0.002)
    except ValueError:
        pass  # The filesystem was closed.
threading.Thread(target=work, daemon=True).start()
limit = time.monotonic() + 60
while len(kept) < 10 and time.monotonic() < limit:
    time.sleep(0.002)
""", image)
    with diorite.Filesystem(image, read_only=True) as fs:
        assert fs.read_bytes("/after") == b"after"


def test_a_destructor_may_close_the_queue(image):
    """The close ran destructors of transfers in flight under the lock of the queue."""
    program = """
import sys, asyncio, diorite
fs = diorite.Filesystem(sys.argv[1])
file = fs.open("/x", "w+b", buffering=0, direct=True)
file.write(file.buffer(1 << 20))

class Closes:
    def __init__(self, queue):
        self.queue = queue
    def __del__(self):
        self.queue.close()
        print("closed")

queue = diorite.Queue(file, 8)
for block in range(8):
    queue.submit_read(file.buffer(4096), block * 4096, Closes(queue))
queue.close()
core = diorite.AsyncQueue(file, 2)._core
for block in range(8):
    if core.closed:  # A transfer that has ended dropped its future.
        break
    core.start(True, file.buffer(4096), block * 4096, Closes(core), None)
for number in range(8, 0, -1):
    if not core.closed:
        core.cancel(number)
core.close()
"""
    ran = subprocess.run([sys.executable, "-c", program, str(image)], capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stderr) == (0, "") and ran.stdout.count("closed") >= 8
