// Two goroutines hand a turn to and fro over unbuffered channels.
//
// Reads "block N", does about N hops, answers "HOPS NS VOLUNTARY INVOLUNTARY". The counters are
// those of all threads of the process.
package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"time"
)

func main() {
	ping, pong := make(chan struct{}), make(chan struct{})
	go func() {
		for {
			<-ping
			pong <- struct{}{}
		}
	}()
	laps := func(times int64) {
		for range times {
			ping <- struct{}{}
			<-pong
		}
	}
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for input.Scan() {
		var hops int64
		if _, err := fmt.Sscanf(input.Text(), "block %d", &hops); err != nil {
			os.Exit(1)
		}
		times := max(hops/2, 1)
		laps(2 + times/16)
		before := usage()
		start := time.Now()
		laps(times)
		elapsed := time.Since(start)
		after := usage()
		fmt.Println(2*times, elapsed.Nanoseconds(), after.Nvcsw-before.Nvcsw, after.Nivcsw-before.Nivcsw)
	}
}

func usage() syscall.Rusage {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		os.Exit(1)
	}
	return usage
}
