"""What needs a Python environment, as sessions of nox: `make NAME` runs the session NAME.

Sessions share the environments below. Settings are environment variables, which `make` passes on:
`make oracle ORACLE_OPERATIONS=1000`.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import nox

nox.needs_version = ">=2026"
nox.options.default_venv_backend = "none"
nox.options.sessions = []

PROJECT = nox.project.load_toml("pyproject.toml")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target")).absolute()
CARGO = os.environ.get("CARGO", "cargo")
# Optimised builds of tests: without link-time optimisation, which would be paid for each binary.
RELEASE_TESTS = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
BENCH = TARGET / "bench"
# Environments: the module with what tests need; Intel's OpenCL runtime; oneMKL and oneDNN; torch.
MAIN, INTEL, MATH, TORCH = ".venv", ".venv-intel", ".venv-math", ".venv-torch"
BRIDGE = Path("bridges/torch")

# Python tests that run on every kind of device.
EVERY_KIND = """accelerator await await_loops await_programs buffer contexts dlpack done_callbacks
    event failure_descriptions failures generator host_call host_threads launch_host numpy_memory
    parameters profiler reclaimers stream task_contexts task_pools task_programs threads timeouts
    verbose_runtime version waits xpu"""
# Those that mention xpu beside: no other session compiles kernels.
KERNELS = "device info kind_modules messages program xpu_loss"
# Threads, memory and exits, on the module with link-time optimisation.
OPTIMISED = """buffer c_api dlpack event exit failures fork host_threads launch launch_host memory
    numpy_memory profiler stream threads"""
# Those that need NumPy at most.
WHEEL = "accelerator buffer demo errors event goals info"
# Parts of NumPy's suite that use memory of every size.
NUMPY = """_core/tests/test_indexing _core/tests/test_item_selection _core/tests/test_nditer
    _core/tests/test_shape_base _core/tests/test_numeric _core/tests/test_array_coercion
    _core/tests/test_dlpack lib/tests/test_function_base lib/tests/test_shape_base
    lib/tests/test_io linalg/tests/test_linalg"""
FAKE_DEVICES = "devices=3,priorities=1,strict=1,memory=64G,command_us=20"


def session(function: Callable[[nox.Session], None]) -> nox.registry.Func:
    """Make a session of the function's name, with hyphens."""
    return nox.session(name=function.__name__.replace("_", "-"))(function)


def enter(
    session: nox.Session, location: str, *requirements: str, pip: tuple[str, ...] = ()
) -> Path:
    """Run what follows in an environment, which is made anew when its requirements have changed."""
    folder, listed = Path(location).absolute(), "\n".join([*requirements, *pip, ""])
    made = folder / "requirements.txt"
    if not made.exists() or made.read_text() != listed:
        shutil.rmtree(folder, ignore_errors=True)
        session.run(sys.executable, "-m", "venv", str(folder))
        session.run(
            str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *pip, *requirements
        )
        made.write_text(listed)
    # nox looks for programs where this process does.
    os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ["VIRTUAL_ENV"] = str(folder)
    return folder


def groups(*names: str, file: Path = Path("pyproject.toml")) -> list[str]:
    """Return the requirements of dependency groups."""
    return nox.project.dependency_groups(nox.project.load_toml(file), *names)


def tests(names: str) -> list[str]:
    """Return the files of some Python tests."""
    return [f"tests/python/test_{name}.py" for name in names.split()]


def setting(name: str, default: str = "") -> str:
    """Return an environment variable; one that is empty is not set."""
    return os.environ.get(name) or default


def cargo(session: nox.Session, *command: str, **env: str) -> None:
    """Run cargo."""
    session.run(CARGO, *command, external=True, env=env)


def enter_main(session: nox.Session) -> None:
    """Run what follows in the main environment."""
    enter(session, MAIN, *groups("build", "test", "check"))


def develop(session: nox.Session, *flags: str) -> None:
    """Build the module as it is now, into the main environment."""
    enter_main(session)
    session.run("maturin", "develop", "--quiet", *flags)


def optimised(session: nox.Session) -> None:
    """Build the module with link-time optimisation, in the place of the other one."""
    develop(session, "--release")


def accelrt(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run the command line."""
    session.run("python", "-m", "accelrt", *arguments, env=env)


def pytest(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run pytest."""
    session.run("python", "-m", "pytest", *arguments, *session.posargs, env=env)


#: Two processes share the files of a run. Much of a test's time is waiting.
SHARED = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")


@session
def module(session: nox.Session) -> None:
    """Build the module into .venv."""
    develop(session)


@session
def module_release(session: nox.Session) -> None:
    """Build the optimised module into .venv."""
    optimised(session)


@session
def demo(session: nox.Session) -> None:
    """Build the optimised module, and run the main job on a real file."""
    optimised(session)
    accelrt(session, "demo")
    accelrt(session, "replay", "tests/data/own_gpt_fixed.ops.csv")


@session
def test_python(session: nox.Session) -> None:
    """Run the Python tests, `examples/` and the examples in docstrings."""
    develop(session)
    pytest(session, *SHARED)


@session
def test_python_release(session: nox.Session) -> None:
    """Run Python tests of threads, memory and exits on the optimised module."""
    optimised(session)
    pytest(session, *tests(OPTIMISED))


@session
def test_python_release_all(session: nox.Session) -> None:
    """Run all Python tests on the optimised module."""
    optimised(session)
    pytest(session, *SHARED)


@session
def test_python_xpu_fake(session: nox.Session) -> None:
    """Run the Python tests of every kind on three devices of the fake OpenCL."""
    develop(session)
    opencl = ("--package", "accelrt-opencl", "--features", "accelrt/async")
    cargo(session, "test", *opencl, "--test", "fake", "self_test")
    library = TARGET / "tmp/libfake_opencl_whole.so"
    fake = {"ACCELRT_OPENCL_LIBRARY": str(library), "FAKE_OPENCL": FAKE_DEVICES}
    pytest(session, *tests(EVERY_KIND), ACCELRT_TEST_KIND="xpu", **fake)


@session
def test_python_device(session: nox.Session) -> None:
    """Run the Python tests of every kind, and the plug-in's, on a stranger's kind in C."""
    develop(session)
    library = TARGET / "tmp/libnpu.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    flags = "-std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC -pthread -DNPU_DEVICES=3 -Iinclude"
    source = "examples/device/c/npu.c"
    session.run("cc", *flags.split(), source, "-o", str(library), external=True)
    kind = {"ACCELRT_KINDS": f"npu={library}", "ACCELRT_ACCELERATOR": "npu"}
    pytest(session, *tests(EVERY_KIND), ACCELRT_TEST_KIND="npu", **kind)
    pytest(session, "--accelrt-kind", "npu", "--accelrt-library", str(library))


@session
def intel(session: nox.Session) -> None:
    """Install Intel's OpenCL runtime for CPUs, a real OpenCL device on every x86-64 processor."""
    enter(session, INTEL, *PROJECT["project"]["optional-dependencies"]["xpu"])


def on_intel(session: nox.Session, files: list[str]) -> None:
    """Run Python tests and the demo on Intel's runtime, which the session `intel` installs."""
    develop(session)
    # By the distribution's loader (make peers): the wheels' own takes no library this way.
    runtime = {"OCL_ICD_VENDORS": str(Path(INTEL, "lib/libintelocl.so").absolute())}
    pytest(session, *files, ACCELRT_TEST_KIND="xpu", **runtime)
    accelrt(session, "demo", ACCELRT_ACCELERATOR="xpu", **runtime)


@session
def test_python_intel(session: nox.Session) -> None:
    """Run the Python tests of every kind and those of kernels on Intel's runtime for CPUs."""
    on_intel(session, tests(EVERY_KIND + " " + KERNELS))


@session
def test_python_intel_all(session: nox.Session) -> None:
    """Run all Python tests on Intel's runtime for CPUs."""
    on_intel(session, ["tests/python"])


@session
def test_sanitized(session: nox.Session) -> None:
    """Run the Python tests, examples and the demo under the sanitizer, which finds nothing."""
    develop(session)
    own = [f"--ignore=tests/python/test_sanitizer{part}.py" for part in ("", "_ring")]
    pytest(session, "--accelrt-sanitize", "tests/python", *own)
    for name in ("all_reduce", "errors", "memory_diagnosis", "missing_overlap", "ring_buffer"):
        accelrt(session, "sanitize", f"examples/{name}.py")
    accelrt(session, "demo", ACCELRT_SANITIZER="raise")


def numpy_suite(session: nox.Session, files: list[str]) -> None:
    """Run NumPy's own tests in accelrt's memory, beside a run without."""
    develop(session)
    session.run("python", "tests/numpy/suite.py", str(TARGET / "numpy"), *files)


@session
def test_numpy(session: nox.Session) -> None:
    """Run NumPy's whole suite in accelrt's memory, or the files of NUMPY_TESTS."""
    numpy_suite(session, setting("NUMPY_TESTS").split())


@session
def test_numpy_selection(session: nox.Session) -> None:
    """Run a selection of NumPy's suite in accelrt's memory."""
    numpy_suite(session, [f"{name}.py" for name in NUMPY.split()])


@session
def long_dask(session: nox.Session) -> None:
    """Run dask workers: killed five times in a row, 10,000 tasks, beside plain dask."""
    develop(session)
    pytest(session, *tests("dask dask_store dask_shortage"), TEST_LONG="1")


@session
def check_python(session: nox.Session) -> None:
    """Check the Python part: format, lints, types, and its stubs against the module."""
    develop(session)
    session.run("ruff", "format", "--check")
    session.run("ruff", "check")
    session.run("mypy")
    allowed = ("--allowlist", "tests/python/stubtest_allowlist.txt", "--ignore-unused-allowlist")
    session.run("python", "-m", "mypy.stubtest", *allowed, "accelrt")


@session
def format_python(session: nox.Session) -> None:
    """Format the Python part."""
    enter_main(session)
    session.run("ruff", "format")


@session
def stubs(session: nox.Session) -> None:
    """Bring docstrings into the stubs, where editors look for them, and write those of kinds."""
    develop(session)
    session.run("python", "tests/python/stub_docs.py")
    session.run("python", "tests/python/kind_stubs.py")
    folder = Path("python/accelrt")
    session.run("ruff", "format", "--quiet", *map(str, sorted(folder.rglob("*.pyi"))))


@session
def pictures(session: nox.Session) -> None:
    """Take the pictures in docs/pictures anew; needs Chromium (make peers)."""
    develop(session)
    folder = Path("docs/pictures").absolute()
    folder.mkdir(exist_ok=True)
    needs = {"TEST_NEEDS_CHROMIUM": "1", "PICTURES": str(folder)}
    pytest(session, *tests("view_browser"), "-k", "not million", **needs)


def traces(session: nox.Session) -> Path:
    """Return the folder of recordings that are not part of the repository."""
    folder = setting("TRACES")
    if not folder:
        session.error("no recorded requests: name a folder that contains ops/*.ops.csv by TRACES=")
    return Path(folder).absolute()


@session
def check_replay(session: nox.Session) -> None:
    """Replay PyTorch's snapshots address by address: SNAPSHOTS=FILES or TRACES=FOLDER."""
    optimised(session)
    files = setting("SNAPSHOTS").split()
    files = files or [str(file) for file in sorted(traces(session).glob("pytorch/*.pickle"))]
    accelrt(session, "replay", "--check", *files)


def join_replays(session: nox.Session, *flags: str) -> None:
    """Replay recordings under each policy, for the table of docs/allocator.md."""
    optimised(session)
    patterns = ("ops/*.ops.csv", "pytorch/*.pickle")
    files = [str(file) for it in patterns for file in sorted(traces(session).glob(it))]
    BENCH.mkdir(parents=True, exist_ok=True)
    policies = ("--policy", "native,torch,torch+expandable", "--granularity", "2097152")
    figures = str(BENCH / "replays.json")
    accelrt(session, "replay", *policies, "--json", figures, *files)
    session.run("python", "benches/replays.py", figures, "docs/allocator.md", *flags)


@session
def replays(session: nox.Session) -> None:
    """Write the table of docs/allocator.md from the recordings of TRACES=FOLDER."""
    join_replays(session)


@session
def check_replays(session: nox.Session) -> None:
    """Compare the table of docs/allocator.md with the recordings of TRACES=FOLDER."""
    join_replays(session, "--stale")


def count_instructions(session: nox.Session, *flags: str) -> None:
    """Count the instructions of the hot paths."""
    optimised(session)
    built = session.run(
        *(CARGO, "bench", "--package", "accelrt-benches", "--bench", "hot_paths", "--no-run"),
        "--message-format=json",
        external=True,
        silent=True,
        stderr=None,
    )
    paths = [line for line in str(built).splitlines() if '"name":"hot_paths"' in line]
    bench = paths[-1].split('"executable":"')[1].split('"')[0]
    session.run("python", "benches/counts.py", bench, "benches/instructions.txt", *flags)


@session
def counts(session: nox.Session) -> None:
    """Compare the instructions of the hot paths with benches/instructions.txt."""
    count_instructions(session)


@session
def counts_accept(session: nox.Session) -> None:
    """Write benches/instructions.txt."""
    count_instructions(session, "--accept")


@session
def dpctl(session: nox.Session) -> None:
    """Install a SYCL queue to compare with in `make bench`: a gigabyte, so not among the peers."""
    enter_main(session)
    session.run("python", "-m", "pip", "install", "--quiet", "dpctl")


# xpu's figures and OpenCL's are taken on Intel's runtime where `make test-intel` has installed it,
# oneMKL's on what `make peers` has, PyTorch's allocator's where `make oracle` has brought one, and
# those of torch.device("accelrt") where `make torch` has installed torch.
@session
def bench(session: nox.Session) -> None:
    """Measure the figures beside the peers', and write the table of benches/README.md."""
    optimised(session)
    BENCH.mkdir(parents=True, exist_ok=True)
    env = {}
    if Path(INTEL, "lib/libintelocl.so").exists():
        env["OCL_ICD_VENDORS"] = str(Path(INTEL, "lib/libintelocl.so").absolute())
    if mkl := sorted(Path(MATH).absolute().glob("lib/libmkl_rt.so.?")):
        env["ACCELRT_MKL_LIBRARY"] = str(mkl[-1])
    if settings := setting("BENCH_SETTINGS"):
        env["ACCELRT_ALLOC_CONF"] = settings

    def figures(*arguments: str, **more: str) -> None:
        command = ("bench", "--package", "accelrt-benches", "--bench", "figures", "--")
        cargo(session, *command, *arguments, **more)

    figures("--anchors", str(BENCH / "before.json"), setting("BENCH_WAIT_S", "60"))
    command = ("tests/oracle/installed.py", oracle_cache())
    c10 = str(session.run("python", *command, silent=True)).strip()
    shared = ["--traces", str(traces(session))] if setting("TRACES") else []
    shared += ["--patience", setting("BENCH_PATIENCE_S", "3")]
    own = ["--c10", c10] if c10 else []
    with (BENCH / "rust.txt").open("w") as output:
        command = ("bench", "--package", "accelrt-benches", "--bench", "figures", "--")
        arguments = ["--json", str(BENCH / "rust.jsonl"), *own, *shared]
        session.run(CARGO, *command, *arguments, external=True, env=env, stdout=output, stderr=None)
    with (BENCH / "python.txt").open("w") as output:
        arguments = ["bench", "--json", str(BENCH / "python.json"), *shared]
        session.run("python", "-m", "accelrt", *arguments, env=env, stdout=output, stderr=None)
    (BENCH / "torch.json").unlink(missing_ok=True)
    if Path(TORCH, "bridge").exists():
        torch_figures = ("-m", "accelrt_torch.bench", "--json", str(BENCH / "torch.json"))
        session.run(f"{TORCH}/bin/python", *torch_figures, external=True)
    figures("--anchors", str(BENCH / "after.json"), "0")
    session.run("python", "benches/report.py", str(BENCH), "benches/README.md")


def oracle_cache() -> str:
    """Return the folder that has parts of PyTorch's wheels between runs, of all checkouts."""
    home = setting("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return str(Path(setting("ORACLE_CACHE", f"{home}/accelrt/oracle")).absolute())


@session
def oracle(session: nox.Session) -> None:
    """Compare policy torch with PyTorch's compiled allocator, ORACLE_OPERATIONS steps.

    With ORACLE_REQUIRED=1 it fails where there are no wheels. ORACLE has more arguments:
    ORACLE="--kinds oom fraction", ORACLE="--shrink 'oom 7'".
    """
    enter_main(session)
    places = ("--cache", oracle_cache(), "--target", str(TARGET / "oracle"))
    steps = ("--operations", setting("ORACLE_OPERATIONS", "100000"))
    more = shlex.split(setting("ORACLE"))
    session.run("python", "tests/oracle/oracle.py", *places, *steps, *more)


def install_torch(session: nox.Session) -> None:
    """Install torch, without its packages for GPUs, and build accelrt-torch for it: minutes."""
    folder = enter(session, TORCH, "torch>=2.15", pip=("--no-deps",))
    bridge, file = folder / "bridge", BRIDGE / "pyproject.toml"
    sources = [file, *BRIDGE.glob("csrc/*"), *BRIDGE.glob("*.py"), Path("include/accelrt.h")]
    if bridge.exists() and all(it.stat().st_mtime < bridge.stat().st_mtime for it in sources):
        return
    install = ("-m", "pip", "install", "--quiet")
    session.run("python", *install, *groups("peer", file=file))
    session.run("python", str(BRIDGE / "stand_ins.py"))
    (packages,) = folder.glob("lib/python3*/site-packages")
    # Python finds accelrt where the main environment has it.
    (packages / "accelrt.pth").write_text(f"{Path('python').absolute()}\n")
    flags = ("--no-build-isolation", "--no-deps", "--editable")
    session.run("python", *install, *flags, str(BRIDGE))
    bridge.touch()


def run_torch_tests(session: nox.Session) -> None:
    """Run the tests of bridges/torch, with the module as it is now."""
    develop(session)
    install_torch(session)
    with session.chdir(BRIDGE):
        pytest(session)


@session
def torch(session: nox.Session) -> None:
    """Install torch into an environment of its own, and build accelrt-torch there."""
    develop(session)
    install_torch(session)


@session
def test_torch(session: nox.Session) -> None:
    """Run the tests of bridges/torch: torch.device("accelrt")."""
    run_torch_tests(session)


@session
def test_torch_or_say(session: nox.Session) -> None:
    """Run the tests of bridges/torch; without torch say so, and fail with TORCH_REQUIRED=1."""
    try:
        enter(session, TORCH, "torch>=2.15", pip=("--no-deps",))
    except nox.command.CommandFailed:
        text = "torch is missing: the tests of bridges/torch did not run"
        session.error(text) if setting("TORCH_REQUIRED") else session.skip(text)
    run_torch_tests(session)


@session
def bench_torch(session: nox.Session) -> None:
    """Measure torch.device("accelrt") beside the CPU: T1 to T5."""
    optimised(session)
    install_torch(session)
    session.run("python", "-m", "accelrt_torch.bench")


def run_mutants(session: nox.Session, script: str, *arguments: str) -> None:
    """Run a script of tests/mutants in the main environment."""
    enter_main(session)
    session.run("python", f"tests/mutants/{script}", *arguments)


@session
def weaken(session: nox.Session) -> None:
    """Make each atomic ordering weaker, one at a time: models fail. WEAKEN has arguments."""
    flags = {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": str(TARGET / "loom"), **RELEASE_TESTS}
    command = (CARGO, "test", "--release", "--lib", "--no-run", "--message-format=json")
    built = session.run(*command, external=True, silent=True, stderr=None, env=flags)
    lines = [line for line in str(built).splitlines() if '"name":"accelrt"' in line]
    models = lines[-1].split('"executable":"')[1].split('"')[0]
    run_mutants(session, "weaken.py", models, *shlex.split(setting("WEAKEN")))


@session
def mutants(session: nox.Session) -> None:
    """Plant defects: named tests fail. To plant some: MUTANTS="fence GIL"."""
    run_mutants(session, "run.py", *shlex.split(setting("MUTANTS")))


@session
def check_mutants(session: nox.Session) -> None:
    """Check that the product has the texts that planted defects replace."""
    run_mutants(session, "run.py", "--stale")


@session
def mutation(session: nox.Session) -> None:
    """Try a sample of cargo-mutants' mutants: at least 90 % are noticed.

    MUTATION_COUNT mutants are drawn by MUTATION_SEED; a run that was interrupted goes on with the
    same seed. MUTATION="--again" tries the survivors again.
    """
    if shutil.which("cargo-mutants") is None:
        session.error("cargo-mutants is not installed: cargo install --locked cargo-mutants")
    sample = ("--seed", setting("MUTATION_SEED", "16"), "--count", setting("MUTATION_COUNT", "60"))
    session.env["CARGO_TARGET_DIR"] = str(TARGET / "mutation")
    run_mutants(session, "mutation.py", *sample, *shlex.split(setting("MUTATION")))


@session
def wheel(session: nox.Session) -> None:
    """Build the wheel for any Linux on x86-64, check it, and try it in an empty environment."""
    enter(session, ".venv-packaging", *groups("build", "packaging"))
    wheels, tried = TARGET / "wheels", TARGET / "packaging/tried"
    for folder in (wheels, tried):
        shutil.rmtree(folder, ignore_errors=True)
    # zig links against the C library of 2014, whatever this machine's is.
    flags = ("--release", "--zig", "--compatibility", "manylinux2014", "--compression-level", "9")
    folder = {"CARGO_TARGET_DIR": str(TARGET / "packaging")}
    session.run("maturin", "build", "--quiet", *flags, "--out", str(wheels), env=folder)
    (built,) = wheels.glob("*.whl")
    shown = str(session.run("auditwheel", "show", str(built), silent=True))
    if "manylinux_2_17_x86_64" not in shown:
        session.error(shown)
    session.run("python", "-m", "venv", str(tried))

    def python(*arguments: str) -> None:
        session.run(str(tried / "bin/python"), *arguments, external=True)

    python("-m", "pip", "install", "--quiet", str(built))
    recording = Path("tests/data/own_gpt_fixed.ops.csv").absolute()
    with session.chdir(tried):
        python("-m", "accelrt", "--version")
        python("-m", "accelrt", "demo")
        python("-m", "accelrt", "view", str(recording), "-o", "page.html")
    python("-m", "pip", "install", "--quiet", "pytest", "hypothesis", "numpy")
    python("-m", "pytest", "--quiet", *tests(WHEEL))


@session
def packages(session: nox.Session) -> None:
    """Build the source distribution and the crates, each without the repository."""
    enter(session, ".venv-packaging", *groups("build", "packaging"))
    folder = TARGET / "packaging/source"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("maturin", "sdist", "--out", str(folder))
    (source,) = folder.glob("*.tar.gz")
    # Without link-time optimisation: that they build is seen, not how fast they are.
    command = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder))
    session.run("python", *command, str(source), env=RELEASE_TESTS)
    unpublished = ("--exclude", "accelrt-python", "--exclude", "accelrt-benches")
    cargo(session, "package", "--workspace", *unpublished, "--all-features")


@session
def math(session: nox.Session) -> None:
    """Install oneMKL and oneDNN, and a library over NumPy that calls the first, for tests."""
    enter(session, MATH, *groups("math"))
