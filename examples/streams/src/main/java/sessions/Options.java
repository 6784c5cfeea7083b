package sessions;

import java.util.ArrayList;
import java.util.List;

/** Options of the command line: pairs of a name and a value. */
record Options(String[] args) {
    String broker() {
        return text("--broker", "127.0.0.1:9092");
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, Integer.toString(otherwise)));
    }

    String text(String name, String otherwise) {
        List<String> values = all(name);
        return values.isEmpty() ? otherwise : values.get(values.size() - 1);
    }

    List<String> all(String name) {
        List<String> values = new ArrayList<>();
        for (int at = 0; at + 1 < args.length; at += 2) {
            if (args[at].equals(name)) {
                values.add(args[at + 1]);
            }
        }
        return values;
    }
}
