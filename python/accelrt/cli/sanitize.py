"""`python -m accelrt sanitize`: runs a script and reports what nothing orders."""

import argparse
import html
import json
import linecache
import os
import sys
import threading
from pathlib import Path

from accelrt import _core, accelerator, cpu
from accelrt.cli import scripts, streams
from accelrt.cli.outputs import file_argument, refusal
from accelrt.cli.sizes import counted
from accelrt.sanitizer import Finding, Report, check_pattern, watch_script

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>accelrt sanitizer: {title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
section {{ border-left: 4px solid #c33; padding: 0 1rem; margin: 1.5rem 0 }}
dt {{ font-weight: 600 }} dd, pre {{ margin: 0 0 .5rem; font-family: ui-monospace, monospace }}
pre {{ background: #8881; padding: .2rem .5rem }} :root {{ color-scheme: light dark }}
</style>
<h1>{title}</h1>
{sections}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--report", type=file_argument, metavar="FILE", help="keep the findings: out.json, out.html"
    )
    parser.add_argument(
        "--suppress",
        action="append",
        default=[],
        metavar="PLACE",
        help="leave out findings there, as loader.py:12 or 'vendor/*'",
    )
    parser.add_argument("script", type=file_argument, help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def run(given: argparse.Namespace) -> int:
    """Run the script; return 1 with findings, else the script's own status.

    If the script failed, an extra line says so: "nothing found" then covers only a part of it.
    """
    if (reason := _refusal(given)) is not None:
        return streams.refuse("sanitize", reason)
    output = given.report and given.report.absolute()  # the script may change the folder
    errors = sys.stderr  # the script may replace or detach it

    def say(text: str) -> None:
        streams.report(f"accelrt sanitize: {text}\n", errors)

    end, own = watch_script(given.suppress), os.getpid()
    with scripts.as_main(given.script, given.arguments):
        status, error = scripts.run(given.script)
        if status != scripts.INTERRUPTED:
            status = _finish() or status
        report = end()
    if os.getpid() != own and not report.findings:
        return status  # a process that the script has forked: the report is its parent's
    if status:
        say(_failure(given.script, status))
    say(_title(report))
    if report.findings or report.num_forgotten:
        streams.report(f"{report}\n", errors)
    if output is not None and os.getpid() == own:
        _write(output, report, {"exit_status": status, "error": error})
    return 1 if report.findings else status


def _refusal(given: argparse.Namespace) -> str | None:
    if not given.script.is_file():
        return f"there is no file {given.script}"
    if given.report is not None and given.report.suffix not in {".json", ".html"}:
        return f"a report's name ends in .json or .html: {given.report}"
    try:
        given.script.open("rb").close()
    except OSError as error:
        return f"cannot read {given.script}: {error.strerror}"
    try:
        for pattern in given.suppress:
            check_pattern(pattern)
    except ValueError as error:
        return f"--suppress {error}"
    return refusal([given.report], [given.script])


def _finish() -> int:
    """Wait for the script's threads, and for what is left in its streams. Return a status."""
    try:
        # The interpreter does this before it ends; it also shuts down open executors.
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        _wait_for_streams()
    except KeyboardInterrupt:
        return scripts.INTERRUPTED
    return 0


def _wait_for_streams() -> None:
    """Wait for what the script has left in its streams: callables enqueue more."""
    if not _core.is_initialized():
        return
    for module in (accelerator, cpu):  # the cpu kind is there beside each accelerator
        for index in range(module.device_count()):
            try:
                module.synchronize(index)
            except RuntimeError as error:  # of the script's own tasks
                streams.report(f"{error}\n")


def _failure(script: Path, status: int) -> str:
    if status == scripts.INTERRUPTED:
        return f"{script} was interrupted"
    return f"{script} failed with exit status {status}"


def _title(report: Report) -> str:
    count = len(report.findings)
    return "nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}"


def _write(path: Path, report: Report, script: dict[str, object]) -> None:
    """Write the findings, and how the script ended: they may cover only a part of it."""
    if path.suffix == ".json":
        content = {**report.as_dict(), "script": script}
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
        return
    sections = "".join(_section(finding) for finding in report.findings)
    if script["exit_status"]:
        failure = f"The script failed with exit status {script['exit_status']}"
        failure += f": {script['error']}" if script["error"] else ""
        sections = f"<p>{html.escape(failure)}</p>\n{sections}"
    page = _PAGE.format(title=html.escape(_title(report)), sections=sections)
    path.write_text(page, encoding="utf-8", errors="backslashreplace")


def _section(finding: Finding) -> str:
    rows = [("buffer", str(finding.buffer), "")] if finding.buffer is not None else []
    uses = [("first", finding.first), ("second", finding.second)]
    rows += [(name, str(it), _source(it.file, it.line)) for name, it in uses if it is not None]
    rows.append(("fix", finding.fix, ""))
    shown = "".join(f"<dt>{name}<dd>{html.escape(text)}{source}" for name, text, source in rows)
    times = counted(finding.count, "time")
    return f"<section><h2>{finding.kind}, {times}</h2><dl>{shown}</dl></section>\n"


def _source(file: str | None, line: int) -> str:
    """Return the line of the program, where there is one."""
    text = linecache.getline(file or "", line).strip()
    return f"<pre>{html.escape(text)}</pre>" if text else ""
