package measure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc/PID/stat: Linux's USER_HZ is 100 on all architectures that Kubernetes runs on
// (proc_pid_stat(5)).
const tick = 10 * time.Millisecond

// Process is a process of this machine.
type Process int

// Memory returns the resident memory of the process (RSS) in bytes, shared memory included. It excludes the kernel's
// memory for sockets.
func (p Process) Memory() (uint64, error) {
	content, err := os.ReadFile(p.file("smaps_rollup"))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of a process: %w", err)
	}
	return field(content, "Rss")
}

// CPU returns the CPU time of the process since its start, in user space and in the kernel, in steps of 10 ms.
func (p Process) CPU() (time.Duration, error) {
	content, err := os.ReadFile(p.file("stat"))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	return parseCPU(string(content))
}

func (p Process) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(int(p)), name)
}

// parseCPU adds the fields utime and stime. The program's name, in parentheses, may have any characters.
func parseCPU(stat string) (time.Duration, error) {
	const utime, stime = 11, 12
	_, rest, ok := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) <= stime {
		return 0, fmt.Errorf("reading the CPU time of a process: %q is no line of /proc/PID/stat", stat)
	}
	var sum time.Duration
	for _, at := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// field returns the bytes of a line "name: N kB".
func field(content []byte, name string) (uint64, error) {
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), name+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", name, err)
		}
		return n << 10, nil
	}
	return 0, errors.Join(fmt.Errorf("there is no %s", name), lines.Err())
}
