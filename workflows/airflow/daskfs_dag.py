"""A DAG for Airflow 3 with one task: ``daskfs run JOB``, tried again where it was interrupted; it goes on from there.

Exit codes 75 (interrupted), 4 (cluster) and 1 are tried again, ``retries`` times; 2 (job file) and 3 (data) fail at
once, as another try would end like that one. When Airflow ends the task, daskfs is told, and stops in order. The
variables DASKFS and DASKFS_JOB of the workers' environment name the program, which has a virtual environment of its
own, and the job file.

Tried: a test lets Airflow 3.3 itself read this file, and run the task with a job and with a program that ends with each
of these codes. Its scheduler, which waits between tries, was not.
"""

import os
from datetime import datetime, timedelta

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException


class Daskfs(BaseOperator):
    """Runs a job of daskfs."""

    template_fields = ("job",)

    def __init__(self, job: str, **arguments) -> None:
        super().__init__(**arguments)
        self.job, self.hook = job, SubprocessHook()

    def execute(self, context) -> None:
        del context
        command = [os.environ.get("DASKFS", "daskfs"), "run", self.job]
        code = self.hook.run_command(command, cwd=".").exit_code
        if code in (2, 3):
            msg = f"daskfs ended with exit code {code}: see its last line, and mend job or data"
            raise AirflowFailException(msg)
        if code != 0:
            msg = f"daskfs ended with exit code {code}; the next try goes on from its output"
            raise AirflowException(msg)

    def on_kill(self) -> None:
        self.hook.send_sigterm()


with DAG("daskfs", schedule="15 2 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    Daskfs(
        task_id="run",
        job=os.environ.get("DASKFS_JOB", "job.yaml"),
        retries=10,
        retry_delay=timedelta(minutes=1),
        execution_timeout=timedelta(hours=20),
    )
