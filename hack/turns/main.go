package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

func main() {
	left := flag.Duration("time", 30*time.Minute, "time for all turns")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *left)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

// run runs turns for the given time. Its error says which ones failed.
func run(ctx context.Context, left time.Duration) error {
	cache, err := toolset.CacheDir()
	if err != nil {
		return err
	}
	file := filepath.Join(cache, "turns.json")
	passed, err := read(file)
	if err != nil {
		return err
	}
	r := runner{end: time.Now().Add(left), passed: passed, file: file, out: os.Stdout, now: time.Now, execute: execute}
	failed, err := r.run(ctx, groups())
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, "; "))
	}
	return nil
}
