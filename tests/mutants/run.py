"""Prove that tests notice: plant each defect of `defects.toml` and see the test named there fail.

The tree is copied under the target folder, and the defects are planted in the copy, one at a time.
First every named test passes on the unchanged copy. Then each defect must compile and its test must
fail. A test that runs into the time limit has not failed: where a hang is the symptom, the test has
a watchdog of its own. A defect whose text is not found exactly once is stale, and an error.

    run.py [--stale] [WORD...]

WORDs choose the defects whose names contain one of them, or whose suite it is. `--stale` only looks
whether each defect can still be planted.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import compress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "mutants"
TREE = WORK / "tree"
VENV = WORK / "venv"
# Where `make torch` has put torch, and what it is compiled with.
TORCH = ROOT / ".venv-torch"
BRIDGE = TREE / "bridges" / "torch"

PRODUCT = ("src", "crates", "python", "bridges/torch/csrc", "bridges/torch/accelrt_torch")
SUFFIXES = {".rs", ".py", ".cpp", ".h"}

# Far above what a named test takes, those with a watchdog of their own included.
LIMIT_SECONDS = 120
BUILD_LIMIT_SECONDS = 1200

# As `make loom` builds its models, but what did not change is not compiled again.
LOOM = {
    "RUSTFLAGS": "--cfg loom",
    "CARGO_INCREMENTAL": "1",
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}
# Cargo's integration tests that defects name.
INTEGRATION = (
    "engine", "order", "buffer", "ffi", "conformance", "allocator",
    "face", "foreign", "schedules",
)  # fmt: skip

# Debug assertions are among what catches a defect; line numbers are not.
DEBUG = {"CARGO_PROFILE_DEV_DEBUG": "none"}


class DefectError(Exception):
    """What the command ends with: a survivor, a stale defect, a test that fails without one."""


@dataclass(frozen=True)
class Defect:
    """One line of the product made wrong, and the test that notices; see `defects.toml`."""

    name: str
    old: str
    new: str
    suite: str
    test: str
    why: str

    def find_file(self, root: Path) -> Path:
        """Return the file of the product that contains the text."""
        counts = {path: count for path, text in product(root) if (count := text.count(self.old))}
        if sum(counts.values()) != 1:
            names = [str(path.relative_to(root)) for path in counts]
            message = f"stale: {self.name}: its text is found {sum(counts.values())} times: {names}"
            raise DefectError(message)
        (file,) = counts
        return file

    def look_for_test(self, root: Path) -> None:
        """Raise when no test has the name of this one, or its suite lacks the first module."""
        if self.suite not in suites():
            message = f"stale: {self.name}: there is no suite {self.suite}"
            raise DefectError(message)
        first = self.test.partition("::")[0]
        main = root / "tests" / self.suite / "main.rs"
        is_inside = "::" in self.test and main.exists()
        if is_inside and f"mod {first};" not in main.read_text():
            message = f"stale: {self.name}: suite {self.suite} has no module {first}"
            raise DefectError(message)
        name = re.split(r"::|\[", self.test)[-1 if "[" not in self.test else -2]
        if name not in functions(root):
            message = f"stale: {self.name}: there is no test {self.test}"
            raise DefectError(message)


@cache
def product(root: Path) -> tuple[tuple[Path, str], ...]:
    """Return the files of the product and their texts."""
    files = [path for folder in PRODUCT for path in (root / folder).rglob("*.*")]
    kept = [
        path
        for path in files
        if path.suffix in SUFFIXES and "tests" not in path.relative_to(root).parts
    ]
    return tuple((path, path.read_text()) for path in kept)


@cache
def functions(root: Path) -> frozenset[str]:
    """Return the names of all functions in files that contain tests."""
    folders = ("src", "crates", "tests", "bridges")
    files = [path for folder in folders for path in (root / folder).rglob("*.*")]
    texts = (path.read_text() for path in files if path.suffix in {".rs", ".py"})
    return frozenset(name for text in texts for name in re.findall(r"\b(?:fn|def) (\w+)", text))


@dataclass(frozen=True)
class Ended:
    """A command that came to its end, or to the limit."""

    status: int | None
    output: str


def run(
    command: list[str], settings: dict[str, str], limit_seconds: int, folder: Path = TREE
) -> Ended:
    """Run a command, in the copied tree; a hang ends it with everything that it started."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ACCELRT_")}
    process = subprocess.Popen(  # noqa: S603  commands of this file
        command,
        cwd=folder,
        env=environment | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Ended(None, process.communicate()[0])
    return Ended(process.returncode, output)


class Rust:
    """A target of cargo's tests. Its test names are whole paths."""

    def __init__(self, target: list[str], *, is_loom: bool = False) -> None:
        """Take cargo's arguments that choose the target."""
        features = [] if "--package" in target else ["--features", "async"]
        self._command = ["cargo", "test", "--quiet", *features, *target]
        self._command += ["--release"] if is_loom else []
        folder = WORK / ("loom" if is_loom else "debug")
        self._settings = {"CARGO_TARGET_DIR": str(folder)} | (LOOM if is_loom else DEBUG)

    def build(self) -> Ended:
        """Compile."""
        return run([*self._command, "--no-run"], self._settings, BUILD_LIMIT_SECONDS)

    def test(self, names: list[str]) -> Ended:
        """Run these tests, and fail if one is not there."""
        ended = run([*self._command, "--", "--exact", *names], self._settings, LIMIT_SECONDS)
        begun = re.search(r"^running (\d+) tests?$", ended.output, re.MULTILINE)
        if begun is None or int(begun[1]) != len(names):
            message = f"not all of these tests are there: {names}\n{ended.output}"
            raise DefectError(message)
        return ended


class Python:
    """The Python tests, with the module built from the copied tree."""

    # Where the tests are called, which their names begin at.
    folder = TREE

    def __init__(self) -> None:
        """Use the interpreter that runs this, and what is installed for it."""
        self._settings = DEBUG | {
            "CARGO_TARGET_DIR": str(WORK / "python"),
            "PYO3_PYTHON": sys.executable,
            "PYO3_BUILD_EXTENSION_MODULE": "1",  # as maturin says it
        }

    def build(self) -> Ended:
        """Compile the module into the copied package."""
        command = ["cargo", "build", "--quiet", "--package", "accelrt-python"]
        ended = run(command, self._settings, BUILD_LIMIT_SECONDS)
        if ended.status == 0:
            module = TREE / "python" / "accelrt" / "_core.abi3.so"
            # A new file: who still runs the old one keeps it.
            module.unlink(missing_ok=True)
            shutil.copy(WORK / "python" / "debug" / "libaccelrt_core.so", module)
        return ended

    def interpreter(self) -> Path:
        """Return what finds the copied package."""
        return python_of_the_tree()

    def test(self, names: list[str]) -> Ended:
        """Run these tests, and fail if one is not there."""
        command = [str(self.interpreter()), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        settings = {"TEST_LIMIT_SECONDS": str(LIMIT_SECONDS // 4)}
        settings["TEST_NEEDS_CHROMIUM"] = "1"  # a test that is skipped notices nothing
        ended = run([*command, *names], settings, LIMIT_SECONDS, self.folder)
        # 1: a test failed. Negative: the process crashed. Else: nothing was tested.
        if ended.status is not None and ended.status > 1:
            message = f"not all of these tests are there: {names}\n{ended.output}"
            raise DefectError(message)
        return ended


class Torch(Python):
    """The tests of the bridge, with the extension built from the copied tree, too."""

    folder = BRIDGE

    def build(self) -> Ended:
        """Compile the module, and of the extension what has changed."""
        if not (TORCH / "ready").exists():
            return Ended(None, "torch is missing: `make torch` installs it")
        ended = super().build()
        if ended.status == 0:
            # `egg_info` writes the entry point by which torch finds the copied package.
            command = [str(TORCH / "bin" / "python"), "setup.py", "-q", "egg_info", "build_ext"]
            command += ["--inplace", "--build-temp", str(WORK / "torch")]
            ended = run(command, {}, BUILD_LIMIT_SECONDS, self.folder)
        return ended

    def interpreter(self) -> Path:
        """Return what finds the copied packages."""
        return python_with_torch()


@cache
def python_of_the_tree() -> Path:
    """Make an interpreter that finds the copied package, and else what this one finds."""
    venv.create(VENV, clear=True)
    found = [path for path in sys.path if "site-packages" in path]
    return _finding(VENV, [str(TREE / "python"), *found])


@cache
def python_with_torch() -> Path:
    """Make an interpreter that finds the copied packages, and else what torch's one finds."""
    place = WORK / "venv-torch"
    command = [str(TORCH / "bin" / "python"), "-m", "venv", "--clear", "--without-pip", str(place)]
    subprocess.run(command, check=True)  # noqa: S603  commands of this file
    found = [str(path) for path in TORCH.glob("lib/python*/site-packages")]
    return _finding(place, [str(TREE / "python"), str(BRIDGE), *found])


def _finding(place: Path, found: list[str]) -> Path:
    folder = next(place.glob("lib/python*/site-packages"))
    # Folders named here are searched, and files like this one in them are not read: the installed
    # accelrt, which such a file names, is not found.
    (folder / "tree.pth").write_text("\n".join(found) + "\n")
    return place / "bin" / "python"


def suites() -> dict[str, Rust | Python]:
    """Return what the entries name as `suite`."""
    suites: dict[str, Rust | Python] = {
        "lib": Rust(["--lib"]),
        "loom": Rust(["--lib"], is_loom=True),
        "python": Python(),
        "torch": Torch(),
    }
    for name in INTEGRATION:
        suites[name] = Rust(["--test", name])
    for name in ("capi", "header"):
        suites[name] = Rust(["--package", "accelrt-capi", "--test", name])
    suites["observe-lib"] = Rust(["--package", "accelrt-observe", "--lib"])
    suites["observe"] = Rust(["--package", "accelrt-observe", "--test", "observe"])
    return suites


def copy_tree() -> None:
    """Make the copy what the tree is now; files that did not change keep their times."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    names = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    for path in [path for path in TREE.rglob("*") if path.is_file()]:
        if str(path.relative_to(TREE)) not in names:
            path.unlink()
    for name in names:
        source, target = ROOT / name, TREE / name
        content = source.read_bytes()
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


@contextmanager
def in_place(defect: Defect) -> Iterator[None]:
    """Plant the defect in the copy for as long as the block runs."""
    file = defect.find_file(TREE)
    before = file.read_text()
    file.write_text(before.replace(defect.old, defect.new))
    try:
        yield
    finally:
        file.write_text(before)


def check_unchanged(suite: Rust | Python, names: list[str]) -> None:
    """Fail unless every named test passes without a defect."""
    ended = suite.build()
    if ended.status == 0:
        ended = suite.test(names)
    if ended.status != 0:
        message = f"without a defect:\n{ended.output}"
        raise DefectError(message)


def check(defect: Defect, suite: Rust | Python) -> None:
    """Fail if the defect is not caught."""
    with in_place(defect):
        built = suite.build()
        if built.status != 0:
            message = f"does not compile: {defect.name}\n{built.output}"
            raise DefectError(message)
        ended = suite.test([defect.test])
    if ended.status is None:
        message = f"hangs: {defect.name}: {defect.suite} {defect.test} has no watchdog"
        raise DefectError(message)
    if ended.status == 0:
        message = f"survives: {defect.name}: {defect.suite} {defect.test} passes"
        raise DefectError(message)


def chosen(words: list[str]) -> list[Defect]:
    """Return the defects whose names contain one of the words, or whose suite it is."""
    with (HERE / "defects.toml").open("rb") as file:
        defects = [Defect(**entry) for entry in tomllib.load(file)["defect"]]
    if words:
        fits = [any(word in it.name or word == it.suite for word in words) for it in defects]
        defects = list(compress(defects, fits))
    return defects


def main(arguments: list[str]) -> int:
    """Do what the head of this file says; the process's status."""
    defects = chosen([word for word in arguments if word != "--stale"])
    failures: list[str] = []
    if "--stale" in arguments:
        for defect in defects:
            try:
                defect.find_file(ROOT)
                defect.look_for_test(ROOT)
            except DefectError as failure:
                failures.append(str(failure))
    else:
        copy_tree()
        failures = prove(without_torch(defects))
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


def without_torch(defects: list[Defect]) -> list[Defect]:
    """Return the defects that need no torch, where it is missing and need not be there."""
    if (TORCH / "ready").exists() or os.environ.get("TORCH_REQUIRED"):
        return defects
    others = [defect for defect in defects if defect.suite != "torch"]
    if len(others) < len(defects):
        print(f"torch is missing (`make torch`): {len(defects) - len(others)} defects not tried")
    return others


def prove(defects: list[Defect]) -> list[str]:
    """Print a line for each defect; return what is wrong."""
    failures = [] if defects else ["no defect was chosen"]
    failures += [f"no such suite: {it.suite}" for it in defects if it.suite not in suites()]
    for name, suite in suites().items():
        own = [defect for defect in defects if defect.suite == name]
        if not own:
            continue
        started = time.monotonic()
        try:
            check_unchanged(suite, sorted({defect.test for defect in own}))
        except DefectError as failure:
            print(f"{name}: {failure}", flush=True)
            failures += [f"not tried: {defect.name}" for defect in own]
            continue
        print(f"{name}: every named test passes, {time.monotonic() - started:.0f} s", flush=True)
        for defect in own:
            started, how = time.monotonic(), "caught"
            try:
                check(defect, suite)
            except DefectError as failure:
                how = "NOT CAUGHT"
                failures.append(str(failure))
            seconds = time.monotonic() - started
            print(f"  {how:10} {seconds:4.0f} s  {defect.name}: {defect.test}", flush=True)
    print(f"{max(len(defects) - len(failures), 0)} of {len(defects)} defects caught")
    return failures


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
    sys.exit(130)
