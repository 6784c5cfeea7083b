package sessions;

/**
 * A session that goes on, as the store keeps it: {@code SOURCE LAST ACTIONS}.
 *
 * @param source partition of the topic of fragments that all of its fragments come from
 * @param last time of its newest fragment, in ms
 * @param actions {@code NUMBER:ACTION} of each fragment, in the order of arrival
 */
record OpenSession(int source, long last, String actions) {
    static OpenSession parse(String text) {
        String[] words = text.split(" ", 3);
        return new OpenSession(Integer.parseInt(words[0]), Long.parseLong(words[1]), words[2]);
    }

    OpenSession with(Fragment fragment, long time) {
        String action = fragment.number() + ":" + fragment.action();
        return new OpenSession(source, Math.max(last, time), actions.isEmpty() ? action : actions + " " + action);
    }

    @Override
    public String toString() {
        return source + " " + last + " " + actions;
    }
}
