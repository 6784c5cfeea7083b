package sessions;

/**
 * What an agent in a visitor's browser reports: one step of a session. As text, the value of a record:
 * {@code SESSION NUMBER ACTION}.
 *
 * @param number place in the session, from 0
 * @param action a page, or {@link #END}
 */
record Fragment(String session, int number, String action) {
    static final String END = "END";

    static Fragment parse(String text) {
        String[] words = text.split(" ", 3);
        return new Fragment(words[0], Integer.parseInt(words[1]), words[2]);
    }

    boolean isEnd() {
        return action.equals(END);
    }

    @Override
    public String toString() {
        return session + " " + number + " " + action;
    }
}
