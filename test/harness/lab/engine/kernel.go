package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// inotify returns the minimum inotify limits of a lab. All containers of a machine share these
// limits, because root in each is the same user. With the kernel's defaults, which suit one
// machine, further kubelets do not start.
func inotify() map[string]int {
	return map[string]int{"max_user_instances": 8192, "max_user_watches": 524288}
}

// raiseLimits raises kernel limits that are too low for a lab. They stay raised, because other
// programs may rely on them by then.
func raiseLimits(folder string) error {
	for name, want := range inotify() {
		path := filepath.Join(folder, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a kernel limit: %w", err)
		}
		is, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("reading kernel limit %s: %w", path, err)
		}
		if is >= want {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(want)), 0o600); err != nil {
			return fmt.Errorf("raising fs.inotify.%s from %d to %d (as root: sysctl -w fs.inotify.%s=%d): %w", name, is, want, name, want, err)
		}
	}
	return nil
}
