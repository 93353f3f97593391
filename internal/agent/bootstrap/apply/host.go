package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// host is the host that an operation works on, with the operation's progress.
type host struct {
	opts     Options
	progress Progress
	// resumed is true while a step is executed that an earlier process began.
	resumed bool
}

func newHost(opts Options) (*host, error) {
	if opts.Chown == nil {
		opts.Chown = os.Chown
	}
	h := &host{opts: opts}
	if opts.Journal == nil {
		return h, nil
	}
	var err error
	if h.progress, err = opts.Journal.Load(); err != nil {
		return nil, fmt.Errorf("loading the progress of the bootstrap: %w", err)
	}
	return h, nil
}

// journalError keeps a disk that cannot be written to from being taken for a
// failure of the document.
type journalError struct{ error }

func (e *journalError) Unwrap() error { return e.error }

func (h *host) save() error {
	if err := h.opts.Journal.Save(h.progress); err != nil {
		return &journalError{fmt.Errorf("saving the progress of the bootstrap: %w", err)}
	}
	return nil
}

func (h *host) manifest() *Manifest { return &h.progress.Manifest }

// warn records a warning once, also when its step is repeated.
func (h *host) warn(format string, args ...any) {
	text := bootstrap.Redact(fmt.Sprintf(format, args...))
	h.progress.Warnings = add(h.progress.Warnings, text)
}

func (h *host) run(ctx context.Context, args ...string) error {
	_, err := h.output(ctx, args...)
	return err
}

func (h *host) output(ctx context.Context, args ...string) (string, error) {
	out, err := h.opts.System.Run(ctx, Command{Args: args})
	if err != nil {
		return "", fmt.Errorf("running %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// real is where a resolved path of the host is found.
func (h *host) real(path string) string { return filepath.Join(h.opts.Root, path) }

const maxLinks = 40

// resolve follows all symbolic links of a path, the last one included, as if
// Root were "/". What does not exist stays as it is written.
func (h *host) resolve(path string) (string, error) {
	todo := strings.Split(path, "/")
	at := "/"
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		next := filepath.Join(at, part) // ".." ends at "/"
		if next == at || part == ".." {
			at = next
			continue
		}
		info, err := os.Lstat(h.real(next))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", fmt.Errorf("resolving %s: %w", path, err)
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}
		links++
		if links > maxLinks {
			return "", fmt.Errorf("resolving %s: too many symbolic links", path)
		}
		to, err := os.Readlink(h.real(next))
		if err != nil {
			return "", fmt.Errorf("resolving %s: %w", path, err)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	return at, nil
}

// stat follows links; it returns nil for what does not exist.
func (h *host) stat(path string) (fs.FileInfo, error) {
	target, err := h.resolve(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(h.real(target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	return info, nil
}

func (h *host) exists(path string) bool {
	info, err := h.stat(path)
	return err == nil && info != nil
}

// read returns nil for a file that does not exist.
func (h *host) read(path string) ([]byte, error) {
	target, err := h.resolve(path)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(h.real(target))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return text, nil
}

// program finds an executable of the host, or returns "".
func (h *host) program(names ...string) string {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/systemd", "/lib/systemd"} {
			info, err := h.stat(dir + "/" + name)
			if err == nil && info != nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return name
			}
		}
	}
	return ""
}
