// A machine, an application of two machines, and what Eureka holds of the first.
using System.Collections.Generic;
using Pulumi;
using Pulumi.Eurekube;
using Pulumi.Eurekube.Inputs;

return await Deployment.RunAsync(() =>
{
    var billing = new Instance("billing", new InstanceArgs
    {
        Application = "billing",
        HostName = "192.0.2.10",
        Port = 8080,
        Zone = "zone-a",
        Metadata = { ["tier"] = "1" },
    });

    var rating = new Application("rating", new ApplicationArgs
    {
        ApplicationName = "rating",
        Port = 8080,
        Instances =
        {
            ["a"] = new ApplicationInstanceArgs { HostName = "192.0.2.11" },
            ["b"] = new ApplicationInstanceArgs { HostName = "192.0.2.12", Port = 9090 },
        },
    });

    // Read past Eureka's caches when it is registered; unknown in the preview before.
    var found = GetInstance.Invoke(
        new GetInstanceInvokeArgs { Application = billing.Application, InstanceId = billing.InstanceId },
        new InvokeOutputOptions { DependsOn = { billing } });

    return new Dictionary<string, object?>
    {
        ["billing"] = found.Apply(answer => answer.Instance?.Status),
        ["owner"] = rating.Owner,
    };
});
