{{- define "stafett.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "stafett.labels" -}}
app.kubernetes.io/name: stafett
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
