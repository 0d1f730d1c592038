{{- /* What no schema can say: fails with every problem at once, each with its cure. */ -}}
{{- define "icewright.check" -}}
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
{{- if and .memory $budget }}
{{- $need := include "icewright.limitMi" $budget }}
{{- if lt (div (include "icewright.bytes" .memory | int64) 1048576) (int64 $need) }}
{{- $problems = append $problems (printf "memory: %s is too little for limits.memory = %q in config: %sMi; leave memory out, then it follows" .memory $budget $need) }}
{{- end }}
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
{{- fail (printf "\n- %s" (join "\n- " .)) }}
{{- end }}
{{- end }}
