package admin;

import de.codecentric.boot.admin.server.config.EnableAdminServer;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** Spring Boot Admin as its users start it: it finds applications through its Eureka client. */
@SpringBootApplication
@EnableAdminServer
public class SpringAdminApplication {

    public static void main(String[] arguments) {
        SpringApplication.run(SpringAdminApplication.class, arguments);
    }
}
