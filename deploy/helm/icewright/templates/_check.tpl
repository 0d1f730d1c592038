{{- /* What the chart reads of the configuration must be of its kind; `icewright check` looks at the rest. */ -}}
{{- define "icewright.checkConfig" -}}
{{- $problems := list }}
{{- $from := .Values.config | empty | ternary "existingConfigMap.excerpt" "config" }}
{{- $config := include "icewright.config" . | fromJson }}
{{- $sections := list "server" "limits" "metrics" "leader-election" "traces" "catalogs" "defaults" "policies" }}
{{- range $key, $_ := $config }}
{{- if not (has $key $sections) }}
{{- $problems = append $problems (printf "%s: %s: unknown key; known here: %s" $from $key (join ", " $sections)) }}
{{- end }}
{{- end }}
{{- if and .Values.config (or (not $config.catalogs) (not (kindIs "map" $config.catalogs))) }}
{{- $problems = append $problems "config: no catalog is configured; add a section [catalogs.NAME] with at least uri = \"http://...\"" }}
{{- end }}
{{- /* For each key its kind, the patterns that all hold for a text, and the cure. */ -}}
{{- $duration := list "string" (list "^([0-9]+w *)?([0-9]+d *)?([0-9]+h *)?([0-9]+m *)?([0-9]+s *)?([0-9]+ms *)?$" "[1-9]") "a duration above 0, such as \"30s\" or \"1h 30m\"" }}
{{- $size := list "string" (list "^[0-9]+ *([kMGT]|[KMGT]i)?B$") "a size such as \"512MiB\" or \"4GiB\"" }}
{{- $name := list "string" (list "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$") "a name of a-z, 0-9, `-` and `.`" }}
{{- $switch := list "bool" (list) "true or false" }}
{{- $election := dict "enabled" $switch "lease" $name "namespace" $name }}
{{- range $section, $keys := dict "server" (dict "grace" $duration) "limits" (dict "memory" $size) "leader-election" $election }}
{{- $found := hasKey $config $section | ternary (get $config $section) dict }}
{{- if not (kindIs "map" $found) }}
{{- $problems = append $problems (printf "%s: %s = %s: write a section [%s]" $from $section (toJson $found) $section) }}
{{- $found = dict }}
{{- end }}
{{- range $key, $form := $keys }}
{{- if hasKey $found $key }}
{{- $value := get $found $key }}
{{- $fits := kindIs (first $form) $value }}
{{- range index $form 1 }}{{ $fits = and $fits (regexMatch . $value) }}{{ end }}
{{- $cure := last $form }}
{{- if and $fits (eq $key "memory") (lt (include "icewright.bytes" $value | int64) 67108864) }}
{{- $fits = false }}
{{- $cure = "at least \"64MiB\"" }}
{{- end }}
{{- if not $fits }}
{{- $problems = append $problems (printf "%s: %s.%s = %s: write %s" $from $section $key (toJson $value) $cure) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with $problems }}{{ fail (join "\n" .) }}{{ end }}
{{- end }}

{{- /* What no schema can say: fails with every problem at once, each with its cure; those of the configuration first, as
the others follow from it. */ -}}
{{- define "icewright.check" -}}
{{- include "icewright.checkConfig" . }}
{{- $problems := list }}
{{- $config := include "icewright.config" . | fromJson }}
{{- with .Values }}
{{- if not (or .config .existingConfigMap.name) }}
{{- $problems = append $problems "no configuration: give --set-file config=icewright.toml, or existingConfigMap.name" }}
{{- else if and .config .existingConfigMap.name }}
{{- $problems = append $problems "config and existingConfigMap.name: give one of them" }}
{{- end }}
{{- if and .config .existingConfigMap.excerpt }}
{{- $problems = append $problems "existingConfigMap.excerpt: leave it out, the chart reads config itself" }}
{{- end }}
{{- if and .restartOnConfigChange .existingConfigMap.name }}
{{- $problems = append $problems "restartOnConfigChange: the chart does not see changes of an existing ConfigMap; icewright itself does" }}
{{- end }}
{{- if and (gt (int .replicas) 1) (not (include "icewright.leaderElection" $)) }}
{{- $problems = append $problems (printf "replicas: %d pods would all work on the same tables; add to config: [leader-election] enabled = true" (int .replicas)) }}
{{- end }}
{{- if eq .mode "cronjob" }}
{{- range $key, $on := dict "replicas above 1" (gt (int .replicas) 1) "podDisruptionBudget.enabled" .podDisruptionBudget.enabled }}
{{- if $on }}{{ $problems = append $problems (printf "%s: has no meaning with mode=cronjob" $key) }}{{ end }}
{{- end }}
{{- if .serviceMonitor.enabled }}
{{- $problems = append $problems "serviceMonitor.enabled: with mode=cronjob nothing can be scraped; add to config: [metrics.pushgateway] url = \"http://...\"" }}
{{- end }}
{{- end }}
{{- if and (eq .image.tag "latest") (not .image.digest) }}
{{- $problems = append $problems "image.tag: latest changes under a running release; give a version, or image.digest" }}
{{- end }}
{{- range $side := list "requests" "limits" }}
{{- if hasKey (default dict (get $.Values.resources $side)) "memory" }}
{{- $problems = append $problems (printf "resources.%s.memory: say memory instead, which sets request and limit" $side) }}
{{- end }}
{{- end }}
{{- $budget := dig "limits" "memory" "" $config }}
{{- $need := include "icewright.limitMi" ($budget | default "64MiB") }}
{{- if and .memory (lt (div (include "icewright.bytes" .memory | int64) 1048576) (int64 $need)) }}
{{- $what := empty $budget | ternary "the least budget, 64 MiB, and the process itself" (printf "limits.memory = %q in config" $budget) }}
{{- $problems = append $problems (printf "memory: %s is too little for %s: %sMi; give that or more, or leave memory out" .memory $what $need) }}
{{- end }}
{{- if regexMatch "^(127\\.|\\[::1\\])" .listenAddress }}
{{- $problems = append $problems (printf "listenAddress: %s is reached only inside the pod, and the probes come from outside; give 0.0.0.0 or [::]" .listenAddress) }}
{{- end }}
{{- $given := concat (keys .secretEnv) (list) }}
{{- range .extraEnv }}{{ $given = append $given .name }}{{ end }}
{{- range include "icewright.references" $config | trim | splitList "\n" | uniq }}
{{- $kind := splitList " " . | first }}
{{- $what := trimPrefix (print $kind " ") . }}
{{- if and (eq $kind "env") (not (or $.Values.existingSecret $.Values.extraEnvFrom (has $what $given))) }}
{{- $problems = append $problems (printf "config reads the environment variable %s: give --set secretEnv.%s.secret=SECRET,secretEnv.%s.key=KEY, or existingSecret" $what $what $what) }}
{{- end }}
{{- if and (eq $kind "file") (hasPrefix "/secrets/" $what) (not (hasKey $.Values.secretFiles (splitList "/" $what | rest | rest | first))) }}
{{- $problems = append $problems (printf "config reads %s: give --set secretFiles.%s=SECRET" $what (splitList "/" $what | rest | rest | first)) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $problems }}
{{- fail (join "\n" .) }}
{{- end }}
{{- end }}
