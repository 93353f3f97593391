package forwarder

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listener is a process that listens at a port; pid is 0 if it is unknown.
type listener struct {
	pid  int
	name string
}

// tcpListen is the state of listening sockets in /proc/net/tcp.
const tcpListen = "0A"

// findListener returns the process that listens at a port.
func findListener(root string, port int32) (listener, error) {
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(filepath.Join(root, table))
		if err != nil {
			continue // without IPv6 there is no second table
		}
		suffix := fmt.Sprintf(":%04X", port)
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == tcpListen {
				inodes["socket:["+fields[9]+"]"] = true
			}
		}
	}
	links, err := filepath.Glob(filepath.Join(root, "/proc/[0-9]*/fd/*"))
	if err != nil {
		return listener{}, err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !inodes[target] {
			continue
		}
		folder := filepath.Dir(filepath.Dir(link))
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(folder, "comm"))
		if err != nil {
			return listener{}, fmt.Errorf("reading the name of process %d: %w", pid, err)
		}
		return listener{pid, strings.TrimSpace(string(name))}, nil
	}
	return listener{}, nil
}
