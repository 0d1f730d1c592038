{{- define "icewright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "icewright.fullname" -}}
{{- $name := include "icewright.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- /* A CronJob's name may have 52 characters, the longest suffix here takes the rest. */ -}}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* What never changes in an upgrade: a Deployment's selector is immutable. */ -}}
{{- define "icewright.instanceLabels" -}}
app.kubernetes.io/name: {{ include "icewright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "icewright.selectorLabels" -}}
{{ include "icewright.instanceLabels" . }}
app.kubernetes.io/component: maintenance
{{- end }}

{{- define "icewright.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "icewright.labels" -}}
{{ include "icewright.selectorLabels" . }}
{{ include "icewright.commonLabels" . }}
{{- end }}

{{- define "icewright.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "icewright.fullname" .) "default") }}
{{- end }}

{{- define "icewright.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "icewright.configMapName" -}}
{{- .Values.existingConfigMap.name | default (include "icewright.fullname" .) }}
{{- end }}

{{- /* The configuration as JSON: `config` parsed, or what is told of the existing ConfigMap. */ -}}
{{- define "icewright.config" -}}
{{- $config := .Values.existingConfigMap.excerpt }}
{{- if .Values.config }}
{{- $config = fromToml .Values.config }}
{{- if $config.Error }}{{ fail (printf "config: no TOML: %s; `icewright check` shows the place" $config.Error) }}{{ end }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{- /* Seconds, rounded up, of a duration as icewright writes it, such as "1h 30m". */ -}}
{{- define "icewright.seconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 }}
{{- $ms := 0 }}
{{- range regexFindAll "[0-9]+ *[a-z]+" . -1 }}
{{- $ms = add $ms (mul (regexFind "[0-9]+" .) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- div (add $ms 999) 1000 }}
{{- end }}

{{- /* Bytes of a size as icewright ("4GiB") or Kubernetes ("4Gi") writes it. */ -}}
{{- define "icewright.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $unit := regexFind "[A-Za-z]*$" . | trimSuffix "B" }}
{{- mul (regexFind "[0-9]+" .) (get $units $unit) }}
{{- end }}

{{- /* Mebibytes that a budget of icewright needs as memory limit: it and a quarter more, at least 256 MiB more. */ -}}
{{- define "icewright.limitMi" -}}
{{- $budget := include "icewright.bytes" . | int64 }}
{{- div (add $budget (max (div $budget 4) 268435456) 1048575) 1048576 }}
{{- end }}

{{- define "icewright.memory" -}}
{{- $budget := dig "limits" "memory" "" (include "icewright.config" . | fromJson) }}
{{- if .Values.memory }}{{ .Values.memory }}
{{- else if $budget }}{{ include "icewright.limitMi" $budget }}Mi
{{- else }}5Gi
{{- end }}
{{- end }}

{{- /* The Lease of leader election and its namespace, as arguments of kubectl. */ -}}
{{- define "icewright.lease" -}}
{{- $election := get (include "icewright.config" . | fromJson) "leader-election" | default dict -}}
-n {{ $election.namespace | default .Release.Namespace }} get lease {{ $election.lease | default "icewright" }}
{{- end }}

{{- define "icewright.leaderElection" -}}
{{- if dig "leader-election" "enabled" false (include "icewright.config" . | fromJson) }}true{{ end }}
{{- end }}

{{- /* What a configuration refers to, one a line: `env NAME`, `file PATH`, `url ADDRESS`. */ -}}
{{- define "icewright.references" -}}
{{- if kindIs "map" . }}
{{- /* A section may be called `env` or `file` too. */ -}}
{{- if and (eq (len .) 1) (or (kindIs "string" .env) (kindIs "string" .file)) }}
{{- range $kind, $what := . }}
{{ $kind }} {{ $what }}
{{- end }}
{{- else }}
{{- range . }}{{ include "icewright.references" . }}{{ end }}
{{- end }}
{{- else if kindIs "slice" . }}
{{- range . }}{{ include "icewright.references" . }}{{ end }}
{{- else if kindIs "string" . }}
{{- if regexMatch "^https?://" . }}
url {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "icewright.podMeta" -}}
{{- $annotations := deepCopy .Values.podAnnotations }}
{{- if .Values.restartOnConfigChange }}{{ $_ := set $annotations "checksum/config" (sha256sum .Values.config) }}{{ end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "icewright.selectorLabels" . | nindent 2 }}
  {{- with merge (deepCopy .Values.podLabels) .Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* The pod of `.root` with arguments `.args`; probes and a port if `.serves`; `.restartPolicy` if it comes to an end. */ -}}
{{- define "icewright.podSpec" -}}
{{- $root := .root }}
{{- $leader := include "icewright.leaderElection" $root }}
{{- $config := include "icewright.config" $root | fromJson }}
{{- with $root.Values }}
serviceAccountName: {{ include "icewright.serviceAccountName" $root }}
automountServiceAccountToken: {{ and $.serves (eq $leader "true") }}
enableServiceLinks: false
# The configuration's server.grace, and ten seconds for the end of the process itself.
terminationGracePeriodSeconds: {{ dig "server" "grace" "30s" $config | include "icewright.seconds" | add 10 }}
{{- with $.restartPolicy }}
restartPolicy: {{ . }}
{{- end }}
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .podSecurityContext | nindent 2 }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
containers:
  - name: icewright
    image: {{ include "icewright.image" $root | quote }}
    imagePullPolicy: {{ .image.pullPolicy }}
    args:
      {{- toYaml (concat $.args (list "--config" (printf "/etc/icewright/%s" .existingConfigMap.key)) .extraArgs) | nindent 6 }}
    {{- if or $leader .log .secretEnv .extraEnv }}
    env:
      {{- if $leader }}
      - name: POD_NAME
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      - name: POD_NAMESPACE
        valueFrom:
          fieldRef:
            fieldPath: metadata.namespace
      {{- end }}
      {{- with .log }}
      - name: ICEWRIGHT_LOG
        value: {{ . | quote }}
      {{- end }}
      {{- range $name, $from := .secretEnv }}
      - name: {{ $name }}
        valueFrom:
          secretKeyRef:
            name: {{ $from.secret }}
            key: {{ $from.key }}
      {{- end }}
      {{- with .extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- if or .existingSecret .extraEnvFrom }}
    envFrom:
      {{- with .existingSecret }}
      - secretRef:
          name: {{ . }}
      {{- end }}
      {{- with .extraEnvFrom }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- if $.serves }}
    ports:
      - name: http
        containerPort: {{ .service.port }}
    # Neither of the first two asks for a catalog: an outage elsewhere must not restart anything.
    startupProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 2
      failureThreshold: 30
    livenessProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
    {{- end }}
    # Where the configuration leaves limits.memory out, the budget is 80 % of the limit here.
    resources:
      {{- $memory := dict "memory" (include "icewright.memory" $root) }}
      {{- toYaml (mergeOverwrite (deepCopy .resources) (dict "requests" $memory "limits" $memory)) | nindent 6 }}
    securityContext:
      {{- toYaml .securityContext | nindent 6 }}
    volumeMounts:
      # The whole folder, never a subPath: only so does a changed ConfigMap arrive.
      - name: config
        mountPath: /etc/icewright
        readOnly: true
      {{- range $name, $_ := .secretFiles }}
      - name: secret-{{ $name }}
        mountPath: /secrets/{{ $name }}
        readOnly: true
      {{- end }}
      {{- with .extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "icewright.configMapName" $root }}
  {{- range $name, $secret := .secretFiles }}
  - name: secret-{{ $name }}
    secret:
      secretName: {{ $secret }}
      # Readable by the group, which is fsGroup.
      defaultMode: 288
  {{- end }}
  {{- with .extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .affinity }}
affinity:
  {{- toYaml .affinity | nindent 2 }}
{{- else if and $.serves (gt (int .replicas) 1) }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "icewright.selectorLabels" $root | nindent 14 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
