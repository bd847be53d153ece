"""Objects as paths: what a path of this machine does, one of a store does too, or says why not."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daskfs import storage
from daskfs.errors import InputError
from daskfs.storage import Access, ObjectPath, StoragePath, as_path, clients, object_names, objects
from tests.storage.proxy import FAULTS, Proxy, proxy
from tests.storage.server import reach

pytestmark = pytest.mark.platforms


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> StoragePath:
    return as_path(tmp_path / "a" if request.param == "disk" else f"{bucket}/a")


def test_urls_and_paths() -> None:
    assert as_path("s3://bucket/a//b/./c/") == ObjectPath("s3://bucket", "a/b/c")
    assert str(as_path("gs://bucket")) == "gs://bucket"
    assert str(as_path("~/x")) == str(Path.home() / "x")
    path = as_path("az://container/a/b.tar.gz")
    assert (path.name, path.suffix, path.stem, str(path.parent)) == ("b.tar.gz", ".gz", "b.tar", "az://container/a")
    assert as_path(path) is path
    with pytest.raises(InputError, match=r"s3:///a names no bucket: write s3://BUCKET/NAME\."):
        as_path("s3:///a")
    with pytest.raises(InputError, match=r"holds '\.\.'"):
        as_path("s3://bucket/a/../b")
    with pytest.raises(ValueError, match="leads out of"):
        ObjectPath("s3://bucket", "a") / "../b"


def test_order_and_relations() -> None:
    a, b = ObjectPath("s3://bucket", "a"), ObjectPath("s3://bucket", "a/b")
    assert sorted([b, a]) == [a, b]
    assert len({a, b, ObjectPath("s3://bucket", "a")}) == 2
    assert b.lies_in(a)
    assert not a.lies_in(b)
    assert not ObjectPath("s3://bucket", "ab").lies_in(a)
    assert b.name_below(a) == "b"
    with pytest.raises(ValueError, match="does not lie in"):
        a.name_below(b)
    assert not as_path("/a/b").lies_in(a)
    assert not b.lies_in(as_path("/a"))
    assert b.relative_name(ObjectPath("s3://bucket", "c/d")) == "../../a/b"
    assert b.relative_name(ObjectPath("s3://other", "c")) == str(b)
    assert as_path("/x/y").relative_name(as_path("/x/z")) == "../y"


def test_what_is_written_is_there(folder: StoragePath) -> None:
    assert not folder.is_there()
    (folder / "b" / "c.txt").put(b"one\ntwo\n")
    (folder / "d.bin").put(bytes(range(256)))
    assert (folder.is_dir(), (folder / "b").is_dir(), (folder / "d.bin").is_dir()) == (True, True, False)
    assert ((folder / "b" / "c.txt").is_file(), (folder / "b").is_file()) == (True, False)
    assert sorted(path.name for path in folder.iterdir()) == ["b", "d.bin"]
    assert [path.name for path in folder.glob("*.bin")] == ["d.bin"]
    assert {path.name_below(folder) for path in folder.files_below()} == {"d.bin", "b/c.txt"}
    assert (folder / "d.bin").stat().st_size == 256
    assert bytes((folder / "d.bin").read_buffer()) == bytes(range(256))
    assert (folder / "d.bin").open_whole().read() == bytes(range(256))
    with (folder / "b" / "c.txt").open() as file:
        assert file.readlines() == ["one\n", "two\n"]
    with (folder / "d.bin").stream(100) as (size, blocks):
        assert (size, b"".join(map(bytes, blocks))) == (256, bytes(range(256)))
    (folder / "d.bin").put(b"new")
    assert (folder / "d.bin").read_bytes() == b"new"


def test_what_is_not_there(folder: StoragePath) -> None:
    missing = folder / "no"
    calls: list[Callable[[], object]] = [
        missing.read_bytes,
        missing.stat,
        lambda: missing.read_buffer(),
        lambda: missing.open_whole(),
        lambda: list(missing.iterdir()),
        lambda: missing.stream(1).__enter__(),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert str(caught.value.filename) == str(missing)
    assert list(missing.glob("*")) == []
    assert list(missing.files_below()) == []
    missing.remove()
    missing.unlink(missing_ok=True)


def test_remove_takes_an_object_and_all_below_it_and_no_neighbor(folder: StoragePath) -> None:
    for name in ("a/1", "a/b/2", "ab", "c"):
        (folder / name).put(b"x")
    (folder / "a").remove()
    assert {path.name_below(folder) for path in folder.files_below()} == {"ab", "c"}
    (folder / "c").remove()
    assert {path.name_below(folder) for path in folder.files_below()} == {"ab"}


@pytest.mark.parametrize("whole", [False, True])
def test_sizes(folder: StoragePath, whole: bool) -> None:
    names = [f"X/c/{i}/{j}" for i in range(3) for j in range(4)] + ["plan.json", "records/s/1.json"]
    for number, name in enumerate(names):
        (folder / name).put(b"x" * number)
    asked = [*names, "X/c/9/9", "gone", "records"]
    assert storage.sizes(folder, asked, whole=whole) == {name: number for number, name in enumerate(names)}


def test_an_object_is_read_piece_by_piece(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(10_000)
    path = ObjectPath.of(f"{bucket}/x")
    path.write_bytes(data)
    monkeypatch.setattr(objects, "RANGE_PIECE_BYTES", 999)
    with path.open("rb", buffering=1024) as file:
        assert file.read(10) == data[:10]
        assert file.seek(-100, io.SEEK_END) == 9900
        assert file.read() == data[9900:]
        assert file.read() == b""
        file.seek(5000)
        assert file.read(4000) == data[5000:9000]
    with pytest.raises(ValueError, match="opened for reading"):
        path.open("w")


def test_an_object_is_put_only_where_it_still_has_its_tag(bucket: str) -> None:
    path = ObjectPath.of(f"{bucket}/lock")
    first = path.put_if(b"1", (None, None))
    with pytest.raises(FileExistsError):
        path.put_if(b"2", (None, None))
    second = path.put_if(b"2", first)
    with pytest.raises(FileExistsError):
        path.put_if(b"3", first)
    assert path.read_tagged() == (b"2", second)


@pytest.mark.parametrize("fault", [*FAULTS, "conflict", "lost"])
def test_a_conditional_write_is_read_back(
    server: str, bucket: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Whatever its answer, the first one stays, and each writer learns whose it is."""
    path = ObjectPath.of(f"{bucket}/lock")
    with proxy(Proxy(server, next_faults=[fault])) as unreliable:
        reach(monkeypatch, unreliable.url)
        assert path.put_first(b"mine")
        unreliable.next_faults.append(fault)
        assert not path.put_first(b"another's")
        tag = path.read_tagged()[1]
        unreliable.next_faults.append(fault)
        renewed = path.put_if(b"renewed", tag)
        assert path.read_tagged() == (b"renewed", renewed)
        unreliable.next_faults.append(fault)
        with pytest.raises(FileExistsError):
            path.put_if(b"late", tag)
        path.unlink()
        unreliable.next_faults.append(fault)
        with pytest.raises(FileNotFoundError):
            path.put_if(b"gone", renewed)
        unreliable.next_faults.append(fault)
        path.put(b"plain")
        assert path.read_bytes() == b"plain"
    assert unreliable.faults[fault] >= 5


def test_requests_that_are_cut_off_are_made_again(server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ObjectPath.of(bucket)
    with proxy(Proxy(server, fault_rate=0.25, seed=3)) as unreliable:
        reach(monkeypatch, unreliable.url)
        for number in range(12):
            (folder / f"{number}").write_bytes(b"x" * 1000)
            assert len((folder / f"{number}").read_buffer()) == 1000
            assert not (folder / "no").is_file()
            assert len(list(folder.objects())) == number + 1
        folder.remove()
        assert list(folder.objects()) == []
    assert len(unreliable.faults) == 3


def test_a_changed_access_is_seen(server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ObjectPath.of(f"{bucket}/x")
    path.write_bytes(b"1")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    clients._client.cache_clear()
    with storage.reached_by({}):
        storage.apply_access(((path.root, server, "us-east-1", False),))
        assert path.read_bytes() == b"1"
        assert storage.access_rows() == ((path.root, server, "us-east-1", False),)
        with storage.reached_by({path.root: Access(endpoint="http://127.0.0.1:1")}):
            monkeypatch.setattr(clients, "RETRIES", {"max_retries": 0})
            with pytest.raises(OSError, match="HTTP error"):
                path.read_bytes()
        assert path.read_bytes() == b"1"


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    del bucket
    nowhere = ObjectPath.of("s3://no-such-bucket/x")
    for call in (lambda: nowhere.write_bytes(b""), lambda: list(nowhere.objects()), nowhere.read_bytes):
        with pytest.raises(FileNotFoundError, match="there is no such bucket"):
            call()


def test_without_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_names, "find_spec", {}.get)
    with pytest.raises(InputError, match=r"s3://bucket/x is .* pip install 'daskfs\[object\]'\."):
        as_path("s3://bucket/x")
