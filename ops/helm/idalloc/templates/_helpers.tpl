{{- define "idalloc.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "idalloc.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "idalloc.labels" -}}
{{ include "idalloc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "idalloc.image" -}}
{{- with .Values.image -}}
{{- .digest | empty | ternary (printf "%s:%s" .repository (default $.Chart.AppVersion .tag)) (printf "%s@%s" .repository .digest) -}}
{{- end -}}
{{- end -}}

{{/* A value as text. YAML's numbers are floating-point numbers to Helm, which would print large ones with an exponent; a worker's flags are 0 and 1. */}}
{{- define "idalloc.text" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else if kindIs "bool" . }}{{ ternary 1 0 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* A variable that the chart computes with: its value, or the worker's default. */}}
{{- define "idalloc.variable" -}}
{{- $given := index .root.Values.config .name -}}
{{- if kindIs "invalid" $given -}}
{{- index (.root.Files.Get "files/kafka.json" | fromJson).defaults .name -}}
{{- else -}}
{{- include "idalloc.text" $given -}}
{{- end -}}
{{- end -}}

{{/* A quantity of memory in MiB. */}}
{{- define "idalloc.mebibytes" -}}
{{- $limit := include "idalloc.text" . -}}
{{- $unit := regexFind "[A-Za-z]*$" $limit -}}
{{- $bytes := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- divf (mulf (trimSuffix $unit $limit | float64) (index $bytes $unit)) 1048576 | int64 -}}
{{- end -}}


{{/* How many worker IDs the pool has. */}}
{{- define "idalloc.poolSize" -}}
{{- $first := default 0 .Values.config.POOL_FIRST | int64 -}}
{{- $last := .Values.config.POOL_LAST -}}
{{- if kindIs "invalid" $last -}}
{{- $layout := include "idalloc.variable" (dict "root" . "name" "LAYOUT") -}}
{{- $highest := index (.Files.Get "files/kafka.json" | fromJson).highestWorker $layout -}}
{{- if kindIs "invalid" $highest -}}
{{- fail (printf "config.POOL_LAST: set it; the chart does not know the worker IDs of layout '%s'" $layout) -}}
{{- end -}}
{{- $last = min (add $first 31) $highest -}}
{{- end -}}
{{- add 1 (sub (int64 $last) $first) -}}
{{- end -}}

{{/*
The variables of a worker or a command: `config` is a map of them, `files` has those that are files. V8 may use three times 32 MiB for young
objects by itself: half of that costs a worker no time that can be measured. And its collector has four threads besides the one that serves
requests, which waits for a core meanwhile: one does.
*/}}
{{- define "idalloc.env" -}}
{{- $heap := div (mul (include "idalloc.mebibytes" .resources.limits.memory | int64) (int64 .root.Values.heapPercent)) 100 -}}
- name: NODE_OPTIONS
  value: {{ printf "--max-old-space-size=%d --max-semi-space-size=16 --v8-pool-size=1 %s" $heap .root.Values.nodeOptions | trim | quote }}
{{- range $name, $value := .config }}
- name: {{ $name }}
  value: {{ include "idalloc.text" $value | quote }}
{{- end }}
{{- range $name, $_ := .files }}
- name: {{ $name }}_FILE
  value: /etc/idalloc/files/{{ $name }}
{{- end }}
{{- with .root.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* One volume with all files. Kubernetes replaces them together, so a key never waits for its certificate. */}}
{{- define "idalloc.filesVolume" -}}
- name: files
  projected:
    # 0440: read by the group of the pod, and by nobody else.
    defaultMode: 288
    sources:
      {{- range $name, $from := . }}
      {{- if $from.secret }}
      - secret:
          name: {{ $from.secret }}
      {{- else }}
      - configMap:
          name: {{ $from.configMap }}
      {{- end }}
          items: [{ key: {{ $from.key | quote }}, path: {{ $name }} }]
      {{- end }}
{{- end -}}

{{- define "idalloc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "idalloc.serviceAccountName" -}}
{{- default (.Values.serviceAccount.create | ternary (include "idalloc.fullname" .) "default") .Values.serviceAccount.name -}}
{{- end -}}
