import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/**
 * Reads, writes and converts record sets by the classes of several kafka-clients releases, each in a class loader of
 * its own.
 *
 * Arguments: RELEASE=DIRECTORY of its jars. Lines in:
 *   read   RELEASE HEX                    checks every batch, answers its records
 *   write  RELEASE MAGIC CODEC TIMETYPE BASE PID EPOCH SEQUENCE TRANSACTIONAL RECORDS    answers HEX
 *   down   RELEASE MAGIC HEX              converts as a broker does for an old consumer, answers HEX
 * RECORDS: OFFSET:TIME:KEY:VALUE:HEADERS joined by semicolons, key and value in hexadecimal, "-" is null;
 * HEADERS: NAME=VALUE joined by commas, both in hexadecimal. CODEC is none, gzip, snappy, lz4 or zstd.
 */
public class RecordsOracle {
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, ClassLoader> RELEASES = new HashMap<>();
    private static final String COMMON = "org.apache.kafka.common.";

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            File[] files = new File(pair[1]).listFiles((dir, name) -> name.endsWith(".jar"));
            URL[] urls = new URL[files.length];
            for (int i = 0; i < files.length; i++) {
                urls[i] = files[i].toURI().toURL();
            }
            RELEASES.put(pair[0], new URLClassLoader(urls, ClassLoader.getPlatformClassLoader()));
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        ClassLoader loader = RELEASES.get(words[1]);
        Thread.currentThread().setContextClassLoader(loader);
        try {
            switch (words[0]) {
                case "read":
                    return read(loader, words[1], buffer(words[2]));
                case "write":
                    return write(loader, words[1], words);
                default:
                    return down(loader, Byte.parseByte(words[2]), buffer(words[3]));
            }
        } catch (InvocationTargetException e) {
            return "error " + String.valueOf(e.getCause()).replace('\n', ' ');
        } catch (Exception e) {
            return "error " + e.toString().replace('\n', ' ');
        }
    }

    private static String read(ClassLoader loader, String release, ByteBuffer data) throws Exception {
        List<String> out = new ArrayList<>();
        Class<?> sets = type(loader, "MemoryRecords");
        if (release.startsWith("0.8")) {
            data.position(data.limit()); // this release flips what it iterates over
            for (Object entry : (Iterable<?>) invoke(sets, null, "iterableRecords", data)) {
                Object record = call(entry, "record");
                call(record, "ensureValid");
                out.add(text(call(entry, "offset"), -1L, record));
            }
            return String.join(";", out);
        }
        Object set = invoke(sets, null, "readableRecords", data);
        if (release.startsWith("0.10")) {
            for (Object entry : (Iterable<?>) call(set, "shallowEntries")) {
                call(call(entry, "record"), "ensureValid");
            }
            for (Object entry : (Iterable<?>) call(set, "deepEntries")) {
                Object record = call(entry, "record");
                call(record, "ensureValid");
                out.add(text(call(entry, "offset"), call(record, "timestamp"), record));
            }
            return String.join(";", out);
        }
        for (Object batch : (Iterable<?>) call(set, "batches")) {
            call(batch, "ensureValid");
            for (Object record : (Iterable<?>) batch) {
                call(record, "ensureValid");
                out.add(text(call(record, "offset"), call(record, "timestamp"), record) + headers(record));
            }
        }
        return String.join(";", out);
    }

    private static String write(ClassLoader loader, String release, String[] words) throws Exception {
        byte magic = Byte.parseByte(words[2]);
        ByteBuffer target = ByteBuffer.allocate(1 << 16);
        Class<?> sets = type(loader, "MemoryRecords");
        boolean old = release.startsWith("0.");
        Object codec;
        if (old) {
            codec = invoke(type(loader, "CompressionType"), null, "forName", words[3]);
        } else {
            codec = call(invoke(loader.loadClass(COMMON + "compress.Compression"), null, "of", words[3]), "build");
        }
        long base = Long.parseLong(words[5]);
        Object builder;
        if (release.startsWith("0.8")) {
            builder = invoke(sets, null, "emptyRecords", target, codec);
        } else {
            Object timeType = invoke(type(loader, "TimestampType"), null, "forName", words[4]);
            long logAppendTime = words[4].equals("LogAppendTime") ? lastTime(words[10]) : -1L;
            builder = old
                ? invoke(sets, null, "builder", target, magic, codec, timeType, base, logAppendTime)
                : invoke(sets, null, "builder", target, magic, codec, timeType, base, logAppendTime,
                    Long.parseLong(words[6]), Short.parseShort(words[7]), Integer.parseInt(words[8]),
                    Boolean.parseBoolean(words[9]), -1);
        }
        for (String record : words[10].split(";")) {
            append(loader, release, builder, record.split(":", -1));
        }
        ByteBuffer done;
        if (release.startsWith("0.8")) {
            call(builder, "close");
            done = ((ByteBuffer) call(builder, "buffer")).flip();
        } else {
            done = (ByteBuffer) call(call(builder, "build"), "buffer");
        }
        return hex(done);
    }

    private static void append(ClassLoader loader, String release, Object builder, String[] fields) throws Exception {
        long offset = Long.parseLong(fields[0]);
        byte[] key = bytes(fields[2]);
        byte[] value = bytes(fields[3]);
        if (release.startsWith("0.8")) {
            find(builder.getClass(), "append", long.class, byte[].class, byte[].class)
                .invoke(builder, offset, key, value);
            return;
        }
        long time = Long.parseLong(fields[1]);
        if (release.startsWith("0.")) {
            find(builder.getClass(), "appendWithOffset", long.class, long.class, byte[].class, byte[].class)
                .invoke(builder, offset, time, key, value);
            return;
        }
        Class<?> header = loader.loadClass(COMMON + "header.Header");
        String[] pairs = fields[4].isEmpty() ? new String[0] : fields[4].split(",");
        Object headers = Array.newInstance(header, pairs.length);
        for (int i = 0; i < pairs.length; i++) {
            String[] pair = pairs[i].split("=", -1);
            String name = new String(HEX.parseHex(pair[0]), StandardCharsets.UTF_8);
            Array.set(headers, i, loader.loadClass(COMMON + "header.internals.RecordHeader")
                .getConstructor(String.class, byte[].class).newInstance(name, bytes(pair[1])));
        }
        find(builder.getClass(), "appendWithOffset", long.class, long.class, byte[].class, byte[].class,
            headers.getClass()).invoke(builder, offset, time, key, value, headers);
    }

    private static String down(ClassLoader loader, byte magic, ByteBuffer data) throws Exception {
        Object set = invoke(type(loader, "MemoryRecords"), null, "readableRecords", data);
        Object clock = loader.loadClass(COMMON + "utils.Time").getField("SYSTEM").get(null);
        Object converted = call(invoke(set.getClass(), set, "downConvert", magic, 0L, clock), "records");
        return hex((ByteBuffer) call(converted, "buffer"));
    }

    private static long lastTime(String records) {
        String last = records.substring(records.lastIndexOf(';') + 1);
        return Long.parseLong(last.split(":")[1]);
    }

    private static String text(Object offset, Object time, Object record) throws Exception {
        return offset + ":" + time + ":" + hex((ByteBuffer) call(record, "key")) + ":"
            + hex((ByteBuffer) call(record, "value")) + ":";
    }

    private static String headers(Object record) throws Exception {
        Object headers = call(record, "headers");
        List<String> out = new ArrayList<>();
        for (int i = 0; i < Array.getLength(headers); i++) {
            Object header = Array.get(headers, i);
            byte[] name = ((String) call(header, "key")).getBytes(StandardCharsets.UTF_8);
            byte[] value = (byte[]) call(header, "value");
            out.add(HEX.formatHex(name) + "=" + (value == null ? "-" : HEX.formatHex(value)));
        }
        return String.join(",", out);
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static ByteBuffer buffer(String hex) {
        return ByteBuffer.wrap(HEX.parseHex(hex));
    }

    /** Kafka 4.3 moved most record classes into a package of their own. */
    private static Class<?> type(ClassLoader loader, String name) throws ClassNotFoundException {
        try {
            return loader.loadClass(COMMON + "record." + name);
        } catch (ClassNotFoundException e) {
            return loader.loadClass(COMMON + "record.internal." + name);
        }
    }

    private static Object call(Object target, String name) throws Exception {
        return find(target.getClass(), name).invoke(target);
    }

    private static Method find(Class<?> type, String name, Class<?>... parameters) throws Exception {
        Method method = type.getMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }

    /** Calls the one method of that name that takes these arguments; its parameter types differ between releases. */
    private static Object invoke(Class<?> type, Object target, String name, Object... args) throws Exception {
        for (Method method : type.getMethods()) {
            if (method.getName().equals(name) && fits(method.getParameterTypes(), args)) {
                method.setAccessible(true);
                return method.invoke(target, args);
            }
        }
        throw new NoSuchMethodException(type + "." + name);
    }

    private static boolean fits(Class<?>[] types, Object[] args) {
        if (types.length != args.length) {
            return false;
        }
        for (int i = 0; i < args.length; i++) {
            boolean same = types[i].isPrimitive()
                ? types[i] == java.lang.invoke.MethodType.methodType(args[i].getClass()).unwrap().returnType()
                : types[i].isInstance(args[i]);
            if (!same) {
                return false;
            }
        }
        return true;
    }
}
