package bootstrap

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/jinja"
)

// The formats of bootstrap data that Cluster API defines.
const (
	FormatCloudConfig = "cloud-config"
	FormatIgnition    = "ignition"
)

// maxDocument bounds a document after decompression, in bytes. A Secret holds
// 1 MiB; this is what a gzip in it may grow to.
const maxDocument = 16 << 20

const (
	headerCloudConfig = "#cloud-config"
	headerJinja       = "## template: jinja"
)

// Parse reads bootstrap data. format is the Secret's, where "" means
// cloud-config and everything else that cloud-init takes: scripts, and MIME
// messages of both. vars are what a jinja template may use. It is pure: the
// same input gives the same Config, which the caller owns.
//
// An error is a *ParseError. The document is checked as a whole, so that a
// Config either can be executed as far as the document is concerned, or does
// not exist.
func Parse(data []byte, format string, vars Variables) (*Config, []Warning, error) {
	switch format {
	case "", FormatCloudConfig:
	case FormatIgnition:
		return parseIgnition(data)
	default:
		return nil, nil, failure(0, "bootstrap data has the unknown format %q; known are %q and %q", format, FormatCloudConfig, FormatIgnition)
	}
	text, err := readText(data)
	if err != nil {
		return nil, nil, err
	}
	parts, err := split(text)
	if err != nil {
		return nil, nil, err
	}
	return assemble(parts, vars)
}

// readText unpacks a document and refuses what is no text.
func readText(data []byte) (string, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unpacked, err := gunzip(data, maxDocument)
		if err != nil {
			return "", failure(0, "decompressing the document: %v", err)
		}
		data = unpacked
	}
	switch {
	case len(data) > maxDocument:
		return "", failure(0, "the document has %d bytes, more than the %d allowed", len(data), maxDocument)
	case len(bytes.TrimSpace(data)) == 0:
		return "", failure(0, "the document is empty")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return "", failure(1, "the document starts with a byte-order mark, which hides its header; save it as UTF-8 without one")
	}
	if !utf8.Valid(data) {
		line := 1
		for rest := data; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			if r == utf8.RuneError && n == 1 {
				break
			}
			if r == '\n' {
				line++
			}
			rest = rest[n:]
		}
		return "", failure(line, "the document is not UTF-8")
	}
	return string(data), nil
}

var errTooLarge = errors.New("it grows beyond the size allowed")

// gunzip decompresses at most limit bytes.
func gunzip(data []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading the gzip header: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("gzip data is truncated or damaged: %w", err)
	}
	if int64(len(out)) > limit {
		return nil, errTooLarge
	}
	return out, r.Close()
}

// render executes a jinja template, and remembers how lines of its output
// relate to lines of the document.
func (d *decoder) render(text string, vars Variables) (string, error) {
	if !strings.HasPrefix(strings.ToLower(strings.TrimLeft(text, " \t\r\n")), headerJinja) {
		return text, nil
	}
	header, rest, _ := strings.Cut(text, "\n")
	if strings.TrimSpace(header) == "" {
		return "", failure(1, "%q has to be the first line", headerJinja)
	}
	if strings.ToLower(strings.TrimSpace(header)) != headerJinja {
		return "", failure(1, "unknown template header %q; write %q", strings.TrimSpace(header), headerJinja)
	}
	out, missing, err := jinja.Render(rest, vars)
	if err != nil {
		if at, ok := errors.AsType[*jinja.Error](err); ok {
			return "", failure(at.Line+1, "jinja: %s", at.Reason)
		}
		return "", failure(0, "rendering jinja: %v", err)
	}
	d.offset = 1
	d.rendered = strings.Count(out, "\n") != strings.Count(rest, "\n")
	for _, name := range missing {
		d.warn(0, "the jinja variable %q is undefined; %s%s stands in its place", name, jinja.MissingPrefix, name)
	}
	return out, nil
}

// place turns the line of a YAML text into the line of the document.
func (d *decoder) place(err error) error {
	var at *ParseError
	if errors.As(err, &at) && at.Line > 0 {
		at.Rendered = d.rendered
		if !d.rendered {
			at.Line += d.offset
		}
	}
	return err
}
