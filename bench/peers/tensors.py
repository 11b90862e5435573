"""Loaders of a ``.safetensors`` file. ``seconds`` end when every byte was read by the CPU, ``load_seconds`` when the loader returned."""

import json
import resource
import sys
import time

import numpy


def touch(array):
    """Read every byte."""
    return int(numpy.add.reduce(array.reshape(-1).view(numpy.uint64)))


def by_diorite(path):
    import diorite

    loaded = diorite.load(path)
    return list(loaded.values()), loaded.stats._asdict()


def by_diorite_direct(path):
    import diorite

    loaded = diorite.load(path, direct=True)
    return list(loaded.values()), loaded.stats._asdict()


def by_mmap(path):
    """The bound of every loader that maps: no header, one array."""
    mapped = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
    return [mapped[start:]], {}


def by_safetensors(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return [file.get_tensor(name) for name in file.keys()], {}


def by_fastsafetensors(path):
    import torch
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return [buffers.get_tensor(key).numpy() for key in buffers.key_to_rank_lidx], {"kept": (loader, buffers)}


LOADERS = {
    "diorite": by_diorite,
    "diorite-direct": by_diorite_direct,
    "mmap": by_mmap,
    "safetensors": by_safetensors,
    "fastsafetensors": by_fastsafetensors,
}


def main():
    name, path = sys.argv[1:3]
    start = time.monotonic()
    arrays, extra = LOADERS[name](path)
    loaded = time.monotonic()
    total = sum(touch(array) for array in arrays) % (1 << 64)
    end = time.monotonic()
    size = sum(array.nbytes for array in arrays)
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "mb_per_s": size / (end - start) / 1e6,
        "load_mb_per_s": size / (loaded - start) / 1e6,
        "seconds": end - start,
        "load_seconds": loaded - start,
        "own_cpu_s": used.ru_utime + used.ru_stime,
        "bytes": size,
        "sum": str(total),
    }
    extra.pop("kept", None)
    print(json.dumps(figures | extra))


main()
