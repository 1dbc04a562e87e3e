package client;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.loadbalancer.CompletionContext;
import org.springframework.cloud.client.loadbalancer.LoadBalancerLifecycle;
import org.springframework.cloud.client.loadbalancer.Request;
import org.springframework.cloud.client.loadbalancer.Response;
import org.springframework.stereotype.Component;

/**
 * Writes down each call: when it began (milliseconds since 1970), through what, of which application, at which
 * host, how many milliseconds it took, and its outcome ("ok" or what went wrong).
 */
@Component
class Calls implements LoadBalancerLifecycle<Object, Object, ServiceInstance> {

    private final ThreadLocal<String> target = new ThreadLocal<>();
    private BufferedWriter file;

    synchronized void open(Path path) throws IOException {
        file = Files.newBufferedWriter(path);
    }

    synchronized void flush() throws IOException {
        file.flush();
    }

    /** Makes one call and writes down what became of it. */
    void record(String client, String application, Runnable call) {
        long began = System.currentTimeMillis();
        String outcome = "ok";
        target.remove();
        try {
            call.run();
        } catch (RuntimeException failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            outcome = (cause.getClass().getSimpleName() + " " + cause.getMessage()).replaceAll("[,\\s]+", " ");
        }
        long took = System.currentTimeMillis() - began;
        String host = target.get() == null ? "" : target.get();
        write(began + "," + client + "," + application + "," + host + "," + took + "," + outcome + "\n");
    }

    private synchronized void write(String line) {
        try {
            file.write(line);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void onStart(Request<Object> request) {}

    /** The load balancer says whom it chose, on the caller's thread. */
    @Override
    public void onStartRequest(Request<Object> request, Response<ServiceInstance> chosen) {
        if (chosen.hasServer()) {
            target.set(chosen.getServer().getHost());
        }
    }

    @Override
    public void onComplete(CompletionContext<Object, ServiceInstance, Object> completion) {}
}
