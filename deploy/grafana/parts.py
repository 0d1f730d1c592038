"""What both dashboards are made of: variables, panels, and how they are laid out. Grafana 10.1 and newer."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
DOCS = "https://docs.example.com/icewright"
TABLE_LABELS = "catalog, namespace, table"
TABLE_NAME = "{{catalog}}.{{namespace}}.{{table}}"
# Selectors. A process has no table, and what is pushed for a table has its namespace as job.
PROCESS = 'job=~"$job"'
TABLE = 'job=~"$job",catalog=~"$catalog",namespace=~"$namespace",table=~"$table"'

GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"


def per_table(metric, *matchers, by=""):
    """The table's value, whichever process tells it."""
    labels = TABLE_LABELS + (f", {by}" if by else "")
    return f"max by ({labels}) ({metric}{{{','.join([TABLE, *matchers])}}})"


def query(expr, legend="", kind="range", form="time_series"):
    target = {"expr": expr, "legendFormat": legend or "__auto", "format": form, "editorMode": "code"}
    return target | ({"instant": True, "range": False} if kind == "instant" else {"instant": False, "range": True})


def thresholds(*steps):
    """Pairs of a value and the colour from there on; green below the first."""
    return {"mode": "absolute", "steps": [{"color": GREEN, "value": None}]
            + [{"color": color, "value": value} for value, color in steps]}


def mapping(pairs):
    options = {value: {"text": text, "color": color, "index": i} for i, (value, text, color) in enumerate(pairs)}
    return [{"type": "value", "options": options}]


def table_link():
    """Leads from a series of a table to its own dashboard."""
    variables = "&".join(f"var-{name}=${{__field.labels.{name}}}" for name in ("catalog", "namespace", "table"))
    return {"title": "Show this table", "targetBlank": False,
            "url": f"/d/icewright-table?${{datasource:queryparam}}&${{job:queryparam}}&{variables}&${{__url_time_range}}"}


def panel(kind, title, description, targets, unit, options, custom=None, **more):
    defaults = {"unit": unit, "custom": custom or {}, "color": more.pop("color", {"mode": "palette-classic"}),
                "thresholds": more.pop("thresholds", thresholds())}
    for key in ("min", "max", "decimals", "mappings", "links", "noValue"):
        if key in more:
            defaults[key] = more.pop(key)
    for letter, target in zip("ABCDEFGHIJ", targets):
        target |= {"refId": letter, "datasource": DATASOURCE}
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE, "targets": targets,
            "options": options, "fieldConfig": {"defaults": defaults, "overrides": more.pop("overrides", [])}, **more}


def stat(title, description, expr, unit="short", legend="", kind="range", **more):
    options = {"colorMode": "value", "graphMode": "area" if kind == "range" else "none", "justifyMode": "auto",
               "textMode": more.pop("text", "auto"), "orientation": "auto",
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    more = {"color": {"mode": "thresholds"}} | more
    return panel("stat", title, description, [query(expr, legend, kind)], unit, options, **more)


def lines(title, description, targets, unit="short", stack=False, bars=False, step=False, **more):
    custom = {"drawStyle": "bars" if bars else "line", "lineWidth": 0 if bars else 1, "showPoints": "never",
              "fillOpacity": 80 if bars else 25 if stack else 8, "spanNulls": False,
              "lineInterpolation": "stepAfter" if step else "linear",
              "stacking": {"mode": "normal" if stack else "none", "group": "A"}}
    options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    more = {"min": 0} | ({"decimals": 0} if bars else {}) | more
    return panel("timeseries", title, description, targets, unit, options, custom, **more)


def worst(title, description, expr, unit="short", limits=(), **more):
    """The ten tables with the largest values, as bars that lead to the table."""
    options = {"displayMode": "gradient", "orientation": "horizontal", "showUnfilled": True, "valueMode": "color",
               "minVizWidth": 0, "minVizHeight": 10,
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("bargauge", title, description, [query(f"topk(10, {expr})", TABLE_NAME, "instant")], unit, options,
                 color={"mode": "thresholds"}, thresholds=thresholds(*limits), min=0, links=[table_link()], **more)


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def lay_out(rows):
    """Rows of `(width, panel)` with a height each, one below the other."""
    panels, y = [], 0
    for title, *lanes in rows:
        panels.append(row(title) | {"gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for height, lane in lanes:
            x = 0
            for width, each in lane:
                panels.append(each | {"gridPos": {"x": x, "y": y, "w": width, "h": height}})
                x += width
            y += height
    return [each | {"id": i} for i, each in enumerate(panels, 1)]


def variable(name, label, metric, within):
    selector = ",".join(f'{other}=~"${other}"' for other in within)
    values = f"label_values({metric}{{{selector}}}, {name})" if selector else f"label_values({metric}, {name})"
    return {"type": "query", "name": name, "label": label, "datasource": DATASOURCE,
            "query": {"query": values, "refId": name}, "multi": True, "includeAll": True, "allValue": ".*",
            "refresh": 2, "sort": 1, "hide": 0, "regex": "", "skipUrlSync": False, "current": {}, "options": []}


def variables():
    datasource = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus",
                  "multi": False, "includeAll": False, "refresh": 1, "hide": 0, "regex": "", "skipUrlSync": False,
                  "current": {}, "options": []}
    tables = "icewright_table_data_files"
    return [datasource,
            variable("job", "Job", "icewright_build_info", []),
            variable("catalog", "Catalog", tables, ["job"]),
            variable("namespace", "Namespace", tables, ["job", "catalog"]),
            variable("table", "Table", tables, ["job", "catalog", "namespace"])]


def annotation(name, action, color):
    changes = f'changes(icewright_last_success_timestamp_seconds{{{TABLE},action="{action}"}}[$__rate_interval])'
    return {"name": name, "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": color,
            "expr": f"max by ({TABLE_LABELS}) ({changes}) > 0", "titleFormat": f"{name}: {TABLE_NAME}",
            "textFormat": "", "tagKeys": "", "step": "", "useValueForTime": False}


def link(title, url, icon, keep=False):
    return {"type": "link", "title": title, "url": url, "icon": icon, "tooltip": title, "asDropdown": False, "tags": [],
            "targetBlank": not keep, "includeVars": keep, "keepTime": keep}


def dashboard(uid, title, description, other, rows, annotations):
    return {
        "id": None, "uid": uid, "title": title, "description": description, "tags": ["icewright", "iceberg"],
        "schemaVersion": 38, "version": 1, "editable": True, "graphTooltip": 1, "timezone": "browser", "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "links": [other,
                  link("What to do", f"{DOCS}/operations.md#alerts", "doc")],
        "templating": {"list": variables()}, "annotations": {"list": annotations}, "panels": lay_out(rows),
    }
