package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Points returns the mount points of this process's mount namespace in the order
// of mounting; root replaces "/".
func Points(root string) ([]string, error) {
	table, err := os.ReadFile(filepath.Join(root, "/proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("looking up what is mounted: %w", err)
	}
	var points []string
	for line := range strings.Lines(string(table)) {
		// See proc_pid_mountinfo(5).
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points, nil
}

// unescape decodes the kernel's octal escapes.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// At returns a mount point that is path or below it. The kernel lists mount points
// by their real paths, so only the last element of path may be a link.
func At(points []string, path string) (point string, found bool) {
	for _, point := range points {
		if point == path || strings.HasPrefix(point, path+"/") {
			return point, true
		}
	}
	return "", false
}
