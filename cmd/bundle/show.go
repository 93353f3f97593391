package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

func showCommand() subcommand.Command {
	return subcommand.Command{
		Name: "show", Arguments: "FILE", Summary: "Verify a bundle and print what is in it",
		Details: "Reads the whole bundle, verifies it as hosts do, and prints its SHA-256 and its files.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			output := flags.StringP("output", "o", "text", "text, or json for the bundle's manifest as it is")
			return func(ctx context.Context, s subcommand.Streams, args []string) error {
				if len(args) != 1 {
					return subcommand.Usage(errors.New("show takes the path of one bundle"))
				}
				if *output != "text" && *output != "json" {
					return subcommand.Usage(fmt.Errorf("--output %q is unknown: use text or json", *output))
				}
				return show(ctx, s.Out, args[0], *output == "json")
			}
		},
	}
}

func show(ctx context.Context, w io.Writer, path string, asJSON bool) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum, size := sha256.New(), counter(0)
	manifest, err := verify(ctx, io.TeeReader(file, io.MultiWriter(sum, &size)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !asJSON {
		return describe(w, manifest, hex.EncodeToString(sum.Sum(nil)), int64(size))
	}
	data, err := manifest.Encode()
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// counter counts bytes that are written to it.
type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

// verify reads all of a bundle.
func verify(ctx context.Context, r io.Reader) (bundle.Manifest, error) {
	reader, err := bundle.NewReader(ctx, r, bundle.DefaultLimits())
	if err != nil {
		return bundle.Manifest{}, err
	}
	defer reader.Close()
	for {
		// Next reads each file to its end.
		if _, _, err = reader.Next(); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		return bundle.Manifest{}, err
	}
	return reader.Manifest(), nil
}

func describe(w io.Writer, m bundle.Manifest, digest string, size int64) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "Kubernetes:\t%s\nArchitecture:\t%s\nSHA-256:\t%s\nSize:\t%s, unpacked %s\n\n",
		m.KubernetesVersion, m.Architecture, digest, readable(size), readable(m.UnpackedBytes()))
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(table, "NAME\tKIND\tPATH\tMODE\tSIZE\tSHA-256\n")
	for _, f := range m.Files {
		fmt.Fprintf(table, "%s\t%s\t%s\t%04o\t%d\t%s\n", f.Name, f.Kind, cmp.Or(f.Path, "-"), uint32(f.Mode), f.Size, f.SHA256)
	}
	return table.Flush()
}
