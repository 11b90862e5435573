"""Every public name has a docstring and stands in the stub with the same arguments, and nothing else does."""

import ast
import inspect
import pathlib

import pytest

import diorite

STUB = ast.parse((pathlib.Path(diorite.__file__).parent / "__init__.pyi").read_text())
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
