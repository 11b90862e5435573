"""Loaders of a ``.safetensors`` file. ``seconds`` end when every byte was read by the CPU, ``load_seconds`` when the loader returned."""

import json
import resource
import sys
import time

import numpy


def touch(array):
    """Read every byte."""
    return int(numpy.add.reduce(array.reshape(-1).view(numpy.uint64)))


def diorite(direct=None):
    import diorite

    def load(path):
        loaded = diorite.load(path, direct=direct)
        return list(loaded.values()), loaded.stats._asdict()

    return load


def mmap():
    """The bound of every loader that maps: no header, one array."""

    def load(path):
        mapped = numpy.memmap(path, dtype=numpy.uint8, mode="r")
        start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
        return [mapped[start:]], {}

    return load


def safetensors():
    from safetensors import safe_open

    def load(path):
        with safe_open(path, framework="numpy") as file:
            return [file.get_tensor(name) for name in file.keys()], {}

    return load


def safetensors_torch():
    """Tensors that share the mapping of the file."""
    import torch  # noqa: F401  (the loader imports it at its first use)
    from safetensors import safe_open

    def load(path):
        with safe_open(path, framework="pt") as file:
            return [file.get_tensor(name).numpy() for name in file.keys()], {}

    return load


def fastsafetensors():
    import torch  # noqa: F401  (the loader imports it at its first use)
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def load(path):
        loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        return [buffers.get_tensor(key).numpy() for key in buffers.key_to_rank_lidx], {"kept": (loader, buffers)}

    return load


# Each imports its packages before the clock starts.
LOADERS = {
    "diorite": diorite,
    "diorite-direct": lambda: diorite(direct=True),
    "mmap": mmap,
    "safetensors": safetensors,
    "safetensors-torch": safetensors_torch,
    "fastsafetensors": fastsafetensors,
}


def main():
    name, path = sys.argv[1:3]
    load = LOADERS[name]()
    start = time.monotonic()
    arrays, extra = load(path)
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
