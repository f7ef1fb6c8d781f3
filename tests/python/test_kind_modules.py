"""The modules of kinds come from one description: what they have, their types, other kinds'."""

import ast
import inspect

import pytest

import accelrt
import kind_stubs
from accelrt import _core, _kinds
from accelrt._kinds import Kind


def test_the_modules_of_kinds_have_the_same_functions_each_of_its_kind() -> None:
    own = {"cpu": set[str](), "xpu": {"Kernel", "Program"}}
    assert [it.__name__ for it in kind_stubs.kinds()] == [f"accelrt.{name}" for name in own]
    functions = {name for name in dir(Kind) if not name.startswith("_")}
    assert len(functions) > 45
    for name, classes in own.items():
        module = getattr(accelrt, name)
        assert set(module.__all__) == functions | {"Event", "Stream", "StreamContext"} | classes
        assert module.__all__ == sorted(module.__all__)
        assert all(getattr(module, it).__self__._kind == name for it in functions)


def test_the_stubs_say_what_the_description_says() -> None:
    differing = kind_stubs.differences()
    assert not differing, f"`make stubs` writes the stubs of kinds: {differing}"


@pytest.mark.parametrize("kind", ["cpu", "xpu"])
def test_every_name_of_a_module_is_typed_with_the_signature_and_text_of_the_module(
    kind: str,
) -> None:
    module = getattr(accelrt, kind)
    tree = ast.parse(kind_stubs.stub_of(module).read_text("utf-8"))
    typed = {it.name: it for it in tree.body if isinstance(it, ast.FunctionDef)}
    assert set(typed) == {name for name in module.__all__ if name[0].islower()}
    for name, function in typed.items():
        real = inspect.signature(getattr(module, name))
        given = [*function.args.args, *function.args.kwonlyargs]
        assert [it.arg for it in given] == list(real.parameters), name
        defaults = [it for it in real.parameters.values() if it.default is not it.empty]
        defaulted = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
        assert len(defaulted) == len(defaults), name
        assert all(it.annotation for it in function.args.args), name
        assert function.returns is not None, name
        assert ast.get_docstring(function) == inspect.getdoc(getattr(module, name)), name
    assert ast.get_docstring(tree) == inspect.getdoc(module)


def test_a_kind_without_a_package_has_a_module_of_the_same_description(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Goal: kinds from outside have a module. Method: one of ours is no longer known.
    monkeypatch.delitem(_kinds._modules, "cpu")
    module = accelrt.get_device_module("cpu:1")
    assert module is not accelrt.cpu
    assert module is accelrt.get_device_module("cpu")
    assert (module.__name__, module.__all__) == ("accelrt.cpu", accelrt.cpu.__all__)
    assert module.__doc__ == "Devices of kind cpu."
    assert module.device_count() == accelrt.cpu.device_count()
    with pytest.raises(ValueError, match=r"^Expected a cpu device, but got: xpu$"):
        module.synchronize("xpu")


def test_the_registered_kinds_are_told() -> None:
    assert _core.kind_names() == ["cpu", "cuda", "xpu"]
    with pytest.raises(TypeError, match=r'^kind must be one of cpu, cuda, xpu, not "nosuch"$'):
        _core.device_count("nosuch")
    with pytest.raises(RuntimeError, match=r"^Expected one of cpu, cuda, xpu .*: nosuch$"):
        accelrt.device("nosuch")
    with pytest.raises(RuntimeError, match=r"0 for cpu, 1 for cuda, 12 for xpu$"):
        accelrt.Stream(7, 0, 64)
