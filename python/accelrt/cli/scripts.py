"""Scripts that a command runs in its own process, as `python SCRIPT` runs them."""

import builtins
import contextlib
import io
import pkgutil
import runpy
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

from accelrt.cli import streams

_MAX_ERROR_CHARACTERS = 1000
INTERRUPTED = 130
"""The exit status of a program that SIGINT has ended."""


@contextlib.contextmanager
def as_main(script: Path, arguments: list[str]) -> Iterator[None]:
    """Make a script the main program, and restore the process's own at the end.

    The script may empty or replace `sys.argv` and `sys.path`.
    """
    main, argv, path, folders = sys.modules["__main__"], sys.argv, sys.path, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path[:] = [str(script.absolute().parent), *folders[1:]]
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv, sys.path = main, argv, path
        sys.path[:] = folders


def run(script: Path) -> tuple[int, str | None]:
    """Run a script as the main module, and show what it raises.

    Returns the exit status, and the last line of what was raised or given to `sys.exit`.
    """
    try:
        _execute(script)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0), None
        text = str(end.code)
        streams.report(f"{text}\n")
        return 1, _last_line(text)
    except KeyboardInterrupt:
        return INTERRUPTED, "KeyboardInterrupt"
    except BaseException as error:  # noqa: BLE001  shown as the interpreter shows it
        shown = error.with_traceback(_without_own_frames(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1, _last_line("".join(traceback.format_exception_only(shown)))
    return 0, None


def _last_line(text: str) -> str:
    lines = text.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last[:_MAX_ERROR_CHARACTERS]


def _without_own_frames(frames: types.TracebackType | None) -> types.TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def _execute(script: Path) -> None:
    if pkgutil.get_importer(str(script)) is not None:  # an archive with a module `__main__`
        runpy.run_path(str(script), run_name="__main__")
        return
    code = _code_of(script)
    # Not by `runpy`, which fails after a script that has emptied `sys.argv`.
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(script.absolute()), __cached__=None, __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102  the user's own program


def _code_of(script: Path) -> types.CodeType:
    with io.open_code(str(script.absolute())) as file:
        compiled = pkgutil.read_code(file)
    if isinstance(compiled, types.CodeType):
        return compiled
    with io.open_code(str(script.absolute())) as file:
        source = file.read()
    return compile(source, str(script), "exec", dont_inherit=True)
