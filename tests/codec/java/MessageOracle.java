import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/**
 * Reads and writes messages by the classes of several kafka-clients releases, each in a class loader of its own.
 *
 * Arguments: RELEASE=DIRECTORY of its jars. Lines in:
 *   range   RELEASE CLASS                  lowest and highest version of a generated class
 *   read    RELEASE CLASS VERSION HEX      bytes read by the generated class and written again
 *   write   RELEASE CLASS VERSION JSON     JSON read by the generated class and written as bytes
 *   headers RELEASE KEY VERSION            header versions of the request and the response
 *   known   RELEASE KIND KEY               number of versions in the schema table of a release before 0.11
 *   schema  RELEASE KIND KEY VERSION HEX   bytes read by such a schema and written again
 */
public class MessageOracle {
    private static final HexFormat HEX = HexFormat.of();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, ClassLoader> RELEASES = new HashMap<>();

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            File[] files = new File(pair[1]).listFiles((dir, name) -> name.endsWith(".jar"));
            URL[] urls = new URL[files.length];
            for (int i = 0; i < files.length; i++) {
                urls[i] = files[i].toURI().toURL();
            }
            RELEASES.put(pair[0], new URLClassLoader(urls, MessageOracle.class.getClassLoader()));
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line));
        }
    }

    private static String answer(String line) {
        try {
            String[] words = line.split(" ", 3);
            ClassLoader loader = RELEASES.get(words[1]);
            switch (words[0]) {
                case "range":
                    Object any = message(loader, words[2]);
                    return call(any, "lowestSupportedVersion") + " " + call(any, "highestSupportedVersion");
                case "read":
                    return read(loader, words[2].split(" ", 3));
                case "write":
                    return write(loader, words[2].split(" ", 3));
                case "headers":
                    return headers(loader, words[2].split(" "));
                case "known":
                    return known(loader, words[2].split(" "));
                default:
                    return schema(loader, words[2].split(" ", 4));
            }
        } catch (InvocationTargetException e) {
            return "error " + String.valueOf(e.getCause()).replace('\n', ' ');
        } catch (Exception e) {
            return "error " + e.toString().replace('\n', ' ');
        }
    }

    private static Object message(ClassLoader loader, String name) throws Exception {
        return type(loader, "message." + dataName(name)).getConstructor().newInstance();
    }

    /** Requests, responses and headers have classes that end in Data, messages inside them have not. */
    private static String dataName(String name) {
        return name.matches(".*(Request|Response|Header)") ? name + "Data" : name;
    }

    private static Class<?> type(ClassLoader loader, String name) throws Exception {
        return loader.loadClass("org.apache.kafka.common." + name);
    }

    private static Object call(Object target, String name) throws Exception {
        return target.getClass().getMethod(name).invoke(target);
    }

    private static String read(ClassLoader loader, String[] words) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(words.length > 2 ? words[2] : ""));
        Object accessor = type(loader, "protocol.ByteBufferAccessor").getConstructor(ByteBuffer.class).newInstance(bytes);
        Object message = message(loader, words[0]);
        short version = Short.parseShort(words[1]);
        Method read = message.getClass().getMethod("read", type(loader, "protocol.Readable"), short.class);
        read.invoke(message, accessor, version);
        if (bytes.hasRemaining()) {
            return "error " + bytes.remaining() + " bytes left";
        }
        return bytes(loader, message, version);
    }

    private static String write(ClassLoader loader, String[] words) throws Exception {
        Class<?> converter = type(loader, "message." + dataName(words[0]) + "JsonConverter");
        short version = Short.parseShort(words[1]);
        JsonNode node = JSON.readTree(words[2]);
        Object message = converter.getMethod("read", JsonNode.class, short.class).invoke(null, node, version);
        return bytes(loader, message, version);
    }

    private static String headers(ClassLoader loader, String[] words) throws Exception {
        Class<?> types = type(loader, "message.ApiMessageType");
        Object api = types.getMethod("fromApiKey", short.class).invoke(null, Short.parseShort(words[0]));
        short version = Short.parseShort(words[1]);
        Object request = types.getMethod("requestHeaderVersion", short.class).invoke(api, version);
        return request + " " + types.getMethod("responseHeaderVersion", short.class).invoke(api, version);
    }

    private static String bytes(ClassLoader loader, Object message, short version) throws Exception {
        Class<?> cacheType = type(loader, "protocol.ObjectSerializationCache");
        Object cache = cacheType.getConstructor().newInstance();
        Method size = message.getClass().getMethod("size", cacheType, short.class);
        ByteBuffer buffer = ByteBuffer.allocate((Integer) size.invoke(message, cache, version));
        Object accessor = type(loader, "protocol.ByteBufferAccessor").getConstructor(ByteBuffer.class).newInstance(buffer);
        Method write = message.getClass().getMethod("write", type(loader, "protocol.Writable"), cacheType, short.class);
        write.invoke(message, accessor, cache, version);
        buffer.flip();
        return hex(buffer);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return HEX.formatHex(data);
    }

    private static Object[] schemas(ClassLoader loader, String kind, int key) throws Exception {
        Object table = type(loader, "protocol.Protocol").getField(kind).get(null);
        Object[][] all = (Object[][]) table;
        return key < all.length && all[key] != null ? all[key] : new Object[0];
    }

    private static String known(ClassLoader loader, String[] words) throws Exception {
        return String.valueOf(schemas(loader, words[0], Integer.parseInt(words[1])).length);
    }

    private static String schema(ClassLoader loader, String[] words) throws Exception {
        Object schema = schemas(loader, words[0], Integer.parseInt(words[1]))[Integer.parseInt(words[2])];
        ByteBuffer in = ByteBuffer.wrap(HEX.parseHex(words.length > 3 ? words[3] : ""));
        Object struct = schema.getClass().getMethod("read", ByteBuffer.class).invoke(schema, in);
        if (in.hasRemaining()) {
            return "error " + in.remaining() + " bytes left";
        }
        int size = (Integer) schema.getClass().getMethod("sizeOf", Object.class).invoke(schema, struct);
        ByteBuffer out = ByteBuffer.allocate(size);
        schema.getClass().getMethod("write", ByteBuffer.class, Object.class).invoke(schema, out, struct);
        out.flip();
        return hex(out);
    }
}
