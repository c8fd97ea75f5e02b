import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;

/** Reads a job from standard input and runs its steps with the kafka-clients on the class path. */
public final class Driver {
    static final Gson GSON = new Gson();

    interface Steps {
        JsonObject run(JsonObject step) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        JsonObject job = JsonParser.parseReader(new InputStreamReader(System.in, "UTF-8")).getAsJsonObject();
        String factory = job.getAsJsonObject("options").has("client")
                ? job.getAsJsonObject("options").get("client").getAsString() : "New";
        Steps steps = (Steps) Class.forName(factory + "Steps").getDeclaredConstructor(JsonObject.class).newInstance(job);
        for (JsonElement element : job.getAsJsonArray("steps")) {
            JsonObject step = element.getAsJsonObject();
            JsonObject result;
            try {
                result = steps.run(step);
            } catch (Throwable failure) {
                failure.printStackTrace();
                result = new JsonObject();
                result.addProperty("error", String.valueOf(failure));
            }
            result.addProperty("op", step.get("op").getAsString());
            System.out.println("RESULT " + result);
        }
        System.out.flush();
        System.exit(0);
    }

    static Properties properties(JsonObject job, String section) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", job.get("bootstrap").getAsString());
        JsonObject options = job.getAsJsonObject("options");
        if (options.has(section)) {
            for (Map.Entry<String, JsonElement> entry : options.getAsJsonObject(section).entrySet()) {
                properties.put(entry.getKey(), entry.getValue().getAsString());
            }
        }
        return properties;
    }

    static byte[] bytes(JsonElement element) {
        return element == null || element.isJsonNull() ? null : Base64.getDecoder().decode(element.getAsString());
    }

    static JsonElement text(byte[] data) {
        return data == null ? JsonNull.INSTANCE : GSON.toJsonTree(Base64.getEncoder().encodeToString(data));
    }

    static JsonArray pair(long first, long second) {
        JsonArray pair = new JsonArray();
        pair.add(first);
        pair.add(second);
        return pair;
    }

    static JsonObject record(int partition, long offset, byte[] key, byte[] value, Long timestamp, JsonArray headers) {
        JsonObject record = new JsonObject();
        record.addProperty("p", partition);
        record.addProperty("o", offset);
        record.add("k", text(key));
        record.add("v", text(value));
        record.addProperty("ts", timestamp);
        record.add("h", headers);
        return record;
    }
}
