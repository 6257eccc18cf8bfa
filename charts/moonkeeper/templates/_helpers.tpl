{{/* The name of everything that belongs to the operator. */}}
{{- define "moonkeeper.name" -}}
{{- if contains "moonkeeper" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-moonkeeper" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "moonkeeper.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "moonkeeper.name" .) -}}
{{- end -}}

{{/* What never changes, because selectors cannot. NetworkPolicies of masters let in who has the first two. */}}
{{- define "moonkeeper.selectorLabels" -}}
app.kubernetes.io/name: moonkeeper
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "moonkeeper.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "moonkeeper.labels" -}}
{{ include "moonkeeper.selectorLabels" . }}
{{ include "moonkeeper.commonLabels" . }}
{{- end -}}

{{/* The image of the operator; a tag may be a digest. */}}
{{- define "moonkeeper.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- printf "%s%s%s" .Values.image.repository (ternary "@" ":" (hasPrefix "sha256:" $tag)) $tag -}}
{{- end -}}

{{/* Selector and labels of the etcd for trying things out. */}}
{{- define "moonkeeper.etcdName" -}}
{{- printf "%s-etcd" (include "moonkeeper.name" .) -}}
{{- end -}}

{{- define "moonkeeper.etcdSelectorLabels" -}}
app.kubernetes.io/name: moonkeeper
app.kubernetes.io/component: etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
