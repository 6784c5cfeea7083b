package sessions;

import java.util.Arrays;
import java.util.Map;

/** The commands of the example. */
public final class Main {
    private static final String USAGE = """
            usage: sessions.jar COMMAND [--broker HOST:PORT] [OPTION VALUE]...
              produce    write the fragments of --sessions N (5000), --rate N of them a second (1000; 0: all at once)
              assemble   run the application; --name NAME (a) of this instance, --state FOLDER (/tmp/sessions) of its stores,
                         --set KEY=VALUE for any setting of Kafka Streams
              check      wait until all --sessions N are there, and check them; --wait SECONDS (60), 0 for those that
                         are there now
            """;

    private Main() {}

    public static void main(String[] args) throws Exception {
        Map<String, Command> commands =
                Map.of("produce", Produce::run, "assemble", Assemble::run, "check", Check::run);
        Command command = args.length == 0 ? null : commands.get(args[0]);
        if (command == null) {
            System.err.print(USAGE);
            System.exit(2);
        }
        System.exit(command.run(new Options(Arrays.copyOfRange(args, 1, args.length))));
    }

    private interface Command {
        /** Returns the exit code. */
        int run(Options options) throws Exception;
    }
}
