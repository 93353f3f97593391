// Package programs builds the commands of this repository as a release has them: the same
// sources and the same version of Go give the same bytes, on any machine and in any folder.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Builder builds commands of one commit.
type Builder struct {
	// Root is the root folder of the checkout.
	Root string
	// Version is what the programs report.
	Version string
	// Time is the time of the commit, see CommitTime.
	Time time.Time
}

// Build builds a command of the folder cmd for Linux on an architecture of Go, into a file.
func (b Builder) Build(ctx context.Context, command, architecture, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	flags := fmt.Sprintf("-s -w -X main.version=%s -X main.buildTime=%s", b.Version, b.Time.UTC().Format(time.RFC3339))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", out, "./cmd/"+command)
	cmd.Dir = b.Root
	// What a user has set for Go must not change the bytes.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s for %s: %w\n%s", command, architecture, err, text)
	}
	return nil
}

// CommitTime returns SOURCE_DATE_EPOCH if it is set, otherwise the time of the checkout's last
// commit.
func CommitTime(ctx context.Context, root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("reading the time of the last commit: %w: set SOURCE_DATE_EPOCH where the sources are not in git", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// Changed reports whether the checkout has changes that are not committed, so that nobody else
// can build the same bytes. Without git it reports false.
func Changed(ctx context.Context, root string) bool {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "status", "--porcelain").Output()
	return err == nil && len(out) > 0
}
