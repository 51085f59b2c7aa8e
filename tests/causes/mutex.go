// SPDX-License-Identifier: Apache-2.0

// Six goroutines: whoever has the mutex computes for 500 us, and for 20 us without it.
package main

import (
	"sync"
	"time"
)

func work(length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); {
	}
}

func main() {
	var mutex sync.Mutex
	var group sync.WaitGroup
	end := time.Now().Add(time.Second)
	for range 6 {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				mutex.Lock()
				work(500 * time.Microsecond)
				mutex.Unlock()
				work(20 * time.Microsecond)
			}
		}()
	}
	group.Wait()
}
