"""Makes libraries in place of NVIDIA's, which a build of torch for CUDA loads and no CPU calls.

An index may have no torch but one for CUDA, whose packages for GPUs take 3.4 GB. `pip install
--no-deps torch` leaves them out; this program then makes a small library for each that is missing.
Each function of them ends the process with its name. Nothing is made where the packages are there.

Method: torch's libraries say which libraries they need and which version of which one each symbol
is of. A symbol without a version may be of any of them: the dynamic loader takes the first that it
finds. The driver's library is left out: its absence is how torch sees that there is no GPU.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from pathlib import Path

DRIVER = "libcuda.so.1"
OF_NVIDIA = re.compile(r"lib(cu|nccl|nv)")
FUNCTION_OF_NVIDIA = re.compile(r"(cu|nccl|nv)[A-Za-z]\w*$")
SYMBOL = re.compile(r"\s*\d+: [0-9a-f]+\s+\d+ (\w+)\s+(\w+)\s+\w+\s+(\w+) (\S+)(?: \(\d+\))?$")


def read(library: Path, *flags: str) -> list[str]:
    """Return the lines that readelf says of a library."""
    command = ["readelf", "--wide", *flags, str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def needed(library: Path) -> set[str]:
    """Return the names of the libraries that one needs."""
    found = (re.search(r"\(NEEDED\).*\[(.*)\]", line) for line in read(library, "--dynamic"))
    return {match[1] for match in found if match}


def versions(library: Path) -> dict[str, str]:
    """Return which library each version of a symbol is of."""
    of_library: dict[str, str] = {}
    current = ""
    for line in read(library, "--version-info"):
        if match := re.search(r" File: (\S+)", line):
            current = match[1]
        elif current and (match := re.search(r" Name: (\S+) +Flags", line)):
            of_library[match[1]] = current
    return of_library


def symbols(library: Path) -> tuple[set[str], dict[str, str]]:
    """Return what a library defines, and what it lacks: names, with their versions or ""."""
    defined, lacking = set(), {}
    for line in read(library, "--dyn-syms"):
        match = SYMBOL.match(line)
        if not match:
            continue
        _, binding, section, name = match.groups()
        name, _, version = name.partition("@")
        if section != "UND":
            defined.add(name)
        elif binding != "WEAK":
            lacking[name] = version.lstrip("@")
    return defined, lacking


def make(soname: str, of_version: dict[str, set[str]], folder: Path) -> None:
    """Compile one stand-in."""
    names = sorted(set().union(*of_version.values()))
    with tempfile.TemporaryDirectory() as place:
        source, script = Path(place) / "stand_in.c", Path(place) / "versions"
        text = "#include <stdio.h>\n#include <stdlib.h>\n"
        for name in names:
            said = f"{soname} is a stand-in without {name}\\n"
            text += f'void {name}(void) {{ fputs("{said}", stderr); abort(); }}\n'
        source.write_text(text)
        command = ["cc", "-shared", "-fPIC", "-fno-builtin", "-w", str(source)]
        command += ["-o", str(folder / soname), f"-Wl,-soname,{soname}"]
        blocks = [
            f"{version} {{ global: {' '.join(f'{name};' for name in sorted(own))} }};\n"
            for version, own in sorted(of_version.items())
            if version
        ]
        if blocks:
            script.write_text("".join(blocks))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)
    print(f"{folder / soname}: {len(names)} functions")


def main() -> None:
    """Make the stand-ins that the environment of this interpreter lacks."""
    packages = Path(sysconfig.get_path("purelib"))
    own = [*packages.glob("torch/lib/*.so*"), *packages.glob("torch/_C.*.so")]
    if not own:
        sys.exit(f"There is no torch in {packages}")
    there = {path.name for path in [*own, *packages.glob("nvidia/*/lib/*.so*")]}
    missing = {
        soname
        for soname in set().union(*map(needed, own))
        if OF_NVIDIA.match(soname) and soname not in there and soname != DRIVER
    }
    if not missing:
        return
    wanted: dict[str, dict[str, set[str]]] = {soname: defaultdict(set) for soname in missing}
    defined: set[str] = set()
    anywhere: set[str] = set()
    for library in own:
        of_library = versions(library)
        has, lacks = symbols(library)
        defined |= has
        for name, version in lacks.items():
            if of_library.get(version) in missing:
                wanted[of_library[version]][version].add(name)
            elif not version and FUNCTION_OF_NVIDIA.match(name):
                anywhere.add(name)
    for library in packages.glob("nvidia/*/lib/*.so*"):
        if library.name not in missing:
            defined |= symbols(library)[0]
    wanted[min(missing)][""] |= anywhere - defined
    # The first folder of which the names are those that torch's libraries look into.
    folder = next(iter(sorted(packages.glob("nvidia/cu*/lib"))), packages / "torch" / "lib")
    for soname, of_version in sorted(wanted.items()):
        make(soname, of_version, folder)


if __name__ == "__main__":
    main()
