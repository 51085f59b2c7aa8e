// Goroutines on one processor of Go's scheduler. One arm per process, named by the argument; the
// protocol is that of src/protocol.rs.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Several goroutines that yield to each other. The meter starts when all have begun.
func yields(operations, tasks uint64) uint64 {
	var all sync.WaitGroup
	count := uint64(0) // one processor: nobody else counts meanwhile
	for range tasks {
		all.Add(1)
		go func() {
			for range operations / tasks {
				count++
				runtime.Gosched()
			}
			all.Done()
		}()
	}
	runtime.Gosched()
	begin = start()
	all.Wait()
	return count
}

// Two goroutines that hand a turn to each other through unbuffered channels.
func channels(operations uint64) uint64 {
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		for range operations / 2 {
			<-there
			back <- struct{}{}
		}
	}()
	count := uint64(0)
	for range operations / 2 {
		there <- struct{}{}
		<-back
		count += 2
	}
	return count
}

// Goroutines that end at once, batch at a time.
func spawns(operations, batch uint64) uint64 {
	count := uint64(0) // one processor: nobody else counts meanwhile
	for range operations / batch {
		var all sync.WaitGroup
		all.Add(int(batch))
		for range batch {
			go func() {
				count++
				all.Done()
			}()
		}
		all.Wait()
	}
	return count
}

// A mutex that no other goroutine wants.
func locks(operations uint64) uint64 {
	var mutex sync.Mutex
	count := uint64(0)
	for range operations {
		mutex.Lock()
		count++
		mutex.Unlock()
	}
	return count
}

// Clocks and counters at the beginning of a block.
type meter struct {
	usage syscall.Rusage
	cpu   int64
	wall  time.Time
}

// The meter of the present block. An arm may restart it when its goroutines have begun.
var begin meter

func start() (now meter) {
	syscall.Getrusage(syscall.RUSAGE_SELF, &now.usage)
	now.cpu = cpuTime()
	now.wall = time.Now()
	return now
}

// CPU time of all threads of this process, ns: CLOCK_PROCESS_CPUTIME_ID.
func cpuTime() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 2, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func main() {
	runtime.GOMAXPROCS(1)
	arms := map[string]func(uint64) uint64{
		"go-gosched":  func(operations uint64) uint64 { return yields(operations, 2) },
		"go-1000":     func(operations uint64) uint64 { return yields(operations, 1000) },
		"go-channel":  channels,
		"go-spawn":    func(operations uint64) uint64 { return spawns(operations, 1) },
		"go-spawn-64": func(operations uint64) uint64 { return spawns(operations, 64) },
		"go-mutex":    locks,
	}
	if len(os.Args) < 2 || arms[os.Args[1]] == nil {
		os.Exit(2)
	}
	run := arms[os.Args[1]]
	fmt.Println("ready", runtime.Version())
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		var operations uint64
		if _, err := fmt.Sscanf(requests.Text(), "run %d", &operations); err != nil {
			os.Exit(1)
		}
		begin = start()
		count := run(operations)
		end := start()
		fmt.Println(operations, end.wall.Sub(begin.wall).Nanoseconds(), count,
			end.usage.Nvcsw-begin.usage.Nvcsw, end.usage.Nivcsw-begin.usage.Nivcsw, end.cpu-begin.cpu)
	}
}
