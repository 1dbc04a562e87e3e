"""Helpers that disturb a mirror: an API server that refuses creations, and other writers of the mirror's
objects.
"""

from __future__ import annotations

import copy
from typing import Any

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.objects import ATTACH_MIRROR_ANNOTATION
from tests.unit.operator.mirror.stage import KEY, Api, Object, Stage, one


class ChoosyApi(Api):
    """An API server in memory that refuses to create some objects.

    :ivar refused: the HTTP status of a refusal, by the name of a Service or the plural of a kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, int] = {}

    def request(self, method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        """Refuse a creation that is listed in ``refused``; carry out any other write as Kubernetes does."""
        if method == "POST":
            for refused in (body["metadata"]["name"], path.rpartition("/")[2]):
                if refused in self.refused:
                    raise KubernetesError("refused", status_code=self.refused[refused])
        return super().request(method, path, query, body, **more)


def changed_by_others(stage: Stage, path: str, **metadata: Any) -> Object:
    """Change an object's metadata as another writer does; the mirror's watch reports the change."""
    item = copy.deepcopy(stage.api.objects[path])
    item["metadata"] |= {"resourceVersion": "99", **metadata}
    stage.api.objects[path] = item
    group = stage.objects.slices if "/endpointslices/" in path else stage.objects.services
    one(group).apply_event("MODIFIED", copy.deepcopy(item))
    return item


def slice_path(stage: Stage) -> str:
    """Return the path of the only EndpointSlice."""
    (path,) = (path for path in stage.api.objects if "/endpointslices/" in path)
    return path


def opted_in(name: str = "rating") -> Object:
    """Return a person's Service whose annotation allows the mirror to add endpoints."""
    annotations = {ATTACH_MIRROR_ANNOTATION: KEY[1]}
    metadata = {"namespace": "shop", "name": name, "labels": {}, "annotations": annotations}
    return {"metadata": metadata, "spec": {"ports": [{"name": "http"}]}}
