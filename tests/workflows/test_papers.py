"""The papers' workflows in a short form, on data that scikit-learn ships, and on a few real sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits

from tests.cli.command import daskfs, rows_of
from tests.workflows.papers import load_paper, tables

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def laplacian() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        yield load_paper("laplacian", patch)


@pytest.fixture(scope="module")
def regression() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        yield load_paper("regression", patch)


def means(run: Path, **wanted: object) -> float:
    """Return the mean of the values of a run's evaluation whose columns hold what is wanted."""
    rows = rows_of(run / "evaluation.csv")
    found = [float(row["value"]) for row in rows if all(row[key] == str(value) for key, value in wanted.items())]
    assert found
    return float(np.mean(found))


class TestIris:
    def test_figures_are_the_papers(self, laplacian: Any, capsys: pytest.CaptureFixture[str]) -> None:
        laplacian.main([])
        figures, orders = tables(capsys.readouterr().out.splitlines())
        cells = [row[1:] for row in figures]
        assert cells[1] == cells[2] == ["0.7826", "-0.4194", "0.9490", "0.9565"]
        assert cells[3] == ["0.4100", "0.5200", "0.1200", "0.1200"]
        assert cells[4] == ["0.4133", "0.5200", "0.1200", "0.1200"]
        few, many = "F4 F3 F1 F2", "F3 F4 F1 F2"
        assert orders[1:] == [
            ["variance", "F3 F1 F4 F2", "F3 F1 F4 F2"],
            ["Fisher", many, many],
            ["Laplacian Score, 3 neighbors", few, few],
            ["Laplacian Score, 4 neighbors", few, "F4 F3 F2 F1"],
            ["Laplacian Score, 5-14 neighbors", few, few],
            ["Laplacian Score, 15 neighbors", many, many],
            ["Laplacian Score, 16 neighbors", many, few],
            ["Laplacian Score, 17-20 neighbors", many, many],
        ]


def enlarged_digits(folder: Path) -> Path:
    """Write digits of six classes as images of 32 x 32, under the name of a set that has such."""
    data = load_digits(n_class=6)
    images = np.kron(data.images[:150], np.ones((1, 4, 4)))
    images += np.random.default_rng(0).random(images.shape)  # no pixel is constant
    X = images.transpose(0, 2, 1).reshape(150, 1024)  # column by column
    path = folder / "COIL20.npz"
    np.savez(path, X=X.astype(np.float32), y=data.target[:150])
    return path


class TestClusterings:
    @pytest.fixture(scope="class")
    @staticmethod
    def told(laplacian: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
        folder = tmp_path_factory.mktemp("clusterings")
        images, run = laplacian.look(enlarged_digits(folder)), folder / "COIL20"
        job = laplacian.job_of(images, run, n_subsets=3, classes=(3, 6, 10), workers=0)
        job["evaluate"]["models"] = [{"name": "kmeans", "n_restarts": 2}]
        laplacian.run_job(laplacian.make_job(job))
        return run, laplacian.table_lines(images, run)

    def test_table_has_the_means_of_the_run(self, told: tuple[Path, list[str]]) -> None:
        run, lines = told
        assert lines[0].startswith("COIL20: 150 images, 6 classes;")
        metrics = (("accuracy", "accuracy"), ("nmi", "normalized mutual information"))
        for (metric, title), (header, *rows) in zip(metrics, tables(lines), strict=True):
            assert header == [title, "20", "50", "100", "200", "300", "500", "1024"]
            sizes = header[1:]
            for (name, *cells), (c, method) in zip(
                rows, [(c, method) for c in (3, 6) for method in ("LaplacianScore", "VarianceScore")], strict=True
            ):
                assert name == f"{c} classes, {'Laplacian Score' if method == 'LaplacianScore' else 'variance'}"
                shown = [float(cell.split(" ± ")[0]) for cell in cells]
                expected = [
                    means(run, metric=metric, n_classes=c, method=method, n_selected=size, model="kmeans")
                    for size in sizes
                ]
                np.testing.assert_allclose(shown, expected, atol=5.1e-4)

    def test_verdict_goes_by_differences_of_the_same_subsets(self, told: tuple[Path, list[str]]) -> None:
        run, lines = told
        verdicts = [line for line in lines if "the Laplacian Score" in line]
        assert [line.split()[1] for line in verdicts] == ["3", "6"] * 2
        assert verdicts[1].startswith("- 6 classes: the Laplacian Score in one subset at 20 (")
        given = dict(re.findall(r"(\d+) \(([+-]\d\.\d{3})\)", verdicts[0]))
        assert sorted(map(int, given)) == [20, 50, 100, 200, 300, 500, 1024]
        for size, difference in given.items():
            pair = [
                means(run, metric="accuracy", n_classes=3, method=method, n_selected=size)
                for method in ("LaplacianScore", "VarianceScore")
            ]
            assert float(difference) == pytest.approx(pair[0] - pair[1], abs=5.1e-4)
        assert float(given["1024"]) == 0
        assert "1024 (+0.000)" in verdicts[0].partition("differs by chance at ")[2]

    def test_scores_are_shown_as_images(self, told: tuple[Path, list[str]]) -> None:
        run, _ = told
        for method in ("LaplacianScore", "VarianceScore", "FisherScore"):
            assert (run / f"score_images/{method}.png").stat().st_size > 200


class TestVerdict:
    def test_sides_and_signs(self, laplacian: Any) -> None:
        def row(size: int, difference: float, half: float | None, *, turned: bool = False) -> dict[str, Any]:
            names = ["LaplacianScore", "VarianceScore"]
            sign = -1 if turned else 1
            bounds = (None, None) if half is None else (sign * difference - half, sign * difference + half)
            method, other = names[::sign]
            values = {"difference": sign * difference, "low": bounds[0], "high": bounds[1]}
            return {"metric": "nmi", "n_classes": 5, "n_selected": size, "method": method, "other": other, **values}

        rows = [row(20, 0.2, 0.1), row(50, 0.2, 0.1, turned=True), row(100, -0.2, 0.1), row(200, 0.1, 0.2)]
        rows += [row(300, 0.1, None, turned=True), {**row(20, 0.9, 0.1), "metric": "accuracy"}]
        rows += [{**row(20, 0.9, 0.1), "other": "FisherScore"}, {**row(20, 0.9, 0.1), "n_selected": None}]
        assert laplacian.verdict(rows, "nmi") == [
            "5 classes: the Laplacian Score wins at 20 (+0.200), 50 (+0.200); loses at 100 (-0.200); "
            "differs by chance at 200 (+0.100); in one subset at 300 (+0.100)"
        ]


class TestRegression:
    def test_artificial_problems(self, regression: Any, capsys: pytest.CaptureFixture[str]) -> None:
        regression.main(["--n-sets", "6", "--workers", "0"])
        title, *lines = capsys.readouterr().out.splitlines()
        assert "of 6 sets of 1000 rows" in title
        ((header, *rows),) = tables(lines)
        assert header == ["", "paper", "here"]
        shares = {tuple(what.rsplit(", ", 1)): own for what, *own in rows}
        waves, quotient = "y = cos(2 pi x1 x2) sin(2 pi x3 x4)", "y = x1^2 / x2^2"
        assert shares[quotient, "SLS"] == ["1.00", "1.00"]
        assert [shares[waves, name][0] for name in ("SLS", "correlation", "LS")] == ["0.93", "0.25", "-"]
        assert float(shares[waves, "SLS"][1]) >= 0.83
        assert all(float(shares[problem, "LS"][1]) < 0.5 for problem in (waves, quotient))

    def test_table_has_the_means_of_the_run(
        self, regression: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(regression, "N_SELECTED_FEW", (1, 4, 10))
        data = load_diabetes()
        np.savez(tmp_path / "tecator.npz", X=data.data[:150], y=data.target[:150])
        arguments = ["--n-sets", 0, "--data", tmp_path, "--draws", 2, "--repeats", 1, "--workers", 0]
        arguments += ["--sets", "tecator", "corn_m5", "--output", tmp_path / "runs"]
        regression.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert captured.err.startswith(f"skipped corn_m5: {tmp_path}/corn_m5.npz is not there\n")
        lines, run = captured.out.splitlines(), tmp_path / "runs/tecator"
        assert lines[1].startswith("tecator: 150 rows, 10 features;")
        notes = [list(own) for is_note, own in groupby(lines, lambda line: line.startswith("- ")) if is_note]
        for labels, (header, *rows), (best, worst_of_all, *_) in zip((7, 10), tables(lines), notes, strict=True):
            assert header == [f"{labels} labels", "1", "4", "10", "mean"]
            sizes = header[1:]
            whole: dict[str, float] = {}
            for method, *cells in rows:
                shown = [cell.split(" ± ")[0] for cell in cells]
                expected = [
                    means(run, labels=f"{labels}.0", method=method, n_selected=size, metric="rmse")
                    for size in sizes[:-1]
                ]
                np.testing.assert_allclose([float(cell) for cell in shown[:-1]], expected, atol=0.06)
                whole[method] = float(np.mean(expected))
            assert list(whole) == ["LS", "SLS", "SSLS", "correlation", "random"]
            assert best.startswith(f"- best on the whole: {min(whole, key=lambda m: whole[m])}; ")
            worst = max(whole[m] for m in whole if m != "random")
            assert worst_of_all == f"- LS is the worst of the four: {'yes' if whole['LS'] == worst else 'no'}"

    def test_best_is_named_with_those_it_beats(self, regression: Any) -> None:
        pairs = [
            {"method": "a", "other": "b", "low": 0.1, "high": 0.3},
            {"method": "b", "other": "c", "low": -0.2, "high": 0.1},
            {"method": "a", "other": "c", "low": 0.5, "high": 0.6},
            {"method": "b", "other": "d", "low": None, "high": None},
        ]
        told = regression.best_line({"a": 2.0, "b": 1.0, "c": 1.5, "d": 3.0}, pairs)
        assert told == "best on the whole: b; better than a; not told apart from c, d"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("laplacian", ("--data", "nowhere"), "holds none of COIL20.npz, ORL.npz, PIE_32x32_10subj.npz, warp"),
        ("laplacian", ("--sets", "PIE"), "invalid choice: 'PIE'"),
        ("regression", ("--data", "nowhere"), "holds none of tecator.npz, corn_m5.npz"),
        ("regression", ("--n-sets", "-1"), "--n-sets is -1: 0 at least."),
    ],
)
def test_refused(
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    name: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    with pytest.raises(SystemExit) as stop:
        request.getfixturevalue(name).main(list(arguments))
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_evaluation_workflow_tells_both_settings_and_the_gap(tmp_path: Path) -> None:
    settings = {
        "output.path": tmp_path / "run",
        "cluster.workers": 0,
        "data.source": "sklearn:wine",
        "evaluate.labels": 5,
        "evaluate.n_draws": 2,
        "evaluate.n_selected": 2,
        "evaluate.models.2.n_estimators": 5,
        "evaluate.models.2.metrics": "balanced_accuracy",
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = daskfs("run", ROOT / "daskfs/job/examples/evaluation.yaml", *overrides)
    assert done.code == 0, done.err
    rows = rows_of(tmp_path / "run/evaluation.csv")
    methods = {row["method"] for row in rows}
    assert methods == {
        "LaplacianScore",
        "FisherScore",
        "SSelect trade_off=0.1",
        "SSelect trade_off=0.5",
        "RLSR",
        "RandomOrder",
        "AllFeatures",
        "MajorityClass",
    }
    models = {(row["model"], row["metric"]) for row in rows}
    assert models == {(model, "balanced_accuracy") for model in ("knn", "linear-svm", "forest")}
    cells = {(row["setting"], row["method"], row["draw"], row["fold"], row["model"]) for row in rows}
    assert len(cells) == len(rows) == 2 * 8 * 2 * 3 * 3
    gaps = rows_of(tmp_path / "run/gap.csv")
    assert {row["method"] for row in gaps} == methods
    by_chance = means(tmp_path / "run", method="RandomOrder", model="linear-svm", n_selected=2)
    assert means(tmp_path / "run", method="FisherScore", model="linear-svm", n_selected=2) > by_chance + 0.05
    text = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "transductive" in text.lower()
    assert "inductive" in text.lower()


@pytest.mark.cluster
@pytest.mark.shared_data
class TestRealSets:
    def test_clusterings_of_faces(
        self, laplacian: Any, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["--data", shared_data, "--sets", "ORL", "--classes", 5, 10, "--subsets", 4, "--output", tmp_path]
        laplacian.main([str(argument) for argument in arguments])
        lines = capsys.readouterr().out.splitlines()
        assert sum("the Laplacian Score" in line for line in lines) == 4
        best = {
            method: max(
                means(tmp_path / "ORL", method=method, metric="nmi", n_classes=5, n_selected=n) for n in (50, 100, 300)
            )
            for method in ("LaplacianScore", "VarianceScore")
        }
        assert min(best.values()) > 0.5

    def test_spectra(
        self, regression: Any, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["--n-sets", 0, "--data", shared_data, "--sets", "tecator", "--draws", 2, "--repeats", 1]
        regression.main([str(argument) for argument in [*arguments, "--output", tmp_path]])
        assert "tecator: 178 rows, 100 features;" in capsys.readouterr().out
        run, all_of_them = tmp_path / "tecator", {}
        for method in ("LS", "SLS", "SSLS", "correlation", "random"):
            all_of_them[method] = means(run, method=method, n_selected=100)
            assert 5 < all_of_them[method] < 12
            assert means(run, method=method, n_selected=1) > all_of_them[method]
        np.testing.assert_allclose(list(all_of_them.values()), all_of_them["LS"], rtol=1e-9)
