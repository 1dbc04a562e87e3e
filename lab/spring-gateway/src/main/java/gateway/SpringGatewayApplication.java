package gateway;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** Spring Cloud Gateway as its users start it: each application in Eureka is a route by its name. */
@SpringBootApplication
public class SpringGatewayApplication {

    public static void main(String[] arguments) {
        SpringApplication.run(SpringGatewayApplication.class, arguments);
    }
}
