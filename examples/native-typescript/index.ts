// A machine, an application of two machines, and what Eureka holds of the first.
import * as eurekube from "@eurekube/pulumi";

const billing = new eurekube.Instance("billing", {
    application: "billing",
    hostName: "192.0.2.10",
    port: 8080,
    zone: "zone-a",
    metadata: { tier: "1" },
});

const rating = new eurekube.Application("rating", {
    application: "rating",
    port: 8080,
    instances: { a: { hostName: "192.0.2.11" }, b: { hostName: "192.0.2.12", port: 9090 } },
});

// Read past Eureka's caches when it is registered; unknown in the preview before.
const found = eurekube.getInstanceOutput(
    { application: billing.application, instanceId: billing.instanceId },
    { dependsOn: [billing] },
);

exports.billing = found.apply((answer) => answer.instance?.status);
exports.owner = rating.owner;
