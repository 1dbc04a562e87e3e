package lab;

import jakarta.servlet.DispatcherType;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.netflix.eureka.server.EnableEurekaServer;
import org.springframework.context.annotation.Bean;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.web.SecurityFilterChain;

/**
 * A Eureka server with the three kinds of security met in the field, chosen by the property {@code lab.security}:
 * {@code none} (everything open), {@code basic} (a password, and no CSRF check under /eureka, as the Spring
 * documentation advises) and {@code csrf} (a password and Spring Security's CSRF check: every write gets 403).
 */
@SpringBootApplication
@EnableEurekaServer
public class EurekaServerApplication {

    public static void main(String[] arguments) {
        SpringApplication.run(EurekaServerApplication.class, arguments);
    }

    @Bean
    SecurityFilterChain security(HttpSecurity http, @Value("${lab.security:none}") String security) throws Exception {
        switch (security) {
            case "none" -> http.csrf(csrf -> csrf.disable())
                    .authorizeHttpRequests(requests -> requests.anyRequest().permitAll());
            case "basic" -> http.csrf(csrf -> csrf.ignoringRequestMatchers("/eureka/**"))
                    .authorizeHttpRequests(requests -> requests.anyRequest().authenticated())
                    .httpBasic(Customizer.withDefaults());
            case "csrf" -> http.authorizeHttpRequests(requests -> requests
                            .dispatcherTypeMatchers(DispatcherType.ERROR).permitAll() // else the 403 turns into a 401
                            .anyRequest().authenticated())
                    .httpBasic(Customizer.withDefaults());
            default -> throw new IllegalArgumentException("lab.security must be none, basic or csrf, not " + security);
        }
        return http.build();
    }
}
