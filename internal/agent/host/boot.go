package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
)

// BootID names this boot. It is a file in memory and not the kernel's boot ID,
// because that one is shared by all containers of a machine.
func (l *Linux) BootID() (string, error) {
	name := RuntimeDir + "/boot-id"
	data, err := os.ReadFile(l.path(name))
	if err == nil && len(strings.TrimSpace(string(data))) > 0 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the mark of this boot: %w", err)
	}
	if err := os.MkdirAll(l.path(RuntimeDir), 0o750); err != nil {
		return "", fmt.Errorf("making %s: %w", RuntimeDir, err)
	}
	id := rand.Text()
	if err := durable.WriteFile(l.path(name), []byte(id+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("marking this boot: %w", err)
	}
	return id, nil
}
