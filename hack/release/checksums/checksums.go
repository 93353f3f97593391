// Package checksums writes and checks the file SHA256SUMS of a folder, in the format of
// sha256sum.
package checksums

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
)

// File is the name of the file with the digests.
const File = "SHA256SUMS"

// Write writes the digests of all files in a folder.
func Write(folder string) error {
	sums, err := read(folder)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	return os.WriteFile(filepath.Join(folder, File), []byte(text.String()), 0o644)
}

// Check returns an error that names each file that is missing, is not in SHA256SUMS, or has
// another digest there.
func Check(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, File))
	if err != nil {
		return fmt.Errorf("reading the digests: %w", err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(sum) != 2*sha256.Size || want[name] != "" {
			return fmt.Errorf("%s: %q is no digest and the name of a file, or names a file twice", File, strings.TrimSpace(line))
		}
		want[name] = sum
	}
	got, err := read(folder)
	if err != nil {
		return err
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch sum, ok := got[name]; {
		case !ok:
			wrong = append(wrong, fmt.Errorf("%s is missing", name))
		case sum != want[name]:
			wrong = append(wrong, fmt.Errorf("%s has the digest %s, not %s", name, sum, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == "" {
			wrong = append(wrong, fmt.Errorf("%s is not in %s", name, File))
		}
	}
	return errors.Join(wrong...)
}

// Sum returns the SHA-256 of a file in hex.
func Sum(name string) (_ string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// read returns the digests of all files but SHA256SUMS, by name.
func read(folder string) (map[string]string, error) {
	files, err := archive.Tree(folder)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, f := range files {
		if f.Name == File {
			continue
		}
		if sums[f.Name], err = Sum(f.Path); err != nil {
			return nil, fmt.Errorf("computing digests: %w", err)
		}
	}
	return sums, nil
}
