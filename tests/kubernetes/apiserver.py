"""A stand-in for the API server of Kubernetes, on the loopback: it keeps objects, and tells who watches them.

What kubectl, kopf and kr8s ask of it: discovery; get, list, create, update, delete; merge and JSON patches; watches
from a resource version on; finalizers; the removal of what is owned by what is gone; status as a subresource, where the
kind has one; and, for requests with a service account's token, the rules of its roles. It checks no schemas
(``manifests.py`` does), fills in no defaults and knows one version of each kind.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonpatch
from aiohttp import web

Object = dict[str, Any]
TOKEN = "serviceaccount:{namespace}:{name}"
"""The token of a service account."""


@dataclass(frozen=True)
class Kind:
    """A kind of objects."""

    group_version: str
    plural: str
    name: str
    is_namespaced: bool = True
    has_status: bool = False
    """Whether status is written by way of a subresource alone."""

    @property
    def group(self) -> str:
        return self.group_version.partition("/")[0] if "/" in self.group_version else ""


KINDS = [
    Kind("v1", "namespaces", "Namespace", is_namespaced=False),
    Kind("v1", "pods", "Pod", has_status=True),
    Kind("v1", "services", "Service", has_status=True),
    Kind("v1", "configmaps", "ConfigMap"),
    Kind("v1", "secrets", "Secret"),
    Kind("v1", "serviceaccounts", "ServiceAccount"),
    Kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Kind("v1", "events", "Event"),
    Kind("apps/v1", "deployments", "Deployment", has_status=True),
    Kind("batch/v1", "jobs", "Job", has_status=True),
    Kind("batch/v1", "cronjobs", "CronJob", has_status=True),
    Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"),
    Kind("rbac.authorization.k8s.io/v1", "roles", "Role"),
    Kind("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
    Kind("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False),
    Kind("kubernetes.dask.org/v1", "daskclusters", "DaskCluster"),
    Kind("kubernetes.dask.org/v1", "daskworkergroups", "DaskWorkerGroup"),
    Kind("kubernetes.dask.org/v1", "daskjobs", "DaskJob", has_status=True),
    Kind("kubernetes.dask.org/v1", "daskautoscalers", "DaskAutoscaler"),
]
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


class RefusedError(Exception):
    """A request that is answered by an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    def response(self) -> web.Response:
        """Return the answer."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.code}
        return web.json_response({**status, "reason": self.reason, "message": str(self)}, status=self.code)


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def merged(target: Any, patch: Any) -> Any:
    """Return what a JSON merge patch (RFC 7396) makes of a value."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@dataclass
class _Collection:
    """The objects of one kind by namespace and name, and what has happened to them."""

    objects: dict[tuple[str | None, str], Object] = field(default_factory=dict)
    events: list[tuple[int, str, Object]] = field(default_factory=list)


class Objects:
    """All objects of the cluster."""

    def __init__(self) -> None:
        self._collections = {kind.plural: _Collection() for kind in KINDS}
        self.kinds = {kind.plural: kind for kind in KINDS}
        self.version = 1
        self.news = asyncio.Event()
        """Set when something happens to any object; another one takes its place then."""
        self.listeners: list[Callable[[str, str, Object], None]] = []
        """Called with the event (ADDED, MODIFIED or DELETED), the plural of the kind and the object."""

    def all(self, plural: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a kind."""
        found = self._collections[plural].objects.items()
        return [one for (where, _), one in found if namespace in (None, where)]

    def get(self, plural: str, namespace: str | None, name: str) -> Object:
        """Return an object."""
        try:
            return self._collections[plural].objects[namespace, name]
        except KeyError:
            raise RefusedError(404, "NotFound", f'{plural} "{name}" not found') from None

    def create(self, plural: str, namespace: str | None, body: Object) -> Object:
        """Add an object."""
        kind, collection = self.kinds[plural], self._collections[plural]
        made = copy.deepcopy(body)
        metadata = made.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if kind.is_namespaced:
            metadata["namespace"] = namespace
        key = metadata.get("namespace"), metadata["name"]
        if key in collection.objects:
            raise RefusedError(409, "AlreadyExists", f'{plural} "{metadata["name"]}" already exists')
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        made |= {"apiVersion": kind.group_version, "kind": kind.name}
        if plural == "pods":
            made["status"] = {"phase": "Pending"}
        elif plural == "services":
            made["status"] = {"loadBalancer": {}}
        collection.objects[key] = made
        self._tell("ADDED", plural, made)
        return made

    def update(self, plural: str, old: Object, new: Object) -> Object:
        """Put an object in another's place."""
        for kept in ("uid", "creationTimestamp", "name", "namespace", "deletionTimestamp"):
            if kept in old["metadata"]:
                new["metadata"][kept] = old["metadata"][kept]
        if new == old:
            return old
        self._collections[plural].objects[_key(old)] = new
        self._tell("MODIFIED", plural, new)
        if "deletionTimestamp" in new["metadata"]:
            self._remove_if_nothing_holds(plural, new)
        return new

    def set_status(self, plural: str, one: Object, **status: Any) -> None:
        """Change fields of an object's status, unless it is gone."""
        current = self._collections[plural].objects.get(_key(one))
        if current is not None and current["metadata"]["uid"] == one["metadata"]["uid"]:
            self.update(plural, current, merged(copy.deepcopy(current), {"status": status}))

    def delete(self, plural: str, one: Object) -> None:
        """Remove an object, as soon as no finalizer holds it and, of a pod, its processes have ended."""
        if "deletionTimestamp" not in one["metadata"]:
            gone = copy.deepcopy(one)
            gone["metadata"]["deletionTimestamp"] = now()
            self._collections[plural].objects[_key(one)] = gone
            self._tell("MODIFIED", plural, gone)
            self._remove_if_nothing_holds(plural, gone)

    def _remove_if_nothing_holds(self, plural: str, one: Object) -> None:
        ended = plural != "pods" or one["status"]["phase"] in ("Succeeded", "Failed")
        if ended and not one["metadata"].get("finalizers"):
            self._remove(plural, one)

    def _remove(self, plural: str, one: Object) -> None:
        del self._collections[plural].objects[_key(one)]
        self._tell("DELETED", plural, copy.deepcopy(one))
        uid = one["metadata"]["uid"]
        for other in self.kinds:
            for owned in self.all(other):
                if any(owner["uid"] == uid for owner in owned["metadata"].get("ownerReferences", [])):
                    self.delete(other, owned)

    def _tell(self, event: str, plural: str, one: Object) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self._collections[plural].events.append((self.version, event, copy.deepcopy(one)))
        self.news.set()
        self.news = asyncio.Event()
        for listener in self.listeners:
            listener(event, plural, one)

    def events_since(self, plural: str, version: int) -> list[tuple[int, str, Object]]:
        """Return what has happened after a version."""
        return [one for one in self._collections[plural].events if one[0] > version]


def _key(one: Object) -> tuple[str | None, str]:
    return one["metadata"].get("namespace"), one["metadata"]["name"]


def _selected(one: Object, labels: str, fields: str) -> bool:
    """Return whether an object has what selectors ask for."""
    for key, wanted in _equalities(labels):
        if one["metadata"].get("labels", {}).get(key) != wanted:
            return False
    for key, wanted in _equalities(fields):
        value: Any = one
        for part in key.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        if value != wanted:
            return False
    return True


def _equalities(selector: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, selector.split(",")):
        match = re.fullmatch(r"([\w./-]+)==?([\w.-]*)", part)
        if match is None:
            raise RefusedError(400, "BadRequest", f"this stand-in does not know the selector {part!r}")
        yield match[1], match[2]


@dataclass(frozen=True)
class _Target:
    """What a request is about."""

    kind: Kind
    namespace: str | None
    name: str | None
    subresource: str | None


class ApiServer:
    """Answers requests about objects."""

    def __init__(self, objects: Objects, troubles: Path | None = None) -> None:
        self.objects, self.troubles = objects, troubles
        self.app = web.Application()
        self.app.router.add_route("*", "/{tail:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            if (found := self._discovered(request.path.rstrip("/"))) is not None:
                return web.json_response(found)
            target = self._target(request.path)
            trouble = self._trouble(request, target)
            if trouble is None or trouble.get("is_done"):
                answer = await self._about_objects(request, target)
            return answer if trouble is None else self._troubled(trouble)
        except RefusedError as refusal:
            return refusal.response()

    def _trouble(self, request: web.Request, target: _Target) -> Object | None:
        """Return the next trouble that a test wants for a request of a service account, once.

        The file of troubles is a JSON list of: method, plural, code, headers, and whether what is asked is done.
        """
        if self.troubles is None or not self.troubles.exists() or "Authorization" not in request.headers:
            return None
        left: list[Object] = json.loads(self.troubles.read_text())
        about = {"method": request.method, "plural": target.kind.plural}
        found = next((one for one in left if {key: one[key] for key in about} == about), None)
        if found is not None:
            left.remove(found)
            self.troubles.write_text(json.dumps(left))
        return found

    @staticmethod
    def _troubled(trouble: Object) -> web.Response:
        response = RefusedError(trouble["code"], "Trouble", "a test wants trouble").response()
        response.headers.update(trouble.get("headers", {}))
        return response

    def _discovered(self, path: str) -> Object | None:
        group_versions = dict.fromkeys(kind.group_version for kind in KINDS if kind.group)
        if path == "/version":
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = []
            for group_version in group_versions:
                group, _, version = group_version.partition("/")
                served = {"groupVersion": group_version, "version": version}
                groups.append({"name": group, "versions": [served], "preferredVersion": served})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        group_version = path.removeprefix("/apis/").removeprefix("/api/")
        kinds = [kind for kind in KINDS if kind.group_version == group_version]
        if not kinds:
            return None
        resources = [
            {
                "name": name,
                "kind": kind.name,
                "singularName": kind.name.lower() if name == kind.plural else "",
                "namespaced": kind.is_namespaced,
                "verbs": list(VERBS) if name == kind.plural else ["get", "patch", "update"],
            }
            for kind in kinds
            for name in (kind.plural, *([f"{kind.plural}/status"] if kind.has_status else []))
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version}
        return {**listed, "resources": resources}

    def _target(self, path: str) -> _Target:
        match = re.fullmatch(
            r"/(?:api/(?P<core>v1)|apis/(?P<group>[\w.-]+/\w+))(?:/namespaces/(?P<namespace>[\w-]+)(?=/\w))?"
            r"/(?P<plural>\w+)(?:/(?P<name>[\w.-]+))?(?:/(?P<subresource>\w+))?/?",
            path,
        )
        kind = None if match is None else self.objects.kinds.get(match["plural"])
        if match is None or kind is None or kind.group_version != (match["core"] or match["group"]):
            raise RefusedError(404, "NotFound", f"there is no {path}")
        return _Target(kind, match["namespace"], match["name"], match["subresource"])

    def _check_allowed(self, request: web.Request, target: _Target, verb: str) -> None:
        """Refuse what no role allows to the service account whose token the request has; who has none may do all."""
        _, _, token = request.headers.get("Authorization", "").partition("Bearer ")
        if not token:
            return
        _, namespace, account = token.split(":")
        for binding in self.objects.all("rolebindings", namespace):
            if not any((s["kind"], s["name"]) == ("ServiceAccount", account) for s in binding["subjects"]):
                continue
            role = self.objects.get("roles", namespace, binding["roleRef"]["name"])
            for rule in role["rules"]:
                wanted = (target.kind.group, "apiGroups"), (target.kind.plural, "resources"), (verb, "verbs")
                if target.namespace == namespace and all(value in rule[key] for value, key in wanted):
                    return
        raise RefusedError(403, "Forbidden", f'service account "{account}" cannot {verb} {target.kind.plural}')

    async def _about_objects(self, request: web.Request, target: _Target) -> web.StreamResponse:
        if "protobuf" in request.content_type:
            raise RefusedError(415, "UnsupportedMediaType", f"this stand-in does not know {request.content_type}")
        objects, plural = self.objects, target.kind.plural
        if target.name is None:
            if request.method == "POST":
                self._check_allowed(request, target, "create")
                made = objects.create(plural, target.namespace, await request.json())
                return web.json_response(made, status=201)
            is_watch = request.query.get("watch") in ("true", "1")
            self._check_allowed(request, target, "watch" if is_watch else "list")
            return await self._watched(request, target) if is_watch else self._listed(request, target)
        verbs = {"GET": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}
        self._check_allowed(request, target, verbs[request.method])
        one = objects.get(plural, target.namespace, target.name)
        if request.method == "DELETE":
            objects.delete(plural, one)
            return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if request.method in ("PATCH", "PUT"):
            one = objects.update(plural, one, self._changed(request, target, one, json.loads(await request.read())))
        return web.json_response(one)

    def _changed(self, request: web.Request, target: _Target, old: Object, body: Any) -> Object:
        """Return what a request makes of an object."""
        if request.method == "PUT":
            new = body
        elif request.content_type == "application/json-patch+json":
            try:
                new = jsonpatch.apply_patch(copy.deepcopy(old), body)
            except jsonpatch.JsonPatchTestFailed as error:
                raise RefusedError(422, "Invalid", str(error)) from error
        elif request.content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            # of lists that a strategic patch would merge, tests change none
            new = merged(copy.deepcopy(old), body)
        else:
            raise RefusedError(415, "UnsupportedMediaType", f"this stand-in does not know {request.content_type}")
        if target.subresource == "status":
            return {**old, "status": new.get("status", {}), "metadata": dict(old["metadata"])}
        if target.kind.has_status:
            new.pop("status", None)
            new |= {"status": old["status"]} if "status" in old else {}
        return new

    def _listed(self, request: web.Request, target: _Target) -> web.Response:
        found = [one for one in self.objects.all(target.kind.plural, target.namespace) if self._wants(request, one)]
        kind = {"kind": f"{target.kind.name}List", "apiVersion": target.kind.group_version}
        return web.json_response({**kind, "metadata": {"resourceVersion": str(self.objects.version)}, "items": found})

    def _wants(self, request: web.Request, one: Object) -> bool:
        return _selected(one, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))

    async def _watched(self, request: web.Request, target: _Target) -> web.StreamResponse:
        plural, seen = target.kind.plural, int(request.query.get("resourceVersion") or 0)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", 3600))):
                while True:
                    news = self.objects.news
                    for version, event, one in self.objects.events_since(plural, seen):
                        seen = version
                        if target.namespace in (None, one["metadata"].get("namespace")) and self._wants(request, one):
                            await response.write(json.dumps({"type": event, "object": one}).encode() + b"\n")
                    await news.wait()
        except (TimeoutError, ConnectionResetError):  # as long as it was asked for, or as the client listened
            return response
