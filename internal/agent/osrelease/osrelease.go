// Package osrelease reads os-release(5), by which an operating system names itself.
package osrelease

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxBytes limits how much of the file is read.
const maxBytes = 64 << 10

// Read returns the fields of the host below root, such as ID and VERSION_ID, without
// quotes. There are none if the host has no such file.
func Read(root string) (map[string]string, error) {
	file, err := os.Open(filepath.Join(root, "/etc/os-release"))
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open(filepath.Join(root, "/usr/lib/os-release"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading os-release: %w", err)
	}
	defer func() { _ = file.Close() }()
	fields := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(file, maxBytes))
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && !strings.HasPrefix(key, "#") {
			fields[key] = unquote(value)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading os-release: %w", err)
	}
	return fields, nil
}

// unquote removes the shell quotes from a value.
func unquote(value string) string {
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		return value[1 : len(value)-1]
	}
	return value
}
