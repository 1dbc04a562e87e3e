#!/bin/sh
# Registers one instance with nothing but an archive of the plugin: no clone, no pip. In TypeScript npm gets Pulumi's SDK.
#   EUREKA_URL=http://127.0.0.1:8761/eureka first-instance.sh ARCHIVE [yaml|typescript]
set -eu
archive=$1
language=${2:-yaml}
version=$(basename "$archive" | sed 's/^pulumi-resource-eurekube-v\([^-]*\)-.*/\1/')
folder=$(mktemp -d)
pulumi plugin install resource eurekube "$version" --file "$archive" --reinstall
cd "$folder"
case $language in
yaml)
  cat > Pulumi.yaml <<END
name: first-instance
runtime: yaml
resources:
  billing:
    type: eurekube:Instance
    properties: {application: billing, hostName: 192.0.2.10, port: 8080}
outputs:
  owner: \${billing.owner}
END
  ;;
typescript)
  cat > Pulumi.yaml <<END
name: first-instance
runtime: nodejs
END
  cat > package.json <<END
{"name": "first-instance", "main": "index.ts", "dependencies": {"@pulumi/pulumi": "^3.142.0"},
 "devDependencies": {"typescript": "^5", "@types/node": "^20"}}
END
  cat > index.ts <<END
import * as eurekube from "@eurekube/pulumi";

const billing = new eurekube.Instance("billing", {application: "billing", hostName: "192.0.2.10", port: 8080});
export const owner = billing.owner;
END
  pulumi package add eurekube
  ;;
*)
  echo "first-instance.sh: yaml or typescript, not $language" >&2
  exit 2
  ;;
esac
pulumi stack init "first-$language"
pulumi config set eurekube:url "$EUREKA_URL"
pulumi up --yes
pulumi stack output owner
echo "The program lies in $folder; 'pulumi destroy' there removes the registration."
