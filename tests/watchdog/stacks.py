"""The stacks of all threads of another process: by gdb, else what the kernel shows of each."""

import shutil
import subprocess
import sys
from pathlib import Path

GDB = (
    *("--batch", "--nx", "-iex", "set debuginfod enabled off"),
    *("-ex", "set print frame-arguments none", "-ex", "thread apply all backtrace 40"),
)
GDB_LIMIT_S = 60.0


def print_stacks(process: int) -> None:
    """Print the stacks of a process to standard error."""
    print(f"watchdog: the threads of process {process}:", file=sys.stderr)
    print(by_gdb(process) or by_kernel(process), file=sys.stderr, flush=True)


def by_gdb(process: int) -> str | None:
    """Return gdb's backtraces; nothing where gdb is missing or may not attach."""
    gdb = shutil.which("gdb")
    if gdb is None:
        return None
    command = [gdb, *GDB, "-p", str(process)]
    try:
        ended = subprocess.run(  # noqa: S603  a debugger of this machine
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=GDB_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    place = ended.stdout.find("\nThread ")
    return ended.stdout[place + 1 :] if place >= 0 else None


def by_kernel(process: int) -> str:
    """Return for each thread its name, its state and the system call that it is in."""
    lines = ["(install gdb for their functions)"]
    for task in sorted(Path(f"/proc/{process}/task").glob("*")):
        state = read(task / "status").partition("State:\t")[2].partition("\n")[0]
        call = f"system call {read(task / 'syscall')}, wchan {read(task / 'wchan')}"
        lines += [f"{task.name} {read(task / 'comm')!r}: {state}; {call}", read(task / "stack")]
    return "\n".join(line for line in lines if line)


def read(file: Path) -> str:
    """Return the text of a file of the kernel, empty where it may not be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def family(process: int) -> list[int]:
    """Return a process and all that it has started, parents first."""
    found = [process]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*"):
            found += map(int, read(task / "children").split())
    return found
