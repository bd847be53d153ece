"""What sites have: variables in paths, Dask's own files, temporary folders, quotas, network file systems."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest

from daskfs.job.job import load_job, make_cluster
from daskfs.storage import as_path
from daskfs.store.store import Store, remove_unfinished
from daskfs.store.write_errors import no_room

from .command import basic_job, daskfs, refused, write_job

USAGE = 2
COMMAND = (sys.executable, "-m", "daskfs")


def run(job: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, **environment}
    return subprocess.run([*COMMAND, "run", job, *options], capture_output=True, text=True, check=False, env=own)


class TestVariables:
    def test_they_are_replaced_in_every_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SCRATCH", str(tmp_path))
        job = basic_job(tmp_path)
        data = {"source": "$SCRATCH/X.npy", "labels": "${SCRATCH}/y.npy"}
        path = write_job(tmp_path, {**job, "data": data, "output": {"path": "$SCRATCH/run"}})
        assert daskfs("run", path, "-q").code == 0
        assert (tmp_path / "run" / "ranking.csv").exists()
        plain = write_job(tmp_path, job)
        again = daskfs("run", plain, "-q", "--json")
        assert (again.code, again.json["recomputed"]) == (0, {}), "the same job"

    @pytest.mark.parametrize("key", ["data.source", "output.path", "graph.precomputed", "cluster.local_directory"])
    def test_one_that_is_not_set_is_named(self, key: str, tmp_path: Path) -> None:
        job = write_job(tmp_path, basic_job(tmp_path))
        outcome = daskfs("run", job, "--set", f"{key}=$DASKFS_NO_SUCH/x")
        refused(outcome, USAGE, key, "the variable DASKFS_NO_SUCH is not set here")

    def test_credentials_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
        monkeypatch.setenv("PLACE", "s3://user:swordfish@bucket")
        job = write_job(tmp_path, basic_job(tmp_path))
        for text in ("$AWS_SECRET_ACCESS_KEY/run", "$PLACE/run"):
            outcome = daskfs("run", job, "--set", f"output.path={text}")
            refused(outcome, USAGE, "output.path", "credential")
            assert "swordfish" not in outcome.err

    def test_a_name_that_only_sounds_like_a_credential_serves(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MONKEY_DIR", str(tmp_path))
        job = write_job(tmp_path, basic_job(tmp_path, output={"path": "$MONKEY_DIR/run"}))
        assert daskfs("run", job, "-q").code == 0

    def test_names_of_columns_are_not_paths(self, tmp_path: Path) -> None:
        lines = ["$a,b,price $USD", *(f"{i % 7},{i % 5},{i % 2}" for i in range(40))]
        (tmp_path / "t.csv").write_text("\n".join(lines))
        data = {"source": str(tmp_path / "t.csv"), "labels": "price $USD"}
        assert daskfs("run", write_job(tmp_path, basic_job(tmp_path, data=data)), "-q").code == 0

    def test_the_node_expands_its_own(self, tmp_path: Path) -> None:
        slurm: dict[str, Any] = {"slurm": {}, "memory_limit": "1GiB"}
        assert make_cluster({**slurm, "local_directory": "$TMPDIR/x"}).local_directory == "$TMPDIR/x"
        with pytest.raises(ValueError, match="DASKFS_NO_SUCH"):
            load_job(write_job(tmp_path, basic_job(tmp_path)), ["cluster.local_directory=$DASKFS_NO_SUCH"])

    def test_an_output_that_goes_with_the_job_is_warned_of(self, tmp_path: Path) -> None:
        own = tmp_path / "slurm.4711"
        own.mkdir()
        job = write_job(own, basic_job(own))
        told = f"output.path lies in {own}, which is deleted with this job"
        assert told in run(job, SLURM_JOB_ID="4711", TMPDIR=str(own)).stderr
        assert told in run(job, PBS_JOBID="4711.server", TMPDIR=str(own)).stderr
        shutil.rmtree(own / "run")
        assert told not in run(job, SLURM_JOB_ID="98765432101", TMPDIR=str(own)).stderr, "a directory that stays"
        assert told not in run(job, TMPDIR=str(own)).stderr


class TestConfigurationOfDask:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("DASK_DISTRIBUTED__ADMIN__TICK__LIMIT", "xyz"),
            ("DASK_LOGGING", "bad"),
            ("DASK_DISTRIBUTED__NANNY__PRELOAD", "nosuchmodule"),
        ],
    )
    def test_a_wrong_variable_is_named(self, name: str, value: str, tmp_path: Path) -> None:
        done = run(write_job(tmp_path, basic_job(tmp_path, cluster={"workers": 1})), **{name: value})
        assert (done.returncode, done.stderr.count("\n")) == (USAGE, 1), done.stderr
        assert done.stderr.startswith("daskfs: Dask cannot be configured (")
        assert name in done.stderr.partition("correct what is wrong in ")[2]

    def test_a_broken_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "dask").mkdir()
        (tmp_path / "dask" / "site.yaml").write_text("a: [b")
        (tmp_path / "dask" / "empty.yaml").write_text("# nothing\n")
        done = run(write_job(tmp_path, basic_job(tmp_path)), DASK_CONFIG=str(tmp_path / "dask"))
        assert (done.returncode, done.stderr.count("\n")) == (USAGE, 1), done.stderr
        assert f"{tmp_path}/dask/site.yaml." in done.stderr
        assert "empty.yaml" not in done.stderr

    def test_what_workers_cannot_start_with_is_named(self, tmp_path: Path) -> None:
        job = write_job(tmp_path, basic_job(tmp_path, cluster={"workers": 1}))
        done = run(job, DASK_DISTRIBUTED__WORKER__MEMORY__TARGET="bad")
        assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
        assert "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET" in done.stderr.partition("Dask is configured by ")[2]

    def test_keys_of_the_site_are_taken(self) -> None:
        slurm = pytest.importorskip("daskfs.execution.clusters.slurm")
        own = {"account": "mine", "job_extra_directives": ["--constraint=avx512"]}
        settings = make_cluster({"slurm": own, "memory_limit": "1GiB"})
        site = {"queue": "long", "account": "theirs", "interface": "ib0", "job-extra-directives": ["--exclusive"]}
        with dask.config.set({f"jobqueue.slurm.{key}": value for key, value in site.items()}):
            options = slurm.job_options(settings, settings.slurm)
            assert slurm.of_site(settings).keys() == {"queue", "interface", "job_extra_directives"}
        assert (options["queue"], options["account"], options["interface"]) == ("long", "mine", "ib0")
        assert options["job_extra_directives"] == ["--no-requeue", "--exclusive", "--constraint=avx512"]

    def test_paths_are_quoted_for_the_shell_of_a_node(self) -> None:
        slurm = pytest.importorskip("daskfs.execution.clusters.slurm")
        text = slurm.on_node('/my run/$X/`b`"\\')
        done = subprocess.run(["bash", "-c", f"printf %s {text}"], capture_output=True, text=True, env={"X": "a b"})
        assert done.stdout == '/my run/a b/`b`"\\'


class TestTemporaryFolders:
    def test_a_long_name_is_no_obstacle(self, tmp_path: Path) -> None:
        folder = tmp_path / ("d" * 100)
        folder.mkdir()
        done = run(write_job(tmp_path, basic_job(tmp_path, cluster={"workers": 1})), TMPDIR=str(folder))
        assert done.returncode == 0, done.stderr

    def test_where_there_is_none_one_is_asked_for(self, tmp_path: Path) -> None:
        """A read-only root, as of many containers."""
        code = (
            "import sys, tempfile\n"
            "tempfile._candidate_tempdir_list = lambda: ['/proc']\n"
            "from daskfs.cli import main\n"
            "main()\n"
        )
        job = write_job(tmp_path, basic_job(tmp_path, cluster={"workers": 1}))
        command = [sys.executable, "-c", code, "run", str(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (USAGE, 1), done.stderr
        assert "no directory for temporary files can be written here: name one by TMPDIR" in done.stderr


class TestDisks:
    @pytest.mark.parametrize(
        ("state", "told"),
        [
            ({"f_files": 100, "f_favail": 0, "f_bavail": 2**30}, "It has no room for more files (inodes)"),
            ({"f_files": 100, "f_favail": 50, "f_bavail": 2**30}, "4096 GiB are free, so a quota of bytes or files is"),
            ({"f_files": 0, "f_favail": 0, "f_bavail": 10}, "Make room there"),
        ],
    )
    def test_what_is_full_is_named(
        self, state: dict[str, int], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_frsize=4096, **state))
        message = str(no_room(as_path(tmp_path / "not" / "there"), OSError(errno.EDQUOT, "Disk quota exceeded")))
        assert told in message
        assert "the same command goes on" in message

    def test_what_nfs_keeps_of_open_files_goes_at_the_next_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its client renames a file that is deleted while a process has it open."""
        store = Store(tmp_path / "run")
        (tmp_path / "run" / "a" / "b").mkdir(parents=True)
        for name in ("a/x", "a/b/.nfs0001", "a/b/y"):
            (tmp_path / "run" / name).touch()
        unlink, is_open = os.unlink, True

        def unlink_as_nfs(path: Any, *arguments: Any, **options: Any) -> None:
            if is_open and os.fspath(path).endswith(".nfs0001"):
                raise OSError(errno.EBUSY, "Device or resource busy", path)
            unlink(path, *arguments, **options)

        monkeypatch.setattr(os, "unlink", unlink_as_nfs)
        as_path(tmp_path / "run" / "a").remove()
        left = [path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*") if path.is_file()]
        assert [path.name for path in left] == [".nfs0001"]
        assert not (tmp_path / "run" / "a").exists()
        is_open = False
        remove_unfinished(store)
        assert list((tmp_path / "run").iterdir()) == []

    def test_what_else_cannot_be_deleted_is_named_with_its_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "x").touch()

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(errno.EIO, "Input/output error", "x")

        monkeypatch.setattr(os, "unlink", refuse)
        with pytest.raises(OSError, match="Input/output error") as raised:
            as_path(tmp_path / "a").remove()
        monkeypatch.undo()
        assert Path(raised.value.filename).is_relative_to(tmp_path)
        assert Path(raised.value.filename).parts[-2:] == ("b", "x")
        shutil.rmtree(tmp_path)
