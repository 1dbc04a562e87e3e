// A machine, an application of two machines, and what Eureka holds of the first.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"eurekube/sdk/go/eurekube"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		billing, err := eurekube.NewInstance(ctx, "billing", &eurekube.InstanceArgs{
			Application: pulumi.String("billing"),
			HostName:    pulumi.String("192.0.2.10"),
			Port:        pulumi.Int(8080),
			Zone:        pulumi.String("zone-a"),
			Metadata:    pulumi.StringMap{"tier": pulumi.String("1")},
		})
		if err != nil {
			return err
		}

		rating, err := eurekube.NewApplication(ctx, "rating", &eurekube.ApplicationArgs{
			Application: pulumi.String("rating"),
			Port:        pulumi.Int(8080),
			Instances: eurekube.ApplicationInstanceMap{
				"a": eurekube.ApplicationInstanceArgs{HostName: pulumi.String("192.0.2.11")},
				"b": eurekube.ApplicationInstanceArgs{HostName: pulumi.String("192.0.2.12"), Port: pulumi.Int(9090)},
			},
		})
		if err != nil {
			return err
		}

		// Read past Eureka's caches when it is registered; unknown in the preview before.
		found := eurekube.LookupInstanceOutput(ctx, eurekube.LookupInstanceOutputArgs{
			Application: billing.Application,
			InstanceId:  billing.InstanceId,
		}, pulumi.DependsOn([]pulumi.Resource{billing}))

		ctx.Export("billing", found.Instance().Status())
		ctx.Export("owner", rating.Owner)
		return nil
	})
}
