module native-go

go 1.25

// The generated SDK asks for 3.269.0 or later. 3.269.0 itself needs a module that the proxy of Go does not serve
// (github.com/pulumi/pulumi-cloud-sdk/go v1.20260918.0).
require github.com/pulumi/pulumi/sdk/v3 v3.276.0
