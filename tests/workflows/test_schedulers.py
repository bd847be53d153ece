"""What runs jobs for others takes the workflows written for it: Argo's models, Airflow, Snakemake, hadolint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.execution.runs import run_here
from tests.kubernetes.manifests import check_cron, pods_of

pytestmark = pytest.mark.platforms

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "workflows"
QUICKSTART = ROOT / "daskfs/job/examples/digits.yaml"


def program(name: str) -> str:
    """Return a program of this environment or of the path, or skip what needs it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


class TestArgo:
    @pytest.fixture(scope="class")
    @staticmethod
    def workflow() -> Any:
        return yaml.safe_load((WORKFLOWS / "argo/cronworkflow.yaml").read_text())

    def test_nothing_is_unknown_to_its_api(self, workflow: Any) -> None:
        models = pytest.importorskip("hera.workflows.models")

        def known(one: Any) -> Any:
            return models.CronWorkflow.model_validate(one).model_dump(by_alias=True, exclude_unset=True, mode="json")

        assert known(workflow) == workflow
        misspelt = json.loads(json.dumps(workflow).replace("successCondition", "succesCondition"))
        assert known(misspelt) != misspelt

    def test_schedule_and_conditions(self, workflow: Any) -> None:
        for schedule in workflow["spec"]["schedules"]:
            check_cron(schedule)
        (template,) = workflow["spec"]["workflowSpec"]["templates"]
        assert template["name"] == workflow["spec"]["workflowSpec"]["entrypoint"]
        found = [template["resource"][key] for key in ("successCondition", "failureCondition")]
        assert found == ["status.jobStatus == Successful", "status.jobStatus == Failed"]

    def test_its_dask_job_is_that_of_the_base(self, workflow: Any) -> None:
        """The operator ran that one."""
        base = yaml.safe_load((WORKFLOWS / "kubernetes/base/daskjob.yaml").read_text())
        (template,) = workflow["spec"]["workflowSpec"]["templates"]
        own = yaml.safe_load(template["resource"]["manifest"])
        for pod in pods_of(own).values():
            assert pod["containers"][0].pop("image").startswith("daskfs:")
        for pod in pods_of(base).values():
            assert pod["containers"][0].pop("image") == "daskfs"
        selector, of_base = (
            one["spec"]["cluster"]["spec"]["scheduler"]["service"].pop("selector") for one in (own, base)
        )
        assert own["spec"] == base["spec"]
        assert selector.keys() - of_base.keys() == {"daskfs/workflow"}
        assert selector["daskfs/workflow"] == own["metadata"]["labels"]["daskfs/workflow"] == "{{workflow.name}}"


ASKED = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
task = bag.dags["daskfs"].get_task("run")
found = {}
for code in map(int, sys.argv[2:]):
    open("code", "w").write(str(code))
    try:
        task.execute({})
        found[code] = "done"
    except Exception as error:
        found[code] = type(error).__name__
print(json.dumps({"errors": bag.import_errors, "retries": task.retries, "found": found}))
"""


class TestAirflow:
    def asked(self, folder: Path, daskfs: Path, job: Path, *codes: int) -> Any:
        """Return what Airflow makes of the DAG, and of a program's exit codes."""
        python = Path(program("airflow")).with_name("python")
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "DASKFS": str(daskfs),
            "DASKFS_JOB": str(job),
        }
        command: list[Any] = [python, "-c", ASKED, WORKFLOWS / "airflow", *map(str, codes)]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def test_tries_again_what_can_go_on(self, tmp_path: Path) -> None:
        stub = executable(tmp_path / "stub", f"exit $(cat {tmp_path}/code)")
        result = self.asked(tmp_path, stub, tmp_path / "job.yaml", 0, 1, 2, 3, 4, 75)
        assert result["errors"] == {}
        assert result["retries"] > 1
        again, never = "AirflowException", "AirflowFailException"
        expected = {"0": "done", "1": again, "2": never, "3": never, "4": again, "75": again}
        assert result["found"] == expected

    @pytest.mark.cluster
    def test_runs_a_job(self, tmp_path: Path) -> None:
        job = yaml.safe_load(QUICKSTART.read_text())
        job |= {"output": {"path": str(tmp_path / "run")}, "cluster": {"workers": 0}}
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        daskfs = executable(tmp_path / "daskfs", f'exec {sys.executable} -m daskfs "$@"')
        assert self.asked(tmp_path, daskfs, tmp_path / "job.yaml", 0)["found"] == {"0": "done"}
        assert (tmp_path / "run/report.html").is_file()


@pytest.mark.cluster
def test_snakemake_goes_on(tmp_path: Path) -> None:
    """The command of the Snakefile's head, with a driver that is interrupted the first time."""
    run = tmp_path / "snakemake"
    own = f'{sys.executable} -m daskfs "$@"'
    daskfs = executable(tmp_path / "daskfs", f"test -e once && exec {own}\ntouch once\necho interrupted\nexit 75")
    command: list[Any] = [
        *(program("snakemake"), "--snakefile", WORKFLOWS / "snakemake/Snakefile", "--cores", "2"),
        *(
            "--directory",
            tmp_path,
            "--config",
            f"job={QUICKSTART}",
            f"output={run}",
            f"daskfs={daskfs}",
        ),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "once").exists()
    assert "Trying to restart job" in done.stderr
    run_here(QUICKSTART, "--set", f"output.path={tmp_path / 'local'}")
    ranking = (tmp_path / "local/ranking.csv").read_bytes()
    assert run.with_name("snakemake.ranking.csv").read_bytes() == (run / "ranking.csv").read_bytes() == ranking


class TestDockerfile:
    def test_hadolint_has_no_complaint(self, tmp_path: Path) -> None:
        hadolint = program("hadolint")
        done = subprocess.run([hadolint, WORKFLOWS / "Dockerfile"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        (tmp_path / "Dockerfile").write_text(
            (WORKFLOWS / "Dockerfile").read_text().replace("WORKDIR /src", "WORKDIR src")
        )
        done = subprocess.run([hadolint, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False)
        assert (done.returncode, "DL3000" in done.stdout) == (1, True)

    def test_what_it_copies_and_installs_is_there(self) -> None:
        text = (WORKFLOWS / "Dockerfile").read_text()
        copied = [name for line in re.findall(r"^COPY ([^-].*)$", text, re.MULTILINE) for name in line.split()[:-1]]
        assert copied
        assert all((ROOT / name).exists() for name in copied)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert {project["readme"], *project["license-files"]} <= set(copied)
        (extras,) = re.findall(r"pip install --no-cache-dir '\.\[(.*)\]'", text)
        assert set(extras.split(",")) <= project["optional-dependencies"].keys()
        assert re.search(r"^USER \d+$", text, re.MULTILINE)
