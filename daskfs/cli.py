"""The ``daskfs`` command: parses arguments, calls one function, prints its result.

Results go to stdout, everything else to stderr. Heavy imports wait until a verb needs them, so that ``--help`` is
quick.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from daskfs.errors import DaskfsError, ExitCode

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 usage or job file, 3 bad input or store, 4 cluster, 75 interrupted but resumable."
)
MiB = 2**20
TYPER_INTERRUPTED = 130
"""What typer makes of Ctrl-C."""

app = typer.Typer(
    help="Feature ranking on Dask for data that does not fit one machine.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JobFile = Annotated[str, typer.Argument(metavar="JOB", help="Job file (YAML).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. graph.n_neighbors=10.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="One line for every unit.")]


def _emit(result: Any, as_json: bool, lines: Callable[[Any], list[str]]) -> None:
    text = json.dumps(result, indent=1, default=str) if as_json else "\n".join(lines(result))
    sys.stdout.write(text + "\n")


def _progress(quiet: bool, verbose: bool) -> Any:
    from daskfs.execution.progress import Silent, default_progress

    return Silent() if quiet else default_progress(verbose)


@app.command(epilog=EPILOG)
def run(
    job: JobFile,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete another job's run in output.path first.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Start a job, go on with it, or say that there is nothing to do."""
    from daskfs.job import load_job
    from daskfs.pipeline import run_job

    loaded = load_job(job, overrides or [])
    progress = _progress(quiet, verbose)
    try:
        result = run_job(loaded, progress, overwrite=overwrite, command=shlex.join(["daskfs", *sys.argv[1:]]))
    finally:
        progress.close()
    for warning in result["warnings"]:
        sys.stderr.write(f"daskfs: warning: {warning}.\n")
    _emit(result, as_json, _run_lines)


def _run_lines(result: dict[str, Any]) -> list[str]:
    data = result["data"]
    lines = [
        f"{data['source']}: {data['n_samples']} rows x {data['n_features']} features, {data['n_labelled']} labelled"
    ]
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
    done = sum(result["recomputed"].values())
    lines.append(f"{done} units ran; {result['seconds']:.1f} s in all" if done else "nothing to do")
    return [*lines, f"ranking: {result['ranking']}", f"report:  {result['report']}"]


def _in_rounds(rounds: int | None) -> str:
    return "" if rounds is None else f" in {rounds} rounds"


@app.command(epilog=EPILOG)
def plan(job: JobFile, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show what would run: stages, units, bytes, memory, what is done."""
    from daskfs.job import load_job
    from daskfs.status import plan_job

    _emit(plan_job(load_job(job, overrides or [])), as_json, _plan_lines)


def _plan_lines(result: dict[str, Any]) -> list[str]:
    shape = result["shape"]
    kind = "sparse" if shape["is_sparse"] else "dense"
    width = max(30, *(len(s["stage"]) for s in result["stages"])) + 2
    lines = [
        f"{shape['n_samples']} rows x {shape['n_features']} features, {kind} {shape['dtype']}, "
        f"tiles {shape['tile_rows']} x {shape['tile_columns']}",
        f"{'stage':<{width}}{'units':>8}{'done':>8}{'read MiB':>12}{'write MiB':>12}{'peak MiB':>10}",
    ]
    lines += [
        f"{s['stage']:<{width}}{s['units']:>8}{s['done']:>8}{s['bytes_read'] / MiB:>12.1f}"
        f"{s['bytes_written'] / MiB:>12.1f}{s['peak_bytes'] / MiB:>10.0f}"
        for s in result["stages"]
    ]
    for graph in result["graphs"]:
        parts = "" if graph["n_cells"] is None else f", {graph['n_groups']} groups of rows, {graph['n_cells']} cells"
        lines.append(f"graph {graph['name']}: {graph['engine']}{parts}")
    lines += [
        f"loop {loop['name']}: its {len(loop['stages'])} stages run in turn until every method has settled, "
        f"{_most_rounds(loop['max_rounds'])}; units and bytes above are of one round"
        for loop in result["loops"]
    ]
    limit = result["memory_limit"]
    shown = f"{limit / MiB:.0f} MiB" if limit else "not known before the cluster is"
    lines.append(f"peak {result['peak_bytes'] / MiB:.0f} MiB in a worker; its limit: {shown}")
    return [*lines, f"output: {result['output']}"]


def _most_rounds(max_rounds: int | None) -> str:
    return "in as many rounds as that takes" if max_rounds is None else f"in {max_rounds} rounds at most"


@app.command(epilog=EPILOG)
def status(run_directory: Annotated[str, typer.Argument(metavar="RUN")], as_json: AsJson = False) -> None:
    """Show the stages of a run, units done, and time left."""
    from daskfs.status import run_status

    _emit(run_status(run_directory), as_json, _status_lines)


def _status_lines(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['run']}: {result['status']}"]
    width = max([30, *(len(s["stage"]) for s in result["stages"])]) + 2
    for s in result["stages"]:
        left = "" if not s["seconds_left"] else f", about {s['seconds_left']:.0f} worker seconds left"
        if "rounds" in s:
            reached = f"round {s['rounds'] + 1}" if s["seconds_left"] is None else f"after {s['rounds']} rounds"
            left = f", {reached}"
        lines.append(f"{s['stage']:<{width}}{s['done']:>8} of {s['units']}{left}")
    return lines


@app.command(epilog=EPILOG)
def report(run_directory: Annotated[str, typer.Argument(metavar="RUN")], as_json: AsJson = False) -> None:
    """Write the report of a finished run again and print where it is."""
    from daskfs.status import rewrite_report

    _emit(rewrite_report(run_directory), as_json, lambda result: [result["report"]])


Source = Annotated[str, typer.Argument(metavar="SRC", help="Path, sklearn:NAME or synthetic:...")]
Labels = Annotated[str | None, typer.Option(help="Column, member or path that holds the labels.")]
Weights = Annotated[
    str | None, typer.Option(help="Column, member or path that holds how many rows each row counts for.")
]
Member = Annotated[str | None, typer.Option("--array", help="Member of an .npz or path in a Zarr group that holds X.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Table column that is neither feature nor label nor weight.")]
Task = Annotated[str, typer.Option(help="auto, classification or regression.")]
Names = Annotated[str | None, typer.Option(help="Member or text file with the feature names.")]


def _data_block(
    source: str,
    array: str | None,
    labels: str | None,
    weights: str | None,
    exclude: list[str] | None,
    task: str,
    names: str | None,
) -> Any:
    from daskfs.job import make_data

    return make_data(
        {
            "source": source,
            "array": array,
            "labels": labels,
            "weights": weights,
            "exclude": exclude or [],
            "task": task,
            "feature_names": names,
        }
    )


@app.command(epilog=EPILOG)
def convert(
    source: Source,
    target: Annotated[str, typer.Argument(metavar="DST", help="Directory of the tile store, for example data.zarr.")],
    labels: Labels = None,
    weights: Weights = None,
    array: Member = None,
    exclude: Exclude = None,
    task: Task = "auto",
    feature_names: Names = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0 works in this one.")] = 2,
    memory_limit: Annotated[str | None, typer.Option(help="Of one worker, e.g. 2GiB.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Turn any source into tiles, or finish a conversion that was begun."""
    from daskfs.execution.cluster import ClusterSettings
    from daskfs.job import make_cluster
    from daskfs.pipeline import convert as convert_source
    from daskfs.status import describe_tiles

    data = _data_block(source, array, labels, weights, exclude, task, feature_names)
    cluster = make_cluster({"workers": workers, "memory_limit": memory_limit})
    progress = _progress(quiet, verbose)
    try:
        recomputed = convert_source(data, target, ClusterSettings(**cluster.model_dump()), progress)
    finally:
        progress.close()
    _emit({**describe_tiles(target), "recomputed": recomputed}, as_json, _description_lines)


@app.command(epilog=EPILOG)
def inspect(
    source: Annotated[str, typer.Argument(metavar="STORE", help="A tile store or any source.")],
    labels: Labels = None,
    weights: Weights = None,
    array: Member = None,
    exclude: Exclude = None,
    task: Task = "auto",
    feature_names: Names = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, tiles, labels, weights, missing values and constant features."""
    from daskfs.inspection import inspect_data

    _emit(
        inspect_data(_data_block(source, array, labels, weights, exclude, task, feature_names)),
        as_json,
        _description_lines,
    )


def _description_lines(result: dict[str, Any]) -> list[str]:
    if (weights := result.get("weights")) is not None:
        result = {
            **result,
            "weights": f"{weights['n_counted']} rows count for {weights['total']:g}, each for "
            f"{weights['minimum']:g} to {weights['maximum']:g}",
        }
    return [
        f"{key}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for key, v in result.items() if v is not None
    ]


@app.command(epilog=EPILOG)
def methods(as_json: AsJson = False) -> None:
    """List the criteria, with direction and citation."""
    from daskfs.methods.registry import criteria

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
        }
        for c in criteria().values()
    ]
    _emit(
        {"methods": rows},
        as_json,
        lambda _: [f"{r['name']:<20} {r['direction']:<11} {r['summary']} [{r['citation']}]" for r in rows],
    )


@app.command(epilog=EPILOG)
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of job files."""
    from daskfs.job import json_schema

    del as_json  # it is JSON either way
    sys.stdout.write(json.dumps(json_schema(), indent=1) + "\n")


def main() -> None:
    """Run the command line; expected errors become one line and an exit code."""
    try:
        app(standalone_mode=True)
    except DaskfsError as error:
        notes = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
        _fail(f"{error}{notes}", error.exit_code)
    except OSError as error:
        _fail(str(error), ExitCode.FAILED)
    except SystemExit as stop:
        if stop.code == TYPER_INTERRUPTED:
            _fail("interrupted", ExitCode.INTERRUPTED)
        raise


def _fail(message: str, code: ExitCode) -> NoReturn:
    # names from the data may hold line breaks and terminal escapes
    line = "".join(c if c.isprintable() else " " for c in message)
    sys.stderr.write(f"daskfs: {line}\n")
    sys.exit(int(code))


if __name__ == "__main__":
    main()
