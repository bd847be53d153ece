"""sSelect through its estimator: formulas, limits, labels, and the choice of the trade-off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.datasets import load_digits, load_iris, load_wine

from daskfs import LaplacianScore, SSelect, knn_graph
from daskfs.criteria.plan import plan_finish
from daskfs.criteria.registry import make_method
from daskfs.criteria.sselect.criterion import sign_table
from daskfs.criteria.statistics import GraphForms
from daskfs.kernels.labels import Labels
from daskfs.kernels.statistics.contingency import class_table
from daskfs.kernels.statistics.normalized_cut import CUT_ROWS, cut_of
from daskfs.stages.cost import PROCESS, Workers
from daskfs.stages.limits import check_memory
from daskfs.store.shape import spread_rows
from daskfs.tiles.shapes import plan_shape
from tests.kernels.statistics.test_mutual_information import FIVE_AND_FIVE, FOOTNOTE_4
from tests.reference.graph import heat, heat_t, knn_lists, union_adjacency
from tests.reference.sselect import sselect


def mixture(seed: int = 0, n: int = 120, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows of several classes, a tenth of them labeled: real, counted, binary and constant features."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % n_classes
    X = np.column_stack(
        [
            rng.normal(size=(n, 4)) + 1.5 * classes[:, None] * [1, 0, 0.5, 0],
            rng.poisson(0.4 + classes[:, None], (n, 3)),
            rng.random((n, 3)) < 0.2 + 0.2 * classes[:, None],
            np.full(n, 3.0),
        ]
    )
    y = np.where(rng.random(n) < 0.25, classes, -1)
    y[: 2 * n_classes] = classes[: 2 * n_classes]
    return X, y


def planted(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features 20 to 24 cut the rows into two clusters; the six labels agree with these in part only, and with the
    twenty features before them by chance. So trade-offs near 0 are led astray.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 30))
    X[:, 20:25] += 12 * (np.arange(n) % 2)[:, None]
    y = np.full(n, -1)
    y[:6] = [0, 1, 1, 1, 0, 0]
    X[:6, :20] = np.where(y[:6, None] == 1, 2.0, -2.0) + rng.normal(0, 0.2, (6, 20))
    return X, y


class TestFormula:
    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
    @pytest.mark.parametrize("n_classes", [2, 3, 5])
    def test_whole_way(self, n_classes: int, seed: int) -> None:
        X, y = mixture(seed, n_classes=n_classes)
        lists = knn_lists(X, 10)
        weights = union_adjacency(*lists, heat(heat_t(*lists, "mean")))
        for trade_off in (0.0, 0.1, 0.5, 1.0):
            expected = sselect(X, weights, y, trade_off)
            fitted = SSelect(trade_off=trade_off).fit(X, y)
            np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-9, atol=1e-12)
            assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == [10]
            fields = fitted.score_fields_
            assert np.isnan([fields["graph_term"][10], fields["label_term"][10]]).all()
            assert (fitted.trade_off_, fitted.trade_off_curve_) == (trade_off, None)

    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"weights": "binary", "self_loops": True},
            {"metric": "cosine", "t": "median"},
            {"graph_scaling": "zscore", "score_scaling": "zscore"},
            {"score_scaling": "unit"},
        ],
        ids=str,
    )
    def test_one_is_the_laplacian_score_to_the_bit(self, parameters: dict[str, Any]) -> None:
        X, y = mixture()
        expected = LaplacianScore(n_neighbors=10, **parameters).fit(X)
        found = SSelect(trade_off=1.0, **parameters).fit(X, y)
        assert found.scores_.tobytes() == expected.scores_.tobytes()
        np.testing.assert_array_equal(found.ranking_, expected.ranking_)

    def test_the_score_is_made_of_its_fields(self) -> None:
        X, y = mixture()
        fields = SSelect(trade_off=0.3).fit(X, y).score_fields_
        np.testing.assert_array_equal(fields["score"], 0.3 * fields["graph_term"] + 0.7 * fields["label_term"])
        at_zero = SSelect(trade_off=0).fit(X, y)
        np.testing.assert_array_equal(at_zero.scores_, fields["label_term"])

    def test_footnote_4(self) -> None:
        """G1: ten labeled documents, binary words whose mean lies between 0 and 1; the graph has no say at 0."""
        n = 60
        y = np.full(n, -1)
        y[:10] = np.repeat([0, 1], 5)
        X = np.zeros((n, len(FIVE_AND_FIVE)))
        for word, (a, b) in enumerate(FIVE_AND_FIVE):
            X[:a, word], X[5 : 5 + b, word] = 1, 1
        X[10:20] = 1
        fitted = SSelect(trade_off=0.0, graph=np.ones((n, n)) - np.eye(n)).fit(X, y)
        np.testing.assert_array_equal(fitted.scores_.round(4), FOOTNOTE_4)

    def test_paper_defaults(self) -> None:
        parameters = SSelect().get_params()
        assert (parameters["trade_off"], parameters["n_neighbors"], parameters["n_cut_features"]) == (0.1, 10, None)

    def test_unlabeled_rows_have_no_say_in_the_labels_term(self) -> None:
        X, y = mixture()
        graph = knn_graph(X, 10)
        plain = SSelect(trade_off=0, graph=graph).fit(X, y).scores_
        moved = X.copy()
        moved[y < 0, 0] = moved[y < 0, 0][::-1]
        weights = graph.to_csr("connectivity").toarray()
        regular = SSelect(trade_off=0, graph=np.ones_like(weights)).fit(X, y).scores_
        np.testing.assert_allclose(SSelect(trade_off=0, graph=np.ones_like(weights)).fit(moved, y).scores_, regular)
        assert not np.array_equal(plain, SSelect(trade_off=0, graph=graph).fit(X, np.arange(120) % 3).scores_)

    @pytest.mark.parametrize("load", [load_iris, load_wine])
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_a_f_plus_b_and_offsets(self, load: Any) -> None:
        X, y = load(return_X_y=True)
        graph, partly = knn_graph(X, 10), np.where(np.arange(len(y)) % 7 == 0, y, -1)
        plain = SSelect(graph=graph).fit(X, partly).scores_
        for moved in (250.0 * X - 3.0, X + 1e6):
            np.testing.assert_allclose(SSelect(graph=graph).fit(moved, partly).scores_, plain, rtol=1e-7)


class TestSigns:
    def test_zero_lies_on_the_upper_side_and_there_are_two_sides_only(self) -> None:
        """A column of -1, 0, 1 whose mean by degrees is exactly 0, and whose sum may not be, row by row."""
        values = np.array([-0.1, -0.2, -0.3, 0.6, 0.0, 0.0])
        y = np.array([0, 0, 0, 1, 1, 1])
        complete = np.ones((6, 6)) - np.eye(6)
        for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 4, 2, 0], [2, 1, 0, 5, 4, 3]):
            found = SSelect(trade_off=0, graph=complete).fit(values[order, None], y[order])
            assert found.scores_.tolist() == [0.0]

    def test_weights_count_as_rows_do(self) -> None:
        X, y = mixture()
        times = np.arange(120) % 3
        forms = GraphForms(np.ones(11), np.ones(11), X.mean(axis=0) * [[1], [0]], np.zeros(11, dtype=bool), 1.0)
        labels = Labels("classification", y.astype(np.int32), ("a", "b", "c"))
        repeated = Labels("classification", np.repeat(labels.values, times), labels.classes)
        found = sign_table(X, forms, labels, times.astype(np.float64))
        expected = sign_table(np.repeat(X, times, axis=0), forms, repeated)
        np.testing.assert_array_equal(found.upper, expected.upper)
        np.testing.assert_array_equal(found.counts, expected.counts)

    def test_many_labeled_rows_are_counted_in_blocks(self) -> None:
        rng = np.random.default_rng(0)
        X, codes = rng.normal(size=(20_000, 2)), rng.integers(-1, 3, 20_000).astype(np.int32)
        forms = GraphForms(np.ones(2), np.ones(2), np.zeros((2, 2)), np.zeros(2, dtype=bool), 1.0)
        found = sign_table(X, forms, Labels("classification", codes, ("a", "b", "c")))
        np.testing.assert_array_equal(found.upper, class_table(codes, 3, X >= 0))


class TestLabels:
    def test_one_class_leaves_the_graph_to_rank(self) -> None:
        X, y = mixture()
        with pytest.warns(UserWarning, match="labeled rows have one class.*only the graph ranks"):
            found = SSelect().fit(X, np.where(y == 1, 1.0, np.nan))
        assert found.score_fields_["label_term"][:10].tolist() == [1.0] * 10
        np.testing.assert_array_equal(found.ranking_, LaplacianScore(n_neighbors=10).fit(X).ranking_)

    @pytest.mark.filterwarnings("ignore:graph euclidean")  # of columns scaled by hand
    def test_one_class_and_a_choice(self) -> None:
        X, y = planted()
        with pytest.warns(UserWarning, match="all 3 labeled rows have one class"):
            found = SSelect(trade_off="auto").fit(X, np.where(y == 1, 1.0, np.nan))
        assert found.trade_off_ > 0
        np.testing.assert_array_equal(found.ranking_, LaplacianScore(n_neighbors=10).fit(X).ranking_)

    def test_one_row_per_class(self) -> None:
        X, y = mixture()
        few = np.full(120, -1)
        few[:3] = y[:3]
        lists = knn_lists(X, 10)
        expected = sselect(X, union_adjacency(*lists, heat(heat_t(*lists, "mean"))), few, 0.1)
        np.testing.assert_allclose(SSelect().fit(X, few).scores_, expected, rtol=1e-9)

    @pytest.mark.parametrize(("y", "message"), [(np.full(120, -1), "no row has a class"), (None, "requires y")])
    def test_no_labels(self, y: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            SSelect().fit(mixture()[0], y)

    def test_a_target_is_refused(self) -> None:
        X = mixture()[0]
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            SSelect().fit(X, X[:, 0])


class TestChoiceOfTheTradeOff:
    @pytest.mark.filterwarnings("ignore:graph euclidean")  # of columns scaled by hand
    def test_labels_that_mislead(self) -> None:
        X, y = planted()
        found = SSelect(5, trade_off="auto", n_cut_features=5).fit(X, y)
        assert found.trade_off_ >= 0.3
        assert found.get_support(indices=True).tolist() == [20, 21, 22, 23, 24]
        assert found.trade_off_curve_ is not None
        assert found.trade_off_curve_["cut_value"][0] > 0.1
        assert found.trade_off_curve_["n_components"][-1] == 2
        misled = SSelect(5, trade_off=0.1).fit(X, y)
        assert misled.get_support(indices=True).max() < 20

    def test_the_scores_are_those_of_the_chosen_one(self) -> None:
        X, y = mixture()
        found = SSelect(trade_off="auto", n_cut_features=4).fit(X, y)
        fixed = SSelect(trade_off=found.trade_off_).fit(X, y)
        assert found.scores_.tobytes() == fixed.scores_.tobytes()
        np.testing.assert_array_equal(found.ranking_, fixed.ranking_)

    @pytest.mark.parametrize(
        "scaling", [None, "unit", *(pytest.param(scaling, marks=pytest.mark.long) for scaling in ("zscore", "log1p"))]
    )
    def test_the_curve_is_the_cut_of_the_reduced_rows(self, scaling: Any) -> None:
        X, y = mixture()
        X = np.abs(X)
        found = SSelect(trade_off="auto", n_cut_features=4, graph_scaling=scaling).fit(X, y)
        space = {
            None: X,
            "zscore": (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1),
            "unit": X / np.linalg.norm(X, axis=1, keepdims=True),
            "log1p": np.log1p(X),
        }[scaling]
        curve = found.trade_off_curve_
        assert curve is not None
        np.testing.assert_array_equal(curve["trade_off"], np.arange(11) / 10)
        for place, trade_off in enumerate(curve["trade_off"]):
            ranking = SSelect(trade_off=trade_off, graph_scaling=scaling).fit(X, y).ranking_
            reduced = (
                np.rint(space[:, ranking <= 4] * 2.0**40) / 2.0**40 if scaling == "unit" else space[:, ranking <= 4]
            )
            cut = cut_of(np.ascontiguousarray(reduced), 10)
            assert curve["cut_value"][place] == pytest.approx(cut.value, abs=1e-9)
            assert curve["kernel_cut_value"][place] == pytest.approx(cut.kernel_value, abs=1e-9)
            found_counts = [curve[key][place] for key in ("n_components", "largest_component", "n_distinct")]
            assert found_counts == [cut.n_components, cut.largest_component, cut.n_distinct]
        lowest = curve["cut_value"].min()
        assert curve["cut_value"][round(10 * found.trade_off_)] == pytest.approx(lowest, abs=1e-9)

    def test_cosine_compares_directions(self) -> None:
        X, y = mixture()
        found = SSelect(trade_off="auto", n_cut_features=4, metric="cosine").fit(X, y)
        ranking = SSelect(trade_off=0.5, metric="cosine").fit(X, y).ranking_
        reduced = X[:, ranking <= 4]
        norms = np.linalg.norm(reduced, axis=1, keepdims=True)
        cut = cut_of(np.rint(reduced / np.where(norms > 0, norms, 1) * 2.0**40) / 2.0**40, 10)
        assert found.trade_off_curve_ is not None
        assert found.trade_off_curve_["cut_value"][5] == pytest.approx(cut.value, abs=1e-9)

    @pytest.mark.long
    def test_many_rows_are_sampled_evenly(self) -> None:
        X, y = load_digits(return_X_y=True)
        partly = np.where(np.arange(len(y)) % 40 == 0, y, -1)
        found = SSelect(trade_off="auto", n_cut_features=10).fit(X, partly)
        ranking = SSelect(trade_off=0.0).fit(X, partly).ranking_
        rows = spread_rows(len(X), CUT_ROWS)
        assert np.unique(rows).size == CUT_ROWS
        assert np.diff(rows).max() < 2 * len(X) / CUT_ROWS + 1
        cut = cut_of(np.ascontiguousarray(X[rows][:, ranking <= 10]), 10)
        assert found.trade_off_curve_ is not None
        assert found.trade_off_curve_["cut_value"][0] == pytest.approx(cut.value, rel=1e-12)

    def test_rows_that_do_not_differ_leave_the_usual_one(self) -> None:
        rng = np.random.default_rng(0)
        X = np.zeros((3000, 2))
        left_out = np.setdiff1d(np.arange(3000), spread_rows(3000, CUT_ROWS))
        X[left_out[:40], 0], X[left_out[20:70], 1] = 1, 1
        y = np.where(np.arange(3000) % 100 == 0, rng.integers(0, 2, 3000), -1)
        found = SSelect(trade_off="auto", n_cut_features=2).fit(X, y)
        assert found.trade_off_ == 0.1
        assert found.trade_off_curve_ is not None
        assert np.isnan(found.trade_off_curve_["cut_value"]).all()

    def test_nothing_to_rank(self) -> None:
        with pytest.raises(ValueError, match="can rank none of the 3 features: every one is excluded"):
            SSelect(trade_off="auto").fit(np.ones((30, 3)), np.arange(30) % 2)

    @pytest.mark.filterwarnings("ignore:graph euclidean")  # of columns scaled by hand
    def test_on_a_matrix_of_weights(self) -> None:
        X, y = planted()
        weights = knn_graph(X, 10).to_csr("connectivity")
        found = SSelect(5, trade_off="auto", n_cut_features=5, graph=weights.maximum(weights.T)).fit(X, y)
        assert found.get_support(indices=True).tolist() == [20, 21, 22, 23, 24]

    def test_rows_of_weight_0_are_not_cut(self) -> None:
        X, y = mixture()
        weights = np.ones(120)
        weights[60:] = 0
        found = SSelect(trade_off="auto", n_cut_features=11).fit(X, y, sample_weight=weights)
        assert found.trade_off_curve_ is not None
        assert (found.trade_off_curve_["n_distinct"] <= 60).all()


FORMS: dict[str, Any] = {
    "csr": sp.csr_matrix,
    "float32": lambda X: X.astype(np.float32),
    "dask": lambda X: da.from_array(X, chunks=(50, 3)),
}


@pytest.mark.parametrize("trade_off", [0.1, "auto"])
class TestForms:
    def fit(self, X: Any, y: np.ndarray, trade_off: Any) -> SSelect:
        return SSelect(trade_off=trade_off, n_cut_features=4).fit(X, y)

    def check(self, given: Any, trade_off: Any) -> None:
        X, y = mixture()
        X = np.round(8 * X) / 8
        expected = self.fit(X, y, trade_off)
        found = self.fit(given(X), y, trade_off)
        np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-10, atol=1e-12)
        assert found.trade_off_ == expected.trade_off_
        if trade_off == "auto":
            assert found.trade_off_curve_ is not None
            assert expected.trade_off_curve_ is not None
            for key, values in expected.trade_off_curve_.items():
                np.testing.assert_allclose(found.trade_off_curve_[key], values, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("form", FORMS)
    def test_in_memory(self, form: str, trade_off: Any) -> None:
        self.check(FORMS[form], trade_off)

    @pytest.mark.parametrize("chunks", [(33, 3), (120, 5)])
    def test_stored(self, tmp_path: Path, chunks: tuple[int, int], trade_off: Any) -> None:
        def stored(X: np.ndarray) -> Path:
            zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=chunks, dtype="f8")[...] = X
            return tmp_path / "X.zarr"

        self.check(stored, trade_off)

    def test_dask(self, trade_off: Any) -> None:
        self.check(FORMS["dask"], trade_off)


class TestPlan:
    @pytest.mark.parametrize(("n_samples", "n_features"), [(10**8, 1000), (10**6, 10**5), (300, 20)])
    def test_choosing_does_not_read_x_again(self, n_samples: int, n_features: int) -> None:
        limit = 16 * 2**30
        shape = plan_shape(n_samples, n_features, "float32", None, limit)
        method = make_method("SSelect", {"trade_off": "auto"})
        (stage,) = plan_finish(shape, method, "trade-off", 64, (PROCESS,))
        check_memory([stage], Workers(limit))
        assert stage.bytes_read <= min(shape.x_bytes, 2**28) + 24 * n_features
        assert stage.n_units == 1

    def test_a_given_trade_off_is_settled_by_the_slabs(self) -> None:
        assert make_method("SSelect", {}).finish == ""
        assert make_method("SSelect", {"trade_off": "auto"}).finish == "trade-off"
