{{- define "kproxy.webhook" -}}
{{- printf "%s-webhook" (include "kproxy.fullname" .) -}}
{{- end -}}

{{- define "kproxy.webhook.selector" -}}
app.kubernetes.io/name: {{ include "kproxy.name" . }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kproxy.webhook.labels" -}}
{{ include "kproxy.webhook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "kproxy.webhook.secret" -}}
{{- .Values.webhook.tls.secretName | default (printf "%s-tls" (include "kproxy.webhook" .)) -}}
{{- end -}}

{{/* Fails, with the reason, if the API server could not check the webhook's certificate. */}}
{{- define "kproxy.webhook.check" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{- if .Values.webhook.tls.secretName -}}
{{- fail "webhook.certManager and webhook.tls.secretName are two certificates: give one" -}}
{{- end -}}
{{- else if not .Values.webhook.tls.secretName -}}
{{- fail "webhook.tls.secretName is empty: give a Secret with the webhook's certificate, or set webhook.certManager.enabled" -}}
{{- else if not .Values.webhook.tls.caBundle -}}
{{- fail "webhook.tls.caBundle is empty: give the authority of the certificate in webhook.tls.secretName, PEM as base64" -}}
{{- end -}}
{{- end -}}

{{/* Fails, with the reason, if the NetworkPolicy would shut out somebody who has to reach the webhook. */}}
{{- define "kproxy.webhook.networkPolicy.check" -}}
{{- if not .Values.webhook.networkPolicy.apiServer -}}
{{- fail "webhook.networkPolicy.apiServer is empty: no labelled pod could be created; name where the API server connects from, for instance [{ipBlock: {cidr: 192.0.2.10/32}}]" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled (not .Values.networkPolicy.monitoring) -}}
{{- fail "networkPolicy.monitoring is empty: podMonitor is enabled, but Prometheus could not read the webhook's metrics; name its peers" -}}
{{- end -}}
{{- end -}}

{{/* What both webhooks have in common; the caller gives a name, a path and which objects are sent. */}}
{{- define "kproxy.webhook.rule" -}}
admissionReviewVersions: [v1]
# It changes nothing but the pod, so a dry run is answered like any other.
sideEffects: None
reinvocationPolicy: Never
failurePolicy: {{ .Values.webhook.failurePolicy }}
timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: Namespaced
{{- end -}}

{{- define "kproxy.webhook.client" -}}
service: {name: {{ include "kproxy.webhook" .root }}, namespace: {{ .root.Release.Namespace }}, path: {{ .path }}, port: 443}
{{- with .root.Values.webhook.tls.caBundle }}
caBundle: {{ . }}
{{- end }}
{{- end -}}
