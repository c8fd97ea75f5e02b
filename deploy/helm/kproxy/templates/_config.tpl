{{/* The configuration file: what the values say, and .Values.config over it. */}}
{{- define "kproxy.config" -}}
{{- if not .Values.bootstrapServers -}}
{{- fail "bootstrapServers is empty: give the brokers, for instance --set bootstrapServers={kafka:9092}" -}}
{{- end -}}
{{- $config := dict "bootstrap.servers" .Values.bootstrapServers -}}
{{- $_ := set $config "shutdown.grace.ms" .Values.shutdownGraceMs -}}
{{- $_ := set $config "http" ":19644" -}}
{{- $_ := set $config "log.format" "json" -}}
{{- $_ := set $config "control.socket" "/run/kproxy/control.sock" -}}
{{- if .Values.gateway.enabled -}}
{{- $first := add .Values.gateway.port 1 -}}
{{- $_ := set $config "listen" (printf ":%d" (int .Values.gateway.port)) -}}
{{- if .Values.gateway.brokerHostPattern -}}
{{- if not .Values.tls.secretName -}}
{{- fail "gateway.brokerHostPattern tells brokers apart by the name that TLS asks for: give tls.secretName" -}}
{{- end -}}
{{- $_ := set $config "broker.host.pattern" .Values.gateway.brokerHostPattern -}}
{{- else -}}
{{- $_ := set $config "broker.ports" (printf "%d-%d" $first (add $first (sub .Values.gateway.brokerPorts 1))) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $config "listen" (printf "127.0.0.1:%d" (int .Values.sidecar.port)) -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $config "ssl.certificate.location" "/run/secrets/kproxy/tls/tls.crt" -}}
{{- $_ := set $config "ssl.key.location" "/run/secrets/kproxy/tls/tls.key" -}}
{{- if ne .Values.tls.clientAuth "none" -}}
{{- $_ := set $config "ssl.client.auth" .Values.tls.clientAuth -}}
{{- $_ := set $config "ssl.ca.location" "/run/secrets/kproxy/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if .Values.upstreamTls.enabled -}}
{{- $_ := set $config "upstream.security.protocol" "ssl" -}}
{{- if .Values.upstreamTls.caSecretName -}}
{{- $_ := set $config "upstream.ssl.ca.location" "/run/secrets/kproxy/upstream-ca/ca.crt" -}}
{{- end -}}
{{- if .Values.upstreamTls.clientSecretName -}}
{{- $_ := set $config "upstream.ssl.certificate.location" (printf "/run/secrets/kproxy/upstream-tls/%s" .Values.upstreamTls.certificate) -}}
{{- $_ := set $config "upstream.ssl.key.location" (printf "/run/secrets/kproxy/upstream-tls/%s" .Values.upstreamTls.key) -}}
{{- end -}}
{{- end -}}
{{- toYaml (merge (deepCopy .Values.config) $config) -}}
{{- end -}}
