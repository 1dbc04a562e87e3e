// Writes a package's SDK for Python from its schema, as Pulumi's language host for Python does.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

func main() {
	source, folder := os.Args[1], os.Args[2]
	loader := schema.NewPluginLoader(nil) // asked for other packages only, and there are none
	var spec schema.PackageSpec
	text, err := os.ReadFile(source)
	check(err)
	check(json.Unmarshal(text, &spec))
	described, problems, err := schema.BindSpec(spec, loader, schema.ValidationOptions{})
	check(err)
	if problems.HasErrors() {
		log.Fatal(problems)
	}
	files, err := python.GeneratePackage("pulumi-language-python", described, nil, loader)
	check(err)
	for name, content := range files {
		file := filepath.Join(folder, name)
		check(os.MkdirAll(filepath.Dir(file), 0o755))
		check(os.WriteFile(file, content, 0o644))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
