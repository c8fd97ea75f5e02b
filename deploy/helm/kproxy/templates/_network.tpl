{{/* Fails, with the reason, if the NetworkPolicy would shut out somebody that the other values let in or send kproxy to. */}}
{{- define "kproxy.networkPolicy.check" -}}
{{- $policy := .Values.networkPolicy -}}
{{- if not $policy.clients -}}
{{- fail "networkPolicy.clients is empty: no client could connect; name their peers, for instance [{podSelector: {}}] for every pod of this namespace" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled (not $policy.monitoring) -}}
{{- fail "networkPolicy.monitoring is empty: podMonitor is enabled, but Prometheus could not read the metrics; name its peers, for instance [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- range $server := .Values.bootstrapServers -}}
{{- if not (has (regexFind "[0-9]+$" $server) (toStrings $policy.brokerPorts)) -}}
{{- fail (printf "bootstrapServers: %s has a port that is not in networkPolicy.brokerPorts, so kproxy could not connect to it" $server) -}}
{{- end -}}
{{- end -}}
{{- if not $policy.extraEgress -}}
{{- range $name := list "otel.exporter.otlp.endpoint" "sasl.oauthbearer.jwks.endpoint.url" "upstream.sasl.oauthbearer.token.endpoint.url" -}}
{{- if hasPrefix "http" (get $.Values.config $name | toString) -}}
{{- fail (printf "config: kproxy could not connect to %s; allow its address and port in networkPolicy.extraEgress" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
