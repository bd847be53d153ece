"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

from tests import optional


def passes_checks(estimator: Any, failing: dict[str, str] | None = None) -> None:
    """All checks pass but those that are known to fail. Those that need a package that is missing come last.

    Without SCIPY_ARRAY_API=1 in the environment, scikit-learn itself skips its check of array namespaces.
    """
    expected = failing or {}
    found = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert len(found) > 50
    for result in found:
        if not _wants_pandas(result):
            wanted = "xfail" if result["check_name"] in expected else "passed"
            assert result["status"] == wanted, (result["check_name"], result["exception"])
    if any(map(_wants_pandas, found)):
        pytest.skip(optional.reason("pandas"))


def _wants_pandas(result: dict[str, Any]) -> bool:
    told = str(result["exception"]).startswith("pandas is not installed")
    return result["status"] == "skipped" and told and find_spec("pandas") is None
