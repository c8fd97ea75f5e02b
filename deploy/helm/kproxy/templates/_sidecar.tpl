{{/*
kproxy as a native sidecar of any pod: it starts before the application's containers and ends after them. In a chart that has this one
as a dependency, with gateway.enabled false in its values:

    spec:
      initContainers: {{- include "kproxy.sidecar" .Subcharts.kproxy | nindent 8 }}
      volumes: {{- include "kproxy.sidecar.volumes" .Subcharts.kproxy | nindent 8 }}

terminationGracePeriodSeconds of the pod is for both, one after the other: the application's own and shutdownGraceMs.
*/}}
{{- define "kproxy.sidecar" -}}
{{- if .Values.gateway.enabled -}}
{{- fail "a sidecar is not a gateway: set gateway.enabled to false in the values of the dependency kproxy" -}}
{{- end -}}
- name: kproxy
  restartPolicy: Always
  {{- include "kproxy.container" . | nindent 2 }}
  env:
    - {name: KPROXY_CONFIG, value: /etc/kproxy/kproxy.yaml}
    - name: KPROXY_INSTANCE_ID
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- with .Values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: http, containerPort: 19644}
  # The application starts as soon as it would be served.
  startupProbe:
    httpGet: {path: /readyz, port: http}
    periodSeconds: 1
    timeoutSeconds: 3
    failureThreshold: {{ .Values.sidecar.startSeconds }}
  {{- include "kproxy.probes" . | nindent 2 }}
{{- end -}}

{{- define "kproxy.sidecar.volumes" -}}
{{- include "kproxy.volumes" . -}}
{{- end -}}
