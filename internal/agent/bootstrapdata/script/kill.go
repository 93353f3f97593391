package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Kill kills the script that runs in dir, and its children. The script's runner leads a
// session of its own, by which Kill finds it. Kill does nothing, and returns false, if the
// script has ended or was not started.
func Kill(dir string) (killed bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, startedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for a script: %w", err)
	}
	// Without a process of that ID, or with one that runs something else, the script has ended.
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if pid <= 0 || !isRunner(pid, dir) {
		return false, nil
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("ending the script in %s: %w", dir, err)
	}
	return true, nil
}

// isRunner reports whether a process runs the script in dir.
func isRunner(pid int, dir string) bool {
	command, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.HasSuffix(string(command), "\x00"+dir+"\x00")
}
