"""The ``daskfs`` command: each verb parses arguments, calls one function and prints its result.

Results go to stdout, everything else to stderr. Heavy imports are inside the verbs, so that ``--help`` is fast.
"""

from __future__ import annotations

import atexit
import errno
import functools
import gc
import inspect as inspect_module
import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from daskfs.errors import DaskfsError, ExitCode, JobError
from daskfs.execution.dask_configuration import explain
from daskfs.execution.signals import end_process_when_stopped
from daskfs.execution.streams import guard_streams
from daskfs.logs import set_log_level
from daskfs.redaction import redact_credentials, strip_control_characters
from daskfs.version import __version__

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 usage or job file, 3 bad input or store, 4 cluster, or output in use, "
    "75 interrupted but resumable."
)
MiB = 2**20
ZARR_SECONDS = 5.0
"""Longest wait for Zarr's thread at the end of the process."""
TYPER_INTERRUPTED = 130
"""Exit code that typer returns for Ctrl-C."""
_OF_PATHS = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors that mean an invalid path."""
_UsageError: Any = typer.BadParameter.__base__
"""Base class of typer's errors for invalid arguments; newer versions do not export it."""

app = typer.Typer(epilog=EPILOG, no_args_is_help=True, pretty_exceptions_enable=False)


JobFile = Annotated[str, typer.Argument(metavar="JOB", help="Job file (YAML).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. graph.n_neighbors=10.")
]
Run = Annotated[str, typer.Argument(metavar="RUN")]
MemoryLimit = Annotated[str | None, typer.Option(help="Of one worker, e.g. 2GiB.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="After an error, print where it happened.")]
Verbose = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, help="Lines for units, graphs and stages; -vv: log, also of workers."),
]


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command of daskfs, with the option ``--traceback``, which :func:`_fail` reads."""

    @functools.wraps(function)
    def called(**options: Any) -> None:
        del options["traceback"]
        function(**options)

    parameters_of_function = inspect_module.signature(function, eval_str=True).parameters.values()
    option = inspect_module.Parameter("traceback", inspect_module.Parameter.KEYWORD_ONLY, default=False)
    parameters = [*parameters_of_function, option.replace(annotation=Traceback)]
    called.__signature__ = inspect_module.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    app.command(epilog=EPILOG)(called)
    return function


def _show_version(is_asked: bool) -> None:  # noqa: FBT001 - called by typer
    if is_asked:
        _print(f"daskfs {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Feature ranking on Dask for data that does not fit one machine."""
    del version  # printed by its callback


def _emit(result: Any, lines: Callable[[Any], list[str]], *, as_json: bool) -> None:
    if as_json:
        _print(json.dumps(result, indent=1, default=str))
    else:
        _print("\n".join(map(strip_control_characters, lines(result))))


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):  # what is left in its buffer would fail again at the end of the process
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(
            f"stdout cannot be written: {error.strerror}. Only what is printed is lost: the run, or what else the "
            "command does, is complete.",
            ExitCode.FAILED,
        )


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        sys.stderr.write(f"daskfs: warning: {strip_control_characters(warning)}.\n")


def _command() -> str:
    """Return the command line without credentials, for the report."""
    return redact_credentials(shlex.join(["daskfs", *sys.argv[1:]]))


def _progress(*, quiet: bool, verbose: int = 0) -> Any:
    from daskfs.execution.progress import Silent, default_progress

    if verbose > 1:
        import dask

        from daskfs.execution.pool import LOG_LEVEL_KEY

        set_log_level("debug")
        dask.config.set({LOG_LEVEL_KEY: "debug"})
    return Silent() if quiet else default_progress(verbose=verbose > 0)


@verb
def run(
    job: JobFile,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete another job's run in output.path first.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Run a job: start it, resume it, or report that nothing is left to do."""
    from daskfs.job.job import load_job

    _run(load_job(job, overrides or []), overwrite=overwrite, quiet=quiet, verbose=verbose, as_json=as_json)


def _run(job: Any, *, overwrite: bool, quiet: bool, verbose: int, as_json: bool) -> None:
    from daskfs.execution.cluster import AUTO
    from daskfs.execution.connection import prepare

    if job.settings.workers != AUTO:
        prepare(job.settings, models=job.evaluate is not None)
    from daskfs.runs.pipeline import run_job

    with closing(_progress(quiet=quiet, verbose=verbose)) as progress:
        result = run_job(job, progress, overwrite=overwrite, command=_command())
    _warn_of_run(result["warnings"], quiet=quiet, verbose=verbose)
    _emit(result, _all_run_lines if verbose else _run_lines, as_json=as_json)


def _warn_of_run(warnings: list[dict[str, Any]], *, quiet: bool, verbose: int) -> None:
    """Print the warnings of a run: all of them if verbose, else those that void or change the result."""
    from daskfs.report.terminal import warning_lines
    from daskfs.run_warning import CHANGES, LEVELS, VOIDS, RunWarning

    levels = LEVELS if verbose else (VOIDS, CHANGES)
    for line in warning_lines(list(map(RunWarning.from_json, warnings)), levels, counted=not quiet):
        sys.stderr.write(f"daskfs: {strip_control_characters(line)}\n")


def _run_lines(result: dict[str, Any]) -> list[str]:
    """Return the verdict, the first features of each method, and where the rest is."""
    from daskfs.report.terminal import best_lines, significance_sentence, verdict_lines

    data, done = result["data"], sum(result["recomputed"].values())
    label_count = "" if data["task"] is None else f", {data['n_labeled']} labeled"
    return [
        *verdict_lines(result.get("verdict"), data["n_features"]),
        *filter(None, [significance_sentence(result.get("significance"))]),
        *best_lines(result.get("best") or ()),
        f"{_from_here(data['source'])}: {data['n_samples']} rows x {data['n_features']} features{label_count}; "
        + (f"{_count(done, 'unit')} ran, {result['seconds']:.1f} s in all" if done else "nothing to do"),
        f"ranking: {_from_here(result['ranking'])}",
        f"report:  {_from_here(result['report'])}",
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _from_here(path: str) -> str:
    """Return a path as it is typed in the working directory; an URL and a path elsewhere as they are."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def _all_run_lines(result: dict[str, Any]) -> list[str]:
    """Return the same after graphs and stages."""
    lines = []
    for graph in result["graphs"]:
        recall = graph["recall"]
        quality = "exact, " if graph["engine"] == "exact" else ""
        if recall is not None:
            quality = f"recall {recall['value']:.3f} on {recall['n_rows']} rows, "
        lines.append(f"graph {graph['name']}: {graph['engine']}, {quality}{graph['n_components']} components")
    lines += [
        f"stage {s['name']}: {s['units']} units{_in_rounds(s['rounds'])}, {s['seconds']:.2f} s, peak "
        f"{s['peak_bytes'] / MiB:.0f} of planned {s['planned_peak_bytes'] / MiB:.0f} MiB"
        for s in result["stages"]
    ]
    lines += [
        f"{what}: {sum(s[f'bytes_{what}'] for s in result['stages']) / MiB:.0f} of planned "
        f"{sum(s[f'planned_bytes_{what}'] for s in result['stages']) / MiB:.0f} MiB"
        for what in ("read", "written")
    ]
    return [*lines, *_run_lines(result)]


def _in_rounds(rounds: int | None) -> str:
    return "" if rounds is None else f" in {rounds} rounds"


@verb
def plan(
    job: JobFile,
    overrides: Overrides = None,
    explain: Annotated[
        str | None, typer.Option(metavar="STAGE", help="List what a unit of STAGE holds at its fullest moment.")
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Show the seconds of each stage instead, from runs over some of the rows."),
    ] = False,
    bandwidth: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="For --estimate: what the storage reads and writes in a second, e.g. 2GB."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show the plan of a job: stages, units, bytes, peak memory, units already done."""
    from daskfs.execution.clusters.blocks import parse_bytes
    from daskfs.job.job import load_job
    from daskfs.runs.estimate import estimate_job
    from daskfs.runs.status import plan_job

    if bandwidth is not None and not estimate:
        msg = "--bandwidth is for --estimate."
        raise typer.BadParameter(msg)
    try:
        bytes_per_second = None if bandwidth is None else parse_bytes(bandwidth)
    except ValueError as error:
        msg = f"--bandwidth: {error}."
        raise typer.BadParameter(msg) from error
    checked_job = load_job(job, overrides or [])
    if estimate:
        with closing(_progress(quiet=quiet)) as progress:
            result = estimate_job(checked_job, bytes_per_second, progress)
    else:
        result = plan_job(checked_job)
    if explain is None:
        _emit(result, _plan_lines, as_json=as_json)
        return
    stages = {stage["stage"]: stage for stage in result["stages"]}
    if explain not in stages:
        msg = f"no stage '{explain}' in this plan; stages: {', '.join(stages)}."
        raise typer.BadParameter(msg)
    _emit(stages[explain], _explanation_lines, as_json=as_json)


def _explanation_lines(stage: dict[str, Any]) -> list[str]:
    if not stage["cost"]:
        return [f"{stage['stage']} was planned by an older daskfs, which did not note what its units hold"]
    lines = [f"{item['bytes'] / MiB:>12.1f} MiB  {item['held']}" for item in stage["cost"] if item["bytes"]]
    return [*lines, f"{stage['peak_bytes'] / MiB:>12.1f} MiB  peak of each unit of {stage['stage']}"]


def _plan_lines(result: dict[str, Any]) -> list[str]:
    shape = result["shape"]
    kind = "sparse" if shape["is_sparse"] else "dense"
    lines = [
        f"{shape['n_samples']} rows x {shape['n_features']} features, {kind} {shape['dtype']}, "
        f"tiles {shape['tile_rows']} x {shape['tile_columns']}",
        *_stage_lines(result["stages"], is_estimated="estimate" in result),
    ]
    if "estimate" in result:
        lines.append(_estimate_line(result["estimate"], shape))
    for graph in result["graphs"]:
        parts = "" if graph["n_cells"] is None else f", {graph['n_groups']} groups of rows, {graph['n_cells']} cells"
        lines.append(f"graph {graph['name']}: {graph['engine']}{parts}")
    eliminating = {elimination["loop"] for elimination in result["eliminations"]}
    lines += [
        f"loop {loop['name']}: its {len(loop['stages'])} stages run in turn until every method has settled, "
        f"{_most_rounds(loop['max_rounds'])}{_all_rounds(loop) if loop['name'] in eliminating else ''}; units and "
        "bytes above are of one round"
        for loop in result["loops"]
    ]
    lines += [_elimination_line(elimination) for elimination in result["eliminations"]]
    if result["eliminations"] and not result["labels_counted"]:
        lines.append("labels are counted with the tiles: until then, routes are as if every row had one")
    lines += [f"note: {note}" for note in (result["note"], *result["notes"]) if note is not None]
    if result["batches"] is not None and not result["batches"]:
        lines.append("batches are known, and planned, when the tiles are there")
    for name, batch in (result["batches"] or {}).items():
        n_left = sum(stage["units"] - stage["done"] for stage in batch["stages"])
        size = f"{batch['shape']['n_samples']} rows"
        lines.append(
            f"batch {name}: {size}, {_count(n_left, 'unit')} to run, reads {batch['bytes_read'] / MiB:.1f} MiB"
        )
    limit = result["memory_limit"]
    limit_text = f"{limit / MiB:.0f} MiB" if limit else "not known before the cluster is"
    if result["memory"]:
        limit_text += f"; in all there are {result['memory']}"
    lines.append(f"peak {result['peak_bytes'] / MiB:.0f} MiB in a worker; its limit: {limit_text}")
    lines.append(f"on disk: at most {result['bytes_at_once'] / MiB:.1f} MiB at a time, before compression")
    return [*lines, f"output: {result['output']}"]


def _stage_lines(stages: list[dict[str, Any]], *, is_estimated: bool) -> list[str]:
    """Return a table of the stages: units and seconds if these are estimated, else units, bytes and peak memory."""
    width = max(30, *(len(s["stage"]) for s in stages)) + 2
    if is_estimated:
        return [
            f"{'stage':<{width}}{'units':>8}{'seconds':>11}{'each':>10}  bound by",
            *(
                f"{s['stage']:<{width}}{s['units']:>8} {s['seconds']:>10.1f} {s['unit_seconds']:>9.2f}  {s['bound']}"
                for s in stages
            ),
        ]
    return [
        f"{'stage':<{width}}{'units':>8}{'done':>8}{'read MiB':>12}{'write MiB':>12}{'peak MiB':>10}",
        *(
            f"{s['stage']:<{width}}{s['units']:>8} {s['done']:>7} {s['bytes_read'] / MiB:>11.1f} "
            f"{s['bytes_written'] / MiB:>11.1f} {s['peak_bytes'] / MiB:>9.0f}"
            for s in stages
        ),
    ]


def _estimate_line(estimate: dict[str, Any], shape: dict[str, Any]) -> str:
    from daskfs.report.values import format_seconds

    n_workers, n_threads, limit = (estimate[key] for key in ("workers", "threads", "bandwidth"))
    where = _count(n_workers, "worker") if n_workers else "one process"
    threads = "" if n_threads == 1 else f" of {_count(n_threads, 'thread')}"
    storage = "storage as fast as here" if limit is None else f"storage of {limit / MiB:,.0f} MiB/s"
    return (
        f"estimate: {format_seconds(estimate['seconds'])} with {where}{threads}, {storage}; measured here on "
        f"{estimate['rows']:,} of {shape['n_samples']:,} rows"
    )


def _elimination_line(elimination: dict[str, Any]) -> str:
    if elimination["route"] == "exact":
        how = f"exact route, machines with a kernel of {elimination['n_rows']} rows"
    else:
        how = f"landmark route, sums over {elimination['n_landmarks']} landmarks in one pass over X a round"
    return f"method {elimination['method']}: {how}, {_most_rounds(elimination['max_rounds'])}"


def _all_rounds(loop: dict[str, Any]) -> str:
    read_mib, written_mib = (loop["max_rounds"] * loop[key] / MiB for key in ("bytes_read", "bytes_written"))
    return f", which read {read_mib:.1f} MiB and write {written_mib:.1f} MiB in all"


def _most_rounds(max_rounds: int | None) -> str:
    return "in as many rounds as that takes" if max_rounds is None else f"in {max_rounds} rounds at most"


@verb
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="STUDY | RUN...", help="A study file, or finished runs.")],
    output: Annotated[str | None, typer.Option(help="Of a comparison of runs: its directory or URL.")] = None,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete other jobs' runs in the study's directories first.")
    ] = False,
    only_plan: Annotated[bool, typer.Option("--plan", help="Show what a study would run, and run nothing.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Run or resume methods over several data sets and rank them over all; or compare finished runs."""
    from daskfs.storage import as_path

    if output is not None or not as_path(paths[0]).is_file():
        comparison = _compared_runs(paths, output, overrides, of_study=overwrite or only_plan)
        _emit(comparison, _comparison_lines, as_json=as_json)
        return
    from daskfs.runs.benchmark import load_study, plan_study, run_study

    if len(paths) > 1:
        msg = f"{paths[0]} is a study file, and a comparison is of one: leave out {paths[1]}."
        raise JobError(msg)
    study = load_study(paths[0], overrides or [])
    if only_plan:
        _emit(plan_study(study), _study_plan_lines, as_json=as_json)
        return
    with closing(_progress(quiet=quiet, verbose=verbose)) as progress:
        result = run_study(study, progress, overwrite=overwrite, command=_command())
    _warn(result["warnings"])
    _emit(result, _comparison_lines, as_json=as_json)


def _compared_runs(
    paths: list[str], output: str | None, overrides: list[str] | None, *, of_study: bool
) -> dict[str, Any]:
    """Compare finished runs, with the keys below `compare` that overrides set."""
    from daskfs.job.keys import override_keys
    from daskfs.runs.comparison import compare_runs

    if output is None:
        msg = f"{paths[0]} is no study file; to compare finished runs, name a directory with --output."
        raise JobError(msg)
    if of_study:
        msg = "--overwrite and --plan are for studies; a comparison of finished runs takes neither."
        raise JobError(msg)
    raw = override_keys({}, overrides or [])
    if others := [key for key in raw if key != "compare"]:
        msg = f"--set {others[0]}: a comparison of runs has the keys compare.model, .metric, .n_selected and .setting."
        raise JobError(msg)
    return compare_runs(paths, output, compare_by=raw.get("compare"))


def _comparison_lines(result: dict[str, Any]) -> list[str]:
    from daskfs.report.comparison_view import format_p

    lines = [
        f"{one['name']}: {one['n_samples']} rows x {one['n_features']} features, best by {one['metric']} of "
        f"{one['model']}: {one['best']}"
        for one in result["data_sets"]
    ]
    lines += [f"average rank {row['average_rank']:.2f}: {row['method']}" for row in result["average_ranks"]]
    if (friedman := result["friedman"]) is not None:
        lines.append(f"Friedman: p = {format_p(friedman['p_chi_square'])}")
        lines.append(f"Iman and Davenport: p = {format_p(friedman['p_f'])}")
        lines.append(f"ranks that are {result['critical_difference']:.2f} apart differ (Nemenyi, 5 %)")
    lines += [f"note: {note}" for note in result["notes"]]
    if "recomputed" in result:
        done = sum(sum(counts.values()) for counts in result["recomputed"].values())
        lines.append(f"{_count(done, 'unit')} ran; {result['wall_seconds']:.1f} s" if done else "nothing to do")
    return [*lines, f"page: {_from_here(result['page'])}"]


def _study_plan_lines(result: dict[str, Any]) -> list[str]:
    lines = []
    for name, run_plan in result["data_sets"].items():
        lines += [f"data set {name}", *_plan_lines(run_plan), *(f"note: {note}" for note in run_plan["notes"]), ""]
    peak = result["peak_bytes"] / MiB
    return [*lines, f"{result['units']} units in all, peak {peak:.0f} MiB in a worker", f"output: {result['output']}"]


@verb
def status(
    run: Annotated[str, typer.Argument(metavar="RUN | JOB", help="Directory or URL of a run, or its job file.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show the stages of a run, units done, and time left; the exit code is 0 for a failed or killed run, too."""
    from daskfs.runs.status import run_status
    from daskfs.sources import JOB_ENDINGS

    if overrides or Path(run).suffix in JOB_ENDINGS:
        from daskfs.job.job import load_job

        run = load_job(run, overrides or []).output.path
    _emit(run_status(run), _status_lines, as_json=as_json)


def _status_lines(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['run']}: {result['state']}"]
    lines += [] if result["error"] is None else [result["error"]]
    width = max([30, *(len(s["stage"]) for s in result["stages"])]) + 2
    for s in result["stages"]:
        remaining = "" if not s["seconds_left"] else f", about {s['seconds_left']:.0f} worker seconds left"
        if "rounds" in s:
            round_text = f"round {s['rounds'] + 1}" if s["seconds_left"] is None else f"after {s['rounds']} rounds"
            remaining = f", {round_text}"
        lines.append(f"{s['stage']:<{width}}{s['done']:>8} of {s['units']}{remaining}")
    for worker, units in result["workers"].items():
        lines.append(f"{worker}: {', '.join('unit {unit} of {stage}'.format(**one) for one in units)}")
    lines += [
        f"unit {slow['unit']} of stage {slow['stage']} has been running at {slow['worker']} since {slow['since']}"
        for slow in result["slow"]
    ]
    if (slowest := result["slowest"]) is not None:
        lines.append("slowest unit so far: {unit} of {stage}, {seconds:.1f} s".format(**slowest))
    lines += [f"{_count(len(result['retries']), 'retry')}, the last: {one['text']}" for one in result["retries"][-1:]]
    lines += [f"failure: {one['file']}" for one in result["failures"] if one.get("file")]
    for name, batch in result["batches"].items():
        done, units = (sum(s[key] for s in batch["stages"]) for key in ("done", "units"))
        lines.append(f"{'batch ' + name:<{width}}{done:>8} of {units}, {batch['status']}")
    return lines


@verb
def unit(
    run_directory: Run,
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="Name of a stage, as 'daskfs status' lists it.")],
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the unit, from 0.")],
    pdb: Annotated[bool, typer.Option("--pdb", help="Where it fails, start the debugger.")] = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Run one unit of a run again in this process, to see where it fails; the run stays as it is."""
    from daskfs.runs.one_unit import run_unit
    from daskfs.stages.failures import traceback_of

    with closing(_progress(quiet=True, verbose=verbose)):
        try:
            facts = run_unit(run_directory, stage, number)
        except Exception as error:
            if not isinstance(error, JobError):
                sys.stderr.write(traceback_of(error))
            if pdb:
                import pdb as debugger

                debugger.post_mortem(_first_cause(error).__traceback__)
            raise
    _emit(facts, lambda one: [f"unit {number} of stage {stage} is done: {one['seconds']:.2f} s"], as_json=as_json)


def _first_cause(error: BaseException) -> BaseException:
    return error if error.__cause__ is None else _first_cause(error.__cause__)


@verb
def report(run_directory: Run, as_json: AsJson = False) -> None:
    """Write the report of a finished run again and print its path."""
    from daskfs.runs.status import rewrite_report

    _emit(rewrite_report(run_directory), lambda result: [_from_here(result["report"])], as_json=as_json)


@verb
def verify(
    directory: Annotated[
        str, typer.Argument(metavar="RUN | TILES", help="Directory or URL of a run, or of a tile store.")
    ],
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete what is damaged, so that 'run' or 'convert' makes it again.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Files read at a time; default: one for each core, and 16 of a store.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Check every file of a run or of a tile store against its checksum; changes nothing without --remove."""
    from daskfs.errors import StoreError
    from daskfs.runs.verification import verify_run

    with closing(_progress(quiet=quiet)) as progress:
        result = verify_run(directory, remove=remove, threads=threads, progress=progress)
    _emit(result, _verified_lines, as_json=as_json)
    if result["problems"]:
        raise StoreError(_verdict(result))


def _verified_lines(result: dict[str, Any]) -> list[str]:
    lines = [f"{problem['path']}: {problem['problem']}{_of_unit(problem)}" for problem in result["problems"]]
    lines += [f"left over: {path}" for path in result["left_over"]]
    if (more := result["n_left_over"] - len(result["left_over"])) > 0:
        lines.append(f"left over: {more} more files")
    lines += [f"note: {note}" for note in result["notes"]]
    if result["not_done"]:
        lines.append(f"not done yet: {result['not_done']} units")
    counts = result["checked"]
    return [
        *lines,
        f"checked {counts['records']} records, {counts['chunks']} chunks, {counts['objects']} other files, "
        f"{counts['bytes'] / MiB:.0f} MiB",
    ]


def _of_unit(problem: dict[str, Any]) -> str:
    return "" if problem["stage"] is None else f" (unit {problem['unit']} of stage {problem['stage']})"


def _verdict(result: dict[str, Any]) -> str:
    number = len(result["problems"])
    what = f"{_count(number, 'problem')} in {result['run']}"
    if result["removed"]:
        files = _count(result["removed"], "damaged file")
        return f"{what}; deleted {files}: the same run or convert makes what is missing again."
    return f"{what}: what is damaged can be deleted with --remove, and the same run or convert makes it again."


SOURCE_HELP = "Path, pattern of parts, sklearn:NAME or synthetic:..."
Source = Annotated[str, typer.Argument(metavar="SRC", help=SOURCE_HELP)]
NO_OPTIONS = {"source", "only_batch", "max_samples", "append", "image_shape", "image_order", "feature_axis"}
"""Keys of ``data`` that no verb takes as an option: they come by ``--set``, or as the argument."""
METAVARS = {"dims": "ROWS COLUMNS", "delimiter": "CHARACTER", "decimal": "CHARACTER"}


def _data_options() -> list[inspect_module.Parameter]:
    """Return an option for each other key of ``data``, named and described as the key is.

    The block checks the values: here most are text, and a key with a list may be there any number of times.
    """
    from daskfs.data_block import DataBlock

    parameters = []
    for name, key in DataBlock.model_fields.items():
        if name in NO_OPTIONS:
            continue
        kind: Any = bool if key.annotation is bool else list[str] if key.default == () else str
        if (two_words := tuple[str, str]) in get_args(key.annotation):
            kind = two_words
        text = f"{str(key.description).partition('. ')[0].removesuffix('.')}."
        option = typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=METAVARS.get(name))
        default = False if kind is bool else None
        kind = kind if kind is bool else kind | None
        position = inspect_module.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect_module.Parameter(name, position, default=default, annotation=Annotated[kind, option]))
    return parameters


def with_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``data``, in the place of its parameter `data`, a dictionary."""
    options_of_data = _data_options()

    @functools.wraps(command)
    def called(**options: Any) -> None:
        data = {one.name: value for one in options_of_data if (value := options.pop(one.name)) not in (None, [], False)}
        command(data=data, **options)

    parameters = []
    for parameter in inspect_module.signature(command, eval_str=True).parameters.values():
        parameters += options_of_data if parameter.name == "data" else [parameter]
    called.__signature__ = inspect_module.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


@verb
@with_data
def convert(
    source: Source,
    target: Annotated[
        str, typer.Argument(metavar="DST", help="Directory or URL of the tile store, for example data.zarr.")
    ],
    data: Any = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0 works in this one.")] = 2,
    memory_limit: MemoryLimit = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Convert any source into tiles, or resume an interrupted conversion."""
    from daskfs.job.job import make_cluster, make_data
    from daskfs.runs.conversion import convert as convert_source
    from daskfs.runs.status import describe_tiles

    cluster = make_cluster({"workers": workers, "memory_limit": memory_limit})
    warnings: list[str] = []
    with closing(_progress(quiet=quiet, verbose=verbose)) as progress:
        counts = convert_source(make_data({"source": source, **data}), target, cluster, progress, warnings)
    _warn(warnings)
    _emit({**describe_tiles(target), "recomputed": counts}, _description_lines, as_json=as_json)


Methods = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Criteria; by default some that the labels allow.")
]


@verb
@with_data
def rank(
    source: Source,
    data: Any = None,
    methods: Methods = None,
    n_features: Annotated[int | None, typer.Option(help="How many features are selected; by default half.")] = None,
    fdr: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Instead: those that are more than chance, at this false discovery rate."),
    ] = None,
    redundancy: Annotated[
        float | None, typer.Option(help="Pass over features that are correlated with a better one above this.")
    ] = None,
    evaluate: Annotated[
        str | None, typer.Option(metavar="YAML", help="Keys of the evaluation, such as '{n_splits: 3}'; null: none.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Of AnnData: layer that holds X.")] = None,
    output: Annotated[str | None, typer.Option(help="Directory of the run; by default runs/NAME.")] = None,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete another job's run in the directory first.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Rank the features of a source without a job file, by methods for its labels; 'init' prints the job."""
    from daskfs.job.job import make_job

    overrides = [*(f"evaluate={one}" for one in [evaluate] if one is not None), *(overrides or ())]
    data |= {} if layer is None else {"array": f"layers/{layer}"}
    proposal = _proposal(source, data, methods, overrides, n_features, fdr, redundancy, output)
    _run(make_job(proposal.job), overwrite=overwrite, quiet=quiet, verbose=verbose, as_json=as_json)


@verb
@with_data
def init(
    source: Annotated[str | None, typer.Argument(metavar="SRC", help=SOURCE_HELP)] = None,
    data: Any = None,
    methods: Methods = None,
    overrides: Overrides = None,
    example: Annotated[
        str | None, typer.Option(metavar="NAME", help="Instead of a source: an example job, such as digits.")
    ] = None,
) -> None:
    """Print a commented job for a source, or an example job, to edit and run."""
    if example is not None:
        from daskfs.job.examples import example_job

        if (source, data, methods, overrides) != (None, {}, None, None):
            msg = "--example prints a job as it is shipped; leave out the source and other options."
            raise JobError(msg)
        _print(example_job(example).removesuffix("\n"))
        return
    if source is None:
        msg = "name a source, or an example with --example NAME."
        raise JobError(msg)
    from daskfs.runs.proposal import commented

    _print(commented(_proposal(source, data, methods, overrides, fills=True)).removesuffix("\n"))


def _proposal(
    source: str,
    data: dict[str, Any],
    methods: str | None,
    overrides: list[str] | None,
    *selection: Any,
    fills: bool = False,
) -> Any:
    from daskfs.job.keys import override_keys
    from daskfs.runs.proposal import propose_job

    names = [name.strip() for name in (methods or "").split(",") if name.strip()]
    keys = dict(zip(("n_features", "fdr", "redundancy", "output"), selection, strict=False))
    # with all that says how to open the source
    keys_of_data = override_keys({"data": dict(data)}, overrides or ())["data"]
    proposal = propose_job(source, methods=names, data=keys_of_data, fills=fills, **keys)
    override_keys(proposal.job, overrides or ())
    return proposal


@verb
@with_data
def inspect(
    source: Annotated[str, typer.Argument(metavar="STORE", help="A tile store or any source.")],
    data: Any = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, tiles, labels, weights, groups, times, batches, row names, missing values, constant features."""
    from daskfs.job.job import make_data
    from daskfs.runs.inspection import inspect_data, needed_keys

    description = inspect_data(make_data({"source": source, **data}))
    if "problem" not in description:
        options = {**data, **needed_keys(description), **data}  # what is named comes first, and counts
        words = [word for key, value in options.items() for word in _words(key, value)]
        description["next"] = shlex.join(["daskfs", "rank", source, *words])
    _emit(description, _description_lines, as_json=as_json)


def _words(key: str, value: Any) -> list[str]:
    """Return the option of a key of ``data`` and its value; a list is given by one option for each entry."""
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, list):
        return [f"{flag}={entry}" for entry in value]
    return [flag] if value is True else [flag, *value] if isinstance(value, tuple) else [f"{flag}={value}"]


def _description_lines(result: dict[str, Any]) -> list[str]:
    texts = {key: tell(result[key]) for key, tell in _TOLD.items() if result.get(key) is not None}
    tables, after = {key: result.get(key) or [] for key in ("members", "columns")}, result.get("next")
    lines = [
        f"{key}: {', '.join(map(str, v)) if isinstance(v, list) else v}"
        for key, v in {**result, **texts}.items()
        if v not in (None, [], {}) and key not in (*tables, "next")
    ]
    lines += [line for key, rows in tables.items() if rows for line in _table_lines(key, rows)]
    return [*lines, f"next: {after}"] if after else lines


SHOWN_COLUMNS = 40
"""Columns of a source that are listed, before those that look like features are counted only."""


def _table_lines(title: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return dictionaries as lines of a table, without most of many that look like features."""
    shown_rows = rows
    if len(rows) > SHOWN_COLUMNS:
        others = [row for row in rows if row.get("looks_like") != "feature"]
        shown_rows = [*others, *[row for row in rows if row.get("looks_like") == "feature"]][
            : max(SHOWN_COLUMNS, len(others))
        ]
        shown_rows.sort(key=rows.index)
    keys = list(dict.fromkeys(key for row in shown_rows for key in row))
    cells = [keys, *([_cell(row.get(key, "")) for key in keys] for row in shown_rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    more = len(rows) - len(shown_rows)
    return [f"{title}:", *(f"  {line}" for line in lines), *([f"  and {more:,} more"] if more else [])]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(f"{size:,}" for size in value)
    return "many" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


_TOLD: dict[str, Callable[[Any], str | list[str]]] = {
    "weights": lambda w: (
        f"{w['n_counted']} rows count for {w['total']:g}, each for {w['minimum']:g} to {w['maximum']:g}"
    ),
    "groups": lambda g: f"{g['n_groups']}, each of {g['smallest']} to {g['largest']} rows",
    "times": lambda t: f"{t['n_distinct'] or 'many'} different ones, from {t['first']} to {t['last']}",
    "batch": lambda b: [f"{name} ({rows} rows)" for name, rows in zip(b["names"], b["rows"], strict=True)],
    "row_names": lambda names: f"{', '.join(names['first'])}, ...",
    "duplicate": lambda groups: [" = ".join(names) for names in groups],
}


@verb
def export(
    run_directory: Run,
    out: Annotated[str | None, typer.Argument(metavar="[OUT]", help="File, directory or URL to write.")] = None,
    to: Annotated[
        str | None,
        typer.Option(help="anndata, zarr, parquet, npz, or with --data tiles; default: what the ending of OUT says."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Write the data: all rows of the features that this method selected."),
    ] = None,
    n_features: Annotated[int | None, typer.Option(min=1, help="With --data: so many of its best features.")] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead of OUT: an AnnData file of yours, to whose var columns are added."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at OUT.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Of --to tiles: worker processes; 0 works in this one.")] = 0,
    memory_limit: MemoryLimit = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Export rankings, or the data with only the selected features, to another format."""
    from daskfs.export.api import export_into, export_run
    from daskfs.job.job import make_cluster

    if (out is None) == (into is None):
        msg = "export writes OUT, or adds to a file by --into: name one of them."
        raise JobError(msg)
    if into is not None:
        if to or data or n_features or overwrite:
            msg = "--into takes none of --to, --data, --n-features and --overwrite."
            raise JobError(msg)
        _emit(export_into(run_directory, into), _exported_lines, as_json=as_json)
        return
    assert out is not None
    settings = make_cluster({"workers": workers, "memory_limit": memory_limit})
    kind: Any = to  # checked by export_run
    with closing(_progress(quiet=quiet, verbose=verbose)) as progress:
        result = export_run(
            run_directory,
            out,
            to=kind,
            data=data,
            n_features=n_features,
            overwrite=overwrite,
            cluster=settings,
            progress=progress,
        )
    _emit(result, _exported_lines, as_json=as_json)


def _exported_lines(result: dict[str, Any]) -> list[str]:
    rows = f"{result['n_samples']} rows x " if result.get("n_samples") else ""
    return [
        f"{rows}{result['n_features']} features, methods {', '.join(result['methods'])}",
        _from_here(result["path"]),
    ]


@verb
def methods(as_json: AsJson = False) -> None:
    """List the criteria, those of other packages last, with direction and citation."""
    from daskfs.criteria.registry import installed_criteria

    rows = [
        {
            "name": c.name,
            "direction": c.direction,
            "tasks": list(c.tasks),
            "needs_labels": c.needs_labels,
            "uses_graph": c.uses_graph,
            "parameters": {key: c.parameters.model_fields[key].default for key in c.parameters.public_fields()},
            "summary": c.summary,
            "citation": c.citation,
            "package": c.package or None,
        }
        for c in installed_criteria().values()
    ]
    _emit(
        {"methods": rows},
        lambda _: [f"{r['name']:<20} {r['direction']:<11} {r['summary']} [{r['citation']}]" for r in rows],
        as_json=as_json,
    )


@verb
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of job files."""
    from daskfs.job.schema import json_schema

    del as_json  # it is JSON either way
    _print(json.dumps(json_schema(), indent=1))


def main() -> None:
    """Run the ``daskfs`` program in this process."""
    gc.set_threshold(5_000)  # imports make many objects and few cycles: collecting took a tenth of a small run
    atexit.register(_finalize)
    end_process_when_stopped()
    messages = guard_streams()
    try:
        run_command_line()
    finally:
        messages.tell_lost()
        _end_zarr()


def _end_zarr() -> None:
    """End Zarr's thread of reads and writes: Zarr itself waits .2 s for it, and then prints a traceback."""
    sync: Any = sys.modules.get("zarr.core.sync")
    if sync is not None and sync.loop[0] is not None:
        sync.loop[0].call_soon_threadsafe(sync.loop[0].stop)
        sync.iothread[0].join(ZARR_SECONDS)
        if sync.iothread[0].is_alive():
            atexit.unregister(sync.cleanup_resources)


def _finalize() -> None:
    """Collect garbage once before the process ends; the interpreter would collect several times."""
    gc.collect()
    gc.freeze()


def run_command_line() -> NoReturn:
    """Run the command line; print an expected error as one line and exit with its code."""
    try:
        code = app(standalone_mode=len(sys.argv) == 1)  # without arguments it prints the help
    except _UsageError as error:
        command = f"{error.ctx.command_path} " if error.ctx else "daskfs "
        _fail(f"{error.format_message().rstrip('.')}. '{command}--help' lists what there is.", ExitCode.USAGE)
    except DaskfsError as error:
        from daskfs.stages.failures import described

        _fail(described(error), error.exit_code, error)
    except OSError as error:
        if error.errno in _OF_PATHS and error.filename is not None:
            _fail(f"{str(error.filename)[:200]} cannot be used: {error.strerror}.", ExitCode.INPUT, error)
        if "temporary directory" in str(error):  # of tempfile
            _fail("no directory for temporary files can be written here: name one by TMPDIR.", ExitCode.USAGE)
        _fail(f"{error.filename}: {error.strerror}." if error.filename else str(error), ExitCode.FAILED, error)
    except Exception as error:  # noqa: BLE001 - nothing but a message reaches a user
        from daskfs.stages.failures import described

        message, code = explain(error), ExitCode.USAGE
        if message is None:
            message, code = f"{described(error)}; the option --traceback shows where.", ExitCode.FAILED
        _fail(message, code, error)
    if code == TYPER_INTERRUPTED:
        _fail("interrupted", ExitCode.INTERRUPTED)
    sys.exit(code)


def _fail(message: str, code: ExitCode, error: BaseException | None = None) -> NoReturn:
    if error is not None and "--traceback" in sys.argv[1:]:
        from daskfs.stages.failures import traceback_of

        sys.stderr.write(traceback_of(error))
    sys.stderr.write(f"daskfs: {strip_control_characters(redact_credentials(message))}\n")
    sys.exit(int(code))


if __name__ == "__main__":
    main()
