package shop;

import com.pulumi.Pulumi;
import com.pulumi.deployment.InvokeOutputOptions;
import io.eurekube.Application;
import io.eurekube.ApplicationArgs;
import io.eurekube.EurekubeFunctions;
import io.eurekube.Instance;
import io.eurekube.InstanceArgs;
import io.eurekube.inputs.ApplicationInstanceArgs;
import io.eurekube.inputs.GetInstanceArgs;
import java.util.Map;

/** A machine, an application of two machines, and what Eureka holds of the first. */
public class App {
    public static void main(String[] args) {
        Pulumi.run(context -> {
            var billing = new Instance("billing", InstanceArgs.builder()
                .application("billing")
                .hostName("192.0.2.10")
                .port(8080)
                .zone("zone-a")
                .metadata(Map.of("tier", "1"))
                .build());

            var rating = new Application("rating", ApplicationArgs.builder()
                .application("rating")
                .port(8080)
                .instances(Map.of(
                    "a", ApplicationInstanceArgs.builder().hostName("192.0.2.11").build(),
                    "b", ApplicationInstanceArgs.builder().hostName("192.0.2.12").port(9090).build()))
                .build());

            // Read past Eureka's caches when it is registered; unknown in the preview before.
            var found = EurekubeFunctions.getInstance(
                GetInstanceArgs.builder()
                    .application(billing.application())
                    .instanceId(billing.instanceId())
                    .build(),
                new InvokeOutputOptions.Builder().dependsOn(billing).build());

            context.export("billing", found.applyValue(answer -> answer.instance().orElseThrow().status()));
            context.export("owner", rating.owner());
        });
    }
}
