"""Every public name has a docstring and is in the stub with the same arguments, and the stub has no other names.

The docstrings of the stub come from the package: ``DIORITE_UPDATE_STUB=1 cargo test -p diorite-python`` writes them.
"""

import ast
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import diorite

TEXT = (pathlib.Path(diorite.__file__).parent / "__init__.pyi").read_text()
STUB = ast.parse(TEXT)
SOURCE = pathlib.Path(os.environ["DIORITE_PYTHON_CRATE"]) / "python/diorite/__init__.pyi"
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)


def public(cls):
    """Public names that a class or its bases in this package define."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("diorite")]
    return {name for base in ours for name in vars(base) if not name.startswith("_")}


def in_stub(node):
    methods = {child.name for child in node.body if isinstance(child, METHODS)}
    fields = {child.target.id for child in node.body if isinstance(child, ast.AnnAssign)}
    return {name for name in methods | fields if not name.startswith("_")}


def arguments_in_stub(node):
    arguments = node.args
    names = [argument.arg for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    return [name for name in names if name not in ("self", "cls")]


def arguments_in_module(function):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind not in kinds and p.name not in ("self", "cls")]


def test_the_module_and_the_stub_have_the_same_names():
    assert set(diorite.__all__) == set(CLASSES) | set(FUNCTIONS)
    assert (pathlib.Path(diorite.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_class(name):
    cls = getattr(diorite, name)
    assert cls.__doc__, f"{name} has no docstring"
    declared = in_stub(CLASSES[name])
    if issubclass(cls, OSError):
        return
    instance_fields = {"name", "path"} if name in ("File", "DirEntry") else set()
    assert public(cls) - instance_fields == declared - instance_fields
    for method in public(cls) - instance_fields:
        assert inspect.getattr_static(cls, method).__doc__ or getattr(cls, method).__doc__, f"{name}.{method} has no docstring"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_arguments_of_methods(name):
    cls = getattr(diorite, name)
    for node in CLASSES[name].body:
        if not isinstance(node, METHODS) or node.name.startswith("_"):
            continue
        if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list):
            assert not callable(inspect.getattr_static(cls, node.name)), f"{name}.{node.name} is no property"
            continue
        method = getattr(cls, node.name)
        assert arguments_in_module(method) == arguments_in_stub(node), f"{name}.{node.name}"


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function(name):
    function = getattr(diorite, name)
    assert function.__doc__
    assert arguments_in_module(function) == arguments_in_stub(FUNCTIONS[name])


def test_options_of_a_filesystem_are_those_of_the_volume():
    init = next(node for node in CLASSES["Filesystem"].body if getattr(node, "name", "") == "__init__")
    volume = diorite.Filesystem.__mro__[1]
    assert arguments_in_module(volume) == arguments_in_stub(init)
    for option in arguments_in_stub(init)[1:]:
        assert f"``{option}``" in diorite.Filesystem.__doc__, option


def documented(body, owner):
    """The nodes of the stub with a docstring, and the docstring. The first overload counts."""
    seen = set()
    for node in body:
        if not isinstance(node, (ast.ClassDef, *METHODS)) or node.name.startswith("_") or node.name in seen:
            continue
        seen.add(node.name)
        thing = inspect.getattr_static(owner, node.name) if inspect.isclass(owner) else getattr(owner, node.name)
        yield node, inspect.getdoc(getattr(thing, "__func__", thing)) or inspect.getdoc(getattr(owner, node.name))
        if isinstance(node, ast.ClassDef):
            yield from documented(node.body, thing)


def with_docstrings(text):
    lines = text.splitlines()
    nodes = list(documented(ast.parse(text).body, diorite))
    for node, doc in sorted(nodes, key=lambda found: found[0].lineno, reverse=True):
        first = node.body[0]
        indent = " " * (node.col_offset + 4)
        docstring = [(indent + line).rstrip() for line in f'"""{doc}"""'.splitlines()]
        if ast.get_docstring(node):
            lines[first.lineno - 1 : first.end_lineno] = docstring
        elif isinstance(node, ast.ClassDef):
            at = min([first.lineno] + [mark.lineno for mark in getattr(first, "decorator_list", [])]) - 1
            lines[at:at] = docstring + [""]
        else:
            lines[first.lineno - 1] = lines[first.lineno - 1].removesuffix(" ...")
            lines[first.lineno : first.lineno] = docstring
    return "\n".join(lines) + "\n"


def test_docstrings_are_those_of_the_package():
    text = with_docstrings(TEXT)
    if "DIORITE_UPDATE_STUB" in os.environ:
        SOURCE.write_text(text)
    elif text != TEXT:
        pytest.fail("the stub is stale: DIORITE_UPDATE_STUB=1 cargo test -p diorite-python")


def test_types_are_what_they_seem():
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull]
    if subprocess.run([*mypy, "--version"], capture_output=True).returncode:
        pytest.skip("no mypy")
    package = str(pathlib.Path(diorite.__file__).parent)
    program = str(pathlib.Path(__file__).parent / "typed.py")
    checked = subprocess.run([*mypy, package + "/__init__.pyi", program], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
