"""Transfers for asyncio."""

import asyncio
import gc

import pytest

import diorite


def test_many_reads_at_once(data):
    async def run():
        async with diorite.AsyncQueue(data, depth=8) as queue:

            async def read(block):
                memory = data.buffer(4096)
                assert await queue.read(memory, block * 4096) == 4096
                return int.from_bytes(memory[:4], "little")

            assert queue.depth == 8
            found = await asyncio.wait_for(asyncio.gather(*(read(block) for block in range(1024))), 60)
            assert queue.in_flight == 0
            return found

    for _ in range(2):
        assert asyncio.run(run()) == list(range(1024))


def test_one_queue_in_two_loops(data):
    queue = diorite.AsyncQueue(data)
    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(one(queue, data), 10)) == 4096
    queue.close()


async def one(queue, data):
    return await queue.read(data.buffer(4096), 0)


def test_writes_to_one_range_wait_for_each_other(fs, data):
    """Two queues in one loop: neither may block the thread that would reap the other one."""

    async def run():
        with_one, with_two = diorite.AsyncQueue(data, 2), diorite.AsyncQueue(data, 2)
        memories = [data.buffer(65536) for _ in range(20)]
        writes = [(with_one, with_two)[at % 2].write(memory, 0) for at, memory in enumerate(memories)]
        done = await asyncio.wait_for(asyncio.gather(*writes), 60)
        with_one.close()
        with_two.close()
        return done

    assert asyncio.run(run()) == [65536] * 20


def test_errors_and_cancellation(data):
    async def run():
        queue = diorite.AsyncQueue(data, 4)
        with pytest.raises(diorite.AlignmentError):
            await queue.read(data.buffer(4096), 1)
        tasks = [asyncio.ensure_future(queue.read(data.buffer(65536), 0)) for _ in range(64)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert [end for end in ends[1::2]] == [65536] * 32
        assert all(isinstance(end, asyncio.CancelledError) or end == 65536 for end in ends[::2])
        gc.collect()
        # Transfers awaited at the close fail.
        late = [asyncio.ensure_future(queue.read(data.buffer(65536), 0)) for _ in range(16)]
        await asyncio.sleep(0)
        queue.close()
        ends = await asyncio.wait_for(asyncio.gather(*late, return_exceptions=True), 10)
        assert all(end == 65536 or isinstance(end, ValueError) for end in ends)
        assert queue.closed
        with pytest.raises(ValueError):
            await queue.read(data.buffer(4096), 0)

    asyncio.run(run())


def test_an_async_file(fs):
    async def run():
        raw = fs.open("/async", "w+b", buffering=0, direct=True)
        async with diorite.AsyncFile(raw, depth=4) as file:
            memory = file.buffer(8192)
            memory[:5] = b"async"
            assert await file.pwrite(memory, 0) == 8192
            await file.fsync()
            await file.fdatasync()
            assert (await file.pread(4096, 0))[:5] == b"async"
            assert await file.readinto_at(file.buffer(4096), 4096) == 4096
            assert await file.truncate(4096) == 4096
            assert file.file is raw and file.queue.depth == 4
        assert raw.closed

    asyncio.run(run())
