"""What is released: one version, and archives that hold what they should."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from daskfs import __version__
from tests.release import CHANGED, CLONE, address, released
from tests.test_architecture import PACKAGE

ROOT = PACKAGE.parent


def test_version_is_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].startswith(__version__)
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text())
    texts = [
        path.read_text()
        for path in (ROOT / "workflows").rglob("*")
        if path.suffix in (".yaml", ".md", "") and path.is_file()
    ]
    tags = {tag for text in texts for tag in re.findall(r"(?:daskfs:|newTag: \")(\d[\w.]*)", text)}
    assert tags == {__version__}


@pytest.mark.parametrize("name", CHANGED)
def test_pages_of_a_release_install_it_and_link_to_rendered_pages(name: str) -> None:
    text = (ROOT / name).read_text()
    made = released(name, text)
    assert "pip install daskfs" in made
    assert CLONE not in made
    assert {extra for extra in re.findall(r"'\.\[(\w+)", made)} <= {"test"}
    assert released(name, made) == made
    if name == "README.md":
        links = re.findall(r"\]\(([^)]*)\)", made)
        assert len(links) == text.count("](")
        assert all((ROOT / link.removeprefix(address() + "/").partition("?")[0]).is_file() for link in links)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build a wheel from a source archive, as a release does."""
    pytest.importorskip("build")
    target = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", target, ROOT], check=True, capture_output=True)
    (wheel,), (source,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, source


@pytest.mark.long
class TestArchives:
    def test_wheel_is_the_package(self, archives: tuple[Path, Path]) -> None:
        with zipfile.ZipFile(archives[0]) as wheel:
            names = set(wheel.namelist())
        own = {
            str(path.relative_to(ROOT))
            for path in PACKAGE.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert {name for name in names if ".dist-info/" not in name} == own
        assert {"daskfs/py.typed", "daskfs/__init__.pyi", "daskfs/job/examples/digits.yaml"} <= own

    def test_source_can_be_tested_and_documented(self, archives: tuple[Path, Path]) -> None:
        with tarfile.open(archives[1]) as source:
            names = {name.partition("/")[2] for name in source.getnames()}
        assert {"pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"} <= names
        assert {"tests/test_release.py", "docs/conf.py", "docs/index.md", "workflows/README.md"} <= names
        assert not [name for name in names if name.startswith((".", "runs", "build")) and name != ".gitignore"]
