"""A notebook, executed from a clean kernel: progress, results, plots, the stop button, and the same cell again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.optional import ipykernel, nbclient, nbformat

pytestmark = pytest.mark.long
assert ipykernel.__version__  # what runs the notebook

JOB = """
import daskfs
job = {
    "data": {"source": "sklearn:digits"},
    "methods": ["FisherScore", "LaplacianScore"],
    "evaluate": {"n_selected": [5, 20], "n_splits": 2},
    "cluster": {"workers": WORKERS},
    "output": {"path": "run"},
}
"""
HALT = """
import threading
from daskfs.execution.progress import NotebookProgress

def halting(self, stage, unit, facts, before=NotebookProgress.unit_done):
    before(self, stage, unit, facts)
    if stage.name == "score":
        NotebookProgress.unit_done = before
        print("halted", flush=True)
        threading.Event().wait(60)

NotebookProgress.unit_done = halting
"""


class Stopping(nbclient.NotebookClient):  # type: ignore[misc]
    """Interrupts the kernel when a cell says that it has halted, as the stop button does."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream" and "halted" in msg["content"]["text"]:
            self.stopped = asyncio.ensure_future(self.km.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)


def executed(folder: Path, *cells: str) -> list[list[Any]]:
    """Return the outputs of each cell."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = Stopping(book, timeout=300, allow_errors=True, resources={"metadata": {"path": str(folder)}})
    client.execute()
    nbformat.write(book, folder / "book.ipynb")
    return [cell.outputs for cell in book.cells]


def shown(outputs: list[Any], kind: str) -> list[str]:
    """Return what the outputs of a cell show of one type."""
    return [output.data[kind] for output in outputs if "data" in output and kind in output.data]


@pytest.mark.cluster
@pytest.mark.parametrize("workers", [0, 2])
def test_a_result_is_shown_and_drawn(tmp_path: Path, workers: int) -> None:
    outputs = executed(
        tmp_path,
        JOB.replace("WORKERS", str(workers)),
        "result = daskfs.run(job)",
        "result",
        "result.plot_evaluation();",
        "from sklearn.datasets import load_digits\ndaskfs.knn_graph(load_digits().data, 5)",
        "daskfs.FisherScore(3).fit(*load_digits(return_X_y=True))",
    )
    assert not [output for of_cell in outputs for output in of_cell if output.output_type in {"stream", "error"}]
    progress, result, plot, graph, selector = (
        shown(of_cell, kind)
        for of_cell, kind in zip(
            outputs[1:], ("text/html", "text/html", "image/png", "text/plain", "text/html"), strict=True
        )
    )
    assert len(progress) == 1
    assert "stages in" in progress[0]
    assert "<progress" not in progress[0]
    assert "balanced accuracy" in result[0]
    assert "<svg" in result[0]
    assert len(plot) == 1
    assert graph == ["<KNNGraph of 1797 rows: 5 neighbors, euclidean, exact>"]
    assert "3 of 64 features selected" in selector[0]
    assert "<svg" in selector[0]


def test_a_call_that_takes_long_has_a_bar_that_ends(tmp_path: Path) -> None:
    _, long, short = executed(
        tmp_path,
        "from sklearn.datasets import load_digits\nfrom daskfs import LaplacianScore\n"
        "from daskfs.execution import progress\nX = load_digits().data",
        "progress.CALL_SECONDS = 0\nscores = LaplacianScore().fit(X).scores_",
        "progress.CALL_SECONDS = 3600\nscores = LaplacianScore().fit(X).scores_",
    )
    (bar,) = shown(long, "text/html")
    assert "stages in" in bar
    assert not shown(short, "text/html")


def test_the_stop_button_and_the_same_cell_again(tmp_path: Path) -> None:
    call = "result = daskfs.run(job)"
    _, _, stopped, again, recomputed = executed(
        tmp_path, JOB.replace("WORKERS", "0"), HALT, call, call, "result['recomputed']"
    )
    (error,) = (output for output in stopped if output.output_type == "error")
    assert error.ename == "RunStoppedError"
    assert "stopped by SIGINT" in error.evalue
    assert not [output for output in again if output.output_type == "error"]
    assert "'score'" not in shown(recomputed, "text/plain")[0]
    assert "'evaluate'" in shown(recomputed, "text/plain")[0]
