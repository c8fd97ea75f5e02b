import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Logs each line of its standard input, as a service would; it lives on after the last one. */
public class LogLines {
    public static void main(String[] arguments) throws Exception {
        Logger logger = LoggerFactory.getLogger("lines");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            logger.info(line);
        }
        Thread.currentThread().join();
    }
}
