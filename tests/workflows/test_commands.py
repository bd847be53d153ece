"""No command of a document, or of the head of a workflow, goes untried: jobs load, others name their test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from daskfs.job.job import load_job

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WORKFLOWS, EXAMPLES = ROOT / "workflows", ROOT / "daskfs/job/examples"
PROGRAMS = "daskfs docker kind kubectl helm argo airflow python python3 sbatch snakemake srun"
IN_A_HEAD = re.compile(rf"^#? {{3,6}}((?:{PROGRAMS.replace(' ', '|')}) .+)$", re.MULTILINE)
OPERATOR, MANIFESTS = "tests/kubernetes/test_operator.py", "tests/kubernetes/test_manifests.py"
SCHEDULERS, SHIPPED = "tests/workflows/test_schedulers.py", "tests/workflows/test_workflows.py"
PAPERS = "tests/workflows/test_papers.py"
DEVELOPMENT = f"{MANIFESTS}::test_development_is_small_and_has_no_schedule"
TRIED_BY = {
    "docker build -f workflows/Dockerfile": f"{SCHEDULERS}::test_hadolint_has_no_complaint",
    "kubectl apply -k workflows/kubernetes/base": f"{OPERATOR}::test_daskjob_outlives_a_worker",
    "kubectl apply -k workflows/kubernetes/overlays/spot": f"{MANIFESTS}::test_spot_moves_workers_alone",
    "kubectl apply -k workflows/kubernetes/overlays/development": DEVELOPMENT,
    "kubectl create job --from=cronjob/daskfs": f"{OPERATOR}::test_scheduled_job_goes_on_after_interruptions",
    "kubectl apply -f workflows/argo/cronworkflow.yaml": f"{SCHEDULERS}::test_nothing_is_unknown_to_its_api",
    "python launch.py": f"{OPERATOR}::test_scheduled_job_goes_on_after_interruptions",
    "snakemake --snakefile workflows/snakemake/Snakefile": f"{SCHEDULERS}::test_snakemake_goes_on",
    "daskfs rank": "tests/cli/test_rank.py::test_one_command_ends_with_a_verdict",
    "python -m tests.torture": "tests/torture/test_torture.py::test_",
    "python -m tests.benchmarks.compared": "tests/benchmarks/test_benchmarks.py::test_comparison_with_other_packages",
    "sbatch workflows/slurm/job.sbatch": "tests/slurm/test_allocation.py::test_",
    "sbatch job.sbatch": "tests/slurm/test_allocation.py::test_",
    "sbatch one_node.sbatch": "tests/slurm/test_allocation.py::test_a_job_of_one_node_uses_what_it_has",
    "sbatch jobqueue.sbatch": "tests/slurm/test_jobqueue.py::test_",
    "python workflows/partly_labeled.py": f"{SHIPPED}::test_every_criterion_ranks_by_few_labels",
    "python workflows/papers/laplacian.py": f"{PAPERS}::test_figures_are_the_papers",
    "python workflows/papers/regression.py": f"{PAPERS}::test_",
    "python workflows/papers/sselect.py": f"{SHIPPED}::test_sselect_experiment_in_small_form",
    "python workflows/papers/ssufs.py": f"{SHIPPED}::test_ssufs_experiment_in_small_form",
    "python workflows/papers/svm.py": f"{SHIPPED}::test_svm_experiment_in_small_form",
    "python3 -m venv .venv": f"{SHIPPED}::test_readme_commands_name_what_exists",
    "pip install": "tests/test_docs.py::test_extras_that_documents_name_exist",
}
"""Beginnings of commands, and the test that does what each of them says."""


def commands() -> set[str]:
    """Return the commands in blocks of the documents and in the heads of all workflows and examples."""
    found = set()
    for path in (ROOT / "README.md", WORKFLOWS / "README.md", *DOCS.rglob("*.md")):
        for block in re.findall(r"^```sh\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE):
            found |= {line.partition("  #")[0].strip() for line in block.splitlines() if line.strip()}
    for path in (*WORKFLOWS.rglob("*"), *EXAMPLES.glob("*.yaml")):
        if path.is_file() and path.suffix not in (".md", ".png") and "__pycache__" not in path.parts:
            found |= {re.split(r" {3,}", line)[0].strip() for line in IN_A_HEAD.findall(path.read_text())}
    return found


def job_named(name: str, folder: Path) -> Path:
    """Return a job file of the repository, or one that a page of the documentation writes, at its end."""
    for path in (ROOT / name, EXAMPLES / name):
        if path.exists():
            return path
    written = rf"^%%writefile {re.escape(name)}\n(.*?)^```$"
    (text,) = (cell for page in DOCS.rglob("*.md") for cell in re.findall(written, page.read_text(), re.M | re.S))
    (folder / name).write_text(text)
    return folder / name


def test_every_command_is_found() -> None:
    assert len(commands()) > len(TRIED_BY) / 2
    assert "kubectl apply -k workflows/kubernetes/base" in commands()


@pytest.mark.parametrize("command", sorted(commands()))
def test_command_is_tried(command: str, tmp_path: Path) -> None:
    program, *words = shlex.split(command)
    if program == "export":
        assert f"`{words[0].partition('=')[0]}`" in (DOCS / "reference/environment.md").read_text()
        return
    if program == "daskfs" and words[0] in ("run", "plan"):
        _, job, *rest = words
        assert rest[::2] == ["--set"] * (len(rest) // 2)
        load_job(job_named(job, tmp_path), rest[1::2])
        return
    tried = [test for beginning, test in TRIED_BY.items() if f"{command} ".startswith(f"{beginning} ")]
    assert len(tried) == 1, f"no test is named that does what {command!r} says"
    path, _, name = tried[0].partition("::")
    assert re.search(rf"^ *(async )?def {name}", (ROOT / path).read_text(), re.MULTILINE)


def test_every_named_test_is_of_a_command() -> None:
    found = commands()
    assert [
        beginning for beginning in TRIED_BY if not any(f"{one} ".startswith(f"{beginning} ") for one in found)
    ] == []
