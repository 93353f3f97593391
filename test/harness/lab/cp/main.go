// Command cp copies a file, for images of the lab that have no programs of Debian: an init container of flannel runs
// "cp -f SOURCE TARGET".
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cp:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 || args[0] != "-f" {
		return fmt.Errorf("got arguments %q, want: -f SOURCE TARGET", args)
	}
	source, err := os.Open(args[1])
	if err != nil {
		return fmt.Errorf("opening the source: %w", err)
	}
	defer func() { _ = source.Close() }()
	info, err := source.Stat()
	if err != nil {
		return fmt.Errorf("looking at the source: %w", err)
	}
	// A program that runs can't be written, but replaced.
	temporary := args[2] + ".new"
	target, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("making the target: %w", err)
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return fmt.Errorf("copying: %w", err)
	}
	if err := target.Close(); err != nil {
		return fmt.Errorf("writing the target: %w", err)
	}
	if err := os.Rename(temporary, args[2]); err != nil {
		return fmt.Errorf("placing the target: %w", err)
	}
	return nil
}
