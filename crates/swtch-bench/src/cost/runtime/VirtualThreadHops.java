// Two virtual threads hand a turn to and fro: each unparks the other and parks.
//
// Reads "block N", does about N hops, answers "HOPS NS VOLUNTARY INVOLUNTARY". The counters are
// those of all threads of the process.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

public class VirtualThreadHops {
    private static volatile int turn;
    private static final Thread[] threads = new Thread[2];

    private static void takeTurns(int me, long laps) {
        for (long lap = 0; lap < laps; lap++) {
            while (turn != me) {
                LockSupport.park();
            }
            turn = 1 - me;
            LockSupport.unpark(threads[1 - me]);
        }
    }

    private static long lap(long laps) throws InterruptedException {
        turn = 0;
        threads[0] = Thread.ofVirtual().unstarted(() -> takeTurns(0, laps));
        threads[1] = Thread.ofVirtual().unstarted(() -> takeTurns(1, laps));
        long start = System.nanoTime();
        threads[0].start();
        threads[1].start();
        threads[0].join();
        threads[1].join();
        return System.nanoTime() - start;
    }

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            long times = Math.max(Long.parseLong(line.substring("block ".length())) / 2, 1);
            lap(2 + times / 16);
            long[] before = switches();
            long elapsed = lap(times);
            long[] after = switches();
            System.out.println(2 * times + " " + elapsed + " "
                + Math.max(after[0] - before[0], 0) + " " + Math.max(after[1] - before[1], 0));
        }
    }

    private static long[] switches() throws IOException {
        long[] sum = new long[2];
        try (var tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path task : tasks) {
                try {
                    for (String line : Files.readAllLines(task.resolve("status"))) {
                        if (line.startsWith("voluntary_ctxt_switches:")) {
                            sum[0] += Long.parseLong(line.replaceAll("\\D", ""));
                        } else if (line.startsWith("nonvoluntary_ctxt_switches:")) {
                            sum[1] += Long.parseLong(line.replaceAll("\\D", ""));
                        }
                    }
                } catch (NoSuchFileException ended) {
                    // A thread that is gone counts no more.
                }
            }
        }
        return sum;
    }
}
