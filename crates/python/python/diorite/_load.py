"""Tensors of model files as arrays of NumPy and tensors of torch. Neither is imported before it is needed."""

import ast
import os

from . import _diorite
from ._records import LoadStats, TensorInfo

# Types that NumPy has only with the package ml_dtypes, by their name there, and that torch has.
_ML_DTYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}


class Tensors(dict):
    """The result of ``load`` and ``load_header``: a ``dict`` by the names of the tensors, in the order of the files.

    Arrays share the memory of the load. It is released when the last of them is gone.
    """

    def __init__(self, entries, metadata, stats=None):
        super().__init__(entries)
        self._metadata = metadata
        self._stats = stats

    @property
    def metadata(self):
        """Text and numbers that the headers have beside the tensors. Arrays of GGUF are left out."""
        return self._metadata

    @property
    def stats(self):
        """How the bytes moved; ``None`` after ``load_header``."""
        return self._stats


def _paths(path):
    if isinstance(path, (str, bytes, os.PathLike)):
        return [path]
    return list(path)


def _names(names):
    if names is None or isinstance(names, str):
        return names if names is None else [names]
    return list(names)


def _numpy_maker():
    """A function that makes an array of a tensor."""
    import numpy

    try:
        import ml_dtypes
    except ImportError:
        ml_dtypes = None

    def make(tensor):
        array = numpy.asarray(tensor)
        dtype = tensor.dtype
        if dtype.startswith("["):
            return array.view(numpy.lib.format.descr_to_dtype(ast.literal_eval(dtype)))
        if ml_dtypes is not None and dtype in _ML_DTYPES:
            special = getattr(ml_dtypes, _ML_DTYPES[dtype], None)
            return array if special is None else array.view(special)
        return array

    return make


def _torch_maker():
    """A function that makes a tensor of torch."""
    import torch

    def share(tensor):
        try:
            return torch.from_dlpack(tensor)
        except RuntimeError:
            if tensor.dtype != "BOOL":
                raise
            # Old versions of torch do not know truth values of DLPack.
            import numpy

            return torch.from_numpy(numpy.asarray(tensor))

    def make(tensor):
        made = share(tensor)
        special = _ML_DTYPES.get(tensor.dtype, "")
        if special.startswith("float8") and made.dtype is torch.uint8 and hasattr(torch, special):
            return made.view(getattr(torch, special))
        return made

    return make


_MAKERS = {"numpy": _numpy_maker, "torch": _torch_maker, None: lambda: lambda tensor: tensor}


def _pinned_memory(framework, pin):
    """A function that allocates pinned memory, or ``None``."""
    if pin is False or (pin is None and framework != "torch"):
        return None
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        return lambda size: torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
    if pin:
        raise RuntimeError("pin=True needs torch with a CUDA device; leave pin out to use pinned memory where it exists")
    return None


def load(path, names=None, *, framework="numpy", direct=None, progress=None, pin=None):
    """Load tensors of ``.safetensors``, GGUF, ``.npy`` and ``.npz`` files, directly from the disk into their memory.

    ``path`` is a file, or several: of the host, or ``disk.img:/model.safetensors`` for a file in an image. An index
    (``model.safetensors.index.json``) stands for its files. ``names`` selects tensors by name or by patterns with ``*``, ``?`` and ``[...]``.

    ``framework`` is ``"numpy"`` (arrays), ``"torch"`` (tensors) or ``None`` (``diorite.Tensor``). Arrays are writable, and never change the
    file. NumPy has ``BF16`` and ``F8`` only with the package ``ml_dtypes``; without it they are ``uint16`` and ``uint8`` with the same bits.
    Quantized types are ``uint8`` blocks, the last dimension in bytes.

    ``direct=None`` maps files that are mostly in the host's page cache, and reads all others past it. ``True`` reads all past it, ``False``
    none. ``progress(done, total)`` is called with bytes. ``pin=None`` uses pinned memory for torch if it has a CUDA device; ``True``
    requires it.

    Raises ``CorruptError`` for a damaged file and ``KeyError`` for a name that selects nothing.
    """
    if framework not in _MAKERS:
        raise ValueError(f'framework must be "numpy", "torch" or None, not {framework!r}')
    make = _MAKERS[framework]()
    allocate = _pinned_memory(framework, pin)
    files = _diorite.TensorFiles(_paths(path), direct)
    tensors, stats = files.load(_names(names), progress, allocate)
    return Tensors(((tensor.name, make(tensor)) for tensor in tensors), files.metadata(), LoadStats(*stats))


def load_header(path):
    """The names, dtypes and shapes of tensors, without their data: a ``TensorInfo`` by name. ``load`` describes ``path``."""
    files = _diorite.TensorFiles(_paths(path))
    return Tensors(((name, TensorInfo(*rest)) for name, *rest in files.header()), files.metadata())
