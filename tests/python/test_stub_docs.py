"""The stub has the docstrings of the module, so that an editor shows them."""

import ast
import inspect

import accelrt
import stub_docs


def test_the_stub_says_of_everything_what_the_module_says() -> None:
    differing = stub_docs.differences()
    assert not differing, f"`make stubs` brings the module's texts into the stub: {differing}"


def test_everything_that_the_module_documents_was_compared() -> None:
    # Goal: the comparison is of something. Method: names of each kind are among those looked at.
    tree = ast.parse(stub_docs.STUB.read_text("utf-8"))
    names = {name for name, *_ in stub_docs.documented(tree)}
    expected = {
        "Buffer", "Buffer.copy_", "Buffer.nbytes", "Stream.launch", "Stream.priority_range", "View",
        "Event.from_ipc_handle", "empty", "reads", "StreamError", "device.type",
    }  # fmt: skip
    assert expected <= names
    assert len(names) > 150


def test_what_the_interpreter_says_of_operators_is_no_text_of_ours() -> None:
    tree = ast.parse(stub_docs.STUB.read_text("utf-8"))
    names = {name for name, *_ in stub_docs.documented(tree)}
    assert not [name for name in names if name.endswith((".__eq__", ".__len__", ".__new__"))]


def test_a_static_method_has_the_text_of_its_function() -> None:
    tree = ast.parse(stub_docs.STUB.read_text("utf-8"))
    texts = {name: text for name, _, text in stub_docs.documented(tree)}
    assert texts["Stream.priority_range"] == inspect.getdoc(accelrt.Stream.priority_range)


def test_writing_twice_changes_nothing() -> None:
    source = stub_docs.STUB.read_text("utf-8")
    once = stub_docs.written(source)
    assert once == source
    bare = (
        "def empty(nbytes: int) -> Buffer: ...\n\n"
        "class Buffer:\n    @property\n    def nbytes(self) -> int: ...\n"
    )
    filled = stub_docs.written(bare)
    assert stub_docs.written(filled) == filled
    empty, buffer = ast.parse(filled).body
    assert isinstance(empty, ast.FunctionDef)
    assert isinstance(buffer, ast.ClassDef)
    assert ast.get_docstring(empty) == inspect.getdoc(accelrt.empty)
    assert ast.get_docstring(buffer) == inspect.getdoc(accelrt.Buffer)
