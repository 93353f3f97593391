package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle/build"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// buildFlags are the flags of the build command.
type buildFlags struct{ version, arch, from, output string }

func buildCommand() subcommand.Command {
	return subcommand.Command{
		Name: "build", Summary: "Build a bundle from a folder",
		Details: "Takes the files of these folders in the folder of --from, and refuses any other file:\n\n" +
			"  bin/     programs for /usr/local/bin: kubeadm, kubectl, kubelet, and what else hosts need\n" +
			"  cni/     programs for /opt/cni/bin\n" +
			"  units/   systemd units and their drop-ins for /etc/systemd/system\n" +
			"  files/   a tree as on the host, such as files/etc/containerd/config.toml\n" +
			"  images/  tar archives of images\n\n" +
			"The same files always make the same bundle. At the end it prints what an\nElementalKubernetesRelease needs.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			f := &buildFlags{}
			flags.StringVar(&f.version, "version", "", "the version of Kubernetes, such as v1.36.3 (required)")
			flags.StringVar(&f.arch, "arch", runtime.GOARCH, "the architecture of the hosts: "+strings.Join(bundle.Architectures(), " or "))
			flags.StringVar(&f.from, "from", "", "the folder with the files (required)")
			flags.StringVar(&f.output, "output", "", "the bundle to write (required)")
			return func(ctx context.Context, s subcommand.Streams, args []string) error {
				if err := f.check(args); err != nil {
					return subcommand.Usage(err)
				}
				return f.build(ctx, s)
			}
		},
	}
}

func (f *buildFlags) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case f.version == "":
		return errors.New("--version is missing: name the version of Kubernetes, such as v1.36.3")
	case f.from == "":
		return errors.New("--from is missing: name the folder with the files")
	case f.output == "":
		return errors.New("--output is missing: name the bundle to write")
	}
	return nil
}

func (f *buildFlags) build(ctx context.Context, s subcommand.Streams) error {
	b, err := build.Scan(ctx, build.Options{From: f.from, Version: f.version, Architecture: f.arch, Limits: bundle.DefaultLimits()})
	if err != nil {
		return err
	}
	err = b.CheckVersions(ctx)
	if errors.Is(err, build.ErrOtherMachine) {
		_, err = fmt.Fprintf(s.Err, "Note: versions were not checked: %v\n", err)
	}
	if err != nil {
		return err
	}
	digest, size, err := f.write(ctx, b, s.Err)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "version: %s\nbundles:\n  - architecture: %s\n    sha256: %s\n    sizeBytes: %d\n", f.version, f.arch, digest, size)
	return err
}

// write writes the bundle beside the output first, so that the output is always complete.
func (f *buildFlags) write(ctx context.Context, b *build.Bundle, progress io.Writer) (digest string, size int64, err error) {
	folder := filepath.Dir(f.output)
	file, err := os.CreateTemp(folder, ".bundle-*")
	if err != nil {
		return "", 0, fmt.Errorf("writing the bundle: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	sum := sha256.New()
	err = b.Write(ctx, io.MultiWriter(file, sum), func(f bundle.File) {
		_, _ = fmt.Fprintf(progress, "%12s  %s\n", readable(f.Size), f.Name)
	})
	if err == nil {
		err = checkSize(file, &size)
	}
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return "", 0, fmt.Errorf("writing the bundle: %w", err)
	}
	if err := os.Rename(file.Name(), f.output); err != nil {
		return "", 0, fmt.Errorf("replacing the bundle: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), size, durable.SyncDir(folder)
}

// checkSize returns the size of a bundle. A larger one than agents accept is an error.
func checkSize(file *os.File, size *int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if limit := bundle.DefaultLimits().BundleBytes; info.Size() > limit {
		return fmt.Errorf("it has %d bytes, and the limit is %d: leave out images, which hosts can pull", info.Size(), limit)
	}
	*size = info.Size()
	return nil
}

// readable is a size for people.
func readable(size int64) string {
	if size < 1<<20 {
		return fmt.Sprintf("%d B", size)
	}
	return fmt.Sprintf("%.1f MiB", float64(size)/(1<<20))
}
