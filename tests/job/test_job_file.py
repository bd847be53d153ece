"""The job file: what it may say, what is filled in, and what a user reads when it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from daskfs.criteria.registry import criteria
from daskfs.errors import JobError
from daskfs.execution.clusters.blocks import parse_bytes
from daskfs.job.job import Job, load_job, make_cluster, make_data, make_job
from daskfs.job.schema import json_schema

MINIMAL: dict[str, Any] = {
    "data": {"source": "X.npy"},
    "methods": ["VarianceScore"],
    "output": {"path": "run"},
}
GIB = 2**30


def job_with(**blocks: Any) -> Job:
    return make_job({**MINIMAL, **blocks})


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def overridden(folder: Path, *overrides: str, **blocks: Any) -> Job:
    return load_job(write(folder, yaml.safe_dump({**MINIMAL, **blocks})), overrides)


# ----------------------------------------------------------------------------- defaults
def test_minimal_job_gets_defaults() -> None:
    job = make_job(MINIMAL)
    assert (job.data.labels, job.data.task, job.data.exclude) == (None, "auto", ())
    assert (job.graph.n_neighbors, job.graph.metric, job.graph.weights, job.graph.t) == (5, "euclidean", "heat", "mean")
    assert not job.graph.self_loops
    assert (job.transform.graph, job.transform.score) == (None, None)
    assert job.select.n_features is None
    assert job.evaluate is not None
    assert (job.evaluate.n_splits, job.evaluate.n_repeats, job.evaluate.scaling) == (5, 1, "zscore")
    assert (job.cluster.workers, job.cluster.threads, job.cluster.memory_limit) == ("auto", 1, None)
    assert job.output.title is None


def test_null_switches_the_evaluation_off() -> None:
    assert job_with(evaluate=None).evaluate is None


@pytest.mark.parametrize(("given", "kept"), [(7, (7,)), ([20, 5, 20], (5, 20)), ([3], (3,))])
def test_numbers_of_selected_features_are_a_sorted_set(given: Any, kept: tuple[int, ...]) -> None:
    evaluate = job_with(evaluate={"n_selected": given}).evaluate
    assert evaluate is not None
    assert evaluate.n_selected == kept


def test_data_and_cluster_blocks_from_options() -> None:
    data = make_data({"source": "X.npy", "exclude": ["a"], "task": "regression"})
    assert (data.exclude, data.task) == (("a",), "regression")
    assert make_cluster({"workers": 0, "memory_limit": "1GiB"}).memory_limit == GIB
    with pytest.raises(JobError, match=r"data\.task'.*'guess'"):
        make_data({"source": "X.npy", "task": "guess"})
    with pytest.raises(JobError, match="'workers'"):
        make_cluster({"workers": -1})


# ------------------------------------------------------------------------------ methods
def test_short_and_long_forms_of_a_method_are_the_same() -> None:
    forms = [
        {"name": "LaplacianScore", "label": "a", "n_neighbors": 7, "t": "median"},
        {"name": "LaplacianScore", "label": "a", "parameters": {"n_neighbors": 7, "t": "median"}},
    ]
    short, long = (job_with(methods=[form]).make_methods(None) for form in forms)
    assert short == long
    assert short[0].parameters.model_dump()["n_neighbors"] == 7
    assert job_with(methods=["VarianceScore"]).methods == job_with(methods=[{"name": "VarianceScore"}]).methods


def test_methods_take_the_defaults_of_the_graph_block_and_may_differ() -> None:
    job = job_with(
        graph={"n_neighbors": 9, "weights": "binary"},
        transform={"graph": "unit", "score": "zscore"},
        methods=["LaplacianScore", {"name": "LaplacianScore", "label": "own", "n_neighbors": 3, "graph_scaling": None}],
    )
    default, own = (method.parameters.model_dump() for method in job.make_methods(None))
    assert (default["n_neighbors"], default["weights"], default["graph_scaling"]) == (9, "binary", "unit")
    assert (own["n_neighbors"], own["weights"], own["graph_scaling"]) == (3, "binary", None)
    assert default["score_scaling"] == own["score_scaling"] == "zscore"


@pytest.mark.parametrize("task", [None, "classification", "regression"])
def test_all_stands_for_every_criterion_of_the_task_that_is_not_named_besides(task: Any) -> None:
    serving = [n for n, one in criteria().items() if (task in one.tasks if task else not one.needs_labels)]
    assert [method.label for method in job_with(methods="all").make_methods(task)] == serving
    some = job_with(
        methods=[{"name": "LaplacianScore", "n_neighbors": 7}, "all", {"name": "RandomOrder", "label": "r"}]
    )
    found = {method.label: method for method in some.make_methods(task)}
    assert {*found} == {*serving, "r"}
    assert found["LaplacianScore"].parameters.n_neighbors == 7  # type: ignore[attr-defined]
    with pytest.raises(JobError, match="two methods are called 'r'"):
        job_with(methods=["all", {"name": "RandomOrder", "label": "r"}, {"name": "FisherScore", "label": "r"}])


def test_label_defaults_to_the_name() -> None:
    methods = job_with(methods=["VarianceScore", {"name": "VarianceScore", "label": "again (2)"}]).make_methods(None)
    assert [method.label for method in methods] == ["VarianceScore", "again (2)"]


@pytest.mark.parametrize(
    "label", ["../x", "a/b", ".hidden", "a\nb", "a\tb", "<b>", "a,b", 'a"b', "a\\b", " a", "a ", "\x00", "a" * 201]
)
def test_labels_that_name_no_directory_are_refused(label: str) -> None:
    with pytest.raises(JobError, match="method label '"):
        job_with(methods=[{"name": "VarianceScore", "label": label}])


@pytest.mark.parametrize("label", ["LS k=10", "größe", "特徴", "a+b", "t (mean)", "x_1-2.5"])
def test_labels_of_letters_and_signs_are_kept(label: str) -> None:
    assert job_with(methods=[{"name": "VarianceScore", "label": label}]).make_methods(None)[0].label == label


def test_two_methods_of_one_label_are_refused() -> None:
    with pytest.raises(JobError, match="two methods are called 'VarianceScore': give one of them a label"):
        job_with(methods=["VarianceScore", "VarianceScore"])


@pytest.mark.parametrize(("name", "key"), [("PearsonScore", "task"), ("LaplacianScore", "graph")])
def test_parameters_that_follow_from_the_data_cannot_be_set(name: str, key: str) -> None:
    with pytest.raises(JobError, match=f"{name} has no parameter '{key}'"):
        job_with(methods=[{"name": name, key: "regression" if key == "task" else "given"}])


# -------------------------------------------------------------------------------- sizes
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 * GIB),
        ("2gib", 2 * GIB),
        ("500MB", 500 * 10**6),
        ("500 MB", 500 * 10**6),
        (" 1.5k ", 1500),
        ("1Ki", 1024),
        ("3T", 3 * 10**12),
        ("1TiB", 2**40),
        ("64b", 64),
        ("64", 64),
        (64, 64),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size
    assert job_with(cluster={"memory_limit": text}).cluster.memory_limit == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "5i", "5ib", "1.2.3", ".", "-1", "0", "2 GiBs", "1e9", "2,5GB", 0, -5, "٣x"]
)
def test_sizes_that_are_none(text: str | int) -> None:
    with pytest.raises(JobError, match=r"'cluster\.memory_limit'.* is not a size: write for example 2GiB"):
        job_with(cluster={"memory_limit": text})


# ---------------------------------------------------------------------------- overrides
def test_override_of_nested_keys(tmp_path: Path) -> None:
    job = overridden(
        tmp_path, "graph.n_neighbors=10", "data.labels=y", "output.title=a = b", "cluster.memory_limit=2GiB"
    )
    assert (job.graph.n_neighbors, job.data.labels, job.output.title) == (10, "y", "a = b")
    assert job.cluster.memory_limit == 2 * GIB


def test_override_by_list_number_and_of_yaml_lists(tmp_path: Path) -> None:
    job = overridden(
        tmp_path,
        "methods.1=FisherScore",
        "methods.0.n_neighbors=7",
        "evaluate.n_selected=[2, 3]",
        "data.exclude=[id, 'a b']",
        methods=["LaplacianScore", "VarianceScore"],
    )
    assert [method.name for method in job.methods] == ["LaplacianScore", "FisherScore"]
    assert job.methods[0].parameters == {"n_neighbors": 7}
    assert job.evaluate is not None
    assert job.evaluate.n_selected == (2, 3)
    assert job.data.exclude == ("id", "a b")


def test_override_turns_a_method_name_into_a_mapping(tmp_path: Path) -> None:
    job = overridden(tmp_path, "methods.0.label=v", "methods.0.score_scaling=unit")
    assert (job.methods[0].name, job.methods[0].label) == ("VarianceScore", "v")
    assert job.methods[0].parameters == {"score_scaling": "unit"}


def test_override_of_a_whole_block_null_and_the_last_one_wins(tmp_path: Path) -> None:
    job = overridden(tmp_path, "methods=[FisherScore]", "evaluate=null", "graph.t=2", "graph.t=median")
    assert [method.name for method in job.methods] == ["FisherScore"]
    assert job.evaluate is None
    assert job.graph.t == "median"


def test_override_of_an_empty_block(tmp_path: Path) -> None:
    evaluate = overridden(tmp_path, "evaluate.n_splits=3", evaluate=None).evaluate
    assert evaluate is not None
    assert evaluate.n_splits == 3


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("graph.n_neighbors", ["write key=value"]),
        ("=5", ["write key=value"]),
        ("graph.t=[", ["--set graph.t=[", "not a YAML value"]),
        ("output.title=2024-13-45", ["not a YAML value", "month"]),
        ("output.title=!!python/object/apply:os.getcwd []", ["not a YAML value", "os.getcwd"]),
        ("graph={t: 1, t: 2}", ["not a YAML value", "'t' is there twice"]),
        ("methods.3.label=x", ["'methods' is a list of 1", "'3'"]),
        ("methods.x=VarianceScore", ["'methods' is a list of 1", "'x'"]),
        ("methods.²=VarianceScore", ["'methods' is a list of 1", "'²'"]),
        ("methods.-1=VarianceScore", ["'methods' is a list of 1", "'-1'"]),
        ("output.path.deep=x", ["'output.path' holds a value, not keys"]),
        ("graph.n_neighbour=5", ["unknown key 'graph.n_neighbour'", "Did you mean 'n_neighbors'?"]),
        ("graph..t=5", ["unknown key 'graph.'"]),
        ("graph.n_neighbors=many", ["'graph.n_neighbors'", "valid integer", "'many'"]),
        ("methods.0.label=5", ["'methods.0.label'", "valid string"]),
        ("methods.0.t=5", ["VarianceScore has no parameter 't'"]),
    ],
)
def test_bad_overrides(tmp_path: Path, override: str, parts: list[str]) -> None:
    with pytest.raises(JobError) as caught:
        overridden(tmp_path, override)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------- keys and values
@pytest.mark.parametrize(
    ("blocks", "key", "meant"),
    [
        ({"method": []}, "method", "methods"),
        ({"data": {"source": "x", "lables": "y"}}, "data.lables", "labels"),
        ({"transform": {"scores": "unit"}}, "transform.scores", "score"),
        ({"graph": {"n_neighbor": 3}}, "graph.n_neighbor", "n_neighbors"),
        ({"graph": {"nNeighbors": 3}}, "graph.nNeighbors", "n_neighbors"),
        ({"select": {"n_feature": 3}}, "select.n_feature", "n_features"),
        ({"evaluate": {"n_split": 3}}, "evaluate.n_split", "n_splits"),
        ({"cluster": {"worker": 3}}, "cluster.worker", "workers"),
        ({"output": {"path": "x", "titel": "y"}}, "output.titel", "title"),
        ({"methods": [{"name": "VarianceScore", "parameters": {}, "labels": "x"}]}, "methods.0.labels", "label"),
        ({"methods": ["FisherScore", {"nam": "VarianceScore"}]}, "methods.1.nam", "name"),
    ],
)
def test_unknown_keys_name_the_nearest(blocks: dict[str, Any], key: str, meant: str) -> None:
    with pytest.raises(
        JobError, match=rf"^job: unknown key '{key}'\. Did you mean '{meant}'\? Valid keys here: .*{meant}"
    ):
        job_with(**blocks)


def test_unknown_methods_and_parameters_name_the_nearest() -> None:
    with pytest.raises(JobError, match=r"unknown method 'LaplacianScor'\. Did you mean 'LaplacianScore'\? Methods: "):
        job_with(methods=["LaplacianScor"])
    with pytest.raises(JobError, match=r"LaplacianScore has no parameter 'neighbors'\. Did you mean 'n_neighbors'"):
        job_with(methods=[{"name": "LaplacianScore", "neighbors": 5}])


@pytest.mark.parametrize(
    ("blocks", "parts"),
    [
        ({"data": {}}, ["key 'data.source' is missing"]),
        ({"output": {}}, ["key 'output.path' is missing"]),
        ({"graph": {"n_neighbors": 0}}, ["'graph.n_neighbors'", "greater than 0"]),
        ({"graph": {"n_neighbors": True}}, ["'graph.n_neighbors'", "true and false mean nothing here"]),
        ({"graph": {"t": "wide"}}, ["'graph.t'", "valid number", "'mean' or 'median'", "'wide'"]),
        ({"graph": {"t": float("inf")}}, ["'graph.t'", "finite number"]),
        ({"graph": {"t": float("nan")}}, ["'graph.t'"]),
        ({"graph": {"t": -1}}, ["'graph.t'", "greater than 0"]),
        ({"graph": {"metric": "euclid"}}, ["'graph.metric'", "'euclidean'"]),
        ({"graph": 5}, ["'graph'", "Keys should stand here", "n_neighbors"]),
        ({"transform": {"graph": "z"}}, ["'transform.graph'", "'zscore'"]),
        ({"evaluate": False}, ["'evaluate'", "null means none"]),
        ({"evaluate": {"n_selected": []}}, ["'evaluate.n_selected'", "at least 1"]),
        ({"evaluate": {"n_selected": [5, 0]}}, ["'evaluate.n_selected.1'", "greater than 0"]),
        ({"evaluate": {"n_selected": True}}, ["'evaluate.n_selected'"]),
        ({"evaluate": {"n_splits": 1}}, ["'evaluate.n_splits'", "greater than or equal to 2"]),
        ({"select": {"n_features": 0}}, ["'select.n_features'", "greater than 0"]),
        ({"cluster": {"memory_limit": [1]}}, ["key 'cluster.memory_limit':", "is not a size", "(got [1])"]),
        ({"cluster": {"memory_limit": True}}, ["'cluster.memory_limit'", "null means none"]),
        ({"cluster": {"workers": -1}}, ["'cluster.workers'"]),
        ({"cluster": {"wait_seconds": float("inf")}}, ["'cluster.wait_seconds'", "finite"]),
        ({"methods": []}, ["'methods'", "at least 1"]),
        ({"methods": "VarianceScore"}, ["'methods'", "methods is a list, for example"]),
        ({"methods": [5]}, ["'methods.0'", "name"]),
        ({"methods": [{"label": "x"}]}, ["'methods.0.name' is missing"]),
        (
            {"methods": [{"name": "LaplacianScore", "n_neighbors": 0}]},
            ["LaplacianScore", "n_neighbors", "greater than"],
        ),
        ({"methods": [{"name": "LaplacianScore", "weights": "cosine"}]}, ["cosine", "metric"]),
        ({"output": {"path": "x" * 3, "title": {"a": "b" * 200}}}, ["'output.title'", "..."]),
    ],
)
def test_bad_values(blocks: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(JobError) as caught:
        job_with(**blocks)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


# -------------------------------------------------------------------------- the file
def test_file_with_byte_order_mark_anchors_and_comments(tmp_path: Path) -> None:
    text = (
        "\ufeff# größe\ndata: {source: X.npy}\noutput: {path: r}\n"
        "methods:\n- &v {name: VarianceScore, label: a}\n- {<<: *v, label: ß}\n"
    )
    assert [method.label for method in load_job(write(tmp_path, text)).methods] == ["a", "ß"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["must hold keys", "it is empty"]),
        ("# nothing\n", ["it is empty"]),
        ("- data\n- methods\n", ["must hold keys", "it holds a list"]),
        ("just words", ["must hold keys", "'just words'"]),
        ("data: [1, 2", ["is not YAML", "line 1"]),
        ("data:\n\tsource: x\n", ["is not YAML", "'\\t'", "line 2"]),
        ("data: {source: x}\nmethods: [a]\nmethods: [b]\n", ["is not YAML", "'methods' is there twice", "line 3"]),
        ("data: {source: !!python/object/apply:os.getcwd []}", ["is not YAML", "os.getcwd"]),
        ("data: !!python/name:os.system", ["is not YAML", "os.system"]),
        ("data: !own {source: x}", ["is not YAML", "!own"]),
        ("output: {title: 2024-13-45}", ["is not YAML", "month must be in 1..12"]),
        ("output: {title: !!timestamp soon}", ["is not YAML"]),
        ("graph: {n_neighbors: !!int many}", ["is not YAML", "many"]),
        ("graph: {n_neighbors: 0b_}", ["is not YAML"]),
        ("? [a]\n: b\n", ["is not YAML", "unhashable"]),
        ("data: *unknown", ["is not YAML", "unknown"]),
        ("data: \x07", ["is not YAML"]),
        ("[" * 3000, ["is not YAML"]),
        ("1: 2\n", ["job.yaml"]),
    ],
)
def test_files_that_are_no_job(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(JobError) as caught:
        load_job(write(tmp_path, text))
    message = str(caught.value)
    assert "job.yaml" in message
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_unsafe_tags_run_nothing(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    path = write(
        tmp_path, f"data: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{touched}]]"
    )
    with pytest.raises(JobError):
        load_job(path)
    assert not touched.exists()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"cannot read the job file .*gone\.yaml: No such file"):
        load_job(tmp_path / "gone.yaml")
    with pytest.raises(JobError, match=r"cannot read the job file .*: Is a directory"):
        load_job(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("data: {source: größe}".encode("latin-1"))
    with pytest.raises(JobError, match=r"latin\.yaml is not YAML"):
        load_job(tmp_path / "latin.yaml")


# ------------------------------------------------------------------------------ identity
def test_identity_leaves_out_where_and_on_what_the_job_runs() -> None:
    here = make_job(MINIMAL)
    there = job_with(cluster={"workers": 9, "memory_limit": "2GiB"}, output={"path": "elsewhere", "title": "T"})
    assert here.identity() == there.identity()
    assert not {"cluster", "output"} & here.identity().keys()


@pytest.mark.parametrize(
    "blocks",
    [
        {"data": {"source": "Y.npy"}},
        {"data": {"source": "X.npy", "labels": "y"}},
        {"data": {"source": "X.npy", "task": "regression"}},
        {"transform": {"score": "unit"}},
        {"graph": {"n_neighbors": 6}},
        {"graph": {"random_state": 1}},
        {"graph": {"precomputed": "run"}},
        {"methods": ["FisherScore"]},
        {"methods": [{"name": "VarianceScore", "label": "x"}]},
        {"select": {"n_features": 3}},
        {"evaluate": None},
        {"evaluate": {"random_state": 1}},
    ],
)
def test_identity_holds_whatever_decides_the_results(blocks: dict[str, Any]) -> None:
    assert job_with(**blocks).identity() != make_job(MINIMAL).identity()


# --------------------------------------------------------------------------- JSON Schema
def valid(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Return whether a value fits a schema, as far as the keywords go that describe structure."""
    if "$ref" in schema:
        return valid(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in schema:
        return any(valid(value, option, root) for option in schema["anyOf"])
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    names = schema.get("type", [])
    kinds = dict[str, Any](object=dict, array=list, string=str, integer=int, number=(int, float), boolean=bool)
    wanted = [names] if isinstance(names, str) else names
    if wanted and not any(value is None if name == "null" else isinstance(value, kinds[name]) for name in wanted):
        return False
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(valid(item, schema["items"], root) for item in value)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return (
            set(schema.get("required", ())) <= value.keys()
            and (schema.get("additionalProperties") is not False or value.keys() <= known.keys())
            and all(valid(item, known[key], root) for key, item in value.items() if key in known)
        )
    return True


def test_every_key_has_a_description() -> None:
    schema = json_schema()
    blocks = {"job": schema, **schema["$defs"]}
    keys = [(block, key, entry) for block, known in blocks.items() for key, entry in known["properties"].items()]
    assert [
        (block, key) for block, key, entry in keys if "description" not in entry and "Block" not in str(entry)
    ] == []


EXAMPLES = sorted((Path(__file__).parents[2] / "daskfs/job/examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_shipped_workflows_are_jobs_and_fit_the_schema(path: Path) -> None:
    load_job(path)
    assert valid(yaml.safe_load(path.read_text(encoding="utf-8")), json_schema(), json_schema())


@pytest.mark.parametrize(
    "blocks",
    [
        {},
        {"evaluate": None},
        {"evaluate": {"n_selected": 5}},
        {"evaluate": {"n_selected": [5, 6], "scaling": None}},
        {"graph": {"t": 2.5}},
        {"graph": {"precomputed": "run/knn/euclidean"}},
        {"graph": {"precomputed": None}},
        {"cluster": {"memory_limit": "2GiB", "workers": 0}},
        {"methods": ["VarianceScore", {"name": "LaplacianScore", "t": "median", "label": "x"}]},
        {"methods": [{"name": "LaplacianScore", "parameters": {"n_neighbors": 3}}]},
        {"methods": "all", "consensus": False},
        {"methods": ["all", {"name": "LaplacianScore", "n_neighbors": 3}]},
    ],
)
def test_schema_takes_what_the_loader_takes(blocks: dict[str, Any]) -> None:
    job_with(**blocks)
    assert valid({**MINIMAL, **blocks}, json_schema(), json_schema())


@pytest.mark.parametrize(
    "blocks",
    [
        {"graphs": {}},
        {"graph": {"n_neighbour": 3}},
        {"graph": {"engine": "faiss"}},
        {"graph": {"precomputed": 5}},
        {"data": {}},
        {"methods": []},
        {"methods": ["Variance"]},
        {"methods": [{"name": "VarianceScore", "n_neighbors": 3}]},
        {"methods": [{"name": "LaplacianScore", "parameters": {"n_neighbours": 3}}]},
        {"methods": [{"name": "LaplacianScore", "graph": "given"}]},
        {"methods": [{"name": "PearsonScore", "task": "regression"}]},
        {"methods": [{"label": "x"}]},
        {"evaluate": {"n_selected": []}},
        {"cluster": {"workers": "two"}},
    ],
)
def test_schema_refuses_what_the_loader_refuses(blocks: dict[str, Any]) -> None:
    with pytest.raises(JobError):
        job_with(**blocks)
    assert not valid({**MINIMAL, **blocks}, json_schema(), json_schema())


def test_schema_names_every_method_and_every_reference_leads_somewhere() -> None:
    schema = json_schema()
    listed = schema["properties"]["methods"]["anyOf"][0]["items"]["anyOf"][1:]
    names = {entry["properties"]["name"]["const"] for entry in listed}
    assert names == set(criteria())
    assert set(schema["required"]) == {"data", "methods", "output"}
    assert set(references(schema)) <= {f"#/$defs/{name}" for name in schema["$defs"]}


def references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [found for item in node for found in references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [found for item in node.values() for found in references(item)]
