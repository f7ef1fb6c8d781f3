"""Verbose levels: which library they reach, what is in force, and what is refused.

Method: a fake library in C, which says the level that it was given last. Levels are of the whole
process and the environment's are read once, so each test is a process of its own.
"""

import subprocess
import textwrap
from pathlib import Path

import pytest

import accelrt
from accelrt.backends import cpu, mkl, mkldnn, openmp
from fake_math import build, fake_mkl, fake_onednn, watched
from processes import output_of

BOTH = pytest.mark.parametrize("name", ["mkl", "mkldnn"])


def levels(name: str, body: str, **settings: str) -> list[str]:
    """Return what the body prints; `level()` is the fake's, `verbose` the module's."""
    fake = {"mkl": fake_mkl, "mkldnn": fake_onednn}[name]()
    code = f"library = load({str(fake)!r})\nlevel, verbose = library.level_now, {name}.verbose\n"
    return watched(code + textwrap.dedent(body), **settings)


NESTED = """
    print(level())
    with verbose(1):
        print(level())
        with verbose(0):
            print(level())
            with verbose(2):
                print(level())
            print(level())
        print(level())
    print(level())
"""


@BOTH
def test_scopes_nest_and_each_end_restores_what_was_below(name: str) -> None:
    assert levels(name, NESTED) == list("0102010")


@pytest.mark.parametrize(
    ("name", "variable"),
    [("mkl", "MKL_VERBOSE"), ("mkldnn", "ONEDNN_VERBOSE")],
)
def test_the_environments_level_lies_below_all_scopes(name: str, variable: str) -> None:
    assert levels(name, NESTED, **{variable: "1"}) == list("1102011")


def test_onednns_older_variable_counts_where_the_newer_is_not_set() -> None:
    body = """
        with verbose(1):
            pass
        print(level())
    """
    assert levels("mkldnn", body, DNNL_VERBOSE="2") == ["2"]
    assert levels("mkldnn", body, DNNL_VERBOSE="2", ONEDNN_VERBOSE="0") == ["0"]


def test_a_variable_that_no_level_can_restore_is_told_once() -> None:
    body = """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with verbose(1):
                    pass
        print(*(f"{one.category.__name__}: {one.message}" for one in caught), sep=chr(10))
        print(os.path.basename(caught[0].filename), level())
    """
    told = levels("mkldnn", body, ONEDNN_VERBOSE="profile_exec,filter=matmul")
    warning = (
        "RuntimeWarning: ONEDNN_VERBOSE=profile_exec,filter=matmul means more than a level: oneDNN "
        "cannot restore it, and has level 1 when the verbose scope ends"
    )
    assert told == [warning, "<string> 1"]


@BOTH
def test_an_exception_passes_and_the_level_is_restored(name: str) -> None:
    body = """
        def fail():
            with verbose(1):
                raise KeyError(level())

        print(outcome(fail), level())
    """
    assert levels(name, body) == ["KeyError: 1 0"]


@BOTH
def test_one_object_may_be_entered_inside_of_itself(name: str) -> None:
    body = """
        scope = verbose(1)
        with scope, scope:
            print(level())
        with verbose(0), scope:
            print(level())
        print(level(), outcome(lambda: scope.__exit__(None, None, None)))
    """
    refusal = "RuntimeError: a verbose scope was left that had not been entered"
    assert levels(name, body) == ["1", "1", f"0 {refusal}"]


@BOTH
def test_scopes_of_threads_end_in_any_order(name: str) -> None:
    body = """
        first, second = verbose(1), verbose(2)
        entered, go_on = threading.Event(), threading.Event()

        def other():
            with second:
                entered.set()
                go_on.wait()

        thread = threading.Thread(target=other)
        with first:
            thread.start()
            entered.wait()
            print(level())
        print(level())
        go_on.set()
        thread.join()
        print(level())
    """
    assert levels(name, body) == ["2", "2", "0"]


@BOTH
def test_a_level_that_other_code_sets_lasts_until_a_scope_begins_or_ends(name: str) -> None:
    setter = {"mkl": "MKL_Verbose", "mkldnn": "dnnl_set_verbose"}[name]
    body = f"""
        library.{setter}(2)
        with verbose(1):
            library.{setter}(2)
            print(level())
        print(level())
    """
    assert levels(name, body) == ["2", "0"]


@pytest.mark.parametrize(
    ("fake", "name"),
    [
        (fake_mkl("libmkl_rt.so.3"), "mkl"),
        (fake_mkl("libmkl_rt.so.1"), "mkl"),
        (fake_mkl("libtorch_cpu.so"), "mkl"),
        (fake_onednn("libdnnl.so.2"), "mkldnn"),
        (fake_onednn("libonednn_of_mine.so"), "mkldnn"),
    ],
)
def test_a_library_of_the_process_is_found_whatever_its_name(fake: object, name: str) -> None:
    code = f"""
library = load({str(fake)!r})
with {name}.verbose(1):
    print({name}.is_available(), {name}.version(), library.level_now())
print(library.level_now())
"""
    version = {"mkl": "2024.0.2", "mkldnn": "3.2.1"}[name]
    assert watched(code) == [f"True {version} 1", "0"]


def test_every_copy_in_the_process_has_the_level_also_one_that_comes_later() -> None:
    first, second = fake_mkl("libmkl_rt.so.2"), fake_mkl("libtorch_cpu.so")
    code = f"""
one = load({str(first)!r})
with mkl.verbose(1):
    other = load({str(second)!r})
    print(one.level_now(), other.level_now())
    with mkl.verbose(1):
        print(one.level_now(), other.level_now())
print(one.level_now(), other.level_now())
"""
    assert watched(code) == ["1 0", "1 1", "0 0"]


def test_a_library_is_loaded_from_where_wheels_put_it() -> None:
    folder = fake_mkl("libmkl_rt.so.2", "-DALONE").parent
    code = f"""
prefix = {str(folder.parent)!r} + "/prefix"
os.makedirs(prefix, exist_ok=True)
if not os.path.exists(prefix + "/lib"):
    os.symlink({str(folder)!r}, prefix + "/lib")
sys.prefix = prefix
print(mkl.is_available(), mkl.version())
with mkl.verbose(1):
    print(load(prefix + "/lib/libmkl_rt.so.2").level_now())
"""
    assert watched(code) == ["True 2024.0.2", "1"]


@BOTH
def test_a_setting_names_the_library(name: str) -> None:
    build_fake, variable = {
        "mkl": (fake_mkl, "ACCELRT_MKL_LIBRARY"),
        "mkldnn": (fake_onednn, "ACCELRT_DNNL_LIBRARY"),
    }[name]
    path = str(build_fake("libmine.so"))
    code = f"""
with {name}.verbose(1):
    print(load({path!r}).level_now())
"""
    assert watched(code, **{variable: path}) == ["1"]
    (refusal,) = watched(
        f"print(outcome({name}.verbose(1).__enter__))", **{variable: "/no/such.so"}
    )
    assert refusal.startswith("RuntimeError: No one")
    assert f"searched were {variable}=/no/such.so alone (/no/such.so: cannot open" in refusal
    other = str(build("libother.so"))
    (refusal,) = watched(f"print(outcome({name}.version))", **{variable: other})
    setter = {"mkl": "MKL_Verbose", "mkldnn": "dnnl_set_verbose"}[name]
    assert refusal.endswith(f"searched were {variable}={other} alone (it has no {setter})")


@BOTH
def test_what_is_not_found_is_named_with_where_it_was_searched(name: str) -> None:
    code = f"""
sys.prefix = "/no/such/prefix"
print({name}.is_available())
print(outcome({name}.version))
print(outcome({name}.verbose(1).__enter__))
with {name}.verbose(0):
    print("silent")
"""
    library, setter, file = {
        "mkl": ("oneMKL", "MKL_Verbose", "libmkl_rt.so.3"),
        "mkldnn": ("oneDNN", "dnnl_set_verbose", "libdnnl.so.3"),
    }[name]
    available, *refusals, last = watched(code)
    if available == "True":
        pytest.skip(f"the machine has a {library}")
    assert (available, last, refusals[0]) == ("False", "silent", refusals[1])
    assert refusals[0].startswith(f"RuntimeError: No {library} was found whose verbose level could")
    assert f"libraries of this process for {setter}; the loader's folders for {file}" in refusals[0]
    assert refusals[0].endswith("; /no/such/prefix/lib for these")


def test_a_onednn_that_torch_hides_is_named() -> None:
    torch = build("libtorch_cpu.so")
    code = f"""
sys.prefix = "/no/such/prefix"
load({str(torch)!r})
print(mkldnn.is_available(), outcome(mkldnn.verbose(1).__enter__))
"""
    (told,) = watched(code)
    assert told.startswith("False RuntimeError: No oneDNN was found")
    assert f"({torch} hides those of the oneDNN inside of it)" in told


@BOTH
def test_a_refused_level_changes_nothing_and_off_never_fails(name: str) -> None:
    fake = {"mkl": fake_mkl, "mkldnn": fake_onednn}[name]
    file, library = {"mkl": ("libmkl_rt.so.2", "oneMKL"), "mkldnn": ("libdnnl.so.3", "oneDNN")}[
        name
    ]
    picky, mute = fake(file, "-DREFUSED=2"), fake(file, "-DREFUSED=0")
    code = f"""
library = load({str(picky)!r})
with {name}.verbose(1):
    print(outcome({name}.verbose(2).__enter__))
    print(library.level_now())
print(library.level_now())
"""
    refusal = f"RuntimeError: {library} does not take the verbose level 2: {picky} refuses it"
    assert watched(code) == [refusal, "1", "0"]
    code = f"""
library = load({str(mute)!r})
with {name}.verbose(0):
    print("went on")
"""
    assert watched(code) == ["went on"]


@BOTH
@pytest.mark.parametrize("is_refused_first", [True, False])
def test_a_level_that_one_library_refuses_is_taken_back_from_the_others(
    name: str, *, is_refused_first: bool
) -> None:
    fake = {"mkl": fake_mkl, "mkldnn": fake_onednn}[name]
    willing, picky = fake("libwilling.so"), fake("libpicky.so", "-DREFUSED=2")
    paths = [str(picky), str(willing)] if is_refused_first else [str(willing), str(picky)]
    code = f"""
libraries = [load(path) for path in {paths}]
levels = lambda: [library.level_now() for library in libraries]
with {name}.verbose(1):
    print(outcome({name}.verbose(2).__enter__))
    print(levels())
print(levels())
"""
    refusal, *levels = watched(code)
    assert refusal.endswith(f"{picky} refuses it")
    assert levels == ["[1, 1]", "[0, 0]"]


def test_a_malformed_setting_is_told_by_what_needs_it_and_off_needs_it_not() -> None:
    code = """
print(outcome(mkl.is_available))
print(outcome(mkl.verbose(1).__enter__))
with mkl.verbose(0):
    print("went on")
"""
    refusal = 'ValueError: ACCELRT_EXIT_MS="x" is not valid: allowed is '
    *refusals, last = watched(code, ACCELRT_EXIT_MS="x")
    assert [line.startswith(refusal) for line in refusals] == [True, True]
    assert last == "went on"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (3, "ValueError: a verbose level of oneDNN is 0 to 2, not 3"),
        (-1, "ValueError: a verbose level of oneDNN is 0 to 2, not -1"),
        ("1", "TypeError: level must be an integer, not str"),
        (None, "TypeError: level must be an integer, not NoneType"),
        (1.0, "TypeError: level must be an integer, not float"),
    ],
)
def test_wrong_levels_are_refused_when_the_scope_is_made(level: int, expected: str) -> None:
    kind, message = expected.split(": ", 1)
    with pytest.raises({"ValueError": ValueError, "TypeError": TypeError}[kind]) as raised:
        mkldnn.verbose(level)
    assert str(raised.value) == message


def test_true_and_false_are_levels() -> None:
    body = """
        with verbose(True), verbose(False):
            print(level())
    """
    assert levels("mkl", body) == ["0"]


def test_the_constants_are_torchs() -> None:
    assert (mkl.VERBOSE_OFF, mkl.VERBOSE_ON) == (0, 1)
    assert (mkldnn.VERBOSE_OFF, mkldnn.VERBOSE_ON, mkldnn.VERBOSE_ON_CREATION) == (0, 1, 2)


def test_openmp_of_the_process_is_found_first(tmp_path: Path) -> None:
    library = tmp_path / "libanother.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    source = "int omp_get_max_threads(void) { return 1; }"
    subprocess.run(command, input=source, text=True, check=True)  # noqa: S603  our own
    code = f"""
        import ctypes
        from accelrt import _core
        ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)
        print(_core.openmp_library())
    """
    assert output_of(code) == f"{library}\n"


def test_the_processor_and_openmp_answer() -> None:
    assert accelrt.backends.cpu is cpu
    assert cpu.get_cpu_capability() in {"AVX512", "AVX2", "SVE", "DEFAULT"}
    # NumPy's or the compiler's: a machine that tests has one.
    assert openmp.is_available()
