import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads each message of its input with Kafka's own code, writes it again, and compares the bytes. */
public class Oracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        int agreed = 0;
        int failed = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            short version = Short.parseShort(parts[2]);
            byte[] bytes = HexFormat.of().parseHex(parts[3]);
            String failure = compare(Short.parseShort(parts[0]), parts[1].equals("request"), version, bytes);
            if (failure == null) {
                agreed++;
            } else if (failed++ < 20) {
                System.err.println(parts[0] + " " + parts[1] + " " + version + ": " + failure);
            }
        }
        System.out.println(agreed + " messages read and written alike, " + failed + " not");
        System.exit(failed == 0 && agreed > 0 ? 0 : 1);
    }

    private static String compare(short key, boolean isRequest, short version, byte[] bytes) {
        try {
            ApiMessageType type = ApiMessageType.fromApiKey(key);
            ApiMessage message = isRequest ? type.newRequest() : type.newResponse();
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return buffer.remaining() + " bytes are left";
            }
            ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
            return again.equals(ByteBuffer.wrap(bytes)) ? null : "other bytes: " + message;
        } catch (Exception e) {
            return e.toString();
        }
    }
}
