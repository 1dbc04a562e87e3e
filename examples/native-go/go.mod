module native-go

go 1.25

// The generated SDK asks for 3.269.0 or later. 3.269.0 itself needs github.com/pulumi/pulumi-cloud-sdk/go, which not
// every module proxy serves.
require github.com/pulumi/pulumi/sdk/v3 v3.276.0
