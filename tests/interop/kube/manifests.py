"""Judges manifests on standard input by the API's own schemas and prints them as a JSON array.

Arguments: versions of Kubernetes. Unknown fields and repeated keys are refused. Objects of the Prometheus Operator are
left to monitoring.mjs.
"""

import json
import sys

import kubernetes_validate
import yaml


class Strict(yaml.SafeLoader):
    """A key that stands twice is a mistake, not the last one's victory."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise SystemExit(f"{node.start_mark}: the key {key!r} stands twice")
        return super().construct_mapping(node, deep)


def main():
    manifests = [manifest for manifest in yaml.load_all(sys.stdin, Strict) if manifest]
    for manifest in manifests:
        if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        for version in sys.argv[1:]:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(str(step) for step in error.path)
                name = manifest["metadata"]["name"]
                raise SystemExit(f"{manifest['kind']} {name}, Kubernetes {version}: {where}: {error.message}") from None
    json.dump(manifests, sys.stdout)


main()
