// Pulumi's Kubernetes plugin, as its module's own main package is, which lacks the files that it embeds.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

var version string

func main() {
	// The module's schema is without a version: a release adds its own.
	versioned := append([]byte(`{"version":"`+version+`",`), schema[1:]...)
	provider.Serve("kubernetes", version, versioned, terraformMapping)
}
