"""Runs from Python: one call for a job, and one object for what it left behind."""

from __future__ import annotations

import html
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Literal

import dask
import numpy as np

from daskfs.errors import InputError, JobError, first_few, nearest
from daskfs.estimators.opening import ANOTHER_OUTPUT, as_source, matrix_at_hand, names_of, not_resumed, open_client
from daskfs.execution.clusters.blocks import ClusterBlock
from daskfs.export.anndata_file import add_columns
from daskfs.export.collect import KEY, LABELS_SHOWN, RunContents, chosen_features, read_run
from daskfs.graph.knn import KNNGraph
from daskfs.graph.precomputed import NeighborLists
from daskfs.graph.precomputed_files import open_graph
from daskfs.job.job import Job, load_job, make_job
from daskfs.ranking.tables import read_parquet
from daskfs.report.evaluation_view import panel_plot, stability_plot
from daskfs.report.model import MethodReport, Report
from daskfs.report.plots import Plot, small_plot
from daskfs.report.summary import report_summary
from daskfs.report.terminal import (
    best_lines,
    method_heading,
    significance_sentence,
    verdict_html,
    verdict_lines,
    warning_lines,
)
from daskfs.report.values import plain
from daskfs.report.view import agreement_plot, along_plot, first_plot, image_plot, scores_plot
from daskfs.run_warning import RunWarning
from daskfs.runs.manifest import open_finished, read_manifest, with_paths
from daskfs.runs.pipeline import run_job
from daskfs.sources.values import is_of
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.store.subset import lazy_columns

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client
    from matplotlib.axes import Axes


class ScratchDirectory:
    """Temporary directory `path`, deleted with this object, as meant: a ``TemporaryDirectory`` would warn of that."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="daskfs-", dir=dask.config.get("temporary-directory", None)))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class RunResult(Mapping[str, Any]):
    """Result of a finished run: the content of ``run.json`` as a mapping, and its tables as frames of pandas.

    Tables are read from the directory of the run when they are first asked for.

    Parameters
    ----------
    facts
        Content of ``run.json``; from :func:`run` also ``recomputed``, the number of units that the call ran, by stage.
    url
        Directory or URL of the run.
    folder
        Temporary directory that holds the run, and is deleted with this object; None for a run that is kept.

    Attributes
    ----------
    url : str
        Directory or URL of the run.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import daskfs
    >>> job = {"data": {"source": "sklearn:iris"}, "methods": ["VarianceScore"], "evaluate": None}
    >>> with TemporaryDirectory() as folder:
    ...     result = daskfs.run({**job, "output": {"path": f"{folder}/iris"}})
    ...     result["data"]["n_samples"], result.methods, result.selected(n=2), len(result.ranking)
    (150, ['VarianceScore'], ['petal length (cm)', 'sepal length (cm)'], 4)
    """

    def __init__(self, facts: Mapping[str, Any], url: str, folder: ScratchDirectory | None = None) -> None:
        self._facts, self.url, self._folder = dict(facts), url, folder

    def __getitem__(self, key: str) -> Any:
        return self._facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    # ------------------------------------------------------------------------------------------------------- facts
    @property
    def methods(self) -> list[str]:
        """Labels of the methods."""
        return [method["label"] for method in self["methods"]]

    @property
    def verdict(self) -> dict[str, Any] | None:
        """Best method and number of features, as :func:`daskfs.evaluation.verdict.verdict_of` returns it."""
        return self["verdict"]

    @property
    def best(self) -> str | None:
        """Label of the method of the verdict, or of the only method; None without either."""
        if self.verdict is not None:
            return str(self.verdict["method"])
        return self.methods[0] if len(self.methods) == 1 else None

    @property
    def warnings(self) -> list[RunWarning]:
        """Warnings of the run, those that matter most first; ``str`` of one is its sentence."""
        return [RunWarning.from_json(warning) for warning in self["warnings"]]

    @property
    def report(self) -> str:
        """Path or URL of the report."""
        return str(self["report"])

    # ------------------------------------------------------------------------------------------------------ tables
    @cached_property
    def ranking(self) -> pd.DataFrame:
        """Table ``ranking.parquet``: method, rank, feature, name, score, note; a row for each method and feature."""
        return self._table(layout.RANKING_PARQUET)

    @cached_property
    def evaluation(self) -> pd.DataFrame:
        """Table ``evaluation.parquet``: a row for each value; without rows if nothing was evaluated."""
        return self._table(layout.TABLE_PARQUET.format("evaluation"))

    @cached_property
    def evaluation_summary(self) -> pd.DataFrame:
        """Table ``evaluation_summary.parquet``: means and intervals; without rows if nothing was evaluated."""
        return self._table(layout.TABLE_PARQUET.format("evaluation_summary"))

    def selected(self, method: str | None = None, n: int | None = None) -> list[str]:
        """Return the names of the features that a method selected, best first.

        Parameters
        ----------
        method
            Label of the method; by default :attr:`best`.
        n
            Number of features; by default that of the verdict for its method, else that of the job.

        Raises
        ------
        JobError
            For a label that no method has, or more features than the method may select.
        """
        return [self._contents.names[feature] for feature in self._first_features(method, n)]

    def data(self, method: str | None = None, n: int | None = None) -> tuple[Any, list[str]]:
        """Return the columns of X that a method selected, and their names, best first.

        Parameters
        ----------
        method, n
            As for :meth:`selected`.

        Returns
        -------
        X : dask.array.Array
            Shape (n_samples, n), of the dtype of the tiles, in chunks of rows, dense or CSR; missing values are NaN
            again. It reads the tiles as it is computed, so the directory of the run has to be there.
        names : list of str
            Names of the columns.

        Raises
        ------
        JobError
            As for :meth:`selected`.
        InputError
            For a run in a temporary directory.
        """
        if self._folder is not None:
            msg = "the run lies in a temporary directory, which is deleted with this result: pass output=."
            raise InputError(msg)
        columns = self._first_features(method, n)
        return lazy_columns(self._contents.tiles.store.url, columns), self.selected(method, n)

    def _first_features(self, method: str | None, n: int | None) -> np.ndarray:
        label = self.best if method is None else method
        if label is None:
            msg = f"name a method: the run has {first_few(self.methods, LABELS_SHOWN)}."
            raise JobError(msg)
        if method is None and n is None and self.verdict is not None:
            n = int(self.verdict["n_selected"])
        return chosen_features(self._contents, label, n)

    @property
    def graph(self) -> KNNGraph | None:
        """Neighbor lists that the run searched, None without any; :class:`InputError` if it has several."""
        if not self["graphs"]:
            return None
        lists = open_graph(self.url)
        assert isinstance(lists, NeighborLists)
        recall = next((graph["recall"]["value"] for graph in self["graphs"] if graph["recall"]), None)
        indices = np.asarray(lists.indices[...], dtype=np.int64)
        return KNNGraph(indices, np.asarray(lists.distances[...]), lists.metric, lists.scaling, recall)

    def to_anndata(self, adata: Any, key_added: str = KEY, *, copy: bool = False) -> Any:
        """Add ``rank_METHOD``, ``score_METHOD`` and ``selected_METHOD`` to ``adata.var``, and ``uns["daskfs"]``.

        Columns of an earlier run under the same key are replaced, as :func:`daskfs.export_into` does in a file.

        Parameters
        ----------
        adata
            An AnnData of the same features, in any order; views become copies as usual.
        key_added
            Key of ``uns``. Under "daskfs", columns have the names above, as in files; under any other key, with which
            rankings stand side by side, they begin with it: ``KEY_rank_METHOD``.
        copy
            Whether to leave `adata` as it is, and to return a copy with the columns.

        Returns
        -------
        AnnData or None
            The copy; None if `adata` itself was changed.

        Raises
        ------
        InputError
            If a feature of the run is not in ``adata.var_names``, or the other way round.
        """
        target = adata.copy() if copy else adata
        add_columns(target, self._contents, {key: self[key] for key in ("data", "job")}, key_added)
        return target if copy else None

    # ------------------------------------------------------------------------------------------------------- plots
    def plot_scores(self, method: str | None = None, ax: Axes | None = None) -> Axes:
        """Plot scores by rank for one method, as the report does; `method` and `ax` as in :meth:`plot_along`."""
        return self._draw(scores_plot(self._method_of_report(method), self["data"]["n_features"]), "scores", ax)

    def plot_along(self, method: str | None = None, ax: Axes | None = None) -> Axes:
        """Plot scores along the axis of the features, such as wavelengths, with the first features as dots.

        Parameters
        ----------
        method
            Label of a method; by default :attr:`best`, or the first one.
        ax
            Axes to draw on; None for new ones of pyplot.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        JobError
            For a label that no method has, and if there is nothing to draw.
        """
        return self._draw(along_plot(self._method_of_report(method), self._report.axis), "features along an axis", ax)

    def plot_top(self, method: str | None = None, n: int = 10, ax: Axes | None = None) -> Axes:
        """Plot the scores of the first `n` features of a method by name; the rest as in :meth:`plot_along`."""
        return self._draw(first_plot(self._method_of_report(method), n), "ranked features", ax)

    def plot_image(self, method: str | None = None, ax: Axes | None = None) -> Axes:
        """Plot the scores of features that are pixels as an image; `method` and `ax` as in :meth:`plot_along`."""
        return self._draw(image_plot(self._method_of_report(method)), "image of its features", ax)

    def plot_agreement(self, ax: Axes | None = None) -> Axes:
        """Plot the overlap of the first features of each two methods; `ax` as in :meth:`plot_along`."""
        return self._draw(agreement_plot(self._report.agreement), "second method", ax)

    def plot_evaluation(self, ax: Axes | None = None) -> Axes:
        """Plot the metric of the verdict by number of selected features; `ax` as in :meth:`plot_along`."""
        return self._draw(self._evaluation_plot(), "evaluation", ax)

    def _evaluation_plot(self) -> Plot | None:
        panels = [panel for setting in self._report.evaluation.settings for panel in setting.panels]
        return panel_plot(panels[0]) if panels else None

    def plot_stability(self, ax: Axes | None = None) -> Axes:
        """Plot how much folds agree in their selections by size; `ax` as in :meth:`plot_along`."""
        panels = [panel for setting in self._report.evaluation.settings for panel in setting.stability]
        return self._draw(stability_plot(panels[0]) if panels else None, "selections of several folds", ax)

    def _method_of_report(self, label: str | None) -> MethodReport:
        method_label = label or self.best or self.methods[0]
        method_of_report = next((method for method in self._report.methods if method.label == method_label), None)
        if method_of_report is None:
            msg = f"no method of {self.url} is called '{method_label}'.{nearest(method_label, self.methods)}"
            raise JobError(msg)
        return method_of_report

    def _draw(self, plot: Plot | None, what: str, ax: Axes | None) -> Axes:
        if plot is None:
            msg = f"the run in {self.url} has no {what} to draw."
            raise JobError(msg)
        return plot.on(ax)

    @cached_property
    def _report(self) -> Report:
        return Report.read(plain(report_summary(Store(self.url), self._facts)), self.url)

    # ------------------------------------------------------------------------------------------------------- shown
    def __repr__(self) -> str:
        """Return the verdict, the first features of each method, and the directory."""
        data = self["data"]
        head = f"<RunResult of {data['source']}: {data['n_samples']} rows x {data['n_features']} features>"
        tests = filter(None, [significance_sentence(self.get("significance"))])
        sentences = *verdict_lines(self.verdict, data["n_features"]), *tests, *warning_lines(self.warnings)
        return "\n".join([head, *sentences, *best_lines(self["best"]), self.url])

    def _repr_html_(self) -> str:
        """Return the verdict, the first features of each method and the evaluation's plot, for notebooks."""
        text = verdict_html(self.verdict, self["data"]["n_features"])
        if tests := significance_sentence(self.get("significance")):
            text += f"<p>{html.escape(tests)}.</p>"
        if self.warnings:
            text += f"<ul>{''.join(f'<li>{html.escape(str(warning))}</li>' for warning in self.warnings)}</ul>"
        heads = _row("th", ["", *map(method_heading, self["best"])])
        ranks = zip_longest(*(one["features"] for one in self["best"]), fillvalue="")
        rows = "".join(_row("td", [rank, *names]) for rank, names in enumerate(ranks, start=1))
        table = f"<table><thead>{heads}</thead><tbody>{rows}</tbody></table>"
        return f"<div>{text}{table}{small_plot(self._evaluation_plot(), self)}</div>"

    @cached_property
    def _contents(self) -> RunContents:
        return read_run(self.url)

    def _table(self, name: str) -> pd.DataFrame:
        import pandas as pd

        table = read_parquet(Store(self.url), name)
        return pd.DataFrame() if table is None else table.to_pandas()


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def run(
    job: Job | Mapping[str, Any] | str | Path,
    *,
    data: Any = None,
    client: Client | None = None,
    progress: Literal["auto"] | bool = "auto",
    overwrite: bool = False,
) -> RunResult:
    """Run or resume a job.

    Parameters
    ----------
    job
        A job file, its content as nested dictionaries, or a job of :func:`daskfs.load_job` or :func:`daskfs.make_job`.
    data
        X in place of ``data.source``: a dask array or DataFrame, an AnnData or xarray object with one, or any X that
        :func:`daskfs.rank` takes. To go on with an unfinished run, pass the same collection again.
    client
        Client of the cluster whose workers run the units, instead of that of the job's block ``cluster``; of `data` on
        dask by default the current one.
    progress
        Whether stages and units are shown, on stderr or in the output of a notebook's cell; "auto": if stderr is a
        terminal, or in a notebook.
    overwrite
        First delete the run of another job in the output directory.

    Returns
    -------
    RunResult
        What the run left behind. If all is done already, nothing runs again.

    Raises
    ------
    daskfs.errors.DaskfsError
        Any subclass. Finished units stay recorded, and the same call resumes the run.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import daskfs
    >>> with TemporaryDirectory() as folder:
    ...     result = daskfs.run({
    ...         "data": {"source": "sklearn:iris"},
    ...         "methods": ["FisherScore", "VarianceScore"],
    ...         "evaluate": {"n_selected": [1, 2]},
    ...         "output": {"path": f"{folder}/iris"},
    ...     })
    ...     first = result.ranking.head(2)[["method", "rank", "name"]]
    ...     names = result.selected("FisherScore", 2)
    >>> print(first.to_string(index=False))
         method  rank              name
    FisherScore     1 petal length (cm)
    FisherScore     2  petal width (cm)
    >>> names, result.best
    (['petal length (cm)', 'petal width (cm)'], 'FisherScore')
    """
    checked_job = job if isinstance(job, Job) else make_job(job) if isinstance(job, Mapping) else load_job(job)
    display, folder = _progress(progress), None
    X = None if data is None else matrix_at_hand(data)
    client = open_client(client, by_default=is_of(X, "dask"))
    if X is not None:
        folder = ScratchDirectory()
        source, _alive = as_source(X, folder.path, client, names_of(data))
        folder = folder if source.startswith(str(folder.path)) else None
        checked_job = checked_job.model_copy(update={"data": checked_job.data.model_copy(update={"source": source})})
    options: dict[str, Any] = {"overwrite": overwrite}
    if client is not None:
        scheduler: Any = client.scheduler
        cluster = ClusterBlock(address=str(scheduler.address), memory_limit=checked_job.cluster.memory_limit)
        checked_job = checked_job.model_copy(update={"cluster": cluster})
        options["connect"] = lambda _: nullcontext(client)
    with nullcontext() if folder is None else not_resumed(ANOTHER_OUTPUT):
        facts = run_job(checked_job, display, **options)
    store = Store(checked_job.output.path)
    manifest = with_paths(store, read_manifest(store))
    return RunResult({**manifest, "recomputed": facts["recomputed"]}, store.url, folder)


def open_run(path: str | Path) -> RunResult:
    """Open the result of a finished run.

    Parameters
    ----------
    path
        Directory or URL of the run.

    Raises
    ------
    StoreError
        If there is no run, or it is not finished.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import daskfs
    >>> job = {"data": {"source": "sklearn:iris"}, "methods": ["VarianceScore"], "evaluate": None}
    >>> with TemporaryDirectory() as folder:
    ...     _ = daskfs.run({**job, "output": {"path": f"{folder}/iris"}})
    ...     daskfs.open_run(f"{folder}/iris").best
    'VarianceScore'
    """
    store, manifest = open_finished(path)
    return RunResult(with_paths(store, manifest), store.url)


def _progress(choice: Any) -> Any:
    """Return a display of the progress of a run, or one that shows nothing."""
    import sys

    from daskfs.execution.progress import Silent, default_progress, in_notebook
    from daskfs.execution.streams import Messages

    choices = {"auto": Messages(sys.stderr).isatty() or in_notebook(), True: True, False: False}
    if choice not in choices:
        msg = f"progress is {choice!r}; it can be 'auto', True or False.{nearest(str(choice), ('auto',))}"
        raise JobError(msg)
    return default_progress() if choices[choice] else Silent()
