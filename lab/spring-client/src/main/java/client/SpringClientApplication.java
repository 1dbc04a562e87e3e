package client;

import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.InstanceInfo.PortType;
import com.netflix.discovery.EurekaClient;
import jakarta.servlet.http.HttpServletRequest;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.cloud.client.loadbalancer.LoadBalanced;
import org.springframework.cloud.client.loadbalancer.LoadBalancerClient;
import org.springframework.cloud.openfeign.EnableFeignClients;
import org.springframework.context.annotation.Bean;
import org.springframework.http.HttpStatus;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestClient;

/** Says over HTTP what an ordinary Spring Cloud application sees in Eureka, and calls what it sees. */
@SpringBootApplication
@EnableFeignClients
public class SpringClientApplication {

    public static void main(String[] arguments) {
        SpringApplication.run(SpringClientApplication.class, arguments);
    }

    @Bean
    @LoadBalanced
    RestClient.Builder balanced() {
        return RestClient.builder();
    }

    @RestController
    static class Views {

        private final DiscoveryClient discovery;
        private final LoadBalancerClient balancer;
        private final EurekaClient netflix;
        private final RestClient http;

        Views(
                DiscoveryClient discovery,
                LoadBalancerClient balancer,
                @Qualifier("eurekaClient") EurekaClient netflix,
                RestClient.Builder http) {
            this.discovery = discovery;
            this.balancer = balancer;
            this.netflix = netflix;
            this.http = http.build();
        }

        /** What the discovery client gives to callers. */
        @GetMapping("/instances/{service}")
        List<Map<String, Object>> instances(@PathVariable String service) {
            return discovery.getInstances(service).stream().map(Views::described).toList();
        }

        /** The one that the load balancer takes; empty where it finds none. */
        @GetMapping("/choose/{service}")
        Map<String, Object> choose(@PathVariable String service) {
            ServiceInstance chosen = balancer.choose(service);
            return chosen == null ? Map.of() : described(chosen);
        }

        /** Calls http://service/path as applications do, by name. */
        @GetMapping("/call/{service}/**")
        Map<String, Object> call(@PathVariable String service, HttpServletRequest request) {
            String path = request.getRequestURI().substring("/call/".length() + service.length());
            ResponseEntity<String> answer =
                    http.get().uri("http://" + service + path).retrieve().toEntity(String.class);
            return Map.of("status", answer.getStatusCode().value(), "body", String.valueOf(answer.getBody()));
        }

        /** What Netflix's own client holds under a VIP. */
        @GetMapping("/netflix/{vip}")
        List<Map<String, Object>> netflix(
                @PathVariable String vip, @RequestParam(defaultValue = "false") boolean secure) {
            return netflix.getInstancesByVipAddress(vip, secure).stream().map(Views::described).toList();
        }

        /** Why a call failed, for the test that expects it or the person who did not. */
        @ExceptionHandler
        ResponseEntity<Map<String, String>> failed(Exception exception) {
            return ResponseEntity.status(HttpStatus.BAD_GATEWAY).body(Map.of("error", exception.toString()));
        }

        private static Map<String, Object> described(ServiceInstance instance) {
            Map<String, Object> view = new LinkedHashMap<>();
            view.put("instanceId", instance.getInstanceId());
            view.put("serviceId", instance.getServiceId());
            view.put("host", instance.getHost());
            view.put("port", instance.getPort());
            view.put("secure", instance.isSecure());
            view.put("scheme", instance.getScheme());
            view.put("uri", instance.getUri().toString());
            view.put("uriHost", instance.getUri().getHost()); // null where Java cannot tell host and port apart
            view.put("metadata", instance.getMetadata());
            return view;
        }

        private static Map<String, Object> described(InstanceInfo instance) {
            Map<String, Object> view = new LinkedHashMap<>();
            view.put("instanceId", instance.getInstanceId());
            view.put("app", instance.getAppName());
            view.put("hostName", instance.getHostName());
            view.put("ipAddr", instance.getIPAddr());
            view.put("port", instance.getPort());
            view.put("portEnabled", instance.isPortEnabled(PortType.UNSECURE));
            view.put("securePort", instance.getSecurePort());
            view.put("securePortEnabled", instance.isPortEnabled(PortType.SECURE));
            view.put("status", instance.getStatus().name());
            view.put("vipAddress", instance.getVIPAddress());
            view.put("secureVipAddress", instance.getSecureVipAddress());
            view.put("dataCenter", instance.getDataCenterInfo().getName().name());
            view.put("zone", InstanceInfo.getZone(new String[] {"none"}, instance));
            view.put("metadata", instance.getMetadata());
            view.put("homePageUrl", instance.getHomePageUrl());
            view.put("renewalIntervalInSecs", instance.getLeaseInfo().getRenewalIntervalInSecs());
            view.put("durationInSecs", instance.getLeaseInfo().getDurationInSecs());
            return view;
        }
    }
}
