// Judges objects of the Prometheus Operator, a JSON array on standard input, by its own schemas.
// Argument: the folder where package.json was installed.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const models = `${process.argv[2]}/node_modules/@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/index.js`;
const { ServiceMonitor, PrometheusRule } = await import(pathToFileURL(models));
const kinds = { ServiceMonitor, PrometheusRule };
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const Kind = kinds[object.kind];
  if (!Kind) throw new Error(`no schema for ${object.kind}`);
  new Kind(object).validate();
}
