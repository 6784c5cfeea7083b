package sessions;

/** What happens in session number {@code number}. The producer plays it, the checker knows it. */
record Script(int number) {
    private static final int VISITORS = 500;
    private static final int FRAGMENTS_MAX = 12;

    String session() {
        return "s" + number;
    }

    String visitor() {
        return "visitor" + number % VISITORS;
    }

    /** Fragments, with the END if there is one. */
    int fragments() {
        return 2 + number * 7 % FRAGMENTS_MAX;
    }

    /** False if the visitor just goes away. */
    boolean ends() {
        return number % 5 != 0;
    }

    Fragment fragment(int at) {
        boolean end = ends() && at == fragments() - 1;
        return new Fragment(session(), at, end ? Fragment.END : "/page/" + (number + at) % 100);
    }

    /** The value of the finished session. */
    String finished() {
        OpenSession session = new OpenSession(0, 0, "");
        for (int at = 0; at < fragments(); at++) {
            session = session.with(fragment(at), 0);
        }
        return (ends() ? Fragment.END : "TIMEOUT") + " " + session.actions();
    }
}
