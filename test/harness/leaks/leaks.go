// Package leaks fails tests that leave goroutines behind. On a busy machine a goroutine may
// end long after what it served, so it has a minute.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds the wait for goroutines that are about to end. goleak itself waits for
// less than half a second.
const patience = time.Minute

// Main runs the tests of a package and returns their exit code, or 1 if goroutines are left.
func Main(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := wait(); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		return 1
	}
	return 0
}

// Check fails the test if goroutines are left.
func Check(tb testing.TB) {
	tb.Helper()
	if err := wait(); err != nil {
		tb.Error(err)
	}
}

// wait returns an error that names the goroutines that are left.
func wait() error {
	for end := time.Now().Add(patience); ; {
		// It sleeps between its own attempts.
		if err := goleak.Find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
