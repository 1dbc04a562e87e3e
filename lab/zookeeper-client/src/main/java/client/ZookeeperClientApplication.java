package client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.cloud.client.loadbalancer.LoadBalanced;
import org.springframework.context.annotation.Bean;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestClient;
import org.springframework.web.client.RestClientException;

/** A caller as users of Spring Cloud Zookeeper write it: it finds services by name, and calls them. */
@SpringBootApplication
@RestController
public class ZookeeperClientApplication {

    private final DiscoveryClient discovery;
    private final RestClient.Builder balanced;

    ZookeeperClientApplication(DiscoveryClient discovery, RestClient.Builder balanced) {
        this.discovery = discovery;
        this.balanced = balanced;
    }

    public static void main(String[] arguments) {
        SpringApplication.run(ZookeeperClientApplication.class, arguments);
    }

    /** What a plain discovery client is given. */
    @GetMapping("/instances/{service}")
    List<Map<String, Object>> instances(@PathVariable String service) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (ServiceInstance one : discovery.getInstances(service)) {
            found.add(Map.of("id", one.getInstanceId(), "uri", one.getUri().toString(),
                    "host", one.getHost(), "port", one.getPort(), "metadata", one.getMetadata()));
        }
        return found;
    }

    /** What so many calls through the load balancer were answered; what failed begins with "failed: ". */
    @GetMapping("/calls/{service}/{count}")
    List<String> calls(@PathVariable String service, @PathVariable int count) {
        RestClient client = balanced.build();
        List<String> answers = new ArrayList<>();
        for (int call = 0; call < count; call++) {
            try {
                answers.add(client.get().uri("http://" + service + "/").retrieve().body(String.class));
            } catch (RestClientException | IllegalStateException error) {
                answers.add("failed: " + error.getMessage());
            }
        }
        return answers;
    }

    /** Apart from the application, which is given it. */
    @org.springframework.context.annotation.Configuration
    static class Balanced {
        @Bean
        @LoadBalanced
        RestClient.Builder balanced() {
            return RestClient.builder();
        }
    }
}
