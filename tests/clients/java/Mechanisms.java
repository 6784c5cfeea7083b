import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultSaslConfig;
import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * Kafka's and RabbitMQ's clients for Java over TLS with each mechanism; a wrong password or token is refused.
 *
 * <p>Arguments: KAFKA AMQP FOLDER USER PASSWORD. FOLDER has ca.pem, the certificate and key of the client, which is
 * USER's, and a token of the authorization server.
 */
public final class Mechanisms {
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static String given;

    /** Gives a client the token in {@link #given}. */
    public static final class Tokens implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        public void close() {}

        @Override
        public void handle(Callback[] callbacks) {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback asked) asked.token(new Token(given));
            }
        }
    }

    record Token(String value) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return System.currentTimeMillis() + 600_000;
        }

        @Override
        public String principalName() {
            return "client";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    private final String kafka;
    private final String amqp;
    private final Path folder;
    private final String user;

    private Mechanisms(String[] args) {
        kafka = args[0];
        amqp = args[1];
        folder = Path.of(args[2]);
        user = args[3];
    }

    private Map<String, Object> secure() throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", kafka);
        settings.put("security.protocol", "SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", folder.resolve("ca.pem").toString());
        settings.put("ssl.keystore.type", "PEM");
        settings.put("ssl.keystore.key", Files.readString(folder.resolve("client.key")));
        settings.put("ssl.keystore.certificate.chain", Files.readString(folder.resolve("client.pem")));
        return settings;
    }

    /** Lists topics; an empty mechanism is the certificate alone. */
    private void topics(String mechanism, String secret, boolean isRight) throws Exception {
        var settings = secure();
        if (!mechanism.isEmpty()) {
            settings.put("security.protocol", "SASL_SSL");
            settings.put("sasl.mechanism", mechanism);
            String login = " required username=\"" + user + "\" password=\"" + secret + "\";";
            switch (mechanism) {
                case "PLAIN" -> settings.put("sasl.jaas.config", MODULES + "plain.PlainLoginModule" + login);
                case "OAUTHBEARER" -> {
                    given = secret;
                    settings.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required;");
                    settings.put("sasl.login.callback.handler.class", Tokens.class);
                }
                default -> settings.put("sasl.jaas.config", MODULES + "scram.ScramLoginModule" + login);
            }
        }
        try (Admin admin = Admin.create(settings)) {
            admin.listTopics().names().get();
            check(isRight, mechanism + " let a wrong secret in");
        } catch (ExecutionException error) {
            boolean isRefused = error.getCause() instanceof SaslAuthenticationException;
            if (isRight || !isRefused) throw error;
        }
    }

    private SSLContext context() throws Exception {
        var authority = KeyStore.getInstance(KeyStore.getDefaultType());
        authority.load(null, null);
        try (var file = new FileInputStream(folder.resolve("ca.pem").toFile())) {
            authority.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var trusts = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusts.init(authority);
        // Kafka's client reads PEM files, which Java does not.
        try (var engines = new DefaultSslEngineFactory()) {
            engines.configure(new AdminClientConfig(secure()).values());
            var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(engines.keystore(), null);
            var context = SSLContext.getInstance("TLSv1.3");
            context.init(keys.getKeyManagers(), trusts.getTrustManagers(), null);
            return context;
        }
    }

    private void queues(boolean isExternal, String secret, boolean isRight) throws Exception {
        var factory = new ConnectionFactory();
        factory.setHost(amqp.substring(0, amqp.lastIndexOf(':')));
        factory.setPort(Integer.parseInt(amqp.substring(amqp.lastIndexOf(':') + 1)));
        factory.useSslProtocol(context());
        factory.setUsername(user);
        factory.setPassword(secret);
        factory.setSaslConfig(isExternal ? DefaultSaslConfig.EXTERNAL : DefaultSaslConfig.PLAIN);
        try (var connection = factory.newConnection(); var channel = connection.createChannel()) {
            channel.queueDeclare("java-mechanisms", true, false, false, null);
            check(isRight, "AMQP let a wrong secret in");
        } catch (AuthenticationFailureException error) {
            if (isRight) throw error;
        }
    }

    private static void check(boolean isTrue, String what) {
        if (!isTrue) throw new IllegalStateException(what);
    }

    public static void main(String[] args) throws Exception {
        var clients = new Mechanisms(args);
        String right = args[4];
        String token = Files.readString(clients.folder.resolve("token"));
        clients.topics("", "", true);
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            clients.topics(mechanism, right, true);
            clients.topics(mechanism, "wrong", false);
        }
        clients.topics("OAUTHBEARER", token, true);
        clients.topics("OAUTHBEARER", token + "A", false);
        clients.queues(false, right, true);
        clients.queues(false, "wrong", false);
        clients.queues(true, "", true);
        clients.queues(false, token, true);
        clients.queues(false, token + "A", false);
        System.out.println("done");
    }
}
