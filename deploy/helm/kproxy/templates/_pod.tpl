{{- define "kproxy.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "kproxy.securityContext" -}}
securityContext: {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end -}}

{{/* What a container of kproxy is in both modes; the caller gives name, probes, ports and what differs by pod. */}}
{{- define "kproxy.container" -}}
image: {{ include "kproxy.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run]
{{ include "kproxy.securityContext" . }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: kproxy-config, mountPath: /etc/kproxy, readOnly: true}
  # The control socket, where kproxy txn and the other commands look for it.
  - {name: kproxy-run, mountPath: /run/kproxy}
  {{- if .Values.tls.secretName }}
  - {name: kproxy-tls, mountPath: /run/secrets/kproxy/tls, readOnly: true}
  {{- end }}
  {{- if .Values.upstreamTls.caSecretName }}
  - {name: kproxy-upstream-ca, mountPath: /run/secrets/kproxy/upstream-ca, readOnly: true}
  {{- end }}
  {{- if .Values.upstreamTls.clientSecretName }}
  - {name: kproxy-upstream-tls, mountPath: /run/secrets/kproxy/upstream-tls, readOnly: true}
  {{- end }}
  {{- range .Values.secretMounts }}
  - {name: {{ printf "kproxy-%s" .name }}, mountPath: {{ .mountPath | quote }}, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Alive: restarted if not. Ready: clients are served; or, where that must not depend on Kafka, the process runs. */}}
{{- define "kproxy.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: {{ eq .Values.readiness "kafka" | ternary "/readyz" "/healthz" }}, port: http}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- define "kproxy.volumes" -}}
- name: kproxy-config
  configMap:
    name: {{ include "kproxy.fullname" . }}
- name: kproxy-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- with .Values.tls.secretName }}
- name: kproxy-tls
  secret: {secretName: {{ . }}, defaultMode: 0444}
{{- end }}
{{- with .Values.upstreamTls.caSecretName }}
- name: kproxy-upstream-ca
  secret: {secretName: {{ . }}, defaultMode: 0444}
{{- end }}
{{- with .Values.upstreamTls.clientSecretName }}
- name: kproxy-upstream-tls
  secret: {secretName: {{ . }}, defaultMode: 0444}
{{- end }}
{{- range .Values.secretMounts }}
- name: kproxy-{{ .name }}
  secret: {secretName: {{ .secretName }}, defaultMode: 0444}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
