"""Run at the start of each notebook's kernel: ``!command`` prints results and warnings, and raises if it fails.

IPython's own ``!`` gives commands a terminal, so that progress bars fill the page, and ignores exit codes. A command
that is meant to fail says so: ``!daskfs run wrong.yaml || echo "exit code $?"``.
"""

import subprocess


def _system(command: str) -> None:
    shell = get_ipython()  # noqa: F821 - a name in every kernel
    done = subprocess.run(shell.var_expand(command, depth=1), shell=True, capture_output=True, text=True, check=False)
    messages = [line for line in done.stderr.splitlines() if done.returncode or line.startswith(("daskfs:", "Usage:"))]
    print("\n".join([*messages, done.stdout.rstrip("\n")]).strip("\n"))
    done.check_returncode()


get_ipython().system = _system  # noqa: F821
