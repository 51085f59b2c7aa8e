// SPDX-License-Identifier: Apache-2.0

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;

/** Programs of the corpus in Java: {@code Causes monitor|queue|garbage SECONDS [MICROSECONDS]}. */
final class Causes {
    private static final Object MONITOR = new Object();
    private static final AtomicLong ROUNDS = new AtomicLong();
    private static long spins;

    private static void work(long ns) {
        for (long end = System.nanoTime() + ns; System.nanoTime() < end;) {
            spins++;
        }
    }

    /** Six threads: whoever has the monitor computes for 500 us or as told, and for 20 us without it. */
    private static void inMonitor(long end, long ns) {
        while (System.nanoTime() < end) {
            synchronized (MONITOR) {
                work(ns);
            }
            work(20_000);
            ROUNDS.incrementAndGet();
        }
    }

    /** Keeps the last 10 MB of what it makes. */
    private static void makeGarbage(long end) {
        final byte[][] kept = new byte[10_000][];
        for (int number = 0; System.nanoTime() < end; number = (number + 1) % kept.length) {
            kept[number] = new byte[1_000];
            ROUNDS.incrementAndGet();
        }
    }

    /** Eight threads take numbers from a queue as fast as one puts them in. */
    private static void takeAll(LinkedBlockingQueue<Integer> queue) {
        try {
            while (queue.take() >= 0) {
                spins++;
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] words) throws InterruptedException {
        final long end = System.nanoTime() + (long) (Double.parseDouble(words[1]) * 1e9);
        if (words[0].equals("garbage")) {
            makeGarbage(end);
            System.out.println("rounds " + ROUNDS);
            return;
        }
        final long held = words.length > 2 ? Long.parseLong(words[2]) * 1000 : 500_000;
        final boolean isMonitor = words[0].equals("monitor");
        final var queue = new LinkedBlockingQueue<Integer>();
        final Thread[] threads = new Thread[isMonitor ? 6 : 8];
        for (int number = 0; number < threads.length; number++) {
            threads[number] = new Thread(isMonitor ? () -> inMonitor(end, held) : () -> takeAll(queue));
            threads[number].start();
        }
        for (int number = 0; !isMonitor && System.nanoTime() < end; number = (number + 1) & 0xffff) {
            queue.put(number);
        }
        for (int number = 0; !isMonitor && number < threads.length; number++) {
            queue.put(-1);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("rounds " + ROUNDS);
    }
}
