"""The commands of ``gpuprof`` and their arguments; each has a function that does what it says."""

from __future__ import annotations

from typing import Any

from gpuprof._cli.command import (
    EXIT_CODES,
    FILE,
    FOLDER,
    GIT_STORE,
    Commands,
    Parser,
    not_blank,
    seconds,
    variable,
    whole,
)

_READ_TRACES = (
    "exit codes: 0 done, 1 failed or faults found, 2 wrong usage or an input that is no trace, "
    "130 interrupted"
)
_JSON = "print JSON"
_JUDGED = (
    "exit codes: 0 nothing failed, 1 SLOW, MEMORY, LAUNCHES, or what --fail-on names, 2 wrong "
    "usage or {}, 130 interrupted; a speed-up never fails"
)


def declare(commands: Commands) -> None:
    for add in (_trace, _info_and_demo, _compare, _run, _ab, _report, _saved):
        add(commands)


def _added(
    commands: Commands,
    name: str,
    text: str,
    call: str = "",
    codes: str = EXIT_CODES,
    **options: Any,
) -> Parser:
    """Add a command; `call` is the function that takes its arguments, in a module of this package.

    It returns an `Answer`.
    """
    parser: Parser = commands.add_parser(name, help=text, epilog=codes, **options)
    parser.set_defaults(call=call)
    return parser


def _trace(commands: Commands) -> None:
    from gpuprof._trace_tools import diff, tools

    text = "Work on traces of gpuprof, torch.profiler, viztracer and others, compressed or not."
    help_text = "sum up, compare, check, repair and merge traces"
    parser = _added(commands, "trace", help_text, codes=_READ_TRACES, description=text)
    parsers = parser.add_subparsers(dest="tool", metavar="TOOL", required=True)

    def tool(name: str, text: str) -> Parser:
        return _added(parsers, name, text, f"trace.{name}", _READ_TRACES, description=text)

    parser = tool("summary", "show which ranges took the most time, and gaps on GPU tracks")
    parser.add("file", FILE)
    parser.add("--by", None, "group ranges by this", choices=tools.GROUPINGS, default="path")
    parser.add_count("--top", "how many groups of each kind", (1, 100_000), tools.DEFAULT_TOP)
    parser.add_flag("--json", _JSON)
    parser = tool("validate", "say what is wrong with a trace, and at which event")
    parser.add("files", FILE, nargs="+")
    parser.add_flag("--json", _JSON)
    parser = tool("repair", "write a strict copy of a trace that is cut off")
    parser.add("file", FILE)
    text = "where to (default: FILE without .part, or with .repaired before its suffix)"
    parser.add_argument("-o", "--output", metavar="OUT", help=text)
    parser = tool("diff", "show what got slower from one trace to another, and why GPUs were idle")
    parser.add("a", "A", "the trace before")
    parser.add("b", "B", "the trace after")
    text = "only these rows (default: scopes and kernels)"
    parser.add("--by", None, text, choices=tuple(diff.GROUPINGS))
    parser.add("--per", "SCOPE", "divide all figures by the calls of this scope, as in step")
    parser.add_count("--top", "how many rows of each kind", (1, 100_000), tools.DEFAULT_TOP)
    parser.add_flag("--json", _JSON)
    parser = tool("merge", "make one trace of several, on one clock")
    parser.add("files", FILE, nargs="+")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="where to")
    parser.add_flag("--no-align", "leave times as they are in the files")


def _info_and_demo(commands: Commands) -> None:
    text = "say what this machine offers: driver, devices, clocks, versions"
    parser = _added(commands, "info", text, "info.run")
    parser.add_format()

    parser = _added(commands, "demo", "time some real work and show the table", "demo.run")
    parser.add_count("--steps", "how many steps of work", (1, 100_000), 20)
    text = "also write a trace of the steps, for Perfetto; compressed if it ends in .gz"
    parser.add("--trace", FILE, text)


def _compare(commands: Commands) -> None:
    about = (
        "Compare saved benchmarks: baselines by name, files that "
        "--gpu-benchmark-json wrote, or saved results."
    )
    codes = _JUDGED.format("an input that cannot be read, 3 nothing could be compared")
    text = "say whether saved benchmarks became slower"
    parser = _added(commands, "compare", text, "compare.run", codes, description=about)
    parser.add("base", "BASE", "name of a saved baseline, or a file")
    parser.add("new", "NEW", "what to compare with it; all runs are used")
    parser.add_threshold(
        "5%",
        "default 5%% with 5 baseline runs or more, else 10%%; on the CPU clock 20%%, unless the "
        "runs carry a smaller one",
    )
    parser.add_verdict_options()
    parser.add_storage()


def _run(commands: Commands) -> None:
    parser = _added(
        commands,
        "run",
        "run a script or a module, and show where its time goes",
        codes="exit codes: the program's own, also by a signal; 2 wrong usage, before the program "
        "has begun",
        description="Run a Python script or module, unchanged, and show the table of its scopes on "
        "standard error at its end, also after an exception or Ctrl-C. Options stand before the "
        "program's name; what comes after it belongs to the program. Files may have %p (process), "
        "%r (rank), %h (host) and %q{VARIABLE} in their names.",
        usage="gpuprof run [-h] [-o FILE] [--stats FILE] [--html FILE] [--watch DEPTH] "
        "[--scopes PATTERN] [--kernels] [--idle] (SCRIPT | -m MODULE) [ARGUMENTS ...]",
    )
    text = "also write a trace of the whole run, for Perfetto; compressed if it ends in .gz"
    parser.add_argument("-o", "--output", metavar=FILE, help=text)
    parser.add("--stats", FILE, "also write the statistics as JSON")
    parser.add("--html", FILE, "also write a report as HTML")
    text = (
        "where torch is used: how many levels of calls of modules are scopes, beside dataloader, "
        "backward and optimizer.step; 0 is none of them (default %(default)s)"
    )
    parser.add("--watch", "DEPTH", text, type=whole(0, 100), default=1)
    text = (
        "also make scopes of functions whose MODULE.QUALNAME matches, as in 'mypkg.model.*' "
        "or '__main__.step'; may be given several times; needs Python 3.12 or later"
    )
    parser.add("--scopes", "PATTERN", text, type=not_blank, action="append", default=[])
    text = (
        "also collect every kernel, and show the GPU's work by scope, by name and, from Python "
        "3.12 on, by the line that launched it; needs CUPTI"
    )
    parser.add_flag("--kernels", text)
    parser.add_flag("--idle", "also show which lines of Python run while the GPU has nothing to do")
    parser.add_flag("-m", "SCRIPT is a module's name", dest="is_module")
    parser.add("program", "SCRIPT", "the script, or a folder or an archive")


def _ab(commands: Commands) -> None:
    about = (
        "Run two commands in turns, process by process, and judge what they measured. "
        "{out} in a command becomes the name of a file for its results, as in "
        "'pytest --gpu-benchmark-json={out}'; the variable GPUPROF_AB_OUT has the same name. A run "
        "that leaves no file there counts with its wall time and its CPU time."
    )
    codes = _JUDGED.format(
        "a command that cannot be started, 3 a command failed or nothing could be compared"
    )
    text = "run two commands in turns, and say which is slower"
    parser = _added(commands, "ab", text, "ab.run", codes, description=about)
    parser.add("command_a", "'CMD A'", "the command to compare with")
    parser.add("command_b", "'CMD B'", "the command that may be slower")
    text = (
        "exactly that many runs of each; a verdict needs 8 (default: from 8 on until all verdicts "
        "are clear)"
    )
    parser.add_count("--runs", text, (1, 10_000))
    text = (
        "without --runs: when the time is up and each has run 12 times, no further run begins "
        "(default 60)"
    )
    parser.add("--max-time", "SECONDS", text, type=seconds, default=60.0)
    parser.add_count("--warmup", "how many runs of each before, that do not count", (0, 100), 1)
    text = (
        "what is compared: the wall time of the process, its CPU time, both, results of "
        "benchmarks, or statistics of scopes (default: the file that the first run leaves, or both "
        "times)"
    )
    parser.add("--measure", None, text, choices=("wall", "cpu", "both", "json", "stats"))
    parser.add_threshold("2%", "default 2%%")
    parser.add_verdict_options()
    parser.add_count("--seed", "of the order of the runs (default: a new one)", (0, 2**63 - 1))
    parser.add("--timeout", "SECONDS", "how long a run may take (no limit)", type=seconds)
    for side in "AB":
        parser.add(f"--cwd-{side.lower()}", FOLDER, f"the folder in which {side} runs")
    for name, whose in (("--env", "both commands"), ("--env-a", "A"), ("--env-b", "B")):
        text = f"a variable of the environment of {whose}; may be repeated"
        parser.add(name, "NAME=VALUE", text, type=variable, action="append", default=[])
    text = "run the commands with /bin/sh -c; without it they are split into words"
    parser.add_flag("--shell", text)


def _report(commands: Commands) -> None:
    about = (
        "Write one HTML page that opens without a network, of files that hold "
        "statistics (Stats.to_json), benchmarks (--gpu-benchmark-json, BenchResult.to_json), "
        "comparisons (CompareResult.to_json, gpuprof compare or ab with --format "
        "json) or histories (gpuprof history --format json)."
    )
    text = "show statistics and benchmarks as one HTML page"
    parser = _added(commands, "report", text, "saved.report", description=about)
    parser.add("files", FILE, "what the page shows", nargs="+")
    text = "the page (default %(default)s); - is the standard output"
    parser.add_argument("-o", "--output", default="report.html", metavar=FILE, help=text)
    parser.add("--title", "TEXT", "the title of the page")


def _saved(commands: Commands) -> None:
    about = (
        "List the saved baselines; with a name or a file, the benchmarks in it: a line "
        "for each of its runs."
    )
    text = "list the saved baselines, or the benchmarks in one"
    parser = _added(commands, "list", text, "saved.listed", description=about)
    text = "name of a saved baseline, or a file as for compare; all baselines if left out"
    parser.add("what", "NAME", text, nargs="?")
    parser.add_format("; the times of csv and json are seconds")
    parser.add_storage()

    about = (
        "Add the run of a file to a saved baseline: of a C++ program "
        "(gpuprof::write_benchmarks), of --gpu-benchmark-json, or of BenchResult.to_json."
    )
    text = "add the run of a file to a baseline"
    parser = _added(commands, "save", text, "saved.save", description=about)
    parser.add("name", "NAME", "name of the baseline, which is made if needed")
    parser.add("file", FILE, "as for compare")
    text = "the version of the code that was measured (default: what the file says)"
    parser.add("--commit", "TEXT", text)
    parser.add_storage()

    about = (
        "Remove runs from a saved baseline, such as one that was disturbed: by their "
        "numbers, as `gpuprof list NAME` shows them, by date, or all of a commit."
    )
    text = "remove single runs from a baseline"
    parser = _added(commands, "drop", text, "saved.drop", description=about)
    parser.add("name", "NAME", "name of a saved baseline")
    text = "a number, or the beginning of a date or of a commit (7 digits or more)"
    parser.add("runs", "RUN", text, nargs="+")
    parser.add("--machine", "KEY", "only runs of this machine, as `gpuprof list` shows it")
    parser.add_storage()

    about = (
        "Show the runs that --gpu-benchmark-save has kept, up to 20 of each benchmark, "
        "in a git ref up to 40, in the order of time, and where a benchmark changed or drifts."
    )
    text = "show the runs of saved benchmarks, and where they changed"
    parser = _added(commands, "history", text, "saved.history", description=about)
    text = "only benchmarks of this name, or that match it: * is any text, ? one character"
    parser.add("name", "NAME", text, nargs="?")
    text = (
        "only runs that were saved under this name; "
        "@autosave for those of --gpu-benchmark-autosave, which are taken together"
    )
    parser.add("--baseline", "NAME", text)
    parser.add_threshold("1%", "default 1%%", default=0.01)
    parser.add("--svg", FILE, "write the plots to a file, as SVG")
    parser.add_format()
    parser.add_storage()

    about = (
        "Fetch the runs that others have saved in a git ref, join them with those "
        "here, and push: no run is lost, whoever saved it. Branches and files stay as they are."
    )
    text = "join saved runs in git with those of a remote"
    parser = _added(commands, "sync", text, "saved.sync", description=about)
    parser.add("remote", "REMOTE", "default %(default)s", nargs="?", default="origin")
    parser.add_storage(GIT_STORE)
