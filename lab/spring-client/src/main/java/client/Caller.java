package client;

import java.io.IOException;
import java.net.http.HttpClient;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.springframework.cloud.openfeign.FeignClientBuilder;
import org.springframework.context.ApplicationContext;
import org.springframework.http.client.JdkClientHttpRequestFactory;
import org.springframework.web.bind.annotation.DeleteMapping;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestClient;

/** Calls applications by name without pause, from the moment it is asked to until it is asked to end. */
@RestController
class Caller {

    /**
     * A server that is gone leaves no answer at all: without time-outs a caller would wait for minutes. Long enough
     * that a caller which gets no processor time for a few seconds does not take its own delay for a server's.
     */
    private static final Duration CONNECT = Duration.ofSeconds(10);

    private static final Duration READ = Duration.ofSeconds(30);

    /** So many calls of each application come first and are not counted: they load classes and build clients. */
    private static final int REHEARSALS = 5;

    /** What to call: how often each, and where to write it down. */
    record Orders(List<String> balanced, List<String> feign, int perSecond, String file) {}

    /** What the applications answer to. */
    interface Application {
        @GetMapping("/")
        String get();
    }

    private final Random random = new Random();
    private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
    private final ExecutorService workers = Executors.newCachedThreadPool();
    private final Calls calls;
    private final RestClient http;
    private final FeignClientBuilder feign;

    Caller(Calls calls, RestClient.Builder balanced, ApplicationContext context) {
        JdkClientHttpRequestFactory requests =
                new JdkClientHttpRequestFactory(HttpClient.newBuilder().connectTimeout(CONNECT).build());
        requests.setReadTimeout(READ);
        this.calls = calls;
        this.http = balanced.clone().requestFactory(requests).build();
        this.feign = new FeignClientBuilder(context);
    }

    @PostMapping("/calls")
    void begin(@RequestBody Orders orders) throws IOException {
        calls.open(Path.of(orders.file()));
        for (String application : orders.balanced()) {
            String url = "http://" + application + "/";
            repeat(orders, "load balancer", application, () -> http.get().uri(url).retrieve().toBodilessEntity());
        }
        for (String application : orders.feign()) {
            Application client =
                    feign.forType(Application.class, application)
                            .customize(builder -> builder.options(
                                    new feign.Request.Options(CONNECT, READ, true)))
                            .build();
            repeat(orders, "feign", application, client::get);
        }
        clock.scheduleAtFixedRate(this::flush, 1, 1, TimeUnit.SECONDS);
    }

    /** No further calls; returns once all that were under way are written down. */
    @DeleteMapping("/calls")
    void end() throws IOException, InterruptedException {
        clock.shutdownNow();
        clock.awaitTermination(1, TimeUnit.SECONDS);
        workers.shutdown();
        if (!workers.awaitTermination(CONNECT.plus(READ).toSeconds(), TimeUnit.SECONDS)) {
            throw new IllegalStateException("calls are still under way");
        }
        calls.flush();
    }

    /** At a fixed rate, however long a call takes, and not all applications at the same moment. */
    private void repeat(Orders orders, String client, String application, Runnable call) {
        for (int number = 0; number < REHEARSALS; number++) {
            call.run();
        }
        long period = TimeUnit.SECONDS.toMicros(1) / orders.perSecond();
        clock.scheduleAtFixedRate(
                () -> workers.execute(() -> calls.record(client, application, call)),
                random.nextLong(period),
                period,
                TimeUnit.MICROSECONDS);
    }

    private void flush() {
        try {
            calls.flush();
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
