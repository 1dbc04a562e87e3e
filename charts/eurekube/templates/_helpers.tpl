{{/* The names and labels are those that the Pulumi component EurekubeOperator gives: a test compares both. */}}
{{- define "eurekube.account" -}}eurekube-operator{{- end }}

{{/* Outside of the release's namespace another operator may have rights as well. */}}
{{- define "eurekube.shared" -}}eurekube-operator-{{ .Release.Namespace }}{{- end }}

{{- define "eurekube.selector" -}}
app.kubernetes.io/name: eurekube-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "eurekube.ownLabels" -}}
{{ include "eurekube.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: eurekube
{{- end }}

{{- define "eurekube.labels" -}}
{{ include "eurekube.ownLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "eurekube.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The values that name namespaces and names, and the operator's variables for them. */}}
{{- define "eurekube.nameSettings" -}}
{{- dict "reserve" "RESERVE" "publish" "PUBLISH" "crossNamespace" "CROSS_NAMESPACE" | toJson -}}
{{- end }}

{{- define "eurekube.lease" -}}{{ .Values.operatorName }}-leader{{- end }}

{{/* The parts of the credentials: value, key of the chart's own Secret, variable, whether it is a file. */}}
{{- define "eurekube.parts" -}}
- {value: user, key: user, variable: EUREKA_USER, file: false}
- {value: password, key: password, variable: EUREKA_PASSWORD, file: false}
- {value: token, key: token, variable: EUREKA_TOKEN, file: false}
- {value: caCertificate, key: ca.crt, variable: EUREKA_CA_FILE, file: true}
- {value: clientCertificate, key: tls.crt, variable: EUREKA_CLIENT_CERTIFICATE, file: true}
- {value: clientKey, key: tls.key, variable: EUREKA_CLIENT_KEY, file: true}
{{- end }}

{{/* Where each part that is given comes from: a list under "sources" of {secret, key, path, variable, file}. */}}
{{- define "eurekube.sources" -}}
{{- $found := list -}}
{{- range include "eurekube.parts" . | fromYamlArray -}}
{{- if index $.Values .value -}}
{{- $found = append $found (dict "secret" "eurekube-operator-eureka" "key" .key "path" .key "variable" .variable "file" .file) -}}
{{- end -}}
{{- $named := index ($.Values.eurekaSecret | default dict) (printf "%sKey" .value) -}}
{{- if $named -}}
{{- $found = append $found (dict "secret" $.Values.eurekaSecret.name "key" $named "path" .key "variable" .variable "file" .file) -}}
{{- end -}}
{{- end -}}
{{ dict "sources" $found | toJson }}
{{- end }}

{{/* What is kept of a connection in a Secret: value, part of the file's name, key of the operator's file. */}}
{{- define "eurekube.connectionFiles" -}}
- {value: password, name: password, key: password-file}
- {value: token, name: token, key: token-file}
- {value: caCertificate, name: ca-certificate, key: ca-file}
- {value: clientCertificate, name: client-certificate, key: client-certificate}
- {value: clientKey, name: client-key, key: client-key}
{{- end }}

{{/* The operator's configuration file as JSON; {} for none. */}}
{{- define "eurekube.file" -}}
{{- $connections := dict -}}
{{- range $name, $one := .Values.connections -}}
{{- $entry := dict "url" $one.urls -}}
{{- range list "user" "proxy" "zone" "mode" -}}
{{- if index $one . }}{{ $_ := set $entry . (index $one .) }}{{ end -}}
{{- end -}}
{{- with $one.maxAnswerMib }}{{ $_ := set $entry "max-answer-mib" (int .) }}{{ end -}}
{{- range include "eurekube.connectionFiles" $ | fromYamlArray -}}
{{- if index $one .value -}}
{{- $_ := set $entry .key (printf "/etc/eurekube-targets/connection.%s.%s" $name .name) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $connections $name $entry -}}
{{- end -}}
{{- $content := dict -}}
{{- if $connections }}{{ $_ := set $content "connections" $connections }}{{ end -}}
{{- if .Values.targets }}{{ $_ := set $content "targets" .Values.targets }}{{ end -}}
{{ $content | toJson }}
{{- end }}

{{/* What the file names, as JSON: the data of a Secret, not encoded. */}}
{{- define "eurekube.fileSecrets" -}}
{{- $found := dict -}}
{{- range $name, $value := .Values.targetSecrets }}{{ $_ := set $found $name $value }}{{ end -}}
{{- range $name, $one := .Values.connections -}}
{{- range include "eurekube.connectionFiles" $ | fromYamlArray -}}
{{- if index $one .value }}{{ $_ := set $found (printf "connection.%s.%s" $name .name) (index $one .value) }}{{ end -}}
{{- end -}}
{{- end -}}
{{ $found | toJson }}
{{- end }}

{{- define "eurekube.ownCredentials" -}}
{{- $found := dict -}}
{{- range include "eurekube.parts" . | fromYamlArray -}}
{{- if index $.Values .value }}{{ $_ := set $found .key (index $.Values .value) }}{{ end -}}
{{- end -}}
{{ $found | toJson }}
{{- end }}

{{/*
Changes whenever a Secret of the chart does, so that the pods are replaced. Who may read Deployments may not read
Secrets: a plain hash would let them try passwords fast, so it goes through scrypt with the release as its salt.
*/}}
{{- define "eurekube.secretsChecksum" -}}
{{- $secrets := dict "eureka" (include "eurekube.ownCredentials" . | fromJson) "file" (include "eurekube.fileSecrets" . | fromJson) -}}
{{- if or $secrets.eureka $secrets.file -}}
{{- derivePassword 1 "maximum" ($secrets | toJson) .Release.Namespace .Release.Name | sha256sum | trunc 16 -}}
{{- end -}}
{{- end }}

{{/* The variables of the operator, but those with credentials: a list under "env". */}}
{{- define "eurekube.plainEnvironment" -}}
{{- $plain := list
  (dict "name" "EUREKA_URL" "value" (join "," .Values.eurekaUrls))
  (dict "name" "WEB_ADDRESS" "value" ":8080")
  (dict "name" "OPERATOR_NAME" "value" .Values.operatorName)
  (dict "name" "LEASE_NAME" "value" (include "eurekube.lease" .))
-}}
{{- with .Values.clusterName }}{{ $plain = append $plain (dict "name" "CLUSTER_NAME" "value" .) }}{{ end -}}
{{- with .Values.watchNamespaces }}{{ $plain = append $plain (dict "name" "WATCH_NAMESPACE" "value" (join "," .)) }}{{ end -}}
{{- range $value, $name := include "eurekube.nameSettings" . | fromJson -}}
{{- with index $.Values $value }}{{ $plain = append $plain (dict "name" $name "value" (join "," .)) }}{{ end -}}
{{- end -}}
{{- if .Values.strictNames }}{{ $plain = append $plain (dict "name" "STRICT_NAMES" "value" "true") }}{{ end -}}
{{- with .Values.gateNamespaces }}{{ $plain = append $plain (dict "name" "GATE_NAMESPACE" "value" (join "," .)) }}{{ end -}}
{{- if .Values.mirrors }}{{ $plain = append $plain (dict "name" "MIRRORS" "value" "true") }}{{ end -}}
{{- with .Values.mirrorCidrs }}{{ $plain = append $plain (dict "name" "MIRROR_CIDRS" "value" (join "," .)) }}{{ end -}}
{{- with .Values.advertiseFrom }}{{ $plain = append $plain (dict "name" "ADVERTISE_FROM" "value" (join "," .)) }}{{ end -}}
{{- with .Values.clusterCidrs }}{{ $plain = append $plain (dict "name" "CLUSTER_CIDRS" "value" (join "," .)) }}{{ end -}}
{{- range $name, $value := .Values.environment }}{{ $plain = append $plain (dict "name" $name "value" $value) }}{{ end -}}
{{- range list "name" "namespace" -}}
{{- $plain = append $plain (dict "name" (printf "POD_%s" (upper .)) "valueFrom" (dict "fieldRef" (dict "apiVersion" "v1" "fieldPath" (printf "metadata.%s" .)))) -}}
{{- end -}}
{{ dict "env" $plain | toJson }}
{{- end }}

{{- define "eurekube.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "eurekube.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The TCP ports of the service URLs, each once and in order, as a JSON list under "ports". */}}
{{- define "eurekube.egressPorts" -}}
{{- $ports := list 443 6443 -}}
{{- range .Values.egressPorts }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- $urls := .Values.eurekaUrls -}}
{{- range .Values.connections }}{{ $urls = concat $urls .urls }}{{ end -}}
{{- range $urls -}}
{{- $url := urlParse (regexFind "(https?|zookeepers?)://.*" .) -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $default := get (dict "https" "443" "zookeeper" "2181" "zookeepers" "2281") $url.scheme | default "80" -}}
{{- $ports = append $ports (int ($port | default $default)) -}}
{{- end -}}
{{- $texts := list -}}
{{- range $ports }}{{ $texts = append $texts (printf "%05d" (int .)) }}{{ end -}}
{{- $sorted := list -}}
{{- range $texts | uniq | sortAlpha }}{{ $sorted = append $sorted (trimPrefix "0" . | trimPrefix "0" | trimPrefix "0" | trimPrefix "0" | int) }}{{ end -}}
{{ dict "ports" $sorted | toJson }}
{{- end }}

{{/* The zones of service URLs, as a JSON list under "zones". */}}
{{- define "eurekube.zones" -}}
{{- $zones := list -}}
{{- range . }}{{ $zones = append $zones (regexFind "^[^=/:,]+=" . | trimSuffix "=" | trim) }}{{ end -}}
{{ dict "zones" (compact $zones) | toJson }}
{{- end }}

{{/* "true" where a secret can be read from a file: one line, not empty, without control characters. */}}
{{- define "eurekube.isSecret" -}}
{{- if and (trim .) (not (regexMatch "[\\x00-\\x1f\\x7f-\\x{9f}\\x{2028}\\x{2029}]" (trim .))) }}true{{ end -}}
{{- end }}

{{/* "true" where the text fits the pattern of a URL, and what stands in brackets is an address. */}}
{{- define "eurekube.isUrl" -}}
{{- if regexMatch .pattern .text -}}
{{- $inside := regexFind "\\[[^\\]]*\\]" .text | trimPrefix "[" | trimSuffix "]" -}}
{{- if or (not $inside) (include "eurekube.bits" $inside) }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* "true" where a text is a network such as 192.0.2.0/24, without bits set behind its length. */}}
{{- define "eurekube.isNetwork" -}}
{{- $parts := splitn "/" 2 . -}}
{{- $bits := include "eurekube.bits" $parts._0 -}}
{{- if and $bits (regexMatch "^(0|[1-9][0-9]{0,2})$" (toString $parts._1)) -}}
{{- $length := int $parts._1 -}}
{{- if le $length (len $bits) }}{{ if not (contains "1" (substr $length (len $bits) $bits)) }}true{{ end }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The bits of an address, 32 or 128 of them; nothing for a text that is no address. */}}
{{- define "eurekube.bits" -}}
{{- if regexMatch "^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$" . -}}
{{- range splitList "." . }}{{ printf "%08b" (int .) }}{{ end -}}
{{- else if contains ":" . -}}
{{- $halves := splitList "::" . -}}
{{- $isAddress := le (len $halves) 2 -}}
{{- range $halves }}{{ if not (regexMatch "^([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)?$" .) }}{{ $isAddress = false }}{{ end }}{{ end -}}
{{- if $isAddress -}}
{{- $before := splitList ":" (first $halves) | compact -}}
{{- $after := list -}}
{{- $missing := sub 8 (len $before) | int -}}
{{- if eq (len $halves) 2 }}{{ $after = splitList ":" (last $halves) | compact }}{{ $missing = sub $missing (len $after) | int }}{{ end -}}
{{- if or (and (eq (len $halves) 1) (eq $missing 0)) (and (eq (len $halves) 2) (gt $missing 0)) -}}
{{- $digits := dict "0" "0000" "1" "0001" "2" "0010" "3" "0011" "4" "0100" "5" "0101" "6" "0110" "7" "0111" "8" "1000" "9" "1001" "a" "1010" "b" "1011" "c" "1100" "d" "1101" "e" "1110" "f" "1111" -}}
{{- $groups := $before -}}
{{- range until $missing }}{{ $groups = append $groups "0" }}{{ end -}}
{{- range concat $groups $after -}}
{{- repeat (mul 4 (sub 4 (len .)) | int) "0" -}}
{{- range regexFindAll "." (lower .) -1 }}{{ index $digits . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
